/*
 * The counter `pmu` as the engine uses it (pmu_window.h, pmu_tsc.h), on a host that misbehaves
 * (pmu_fake.h): entries up to the margin before a position, single steps from there. Stops are
 * exact while the skid is within the margin, and whatever is not exact is told. PMU_INJECTIONS and
 * PMU_SEED make the campaigns longer and others.
 */
#include "cpu/kvm/pmu_window.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/kvm/counter.h"
#include "cpu/kvm/pmu_tsc.h"
#include "pmu_fake.h"

static const struct pmu_event intel = {.family = "test", .config = 1, .margin = 100};
static const struct pmu_event zen = {
    .family = "test, unbounded", .config = 2, .margin = 1000, .unbounded = true};

static u64 from_environment(const char *name, u64 otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 0) : otherwise;
}

/* ---- a vCPU that is run to positions ---- */

struct flight {
    struct fake_host host;
    struct pmu_window window;
    struct pmu_tsc *tsc; /* NULL: nobody keeps it still */
    u64 count;           /* branches, as the counter says */
    u64 free, steps;     /* entries */
    u64 skid;            /* the largest that was within the margin */
};

static void begin(struct flight *f, const struct pmu_event *event, u32 program, u64 random,
                  const struct fake_faults *faults)
{
    *f = (struct flight){0};
    fake_init(&f->host, program, random, faults);
    pmu_window_init(&f->window, &fake_ops, &f->host, event);
}

/* One entry, as the engine has it; `left` branches are allowed. enum pmu_stop, or <0. */
static int enter(struct flight *f, u64 left, struct err *err)
{
    struct fake_host *h = &f->host;
    u64 tick = NEVER, events;
    int how = pmu_window_start(&f->window, left, err);
    if (how < 0)
        return how;
    fake_ops.debug(h, how == COUNTER_STEP, NULL, err);
    int code = f->tsc ? pmu_tsc_enter(f->tsc, &tick, err) : 0;
    if (code)
        return code;
    fake_ops.kick_at(h, MIN(fake_ops.now(h) + PMU_WATCH_NS, tick));
    int stop = fake_ops.run(h, err);
    fake_ops.kick_at(h, NEVER);
    code = f->tsc ? pmu_tsc_left(f->tsc, err) : 0;
    if (!code)
        code = pmu_window_stop(&f->window, &events, err);
    if (code)
        return code;
    f->count += events;
    *(how == COUNTER_FREE ? &f->free : &f->steps) += 1;
    if (how == COUNTER_FREE && h->cpu.branches > h->asked_at)
        f->skid = MAX(f->skid, h->cpu.branches - h->asked_at);
    return stop;
}

/* Until the counter says so. */
static int fly_to(struct flight *f, u64 target, struct err *err)
{
    int code = 0;
    while (f->count < target && code >= 0)
        code = enter(f, target - f->count, err);
    return code < 0 ? code : 0;
}

/* What one injection is about: a program, a position in it, a fault. */
struct injection {
    u32 program;
    u64 random, insns; /* the target is the position of that instruction */
    struct fake_faults faults;
    const struct pmu_event *event;
    u64 target;
    struct fake_cpu truth; /* directly after the branch that makes it */
};

static void aim(struct injection *j)
{
    struct fake_host h;
    fake_init(&h, j->program, 0, &(struct fake_faults){0});
    j->truth = h.cpu;
    while (h.cpu.insns < j->insns) {
        fake_step(j->program, &h.cpu);
        if (h.cpu.branches > j->truth.branches)
            j->truth = h.cpu;
    }
    j->target = j->truth.branches;
}

static int fly(const struct injection *j, struct flight *f, struct err *err)
{
    begin(f, j->event, j->program, j->random, &j->faults);
    return fly_to(f, j->target, err);
}

/* Directly after the branch: that is one instant. */
static bool exact(const struct injection *j, const struct flight *f)
{
    return f->count == j->target && f->host.cpu.insns == j->truth.insns &&
           fake_hash(&f->host.cpu) == fake_hash(&j->truth);
}

static void choose(struct injection *j, u64 *random)
{
    j->program = (u32)fake_random(random);
    j->random = fake_random(random);
    j->insns = fake_random(random) % (fake_random(random) % 4 ? 6000 : 40);
    j->event = fake_random(random) % 8 ? &intel : &zen;
    j->faults = (struct fake_faults){.skid = j->event->margin, .ns_per_insn = 500};
    if (fake_random(random) % 3 == 0)
        j->faults.early = 1 + fake_random(random) % 20;
    if (fake_random(random) % 8 == 0)
        j->faults.late = j->event->margin; /* the most that is allowed, each time */
    aim(j);
}

static void again(const struct injection *j, u64 n, u64 seed, const struct err *err)
{
    fail_msg("injection %" PRIu64 ": program 0x%x, target %" PRIu64 " branches: %s; again: "
             "PMU_SEED=%" PRIu64 " PMU_INJECTIONS=%" PRIu64 " test_pmu",
             n, j->program, j->target, *err->text ? err->text : "not there", seed, n + 1);
}

/* Is it told with its size, and was there need for the overflow? */
static bool told_well(const struct injection *j, const struct flight *f, const struct err *err)
{
    char text[64];
    snprintf(text, sizeof(text), "ran on for %" PRIu64 " branches after",
             f->host.cpu.branches - f->host.asked_at);
    return strstr(err->text, text) && j->target > j->event->margin + 2u;
}

/* Skid up to the margin, signals that come early, exits: always exact. Beyond it: exact by luck
 * (the overflow of this run was not needed), or told with the size. */
static void campaign(void **state)
{
    u64 count = from_environment("PMU_INJECTIONS", 6000), seed = from_environment("PMU_SEED", 1);
    u64 random = seed, told = 0, beyond = 0, steps = 0, entries = 0, skid = 0;
    for (u64 n = 0; n < count; n++) {
        struct injection j;
        struct flight f;
        struct err err = {0};
        choose(&j, &random);
        if (fly(&j, &f, &err) || !exact(&j, &f))
            again(&j, n, seed, &err);
        steps += f.steps;
        entries += f.free;
        skid = MAX(skid, f.skid);
        /* The same target, and an overflow that comes too late. */
        j.faults.late = j.event->margin + 1 + (u32)(fake_random(&random) % 500);
        j.faults.lost = fake_random(&random) % 16 == 0;
        beyond += j.target > j.event->margin + 2u;
        int code = fly(&j, &f, &err);
        if (code == -EOVERFLOW ? !told_well(&j, &f, &err) : code || !exact(&j, &f))
            again(&j, n, seed, &err);
        told += code == -EOVERFLOW;
    }
    print_message("%" PRIu64 " injections, seed %" PRIu64 ": all exact, by %" PRIu64
                  " entries and %" PRIu64 " steps, largest skid %" PRIu64 "; %" PRIu64
                  " of %" PRIu64 " with too much skid told, the others exact\n",
                  count, seed, entries, steps, skid, told, beyond);
    assert_true(told > beyond / 4);
    assert_true(skid == 1000 || count < 1000);
}

/* Positions one after the other, all in one run. */
static void one_by_one(void **state)
{
    struct flight f;
    struct err err = {0};
    begin(&f, &intel, 4, 3, &(struct fake_faults){.skid = intel.margin});
    struct fake_cpu c = f.host.cpu;
    u64 random = 9;
    for (u64 n = 1; n < 20000; n += fake_random(&random) % 400) {
        assert_int_equal(fly_to(&f, n, &err), 0);
        while (c.branches < n)
            fake_step(4, &c);
        assert_int_equal(c.insns, f.host.cpu.insns);
    }
    assert_int_equal(f.skid, intel.margin);
}

/* What start() says, and which overflow it asks for. */
static void limits(void **state)
{
    static const struct {
        u64 events, overflow;
        int how;
    } cases[] = {
        {1, NEVER, COUNTER_STEP},
        {102, NEVER, COUNTER_STEP},
        {103, 2, COUNTER_FREE}, /* kernels have no period of 1 */
        {104, 3, COUNTER_FREE},
        {100000, 99899, COUNTER_FREE},
        {PMU_PERIOD_MAX + 100, PMU_PERIOD_MAX - 1, COUNTER_FREE},
        {PMU_PERIOD_MAX + 101, NEVER, COUNTER_FREE},
        {NEVER, NEVER, COUNTER_FREE},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct flight f;
        struct err err = {0};
        u64 events;
        begin(&f, &intel, 4, 3, &(struct fake_faults){0});
        assert_int_equal(pmu_window_start(&f.window, cases[i].events, &err), cases[i].how);
        assert_true(f.host.overflow_at == cases[i].overflow);
        /* All of it is too much where nobody knows what came after the last branch. */
        f.host.cpu.branches = cases[i].events - 1;
        assert_int_equal(pmu_window_stop(&f.window, &events, &err), 0);
        assert_true(events == cases[i].events - 1);
        f.host.cpu.branches++;
        bool last = cases[i].how == COUNTER_STEP;
        assert_int_equal(pmu_window_stop(&f.window, &events, &err), last ? 0 : -EOVERFLOW);
    }
}

/* ---- what is to be told ---- */

static void fails(struct fake_faults faults, int code, const char *text)
{
    struct injection j = {
        .program = 4, .random = 1, .insns = 50000, .event = &intel, .faults = faults};
    struct flight f;
    struct err err = {0};
    aim(&j);
    int got = fly(&j, &f, &err);
    if (got != code || !strstr(err.text, text))
        fail_msg("%d %s instead of %d %s", got, err.text, code, text);
}

static void counter_taken(void **state)
{
    fails((struct fake_faults){.taken_at = 3000}, -ENODATA, "was taken");
    fails((struct fake_faults){.wound_back = 3000, .early = 20}, -ENODATA, "went back from");
    fails((struct fake_faults){.rewritten = 3000}, -EOVERFLOW, "ran on for 28147497");
}

static void another_core(void **state)
{
    fails((struct fake_faults){.migrates_at = 20000}, -EXDEV, "to a core of another kind");
}

static void lost_overflow(void **state)
{
    fails((struct fake_faults){.lost = true, .ns_per_insn = 1000}, -EOVERFLOW,
          "which was lost, or late by more than the skid margin of this CPU (test), which is 100:");
    fails((struct fake_faults){.late = 101}, -EOVERFLOW, "ran on for 101 branches after");
}

/* ---- which event, and the TSC ---- */

static void event_is(const char *vendor, unsigned family, unsigned model, unsigned core, u64 config,
                     u32 margin)
{
    struct pmu_cpu cpu = {.family = family, .model = model, .hybrid = core, .core = core};
    snprintf(cpu.vendor, sizeof(cpu.vendor), "%s", vendor);
    const struct pmu_event *e = pmu_event_find(&cpu);
    if (!config) {
        assert_null(e);
        return;
    }
    if (!e || e->config != config || e->margin != margin)
        fail_msg("%s family 0x%x model 0x%x: %s", vendor, family, model, e ? e->family : "none");
    assert_int_equal(e->unbounded, config == 0x5100d1);
    assert_int_equal(e->must_stay_zero, config == 0x5100d1 ? 0x510825 : 0);
}

static void events(void **state)
{
    event_is("GenuineIntel", 6, 0x1a, 0, 0x5101c4, 100); /* Nehalem */
    event_is("GenuineIntel", 6, 0x3f, 0, 0x5101c4, 100); /* Haswell */
    event_is("GenuineIntel", 6, 0x55, 0, 0x5101c4, 100); /* Skylake-X */
    event_is("GenuineIntel", 6, 0xa5, 0, 0x5101c4, 100); /* Comet Lake */
    event_is("GenuineIntel", 6, 0x6a, 0, 0x5111c4, 100); /* Ice Lake */
    event_is("GenuineIntel", 6, 0x8c, 0, 0x5111c4, 100); /* Tiger Lake */
    event_is("GenuineIntel", 6, 0xa7, 0, 0x5111c4, 100); /* Rocket Lake */
    event_is("GenuineIntel", 6, 0x97, PMU_CORE_CORE, 0x5111c4, 125);
    event_is("GenuineIntel", 6, 0x97, PMU_CORE_ATOM, 0x517ec4, 100);
    event_is("GenuineIntel", 6, 0x8f, 0, 0x5111c4, 125); /* Sapphire Rapids */
    event_is("GenuineIntel", 6, 0x9c, 0, 0x517ec4, 100); /* Jasper Lake */
    event_is("AuthenticAMD", 0x17, 0x31, 0, 0x5100d1, 10000);
    event_is("AuthenticAMD", 0x19, 0x11, 0, 0x5100d1, 10000);
    event_is("AuthenticAMD", 0x1a, 0x02, 0, 0x5100d1, 10000);
    event_is("HygonGenuine", 0x18, 0, 0, 0x5100d1, 10000);
    event_is("AuthenticAMD", 0x15, 2, 0, 0, 0);
    event_is("GenuineIntel", 6, 0x0f, 0, 0, 0); /* Core 2 */
    event_is("GenuineIntel", 15, 4, 0, 0, 0);
    event_is("CentaurHauls", 6, 0x0f, 0, 0, 0);
    struct pmu_cpu here;
    pmu_cpu_read(&here);
    assert_int_equal(strlen(here.vendor), 12);
}

/* The TSC stands still in every run, whatever the host's does, and is what was set. */
static void tsc_stands(void **state)
{
    u64 count = from_environment("PMU_INJECTIONS", 6000) / 400,
        seed = from_environment("PMU_SEED", 1);
    u64 random = seed, slices = 0;
    for (u64 n = 0; n < count; n++) {
        struct flight f;
        struct pmu_tsc tsc;
        struct err err = {0};
        struct fake_faults faults = {.ns_per_insn = 100 + fake_random(&random) % 3000,
                                     .skid = 100,
                                     .kick_latency = fake_random(&random) % 40000};
        begin(&f, &intel, (u32)fake_random(&random), fake_random(&random), &faults);
        assert_int_equal(pmu_tsc_init(&tsc, &fake_ops, &f.host, &err), 0);
        f.tsc = &tsc;
        for (u64 value = 1000; f.host.cpu.insns < 20000;
             value += 1 + fake_random(&random) % 100000) {
            pmu_tsc_set(&tsc, value);
            if (enter(&f, 300, &err) < 0)
                fail_msg("seed %" PRIu64 ", host %" PRIu64 ": %s", seed, n, err.text);
            if (f.host.tsc_read) {
                assert_int_equal(f.host.tsc_first, value);
                assert_int_equal(f.host.tsc_last, value);
            }
        }
        slices += tsc.slices;
        assert_int_equal(tsc.over, 0);
    }
    print_message("%" PRIu64 " hosts, %" PRIu64 " slices, seed %" PRIu64 "\n", count, slices, seed);
    assert_true(slices > 10 * count);
}

static int held_up(struct fake_faults faults, struct err *err)
{
    struct flight f;
    struct pmu_tsc tsc;
    begin(&f, &intel, 6, 1, &faults);
    int code = pmu_tsc_init(&tsc, &fake_ops, &f.host, err);
    if (code)
        return code;
    f.tsc = &tsc;
    pmu_tsc_set(&tsc, 77);
    code = fly_to(&f, 20000, err);
    assert_int_equal(tsc.over, code == -ETIME);
    return code;
}

static void tsc_ticks(void **state)
{
    struct err err = {0};
    struct fake_faults f = {.ns_per_insn = 300};
    assert_int_equal(held_up(f, &err), 0);
    f.stall_at = 4321;
    f.stall_ns = 3000000;
    assert_int_equal(held_up(f, &err), -ETIME);
    assert_non_null(strstr(err.text, "ran over a tick of its TSC by 3 ms"));
    f.asleep = true;
    f.stall_ns = 5000000000;
    assert_int_equal(held_up(f, &err), -ETIME);
    assert_non_null(strstr(err.text, "suspended for 5000 ms"));
    f = (struct fake_faults){.kick_latency = 300000, .ns_per_insn = 300}; /* kicks are too slow */
    assert_int_equal(held_up(f, &err), -ETIME);
    f = (struct fake_faults){.no_scaling = true};
    assert_int_equal(held_up(f, &err), -ETIME);
    assert_non_null(strstr(err.text, "not the one tick a millisecond"));
}

static void choose_fault(struct fake_faults *f, u64 length, u64 *random)
{
    f->ns_per_insn = 50 + fake_random(random) % 1000;
    f->kick_latency = fake_random(random) % 50000;
    u64 at = 1 + fake_random(random) % length;
    switch (fake_random(random) % 8) {
    case 0: f->taken_at = at; break;
    case 1: f->rewritten = at; break;
    case 2: f->migrates_at = at; break;
    case 3: f->lost = true; break;
    case 4: f->late = (u32)(fake_random(random) % 400); break;
    case 5:
    case 6:
        f->stall_at = at;
        f->stall_ns = fake_random(random) % 3000000;
        f->asleep = fake_random(random) % 2;
        break;
    }
}

/* Any fault, with a TSC that has to stand still: exact, or told. */
static void everything(void **state)
{
    u64 count = from_environment("PMU_INJECTIONS", 6000), seed = from_environment("PMU_SEED", 1);
    u64 random = seed, errors[256] = {0};
    for (u64 n = 0; n < count; n++) {
        struct injection j;
        struct flight f;
        struct pmu_tsc tsc;
        struct err err = {0};
        bool saw_other = false;
        choose(&j, &random);
        choose_fault(&j.faults, j.insns + 1, &random);
        begin(&f, j.event, j.program, j.random, &j.faults);
        assert_int_equal(pmu_tsc_init(&tsc, &fake_ops, &f.host, &err), 0);
        f.tsc = &tsc;
        pmu_tsc_set(&tsc, 4711);
        int code = 0;
        while (f.count < j.target && code >= 0) {
            code = enter(&f, j.target - f.count, &err);
            saw_other = saw_other || (f.host.tsc_read && f.host.tsc_last != 4711);
        }
        if (code < 0 ? !*err.text : !exact(&j, &f) || saw_other)
            again(&j, n, seed, &err);
        errors[code < 0 ? -code & 255 : 0]++;
    }
    print_message("%" PRIu64 " runs with any fault: %" PRIu64 " exact; told: overshoot %" PRIu64
                  ", counter lost %" PRIu64 ", another core %" PRIu64 ", tick %" PRIu64 "\n",
                  count, errors[0], errors[EOVERFLOW], errors[ENODATA], errors[EXDEV],
                  errors[ETIME]);
    assert_true(count < 1000 ||
                (errors[EOVERFLOW] && errors[ENODATA] && errors[EXDEV] && errors[ETIME]));
}

/* One slice; a tick in the middle of it takes it back to its begin, and it is run again. */
static void slice_with_rollback(struct flight *f, u64 value, unsigned *rolled)
{
    struct err err = {0};
    struct fake_host *h = &f->host;
    struct fake_cpu checkpoint = h->cpu;
    pmu_tsc_set(f->tsc, value);
    int code = enter(f, 150, &err);
    if (code == -ETIME) {
        h->cpu = checkpoint;
        h->pending = false;
        h->signal_at = h->overflow_at = NEVER;
        h->faults.stall_at = 0;
        code = enter(f, 150, &err);
        ++*rolled;
    }
    if (code < 0)
        fail_msg("%d %s", code, err.text);
    assert_true(!h->tsc_read || (h->tsc_first == value && h->tsc_last == value));
}

static void tsc_rollback(void **state)
{
    u64 random = from_environment("PMU_SEED", 1);
    unsigned rolled = 0;
    for (unsigned n = 0; n < 50; n++) {
        struct flight f;
        struct pmu_tsc tsc;
        struct err err = {0};
        begin(&f, &intel, 4, fake_random(&random),
              &(struct fake_faults){.ns_per_insn = 300, .skid = 100});
        struct fake_cpu truth = f.host.cpu;
        assert_int_equal(pmu_tsc_init(&tsc, &fake_ops, &f.host, &err), 0);
        f.tsc = &tsc;
        for (u64 value = 1; f.host.cpu.insns < 10000; value++) {
            f.host.faults.stall_at = f.host.cpu.insns + 1 + fake_random(&random) % 100;
            f.host.faults.stall_ns = fake_random(&random) % 2 ? 1500000 : 0;
            slice_with_rollback(&f, value, &rolled);
            while (truth.insns < f.host.cpu.insns)
                fake_step(f.host.seed, &truth);
            assert_int_equal(fake_hash(&truth), fake_hash(&f.host.cpu));
        }
    }
    assert_true(rolled > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(campaign),     cmocka_unit_test(one_by_one),
        cmocka_unit_test(limits),       cmocka_unit_test(counter_taken),
        cmocka_unit_test(another_core), cmocka_unit_test(lost_overflow),
        cmocka_unit_test(events),       cmocka_unit_test(tsc_stands),
        cmocka_unit_test(tsc_ticks),    cmocka_unit_test(tsc_rollback),
        cmocka_unit_test(everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
