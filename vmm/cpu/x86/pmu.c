/*
 * The guest's performance counters (pmu.h). Registers are vcpu.perf, laid out below; what they say
 * is worked out when they change (configure), and what happened since is added when somebody looks
 * (pmu_sync). The run loop does not go beyond an overflow that interrupts, so that it comes after
 * the instruction that made it, wherever slices end.
 */
#include "cpu/x86/pmu.h"

#include <Zydis/Mnemonic.h>

#include "cpu/x86/cond.h"
#include "cpu/x86/lbr.h"
#include "cpu/x86/park.h"
#include "cpu/x86/tlb.h"

#define MSR_PMC           0x0c1u
#define MSR_EVTSEL        0x186u
#define MSR_DEBUGCTL      0x1d9u
#define MSR_FIXED         0x309u
#define MSR_PERF_CAP      0x345u
#define MSR_FIXED_CTRL    0x38du
#define MSR_GLOBAL_STATUS 0x38eu
#define MSR_GLOBAL_CTRL   0x38fu
#define MSR_GLOBAL_RESET  0x390u /* IA32_PERF_GLOBAL_OVF_CTRL */
#define MSR_GLOBAL_SET    0x391u
#define MSR_GLOBAL_INUSE  0x392u
#define MSR_FULL_PMC      0x4c1u
#define MSR_AMD_CORE      0xc0010200u /* PERF_CTL0, PERF_CTR0, PERF_CTL1, ... */
#define MSR_AMD_LEGACY    0xc0010000u /* four of each, first PERF_CTLs */

/* Of vcpu.perf. Intel's: */
enum {
    P_PMC = 0,
    P_FIXED = 4,
    P_SEL = 7,
    P_GLOBAL_CTRL = 11,
    P_STATUS = 12,
    /* Bits 0 to 15: DEBUGCTL; from FIXED_SHIFT on IA32_FIXED_CTR_CTRL; from EDGE_SHIFT on, of
     * counters of edges: what the last cycle was. */
    P_MISC = 13,
};
#define FIXED_SHIFT 16
#define EDGE_SHIFT  48
#define GENERAL_MAX 4
#define FIXED_MAX   3
/* AMD's: */
enum { P_AMD_CTR = 0, P_AMD_SEL = 6 };

#define SEL_USER   (1u << 16)
#define SEL_OS     (1u << 17)
#define SEL_EDGE   (1u << 18)
#define SEL_INT    (1u << 20)
#define SEL_ANY    (1u << 21)
#define SEL_ENABLE (1u << 22)
#define SEL_INVERT (1u << 23)

#define FIXED_ANY 4u
#define FIXED_INT 8u

#define DEBUGCTL_LBR        (1u << 0)
#define DEBUGCTL_BTF        (1u << 1)
#define DEBUGCTL_FREEZE_LBR (1u << 11)
#define DEBUGCTL_FREEZE_PMI (1u << 12)

#define STATUS_FIXED 32
/* From version 4 on: */
#define STATUS_LBR_FROZEN (1ull << 58)
#define STATUS_FROZEN     (1ull << 59)

#define S(signal) (1u << SIG_##signal)

static const struct {
    u32 plus, minus;
} made_of[] = {
    [PMU_INSNS] = {S(INSN), 0},
    [PMU_CYCLES] = {S(CYCLE), 0},
    [PMU_REF_CYCLES] = {S(CYCLE), 0},
    [PMU_BRANCHES] = {S(BRANCH), 0},
    [PMU_COND] = {S(COND), 0},
    [PMU_COND_TAKEN] = {S(COND_TAKEN), 0},
    [PMU_COND_NOT_TAKEN] = {S(COND), S(COND_TAKEN)},
    [PMU_NEAR_TAKEN] = {S(NEAR_TAKEN), 0},
    [PMU_NEAR_CALLS] = {S(CALL), 0},
    [PMU_NEAR_RETURNS] = {S(RET), 0},
    [PMU_NEAR_INDIRECT] = {S(INDIRECT), 0},
    [PMU_FAR] = {S(FAR), 0},
    [PMU_BRANCHES_OR_DELIVERIES] = {S(BRANCH) | S(DELIVERY), 0},
    [PMU_TAKEN_OR_DELIVERIES] = {S(NEAR_TAKEN) | S(FAR) | S(DELIVERY), 0},
    [PMU_FAR_OR_DELIVERIES] = {S(FAR) | S(DELIVERY), 0},
    [PMU_INTERRUPTS] = {S(INTERRUPT), 0},
    [PMU_BRANCH_MISSES] = {S(COND_MISS), 0},
    [PMU_COND_MISSES] = {S(COND_MISS), 0},
    [PMU_LLC_MISSES] = {0, 0},
};

u32 pmu_signals(const struct insn *in)
{
    const u32 near = S(BRANCH) | S(NEAR_TAKEN), far = S(BRANCH) | S(FAR);
    u32 indirect = in->op0_kind == OP_IMM ? 0 : S(INDIRECT);
    switch (in->treat) {
    case T_JCC:
    case T_LOOP: return S(BRANCH) | S(COND);
    case T_JMP: return near | indirect;
    case T_CALL: return near | S(CALL) | indirect;
    case T_RET: return near | S(RET);
    default: break;
    }
    if (in->far)
        return far;
    switch (in->mnemonic) {
    case ZYDIS_MNEMONIC_SYSCALL:
    case ZYDIS_MNEMONIC_SYSRET:
    case ZYDIS_MNEMONIC_SYSENTER:
    case ZYDIS_MNEMONIC_SYSEXIT:
    case ZYDIS_MNEMONIC_INT:
    case ZYDIS_MNEMONIC_INT3:
    case ZYDIS_MNEMONIC_INT1:
    case ZYDIS_MNEMONIC_INTO:
    case ZYDIS_MNEMONIC_IRET:
    case ZYDIS_MNEMONIC_IRETD:
    case ZYDIS_MNEMONIC_IRETQ: return in->treat == T_HELP ? far : 0;
    default: return 0;
    }
}

/* An INTO that was a NOP. */
static bool passed_over(const struct core *d, const struct insn *in)
{
    return in->mnemonic == ZYDIS_MNEMONIC_INTO && !(d->flags & FL_OF);
}

/* A conditional branch that has retired: did it jump? Its target may be what follows it. */
static bool went(const struct core *d, const struct insn *in)
{
    return in->treat == T_JCC ? jcc_jumps(d, in) : loop_jumps(d, in, d->cpu.gpr[RCX]);
}

u32 pmu_way_signals(bool taken, bool backward)
{
    return (taken ? S(COND_TAKEN) | S(NEAR_TAKEN) : 0) | (taken != backward ? S(COND_MISS) : 0);
}

static void count(struct core *d, u32 signals)
{
    for (; signals; signals &= signals - 1)
        d->pmu.counted[__builtin_ctz(signals)]++;
}

void pmu_retired(struct core *d, const struct insn *in, u64 from)
{
    u32 signals = pmu_signals(in);
    if (signals & S(COND))
        signals |= pmu_way_signals(went(d, in), in->imm < 0);
    if (passed_over(d, in))
        return;
    count(d, signals);
    if (UNLIKELY(d->pmu.lbr) && signals && (!(signals & S(COND)) || (signals & S(COND_TAKEN))))
        lbr_branch(d, in, signals, from);
}

bool pmu_branched(const struct core *d, const struct insn *in)
{
    u32 signals = pmu_signals(in);
    return signals & S(COND) ? went(d, in) : signals && !passed_over(d, in);
}

/* ---- what the registers say ---- */

static u64 width_mask(const struct core *d)
{
    return (1ull << d->pmu.kind->width) - 1;
}

static bool is_intel(const struct core *d)
{
    return d->pmu.kind->kind == PMU_KIND_INTEL;
}

/*
 * What a counter that is not enabled would count is counted by translated code all the same: an
 * operating system stops and starts counters at each turn of a process, for which code had to be
 * found anew each time.
 */
static void add_counter(struct core *d, struct pmu_counter c, enum pmu_counts counts, bool enabled)
{
    struct pmu *p = &d->pmu;
    c.plus = made_of[counts].plus;
    c.minus = made_of[counts].minus;
    for (unsigned r = 0; r < 2; r++)
        if (c.rings >> r & 1)
            p->signals[r] |= (c.plus | c.minus) & ((1u << SIG_CODE) - 1);
    if (!enabled || !c.rings)
        return;
    p->counter[p->n++] = c;
    p->on = true;
    p->by_ring = p->by_ring || c.rings != 3;
    p->edge = p->edge || c.edge;
}

/* Counter `number` of that vCPU's, for what d does. */
static void add_general(struct core *d, struct core *of, u64 sel, u64 *value, unsigned number,
                        bool enabled)
{
    const struct model_event *event =
        cpu_model_event(d->model, (u16)((sel & 0xff) | (sel >> 24 & 0xf00)), (u8)(sel >> 8));
    add_counter(
        d,
        (struct pmu_counter){.value = value,
                             .of = of,
                             .rings = (u8)((sel & SEL_OS ? 1 : 0) | (sel & SEL_USER ? 2 : 0)),
                             .status = (u8)number,
                             .threshold = (u8)(sel >> 24),
                             .invert = sel & SEL_INVERT,
                             .edge = sel & SEL_EDGE,
                             .interrupts = sel & SEL_INT},
        event ? (enum pmu_counts)event->counts : PMU_NOTHING, enabled && (sel & SEL_ENABLE));
}

/* IA32_FIXED_CTR_CTRL, of Intel's. */
static u64 fixed_ctrl(const struct core *d)
{
    return d->cpu.perf[P_MISC] >> FIXED_SHIFT & 0xfff;
}

/* The counters of a thread of d's core, as far as they count what d does. */
static void add_intel(struct core *d, struct core *of)
{
    static const enum pmu_counts fixed[FIXED_MAX] = {PMU_INSNS, PMU_CYCLES, PMU_REF_CYCLES};
    u64 *r = of->cpu.perf, on = r[P_STATUS] & STATUS_FROZEN ? 0 : r[P_GLOBAL_CTRL];
    for (unsigned i = 0; i < d->pmu.kind->general; i++)
        if (of == d || (r[P_SEL + i] & SEL_ANY))
            add_general(d, of, r[P_SEL + i], &r[P_PMC + i], i, on >> i & 1);
    for (unsigned i = 0; i < d->pmu.kind->fixed; i++) {
        u64 how = fixed_ctrl(of) >> 4 * i;
        if (of != d && !(how & FIXED_ANY))
            continue;
        add_counter(d,
                    (struct pmu_counter){.value = &r[P_FIXED + i],
                                         .of = of,
                                         .rings = how & 3,
                                         .status = (u8)(STATUS_FIXED + i),
                                         .interrupts = how & FIXED_INT},
                    fixed[i], on >> (STATUS_FIXED + i) & 1);
    }
}

static u64 signal_now(const struct core *d, unsigned signal)
{
    return signal < SIG_COUNTED  ? d->pmu.counted[signal]
           : signal == SIG_CYCLE ? position(d)
                                 : position(d) - d->pmu.not_insns;
}

/* What a counter does not look at is not there: its next look may find an edge. (What a counter
 * with AnyThread last saw stays while another thread has its turn.) */
static void forget_edges(struct core *d)
{
    const struct pmu *p = &d->pmu;
    u64 seen = 0;
    for (unsigned i = 0; i < p->n; i++)
        if (p->counter[i].edge && p->counter[i].of == d && (p->counter[i].rings >> p->ring & 1))
            seen |= 1ull << (EDGE_SHIFT + p->counter[i].status);
    d->cpu.perf[P_MISC] &= seen | ((1ull << EDGE_SHIFT) - 1);
}

static bool any_thread(const struct core *d)
{
    return d->pmu.kind->version == 3 || d->pmu.kind->version == 4;
}

/* Is it another thread of d's core, whose AnyThread counters count what d does? */
static bool counts_too(const struct core *d, const struct core *of)
{
    return of != d && any_thread(d) && d->revision >= 9 && d->parts.cores &&
           d->id / d->parts.threads == of->id / d->parts.threads;
}

static void configure_one(struct core *d)
{
    struct pmu *p = &d->pmu;
    u32 before[2] = {p->signals[0], p->signals[1]};
    bool edge = p->edge;
    p->n = 0;
    p->by_ring = p->edge = false;
    p->signals[0] = p->signals[1] = 0;
    p->lbr = p->lbrs && (d->cpu.perf[P_MISC] & DEBUGCTL_LBR) &&
             !(d->cpu.perf[P_STATUS] & STATUS_LBR_FROZEN);
    p->on = p->lbr;
    core_park(d); /* cpu_model_event() may use vector registers */
    if (is_intel(d))
        EACH_CPU (of, d)
            if (of == d || counts_too(d, of))
                add_intel(d, of);
    for (unsigned i = 0; p->kind->kind == PMU_KIND_AMD && i < p->kind->general; i++)
        add_general(d, d, d->cpu.perf[P_AMD_SEL + i], &d->cpu.perf[P_AMD_CTR + i], i, true);
    for (unsigned s = 0; s < SIGNALS; s++)
        p->mark[s] = signal_now(d, s);
    p->ring = d->cpl != 0;
    p->again = true;
    forget_edges(d);
    if (before[0] != p->signals[0] || before[1] != p->signals[1] || edge != p->edge)
        mmu_mode_changed(d);
    lbr_settle(d);
    mmu_crossing_changed(d);
}

/* The registers are up to date, and say something else than before. */
static void configure(struct core *d)
{
    EACH_CPU (of, d)
        if (of == d || counts_too(d, of))
            configure_one(of);
}

/* ---- what they count ---- */

/* Of a counter that takes cycles: in the last of `cycles` `happened`, in the others nothing. */
static u64 thresholds(const struct pmu_counter *c, u64 cycles, u64 happened)
{
    u64 met = !c->threshold || c->threshold <= 1 ? MIN(happened, cycles) : 0;
    bool invert = c->invert && c->threshold;
    if (!c->edge)
        return !c->threshold ? happened : invert ? cycles - met : met;
    if (!cycles)
        return 0;
    u64 *misc = &c->of->cpu.perf[P_MISC], bit = 1ull << (EDGE_SHIFT + c->status);
    bool was = *misc & bit, last = (met != 0) != invert;
    u64 edges = 0;
    if (cycles > 1) { /* iterations of REP: in each of them, or in none but the last */
        bool others = (met == cycles) != invert;
        edges += !was && others;
        was = others;
    }
    edges += !was && last;
    *misc = last ? *misc | bit : *misc & ~bit;
    return edges;
}

/* Whom it interrupts: a bit. */
static u32 overflowed(const struct pmu_counter *c)
{
    if (is_intel(c->of))
        c->of->cpu.perf[P_STATUS] |= 1ull << c->status;
    return c->interrupts ? 1u << c->of->id : 0;
}

static void interrupt(struct core *d)
{
    u64 *r = d->cpu.perf, frozen = r[P_MISC] & (DEBUGCTL_FREEZE_PMI | DEBUGCTL_FREEZE_LBR);
    if (is_intel(d) && frozen) {
        if (d->pmu.kind->version >= 4) {
            r[P_STATUS] |= (frozen & DEBUGCTL_FREEZE_PMI ? STATUS_FROZEN : 0) |
                           (frozen & DEBUGCTL_FREEZE_LBR ? STATUS_LBR_FROZEN : 0);
        } else {
            if (frozen & DEBUGCTL_FREEZE_PMI)
                r[P_GLOBAL_CTRL] = 0;
            if (frozen & DEBUGCTL_FREEZE_LBR)
                r[P_MISC] &= ~(u64)DEBUGCTL_LBR;
        }
        configure(d);
    }
    core_park(d);
    d->env->pmi(d->env->cpu, is_intel(d));
}

bool pmu_sync(struct core *d)
{
    struct pmu *p = &d->pmu;
    u64 since[SIGNALS];
    u32 pmi = 0;
    if (!p->on)
        return false;
    for (unsigned s = 0; s < SIGNALS; s++) {
        u64 now = signal_now(d, s);
        since[s] = now - p->mark[s];
        p->mark[s] = now;
    }
    for (unsigned i = 0; i < p->n; i++) {
        const struct pmu_counter *c = &p->counter[i];
        if (!(c->rings >> p->ring & 1))
            continue;
        u64 happened = 0;
        for (u32 s = c->plus; s; s &= s - 1)
            happened += since[__builtin_ctz(s)];
        for (u32 s = c->minus; s; s &= s - 1)
            happened -= since[__builtin_ctz(s)];
        u64 value = (*c->value & width_mask(d)) + thresholds(c, since[SIG_CYCLE], happened);
        *c->value = value & width_mask(d);
        if (UNLIKELY(value >> p->kind->width))
            pmi |= overflowed(c);
    }
    if (UNLIKELY(pmi))
        EACH_CPU (of, d)
            if (pmi >> of->id & 1)
                interrupt(of);
    return pmi;
}

void pmu_ring(struct core *d)
{
    struct pmu *p = &d->pmu;
    if (LIKELY(!p->edge) && p->ring == (d->cpl != 0))
        return;
    pmu_sync(d);
    if (p->ring == (d->cpl != 0))
        return;
    p->ring = d->cpl != 0;
    p->again = p->again || p->by_ring;
    forget_edges(d);
}

u64 pmu_distance(const struct core *d)
{
    u64 least = NEVER;
    for (unsigned i = 0; i < d->pmu.n; i++) {
        const struct pmu_counter *c = &d->pmu.counter[i];
        if (c->interrupts && (c->rings >> (d->cpl != 0) & 1) && (c->plus || c->invert))
            least = MIN(least, width_mask(d) + 1 - (*c->value & width_mask(d)));
    }
    return least;
}

void pmu_reset(struct core *d)
{
    if (is_intel(d))
        d->cpu.perf[P_GLOBAL_CTRL] = (1ull << d->pmu.kind->general) - 1;
}

void pmu_changed(struct core *d)
{
    if (d->pmu.kind->kind != PMU_KIND_NONE)
        configure(d);
}

/* ---- registers ---- */

static bool set_fixed_ctrl(struct core *d, u64 v)
{
    u64 may = 0;
    for (unsigned i = 0; i < d->pmu.kind->fixed; i++)
        may |= (u64)(any_thread(d) ? 15 : 15 & ~FIXED_ANY) << 4 * i;
    if (v & ~may)
        return false;
    pmu_sync(d);
    d->cpu.perf[P_MISC] = (d->cpu.perf[P_MISC] & ~(0xfffull << FIXED_SHIFT)) | v << FIXED_SHIFT;
    configure(d);
    return true;
}

/* The register that an MSR is, and the bits that a write may have. NULL: none. */
static u64 *intel_register(struct core *d, u32 msr, u64 *may)
{
    const struct model_pmu *k = d->pmu.kind;
    u64 *r = d->cpu.perf;
    u64 counters = ((1ull << k->general) - 1) | ((1ull << k->fixed) - 1) << STATUS_FIXED;
    bool any = any_thread(d);
    *may = width_mask(d);
    if (msr >= MSR_PMC && msr < MSR_PMC + k->general)
        return &r[P_PMC + msr - MSR_PMC];
    if (msr >= MSR_FULL_PMC && msr < MSR_FULL_PMC + k->general)
        return &r[P_PMC + msr - MSR_FULL_PMC];
    if (msr >= MSR_FIXED && msr < MSR_FIXED + k->fixed)
        return &r[P_FIXED + msr - MSR_FIXED];
    if (msr >= MSR_EVTSEL && msr < MSR_EVTSEL + k->general) {
        *may = any ? 0xffffffff : 0xffffffff & ~SEL_ANY;
        return &r[P_SEL + msr - MSR_EVTSEL];
    }
    switch (msr) {
    case MSR_GLOBAL_CTRL: *may = counters; return &r[P_GLOBAL_CTRL];
    case MSR_GLOBAL_STATUS: return &r[P_STATUS];
    case MSR_GLOBAL_RESET:
    case MSR_GLOBAL_SET:
        /* CondChgd is only reset; those from 55 to 61 came with version 4 (SDM vol. 4, table 2-2).
         */
        *may = counters | (k->version >= 4 ? 0x7c80000000000000 : 1ull << 62);
        *may |= msr == MSR_GLOBAL_RESET ? 1ull << 63 : 0;
        return msr == MSR_GLOBAL_RESET || k->version >= 4 ? &r[P_STATUS] : NULL;
    default: return NULL;
    }
}

static u64 *amd_register(struct core *d, u32 msr, u64 *may)
{
    const u64 select = 0x30fffdfffffull; /* event 36 bits, host and guest only */
    u64 *r = d->cpu.perf;
    unsigned n = d->pmu.kind->general;
    *may = width_mask(d);
    if (msr >= MSR_AMD_CORE && msr < MSR_AMD_CORE + 2 * n) {
        unsigned i = (msr - MSR_AMD_CORE) / 2;
        if (!(msr & 1))
            *may = select;
        return msr & 1 ? &r[P_AMD_CTR + i] : &r[P_AMD_SEL + i];
    }
    if (msr >= MSR_AMD_LEGACY && msr < MSR_AMD_LEGACY + 4) {
        *may = select;
        return &r[P_AMD_SEL + msr - MSR_AMD_LEGACY];
    }
    if (msr >= MSR_AMD_LEGACY + 4 && msr < MSR_AMD_LEGACY + 8)
        return &r[P_AMD_CTR + msr - MSR_AMD_LEGACY - 4];
    return NULL;
}

static u64 in_use(const struct core *d)
{
    const u64 *r = d->cpu.perf;
    u64 used = 0;
    for (unsigned i = 0; i < d->pmu.kind->general; i++) {
        used |= (u64)((r[P_SEL + i] & 0xff) != 0) << i;
        used |= (u64)((r[P_SEL + i] & SEL_INT) != 0) << 63;
    }
    for (unsigned i = 0; i < d->pmu.kind->fixed; i++) {
        used |= (u64)((fixed_ctrl(d) >> 4 * i & 3) != 0) << (STATUS_FIXED + i);
        used |= (u64)((fixed_ctrl(d) >> 4 * i & FIXED_INT) != 0) << 63;
    }
    return used;
}

static u64 *find(struct core *d, u32 msr, u64 *may)
{
    switch (d->pmu.kind->kind) {
    case PMU_KIND_INTEL: return intel_register(d, msr, may);
    case PMU_KIND_AMD: return amd_register(d, msr, may);
    default: return NULL;
    }
}

bool pmu_rdmsr(struct core *d, u32 msr, u64 *value, bool *ok)
{
    u64 may, *r = find(d, msr, &may);
    *ok = true;
    if (d->pmu.kind->kind == PMU_KIND_NONE)
        return false;
    if (lbr_rdmsr(d, msr, value))
        return true;
    if (msr == MSR_DEBUGCTL) {
        *value = d->cpu.perf[P_MISC] & 0xffff;
        return true;
    }
    if (is_intel(d) && msr == MSR_PERF_CAP) {
        *value = 1u << 13 /* full-width writes */
                 | (d->pmu.lbrs ? d->pmu.kind->lbr_format : 0);
        return true;
    }
    if (is_intel(d) && msr == MSR_FIXED_CTRL) {
        *value = fixed_ctrl(d);
        return true;
    }
    if (is_intel(d) && msr == MSR_GLOBAL_INUSE && d->pmu.kind->version >= 4) {
        *value = in_use(d);
        return true;
    }
    if (!r)
        return false;
    pmu_sync(d);
    *value = msr == MSR_GLOBAL_RESET || msr == MSR_GLOBAL_SET ? 0 : *r;
    return true;
}

static bool write_debugctl(struct core *d, u64 v)
{
    u64 *misc = &d->cpu.perf[P_MISC];
    u64 may = DEBUGCTL_BTF | (is_intel(d) ? DEBUGCTL_FREEZE_PMI : 0) |
              (d->pmu.lbrs ? DEBUGCTL_LBR | DEBUGCTL_FREEZE_LBR : 0);
    if (v & ~may)
        return false;
    bool lbr = (*misc ^ v) & DEBUGCTL_LBR;
    *misc = (*misc & ~0xffffull) | v;
    if (lbr) {
        pmu_sync(d);
        configure(d);
    }
    return true;
}

/* A write of what it has is #GP, too. */
static bool is_read_only(u32 msr)
{
    return msr == MSR_PERF_CAP || msr == MSR_GLOBAL_STATUS || msr == MSR_GLOBAL_INUSE;
}

bool pmu_wrmsr(struct core *d, u32 msr, u64 value, bool *ok)
{
    u64 may, *r = find(d, msr, &may);
    if (d->pmu.kind->kind == PMU_KIND_NONE)
        return false;
    if (lbr_wrmsr(d, msr, value, ok))
        return true;
    *ok = msr == MSR_DEBUGCTL     ? write_debugctl(d, value)
          : msr == MSR_FIXED_CTRL ? is_intel(d) && set_fixed_ctrl(d, value)
                                  : false;
    if (msr == MSR_DEBUGCTL || msr == MSR_FIXED_CTRL || (is_intel(d) && is_read_only(msr)))
        return true;
    if (!r)
        return false;
    /* Intel's counters are sign-extended from 32 bits; AMD's have as many as there are. */
    if (is_intel(d) && msr >= MSR_PMC && msr < MSR_PMC + GENERAL_MAX)
        value = (u64)(i64)(i32)value & may;
    else if (!is_intel(d) && may == width_mask(d))
        value &= may;
    if (value & ~may)
        return true;
    *ok = true;
    pmu_sync(d);
    if (is_intel(d) && msr == MSR_GLOBAL_RESET)
        *r &= ~value;
    else if (is_intel(d) && msr == MSR_GLOBAL_SET)
        *r |= value;
    else
        *r = value;
    configure(d);
    return true;
}

bool pmu_rdpmc(struct core *d, u32 index, u64 *value)
{
    const struct model_pmu *k = d->pmu.kind;
    const u64 *r = NULL;
    if (k->kind == PMU_KIND_INTEL && index < k->general)
        r = &d->cpu.perf[P_PMC + index];
    else if (k->kind == PMU_KIND_INTEL && index >= 1u << 30 && index - (1u << 30) < k->fixed)
        r = &d->cpu.perf[P_FIXED + index - (1u << 30)];
    else if (k->kind == PMU_KIND_AMD && index < k->general)
        r = &d->cpu.perf[P_AMD_CTR + index];
    if (!r)
        return false;
    pmu_sync(d);
    *value = *r & width_mask(d);
    return true;
}

bool pmu_steps_branches(const struct core *d)
{
    return d->pmu.kind->kind != PMU_KIND_NONE && (d->cpu.perf[P_MISC] & DEBUGCTL_BTF);
}

void pmu_debug_exception(struct core *d)
{
    if (d->pmu.kind->kind == PMU_KIND_NONE)
        return;
    d->cpu.perf[P_MISC] &= ~(u64)(DEBUGCTL_BTF | DEBUGCTL_LBR);
    if (d->pmu.lbr) {
        pmu_sync(d);
        configure(d);
    }
}
