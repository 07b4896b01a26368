/*
 * Stops must be invisible: random programs of many instructions (loops, calls, faults that a
 * handler skips, REP, stores into their own code, interrupts) run under three engines: in a
 * straight line, with stops at random positions, and one position at a time. At each stop, and
 * wherever the first has run to, the complete state and the RAM in use must be equal. A third of
 * the programs run in ring 0, where they may ruin tables and control registers as they like. With
 * --engine kvm the third is the KVM engine; with --interrupts there is one every few positions.
 */
#include <stdio.h>
#include <stdlib.h>
#include "base/state.h"
#include "cpu/engine.h"
#include "tests/insn/insn.h"

#define P_LENGTH 6000u

struct stops {
    struct guest *straight, *stopped, *stepped;
    const struct forms *forms;
    enum cpu_model model;
    enum engine_kind kind; /* of the stepped one */
    bool often;            /* interrupts: every few positions, wherever that falls */
    u64 seed;
};

static bool same(struct stops *s, struct guest *a, struct guest *b, const char *what, u64 number,
                 pos_t at)
{
    char text[512];

    if (guest_equal(a, b, text, sizeof text))
        return true;
    printf(
        "FAIL stops: %s, at position %llu of program %llu:\n%s"
        "  again: tests/insn --stops%s --code %u --model %s --engine %s --seed %llu --case %llu\n",
        what, (unsigned long long)at, (unsigned long long)number, text,
        s->often ? " --interrupts" : "", test_bits(), cpu_model_name(s->model),
        engine_kind_name(s->kind), (unsigned long long)s->seed, (unsigned long long)number);
    return false;
}

static bool run_program(struct stops *s, u64 number, u64 *stops)
{
    struct rng r;
    static struct program program, *p = &program;
    struct program_kind kind = {.model = s->model, .forms = s->forms, .often = s->often};
    struct guest *const all[] = {s->straight, s->stopped, s->stepped};
    pos_t start = 0;

    program_draw(p, &kind, s->seed, number, &r);
    struct rng writes = r; /* of a device that writes between instructions */
    bool device = rng_chance(&writes, 30);
    for (unsigned i = 0; i < 3; i++) {
        guest_program(all[i], p);
        start = engine_count(guest_engine(all[i]));
        /* Three engines that have run the same distance have the same position. */
        if (start != engine_count(guest_engine(all[0])))
            return false;
    }
    pos_t end = start + 200 + rng_below(&r, P_LENGTH), pos = start;

    while (pos < end) { /* up to an interrupt, each of the three in its own way */
        pos_t part = pos + (s->often ? 1 + rng_below(&r, 60) : 100 + rng_below(&r, 4000));

        part = MIN(part, end);
        while (pos < part) {
            pos_t next = pos + 1 + rng_below(&r, rng_chance(&r, 50) ? 20 : 900);

            next = MIN(next, part);
            guest_go(s->stopped, next);
            for (pos_t step = pos; step < next; step++)
                guest_go(s->stepped, step + 1);
            (*stops)++;
            if (!same(s, s->stepped, s->stopped, "a stop shows what a step does not", number, next))
                return false;
            pos = next;
        }
        while (device && part < end && !guest_in_code(s->stepped))
            guest_go(s->stepped, ++part);
        guest_go(s->stopped, part);
        guest_go(s->straight, part);
        u8 how = (u8)(rng_u64(&writes) & 0x33);
        for (unsigned i = 0; i < 3; i++) {
            if (device)
                guest_device(all[i], how);
            guest_external(all[i]);
        }
        if (engine_count(guest_engine(all[0])) < part)
            pos = end; /* it came to an end of its own */
        else
            pos = engine_count(guest_engine(all[0]));
        if (!same(s, s->stepped, s->straight, "stops changed what came later", number, pos))
            return false;
    }
    return true;
}

int stops_main(enum cpu_model model, enum engine_kind stepped, bool often,
               const struct forms *forms, u64 seed, u64 first, u64 count)
{
    struct stops s = {
        .forms = forms, .model = model, .kind = stepped, .often = often, .seed = seed};
    struct guest **const all[] = {&s.straight, &s.stopped, &s.stepped};
    u8 *mem = calloc(1, DATA_SIZE);
    u64 failed = 0, stops = 0;
    char why[256];

    for (unsigned i = 0; i < 3; i++)
        if (guest_create(all[i], model, i == 2 ? stepped : ENGINE_DBT, true, mem, why, sizeof why) <
            0) {
            fprintf(stderr, "insn: %s\n", why);
            return 2;
        }
    for (u64 n = first; n < first + count && failed < 10; n++)
        if (!run_program(&s, n, &stops)) {
            failed++;
            for (unsigned i = 0; i < 3; i++) { /* fresh ones: the old differ for ever */
                guest_destroy(*all[i]);
                if (guest_create(all[i], model, i == 2 ? stepped : ENGINE_DBT, true, mem, why,
                                 sizeof why) < 0)
                    return 2;
            }
        }
    struct machine_stats st;
    engine_stats(guest_engine(s.straight), &st);
    printf("stops: the straight engine made %lu blocks, took %lu exceptions and %lu interrupts, "
           "dropped code %lu times, ran %lu instructions by hand\n",
           (unsigned long)st.blocks, (unsigned long)st.exceptions, (unsigned long)st.interrupts,
           (unsigned long)st.smc, (unsigned long)st.careful);
    engine_stats(guest_engine(s.stepped), &st);
    if (stepped == ENGINE_KVM)
        printf("stops: KVM ran %lu of the stepping engine's instructions; its emulator did not "
               "know %lu\n",
               (unsigned long)st.kvm_steps, (unsigned long)st.kvm_refused);
    for (unsigned i = 0; i < 3; i++)
        guest_destroy(*all[i]);
    free(mem);
    printf("stops: model %s seed %llu: %llu stops in %llu programs; %llu passed, %llu failed, "
           "0 skipped\n",
           cpu_model_name(model), (unsigned long long)seed, (unsigned long long)stops,
           (unsigned long long)count, (unsigned long long)(count - failed),
           (unsigned long long)failed);
    return failed != 0;
}
