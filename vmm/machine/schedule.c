/*
 * Whose turn it is among several vCPUs. One runs at a time, for so many positions; then the next
 * one that can run has its turn, and sooner where one halts, or says by PAUSE that it waits. All of
 * it follows from the machine's state, so that nothing of it is in the log; the rule is part of
 * what a recording means (docs/determinism.md). Besides, an input may say whose turn it is, and
 * chaos (chaos.c) ends turns and gives them to others.
 *
 * Where positions are branches turns are so many of those (clock_turns()), and PAUSE says nothing:
 * nobody sees it. Whoever waits in a loop is found by its registers, and where nothing in the loop
 * counts an input ends the turn (INPUT_PLACE).
 */
#include <stddef.h>
#include <string.h>

#include "dev/lapic.h"
#include "machine/internal.h"

#define TURN 100000u /* positions */

/*
 * From revision 8 on a turn goes on at its end: to the second length while nobody waits, to the
 * last one while nobody is woken either. What is in the host's caches is of use for longer then.
 */
static const pos_t lengths[SCHEDULE_LENGTHS] = {TURN, 500000, 2000000};

/*
 * A loop that waits without PAUSE: the general registers and RIP are twice the same, SPIN positions
 * apart, which is a multiple of the length of most short loops. It need not be true that nothing
 * else has changed: whoever is taken for one that waits gives the turn on, and has it again. So far
 * into a turn they are looked at, while another vCPU can run: twice for each of its lengths; before
 * revision 8 twice as often.
 */
#define SPIN 2520u /* of 1 to 10, 12, 14, 15, 18, 20, 21 ... */
static const pos_t looks[] = {2000, 2000 + SPIN, 200000, 200000 + SPIN, 1000000, 1000000 + SPIN},
                   looks_before[] = {2000, 2000 + SPIN, 30000, 30000 + SPIN};

bool schedule_nmi_pending(const struct machine_cpu *c)
{
    const struct machine *m = c->m;
    unsigned i = (unsigned)(c - m->cpu);
    return i ? m->st.nmi >> i & 1 : m->st.nmi_pending;
}

void schedule_nmi(struct machine *m, unsigned cpu, bool pending)
{
    if (!cpu)
        m->st.nmi_pending = pending;
    else if (cpu < m->ncpus)
        m->st.nmi = (m->st.nmi & ~(1u << cpu)) | (u32)pending << cpu;
}

/* Whoever has the turn gives it on, instead of going on for longer. */
static void waits(const struct machine_cpu *c)
{
    if (schedule_grows(c->m))
        c->m->st.waits |= 1u << (c - c->m->cpu);
}

/* INIT to the first one is ignored: there is no firmware that it would begin in. */
void schedule_init(struct machine *m, unsigned cpu)
{
    if (cpu && cpu < m->ncpus) {
        m->cpu[cpu].init = true;
        m->cpu[cpu].start = false;
    }
}

void schedule_start(struct machine *m, unsigned cpu, u8 vector)
{
    if (cpu && cpu < m->ncpus) {
        m->cpu[cpu].start = true;
        m->cpu[cpu].start_vector = vector;
    }
}

/* Machines before revision 5 had most MSRs as after a reset. */
static void keep_msrs(struct vcpu *v, const struct vcpu *was, u32 revision)
{
    static const size_t first = offsetof(struct vcpu, star), end = offsetof(struct vcpu, xsave);
    if (revision >= 5) {
        memcpy((u8 *)v + first, (const u8 *)was + first, end - first);
        return;
    }
    v->pat = was->pat;
    v->misc_enable = was->misc_enable;
    v->tsc_adjust = was->tsc_adjust;
    v->tsc_aux = was->tsc_aux;
}

/* Family, model and stepping. */
static u32 signature(const struct machine *m)
{
    struct cpuid_live live = {.words = m->cpu_kind.words};
    struct cpuid_result r;
    cpu_model_cpuid(m->cpu_kind.model, 1, 0, &live, &r);
    return r.eax;
}

/* SDM vol. 3, table 10-1: what INIT leaves as it is. Of MSRs that is all but EFER, FS's and GS's
 * base and the local APIC's. */
static void init(struct machine_cpu *c)
{
    const u64 caching = CR0_CD | CR0_NW;
    struct vcpu *v = engine_vcpu(c->engine), was;
    engine_sync(c->engine);
    was = *v;
    vcpu_reset(v);
    v->cr0 = (v->cr0 & ~caching) | (was.cr0 & caching);
    v->position = was.position;
    v->xcr0 = was.xcr0;
    memcpy(v->xsave, was.xsave, sizeof(was) - offsetof(struct vcpu, xsave)); /* and AVX-512's */
    keep_msrs(v, &was, c->m->revision);
    if (c->m->revision >= 5)
        v->gpr[RDX] = signature(c->m);
    v->halted = VCPU_WAITS_FOR_SIPI;
    engine_changed(c->engine);
    lapic_init_reset(c->lapic);
    schedule_nmi(c->m, (unsigned)(c - c->m->cpu), false);
}

/* SDM vol. 3, 8.4.4: the vector is the page where it begins in real-address mode. */
static void start(struct machine_cpu *c)
{
    struct vcpu *v = engine_vcpu(c->engine);
    if (v->halted != VCPU_WAITS_FOR_SIPI)
        return;
    engine_sync(c->engine);
    v->halted = 0;
    v->rip = 0;
    v->seg_sel[SEG_CS] = (u16)(c->start_vector << 8);
    v->seg_base[SEG_CS] = (u64)c->start_vector << 12;
    engine_changed(c->engine);
    waits(c);
}

void schedule_starts(struct machine *m)
{
    for (unsigned i = 1; i < m->ncpus; i++) {
        struct machine_cpu *c = &m->cpu[i];
        if (c->init)
            init(c);
        if (c->start)
            start(c);
        c->init = c->start = false;
    }
}

/* Is there something that it takes at once? */
static bool is_called(const struct machine_cpu *c)
{
    return (schedule_nmi_pending(c) && engine_can_nmi(c->engine)) ||
           (bus_interrupt(c) >= 0 && engine_can_interrupt(c->engine));
}

static bool can_run(const struct machine_cpu *c)
{
    switch (engine_vcpu(c->engine)->halted) {
    case 0: return true;
    case VCPU_WAITS_FOR_SIPI: return false;
    default: return is_called(c);
    }
}

static NOINLINE u32 look_who_can(const struct machine *m)
{
    u32 all = 0;
    for (unsigned i = 0; i < m->ncpus; i++)
        all |= (u32)can_run(&m->cpu[i]) << i;
    return all;
}

/* Those that can run, a bit for each. */
static u32 able(const struct machine *m)
{
    return m->able_known ? m->able : look_who_can(m);
}

bool schedule_can_run(const struct machine_cpu *c)
{
    const struct machine *m = c->m;
    return m->able_known ? m->able >> (c - m->cpu) & 1 : can_run(c);
}

void schedule_know(struct machine *m)
{
    m->able_known = m->ncpus > 1 && schedule_hears(m);
    if (m->able_known)
        m->able = look_who_can(m);
}

/* The next one after that which can run, itself last; NULL: none can. */
static struct machine_cpu *next(struct machine *m, const struct machine_cpu *after)
{
    u32 all = able(m), behind = all & ~((2u << (after - m->cpu)) - 1);
    return all ? &m->cpu[__builtin_ctz(behind ? behind : all)] : NULL;
}

bool schedule_alone(const struct machine_cpu *c)
{
    return next(c->m, c) == c;
}

void schedule_pause(struct machine_cpu *c)
{
    struct machine *m = c->m;
    if (!schedule_hears(m) || schedule_alone(c))
        return;
    if (m->st.chaos)
        chaos_pause(c);
    m->st.turn_end = clock_turns(m) + 1; /* when it has retired */
    m->st.grown = 0;
    waits(c);
    m->paused = true;
    engine_attention(c->engine);
}

void schedule_sync(struct machine_cpu *c)
{
    struct machine *m = c->m;
    if (m->st.chaos && next(m, c) != c && chaos_sync(c))
        engine_attention(c->engine);
}

void schedule_end(struct machine *m)
{
    if (m->st.chaos && !schedule_alone(m->turn))
        chaos_pause(m->turn);
    m->st.turn_end = MIN(m->st.turn_end, clock_turns(m));
}

static void settle(struct machine *m, pos_t here)
{
    if (here > m->st.turn_end) {
        m->st.turn_end += (here - m->st.turn_end + TURN - 1) / TURN * TURN;
        /* As where a run stops at a turn's end. Before, it was what the last look that was in one
         * had seen, so it followed from where runs stop. */
        if (m->revision >= 7)
            m->st.spin = 0;
        m->st.grown = 0;
    }
    if (m->st.chaos && here > m->st.chaos_end)
        m->st.chaos_end = chaos_settled(m, here);
}

void schedule_settle(struct machine *m)
{
    settle(m, clock_turns(m));
}

bool schedule_hears(const struct machine *m)
{
    return m->unit == UNIT_INSN;
}

bool schedule_spins(const struct machine *m)
{
    return m->revision >= 6 && m->ncpus > 1;
}

bool schedule_grows(const struct machine *m)
{
    return m->revision >= 8 && m->ncpus > 1 && schedule_hears(m);
}

/* Where the turn is looked at, as far as it goes now. */
struct looks {
    pos_t began; /* the turn */
    const pos_t *at;
    size_t n;
};

static struct looks looks_of(const struct machine *m)
{
    pos_t length = lengths[m->st.grown];
    if (!schedule_spins(m) || m->st.turn_end < length)
        return (struct looks){0};
    pos_t began = m->st.turn_end - length;
    if (!schedule_grows(m))
        return (struct looks){began, looks_before, ARRAY_SIZE(looks_before)};
    return (struct looks){began, looks, 2 * (m->st.grown + 1u)};
}

/* The next look after `here`; NEVER: no more in this turn. */
static pos_t next_look(const struct machine *m, pos_t here)
{
    struct looks l = looks_of(m);
    for (size_t i = 0; i < l.n; i++)
        if (l.began + l.at[i] > here)
            return l.began + l.at[i];
    return NEVER;
}

/* Does the one whose turn it is wait in a loop for another one, which can run? */
static bool is_spinning(struct machine *m, pos_t here)
{
    struct looks l = looks_of(m);
    for (size_t i = 0; i < l.n; i++) {
        if (l.began + l.at[i] != here)
            continue;
        if (next(m, m->turn) == m->turn || (!schedule_hears(m) && m->st.looked == here))
            return false;
        m->st.looked = here;
        struct vcpu *v = engine_vcpu(m->turn->engine);
        engine_sync(m->turn->engine);
        u64 now = XXH3_64bits_withSeed(v->gpr, sizeof(v->gpr), v->rip);
        if (i % 2)
            return now == m->st.spin;
        m->st.spin = now;
    }
    return false;
}

static void give(struct machine *m, struct machine_cpu *to, pos_t here)
{
    /* What others write decides which of its flags are live from now on (x86/flags.c). */
    if (to != m->turn)
        engine_ram_writing(m->turn->engine);
    clock_turn(m, to);
    m->turn = to;
    m->st.turn = (u32)(to - m->cpu);
    m->st.turn_end = here + TURN;
    m->st.spin = 0;
    m->st.grown = 0;
    m->st.waits &= ~(1u << m->st.turn);
}

static void tell(const struct machine *m, const struct machine_cpu *to, bool plain)
{
    if (!m->switched)
        return;
    const struct machine_switch s = {.cpu = m->st.turn,
                                     .to = (u32)(to - m->cpu),
                                     .count = engine_count(m->turn->engine),
                                     .plain = plain};
    m->switched(m->switched_opaque, &s);
}

/* One that can run waits for the turn. */
static bool is_waited_for(const struct machine *m)
{
    return m->st.waits & able(m);
}

/* One that was halted has an interrupt to take. */
static bool is_woken(const struct machine *m)
{
    for (u32 left = able(m); left; left &= left - 1)
        if (engine_vcpu(m->cpu[__builtin_ctz(left)].engine)->halted)
            return true;
    return false;
}

/* At its end: does the turn go on? Nobody waits from now on in it, as nobody else runs. */
static bool grows(struct machine *m, pos_t here)
{
    unsigned to = m->st.grown + 1u;
    if (!schedule_grows(m) || to == SCHEDULE_LENGTHS || here != m->st.turn_end ||
        !schedule_can_run(m->turn) || schedule_alone(m->turn) || is_waited_for(m) ||
        (to > 1 && is_woken(m)))
        return false;
    m->st.turn_end += lengths[to] - lengths[m->st.grown];
    m->st.grown = (u8)to;
    return true;
}

/* Of a turn that would only go on while nobody is woken. One is where a run stops: it is sent an
 * interrupt, or the machine takes an input. */
static bool is_cut_short(const struct machine *m)
{
    return m->st.grown > 1 && is_woken(m);
}

void schedule_turn(struct machine *m)
{
    pos_t here = clock_turns(m);
    settle(m, here);
    bool over = here >= m->st.turn_end || !schedule_can_run(m->turn);
    if (over ? grows(m, here) : is_cut_short(m))
        over = !over;
    if (!over && is_spinning(m, here)) {
        over = true;
        waits(m->turn);
        if (m->st.chaos)
            chaos_pause(m->turn);
    }
    if (!over && (!m->st.chaos || here < m->st.chaos_end))
        return;
    struct machine_cpu *plain = next(m, m->turn), *to = plain;
    if (!plain)
        return;
    /* Nobody looks where no other one can run: nothing happens but what schedule_settle() does. */
    if (m->st.chaos && plain != m->turn)
        to = chaos_choose(m, plain, over);
    if (!over && to == m->turn)
        return;
    bool as_without = to == (over ? plain : m->turn);
    if (to != m->turn || !as_without)
        tell(m, to, as_without);
    give(m, to, here);
}

void schedule_give(struct machine *m, unsigned cpu)
{
    tell(m, &m->cpu[cpu], false);
    give(m, &m->cpu[cpu], clock_turns(m));
}

pos_t schedule_left(struct machine *m)
{
    pos_t here = clock_turns(m), end = MIN(m->st.turn_end, next_look(m, here));
    return (m->st.chaos ? MIN(end, m->st.chaos_end) : end) - here;
}

bool schedule_wakes(const struct machine *m)
{
    for (unsigned i = 0; i < m->ncpus; i++) {
        const struct vcpu *v = engine_vcpu(m->cpu[i].engine);
        if (v->halted == 1 && (v->rflags & FL_IF))
            return true;
    }
    return false;
}

void schedule_loaded(struct machine *m)
{
    bus_sync(m, m->st.chaos);
    m->turn = &m->cpu[m->st.turn];
    m->seen = NULL;
}
