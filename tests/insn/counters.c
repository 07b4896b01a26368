/*
 * The guest's performance counters: random programs that write, read and overflow them, under three
 * engines: in long slices; in random ones, moved now and then to another engine as a checkpoint
 * would; and one position at a time, traced, which oracle.c watches and counts by itself. At each
 * stop the registers and what else is in the machine must be equal, and all interrupts of counters
 * must have come at the oracle's positions.
 */
#include "tests/insn/counters.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "cpu/x86/pmu.h"

static const char *model_arg(enum cpu_model model)
{
    return cpu_model_alias(model) ? cpu_model_alias(model) : cpu_model_name(model);
}

void counters_fail(struct campaign *c, const char *format, ...)
{
    va_list args;

    if (c->failed)
        return;
    c->failed = true;
    printf("FAIL counters: position %llu of program %llu, RIP %llx, %s: ",
           (unsigned long long)c->before.at, (unsigned long long)c->number,
           (unsigned long long)c->before.cpu.rip,
           c->before.decoded ? ZydisMnemonicGetString(c->before.in.mnemonic) : "?");
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n  again: tests/insn --counters%s --code %u --model %s --seed %llu --case %llu\n",
           c->paranoid ? " --engine dbt,paranoid" : "", test_bits(), model_arg(c->model),
           (unsigned long long)c->seed, (unsigned long long)c->number);
}

static void on_pmi(void *opaque, struct guest *g)
{
    struct pmis *p = opaque;
    pos_t now = engine_count(guest_engine(g));

    if (p->n && p->at[p->n - 1] == now) /* an instruction's, and its trap's */
        return;
    CHECK(p->n < PMI_MAX, "%u interrupts of counters in a program", p->n);
    p->at[p->n++] = now;
}

/* An interrupt from outside, if they take one. */
static void external(struct campaign *c)
{
    struct engine *e = guest_engine(c->guest[STEPPED]);
    pos_t at = engine_count(e);
    u64 from = engine_vcpu(e)->rip;
    const struct facts f = {.cycle = true, .delivery = true, .interrupt = true};

    for (unsigned i = 0; i < ENGINES; i++)
        if (i != SPARE)
            guest_external(c->guest[i]);
    if (engine_count(e) == at)
        return;
    engine_sync(e);
    const struct vcpu *v = engine_vcpu(e);
    oracle_branch(&c->oracle, &f, from, v->rip, counters_cpl(v), at + 1);
    counters_count(c, &f, at + 1);
    oracle_ring(&c->oracle, counters_cpl(engine_vcpu(e)));
}

/* ---- comparing ---- */

static void compare_pmis(struct campaign *c, unsigned role, pos_t at, const char *who)
{
    const struct pmis *p = &c->pmis[role];
    unsigned i = 0;

    while (i < p->n && i < c->due.n && p->at[i] == c->due.at[i])
        i++;
    if (i == p->n && i == c->due.n)
        return;
    counters_fail(
        c, "up to position %llu, %s: interrupt %u expected at %llu, came at %llu (0: none)",
        (unsigned long long)at, who, i, (unsigned long long)(i < c->due.n ? c->due.at[i] : 0),
        (unsigned long long)(i < p->n ? p->at[i] : 0));
}

static void compare(struct campaign *c, unsigned role, pos_t at, const char *who)
{
    char text[512];

    if (c->left || c->failed)
        return;
    compare_pmis(c, role, at, who);
    if (!guest_equal(c->guest[STEPPED], c->guest[role], text, sizeof text))
        counters_fail(c, "at position %llu, %s differs:\n%s", (unsigned long long)at, who, text);
    c->stops++;
}

/* ---- programs ---- */

/* As a debugger would, between two positions. */
static void write_all(struct campaign *c, u32 msr, u64 v)
{
    bool due = oracle_write(&c->oracle, msr, v) == ORACLE_OK;

    for (unsigned i = 0; i < ENGINES; i++) {
        bool ok = false;

        struct engine *e = guest_engine(c->guest[i]);

        engine_sync(e);
        pmu_wrmsr(core_of(e), msr, v, &ok);
        if (i == STRAIGHT)
            engine_changed(e); /* perhaps no tape has that */
        if (ok != due)
            counters_fail(c, "MSR %x from outside: value %llx is%s taken", msr,
                          (unsigned long long)v, ok ? "" : " not");
    }
}

/* One of the counters is soon to overflow. */
static void arm(struct campaign *c, struct rng *r)
{
    u32 i = (u32)rng_below(r, 4);

    if (c->model == CPU_ZEN2) {
        write_all(c, 0xc0010200 + 2 * i, counters_draw_select(c, r));
        write_all(c, 0xc0010201 + 2 * i, counters_near_overflow(r));
        return;
    }
    if (i < 3 && rng_chance(r, 30)) {
        write_all(c, 0x309 + i, counters_near_overflow(r) & 0xffffffffffff);
        write_all(c, 0x38d, rng_u64(r) & 0xbbb);
    } else {
        write_all(c, 0x186 + i, counters_draw_select(c, r));
        write_all(c, 0xc1 + i, counters_near_overflow(r));
    }
    if (rng_chance(r, 50))
        write_all(c, 0x38f, 0x70000000f);
    if (c->oracle.status >> 59 & rng_chance(r, 70))
        write_all(c, 0x390, 1ull << 59);
}

static void start_engines(struct campaign *c, const struct program *p, struct rng *r)
{
    bool pce = rng_chance(r, 70);
    u64 sfmask = rng_chance(r, 50) ? FL_TF : 0;

    oracle_start(&c->oracle, c->model, p->kernel ? 0 : 3);
    c->left = c->failed = false;
    c->due.n = 0;
    for (unsigned i = 0; i < ENGINES; i++) {
        guest_program(c->guest[i], p);
        guest_services(c->guest[i], pce, sfmask);
        c->pmis[i].n = 0;
    }
    for (unsigned n = (unsigned)rng_below(r, 32); n; n--) {
        u64 v;
        u32 msr = counters_draw_write(c, r, &v);

        write_all(c, msr, v);
    }
    if (c->model != CPU_ZEN2 && rng_chance(r, 90))
        write_all(c, 0x38f, 0x70000000f);
}

static void move(struct campaign *c)
{
    struct guest *g = c->guest[SLICED];

    guest_copy(c->guest[SPARE], g);
    c->guest[SLICED] = c->guest[SPARE];
    c->guest[SPARE] = g;
    c->moves++;
}

/* The stepped and the sliced one, from `pos` to `part`. */
static void in_slices(struct campaign *c, struct rng *r, pos_t pos, pos_t part)
{
    while (pos < part) {
        pos_t next = pos + 1 + rng_below(r, rng_chance(r, 50) ? 20 : 900);
        bool moves = rng_chance(r, 5), looks = rng_chance(r, 50);

        next = MIN(next, part);
        while (pos < next && !c->left && !c->failed)
            guest_go(c->guest[STEPPED], ++pos);
        if (c->left || c->failed)
            return;
        guest_go(c->guest[SLICED], next);
        if (looks)
            compare(c, SLICED, next, "with slices");
        if (moves)
            move(c);
    }
}

static bool run_program(struct campaign *c)
{
    static struct program program;
    const struct program_kind kind = {.model = c->model,
                                      .forms = c->forms,
                                      .often = c->number & 1,
                                      .extra = counters_extra,
                                      .percent = 25,
                                      .opaque = c};
    struct rng r;

    program_draw(&program, &kind, c->seed, c->number, &r);
    start_engines(c, &program, &r);
    pos_t start = engine_count(guest_engine(c->guest[STEPPED])), pos = start;
    for (unsigned i = 0; i < ENGINES; i++)
        if (engine_count(guest_engine(c->guest[i])) != start)
            return false;
    pos_t end = start + 200 + rng_below(&r, PROGRAM_LENGTH);
    bool ended = false;

    while (pos < end && !c->left && !c->failed && !ended) {
        pos_t part = pos + 1 +
                     rng_below(&r, rng_chance(&r, 50)   ? 60
                                   : rng_chance(&r, 80) ? 600
                                                        : 4000);

        part = MIN(part, end);
        in_slices(c, &r, pos, part);
        if (c->left || c->failed)
            break;
        guest_go(c->guest[STRAIGHT], part);
        compare(c, STRAIGHT, part, "in a straight line");
        ended = guest_ended(c->guest[STEPPED]);
        external(c);
        if (!ended) {
            counters_compare_registers(c);
            counters_compare_records(c);
        }
        compare(c, SLICED, part, "with slices");
        if (!ended && !c->failed && rng_chance(&r, c->paranoid ? 5 : 70))
            arm(c, &r);
        pos = MAX(part, engine_count(guest_engine(c->guest[STEPPED])));
    }
    if (!c->left)
        compare_pmis(c, STEPPED, pos, "step by step");
    struct err err = {0};
    if (!c->failed && engine_verify(guest_engine(c->guest[STRAIGHT]), &err) < 0)
        counters_fail(c, "%s", err.text);
    c->positions += pos - start;
    c->overflows += c->oracle.overflows;
    c->branches += c->oracle.branches;
    c->interrupts += c->due.n;
    c->leaves += c->left;
    return !c->failed;
}

static int create(struct campaign *c)
{
    static const u8 mem[DATA_SIZE];
    const struct engine_trace trace = {
        .before = counters_before, .after = counters_after, .opaque = c};
    char why[256];

    for (unsigned i = 0; i < ENGINES; i++) {
        if ((c->paranoid && i == STRAIGHT
                 ? guest_create_paranoid(&c->guest[i], c->model, mem, why, sizeof why)
                 : guest_create(&c->guest[i], c->model, ENGINE_DBT, true, mem, why, sizeof why)) <
            0) {
            fprintf(stderr, "insn: %s\n", why);
            return -1;
        }
        if (c->paranoid)
            guest_quiet(c->guest[i]);
        guest_on_pmi(c->guest[i], on_pmi, &c->pmis[i == SPARE ? SLICED : i]);
    }
    return engine_set_trace(guest_engine(c->guest[STEPPED]), &trace);
}

static void destroy(struct campaign *c)
{
    for (unsigned i = 0; i < ENGINES; i++)
        guest_destroy(c->guest[i]);
}

int counters_main(enum cpu_model model, bool paranoid, const struct forms *forms, u64 seed,
                  u64 first, u64 count)
{
    static struct campaign c;
    u64 failed = 0;

    c = (struct campaign){.model = model, .paranoid = paranoid, .forms = forms, .seed = seed};
    if (cpu_model_pmu(model)->kind == PMU_KIND_NONE) {
        fprintf(stderr, "insn: %s has no counters\n", cpu_model_name(model));
        return 2;
    }
    if (create(&c))
        return 2;
    for (c.number = first; c.number < first + count && failed < 10; c.number++) {
        if (run_program(&c))
            continue;
        failed++;
        destroy(&c); /* fresh ones: the old differ for ever */
        if (create(&c))
            return 2;
    }
    struct machine_stats st;
    engine_stats(guest_engine(c.guest[STRAIGHT]), &st);
    destroy(&c);
    printf("counters: the straight engine made %lu blocks, took %lu exceptions and %lu interrupts, "
           "ran %lu instructions by hand\n",
           (unsigned long)st.blocks, (unsigned long)st.exceptions, (unsigned long)st.interrupts,
           (unsigned long)st.careful);
    if (paranoid)
        printf("counters: it compared %lu positions in %lu windows, and dropped %lu\n",
               (unsigned long)st.windows_compared, (unsigned long)st.windows,
               (unsigned long)st.windows_dropped);
    const struct tally *t = &c.tally;
    printf(
        "counters: %llu positions, %llu overflows; interrupts: %llu in ring 0, %llu in ring 3; "
        "%llu after a REP's iteration, %llu a fault, %llu a trap, %llu an interrupt, %llu WRMSR; "
        "%llu branches recorded; %llu engines moved to, %llu programs left early\n",
        (unsigned long long)c.positions, (unsigned long long)c.overflows,
        (unsigned long long)t->rings[0], (unsigned long long)t->rings[1],
        (unsigned long long)t->rep, (unsigned long long)t->fault, (unsigned long long)t->trap,
        (unsigned long long)t->interrupt, (unsigned long long)t->msr,
        (unsigned long long)c.branches, (unsigned long long)c.moves, (unsigned long long)c.leaves);
    printf(
        "counters: model %s seed %llu: %llu interrupts, %llu stops in %llu programs; %llu passed, "
        "%llu failed, 0 skipped\n",
        model_arg(model), (unsigned long long)seed, (unsigned long long)c.interrupts,
        (unsigned long long)c.stops, (unsigned long long)count,
        (unsigned long long)(count - failed), (unsigned long long)failed);
    return failed != 0;
}
