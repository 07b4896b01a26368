/*
 * cpu/kvm/pmu.h on a host that misbehaves (pmu_fake.h): stops are exact while the skid is within
 * the margin, and whatever is not exact is told. PMU_INJECTIONS and PMU_SEED make the campaign
 * longer and another one.
 */
#include "cpu/kvm/pmu.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/kvm/counter.h"
#include "cpu/kvm/pmu_window.h"
#include "pmu_fake.h"

static const struct pmu_event intel = {.family = "test", .config = 1, .margin = 100};
static const struct pmu_event zen = {
    .family = "test, unbounded", .config = 2, .margin = 1000, .unbounded = true};

static u64 from_environment(const char *name, u64 otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 0) : otherwise;
}

/* What one injection is about: a program, a place in it, a fault. */
struct injection {
    u32 program;
    u64 random, insns; /* instructions to the target */
    struct fake_faults faults;
    const struct pmu_event *event;
    struct pmu_target target;
    struct fake_cpu truth; /* at the target */
};

static void aim(struct injection *j)
{
    struct fake_host h;
    struct err err = {0};
    struct pmu p;
    fake_init(&h, j->program, 0, &(struct fake_faults){0});
    while (h.cpu.insns < j->insns)
        fake_step(j->program, &h.cpu);
    j->truth = h.cpu;
    assert_int_equal(pmu_init(&p, &fake_ops, &h, j->event, NULL, &err), 0);
    assert_int_equal(pmu_position(&p, &j->target, &err), 0);
}

/* Runs to the target through all the program's exits: what pmu_run ended with. */
static int fly(const struct injection *j, struct fake_host *h, struct pmu *p, struct err *err)
{
    int code;
    fake_init(h, j->program, j->random, &j->faults);
    if (pmu_init(p, &fake_ops, h, j->event, NULL, err))
        fail_msg("%s", err->text);
    do
        code = pmu_run(p, &j->target, err);
    while (code == PMU_EXIT);
    return code;
}

/* Registers, RIP and count are the same at two instants of the run (no such program is kept). */
static bool exact(const struct injection *j, const struct fake_host *h)
{
    return h->cpu.insns == j->truth.insns && fake_hash(&h->cpu) == fake_hash(&j->truth);
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
    fail_msg("injection %" PRIu64 ": program 0x%x, target at instruction %" PRIu64 ": %s; again: "
             "PMU_SEED=%" PRIu64 " PMU_INJECTIONS=%" PRIu64 " test_pmu",
             n, j->program, j->insns, err->text, seed, n + 1);
}

/* Skid up to the margin, signals that come early, exits: always exact. Beyond it: exact by luck
 * (the overflow of this run was not needed), or told with the size. */
static void campaign(void **state)
{
    u64 count = from_environment("PMU_INJECTIONS", 6000), seed = from_environment("PMU_SEED", 1);
    u64 random = seed, told = 0, beyond = 0, steps = 0, skid = 0, rep = 0, still = 0;
    for (u64 n = 0; n < count; n++) {
        struct injection j;
        struct fake_host h;
        struct pmu p;
        struct err err = {0};
        choose(&j, &random);
        int code = fly(&j, &h, &p, &err);
        if (code != PMU_AT || !exact(&j, &h))
            again(&j, n, seed, &err);
        steps += p.stats.steps;
        skid = MAX(skid, p.stats.skid);
        struct fake_cpu next = j.truth;
        fake_step(j.program, &next);
        rep += next.rip == j.truth.rip;
        still += next.branches == j.truth.branches;
        /* The same target, and an overflow that comes too late. */
        j.faults.late = j.event->margin + 2 + (u32)(fake_random(&random) % 500);
        j.faults.lost = fake_random(&random) % 16 == 0;
        code = fly(&j, &h, &p, &err);
        bool needed = j.truth.branches > j.event->margin + 1u;
        beyond += needed;
        if (code == -EOVERFLOW) {
            u64 size = h.cpu.branches - j.target.branches;
            char text[64];
            snprintf(text, sizeof(text), "%" PRIu64 " beyond the target", size);
            if (!strstr(err.text, text) || !needed)
                again(&j, n, seed, &err);
            told++;
        } else if (code != PMU_AT || !exact(&j, &h)) {
            again(&j, n, seed, &err);
        }
    }
    print_message("%" PRIu64 " injections, seed %" PRIu64 ": all exact, %" PRIu64 " in a REP "
                  "string, %" PRIu64 " before no branch, largest skid %" PRIu64 ", %" PRIu64
                  " steps; %" PRIu64 " of %" PRIu64 " with too much skid told, the others exact\n",
                  count, seed, rep, still, skid, steps, told, beyond);
    assert_true(told > beyond / 4);
    assert_true(skid >= 1000 || count < 100);
}

static struct injection standard(u64 insns)
{
    struct injection j = {.program = 4, .random = 1, .insns = insns, .event = &intel};
    aim(&j);
    return j;
}

static void fails(struct injection *j, int code, const char *text)
{
    struct fake_host h;
    struct pmu p;
    struct err err = {0};
    int got = fly(j, &h, &p, &err);
    if (got != code || !strstr(err.text, text))
        fail_msg("%d %s instead of %d %s", got, err.text, code, text);
}

static void counter_taken(void **state)
{
    struct injection j = standard(50000);
    j.faults = (struct fake_faults){.taken_at = 3000};
    fails(&j, -ENODATA, "was taken");
    j.faults = (struct fake_faults){.wound_back = 3000, .early = 20};
    fails(&j, -ENODATA, "went back from");
}

static void another_core(void **state)
{
    struct injection j = standard(50000);
    j.faults = (struct fake_faults){.migrates_at = 20000};
    fails(&j, -EXDEV, "kind 0x40 to one of kind 0x20");
}

static void lost_overflow(void **state)
{
    struct injection j = standard(50000);
    j.faults = (struct fake_faults){.lost = true, .ns_per_insn = 1000};
    fails(&j, -EOVERFLOW, "the overflow was lost, or late");
}

/* A target of another run: told, not run past for ever. */
static void elsewhere(void **state)
{
    struct injection j = standard(50000);
    j.target.place.rcx ^= 1ull << 40;
    fails(&j, -ESRCH, "this is another run");
    j = standard(50000);
    j.target.hash ^= 1;
    fails(&j, -ESRCH, "this is another run");
    j = standard(50000);
    j.target.place.rip = 1 << 20;
    fails(&j, -ESRCH, "this is another run");
}

/* The same count, RIP, RCX and RSP twice and more often: the registers decide. */
static void ambiguous(void **state)
{
    unsigned found = 0;
    for (u32 program = 1; program < 3000 && found < 200; program++) {
        struct fake_cpu c, before[64] = {0};
        struct fake_host h;
        fake_init(&h, program, 0, &(struct fake_faults){0});
        for (c = h.cpu; c.insns < 2000;) {
            before[c.insns % ARRAY_SIZE(before)] = c;
            fake_step(program, &c);
            for (unsigned i = 0; i < ARRAY_SIZE(before); i++) {
                const struct fake_cpu *b = &before[i];
                if (c.insns < 64 || b->branches != c.branches || b->rip != c.rip ||
                    b->rcx != c.rcx || b->rsp != c.rsp || fake_hash(b) == fake_hash(&c))
                    continue;
                struct injection j = {
                    .program = program, .random = program, .insns = c.insns, .event = &intel};
                struct pmu p;
                struct err err = {0};
                aim(&j);
                if (fly(&j, &h, &p, &err) != PMU_AT || !exact(&j, &h))
                    fail_msg("program %u, instruction %" PRIu64 ": %s", program, c.insns, err.text);
                found++;
                break;
            }
        }
    }
    assert_true(found >= 20);
}

/* Directly behind branch N, for every N: that is one instant. */
static void first_behind(void **state)
{
    struct injection j = standard(0);
    struct fake_host h;
    struct pmu p;
    struct err err = {0};
    j.faults.skid = intel.margin;
    fake_init(&h, j.program, 3, &j.faults);
    assert_int_equal(pmu_init(&p, &fake_ops, &h, &intel, NULL, &err), 0);
    struct fake_cpu c = h.cpu;
    u64 random = 9;
    for (u64 n = 1; n < 20000; n += fake_random(&random) % 400) {
        struct pmu_target t = {.where = PMU_FIRST, .branches = n};
        int code;
        do
            code = pmu_run(&p, &t, &err);
        while (code == PMU_EXIT);
        while (c.branches < n)
            fake_step(j.program, &c);
        assert_int_equal(code, PMU_AT);
        assert_int_equal(c.insns, h.cpu.insns);
    }
}

/* Anywhere means soon: where the CPU stops by itself. And a kick ends any run. */
static void anywhere_and_kicks(void **state)
{
    struct fake_host h;
    struct pmu p;
    struct err err = {0};
    fake_init(&h, 8, 3, &(struct fake_faults){.skid = 100});
    assert_int_equal(pmu_init(&p, &fake_ops, &h, &intel, NULL, &err), 0);
    struct pmu_target t = {.where = PMU_ANYWHERE, .branches = 5000};
    int code;
    do
        code = pmu_run(&p, &t, &err);
    while (code == PMU_EXIT);
    assert_int_equal(code, PMU_AT);
    assert_in_range(h.cpu.branches, 5000, 5100);
    assert_int_equal(p.stats.steps + p.stats.breakpoints, 0);
    pmu_kick(&p);
    u64 insns = h.cpu.insns;
    assert_int_equal(pmu_run(&p, NULL, &err), PMU_KICKED);
    assert_int_equal(h.cpu.insns, insns);
    assert_int_equal(pmu_run(&p, NULL, &err), PMU_EXIT);
    /* What lies behind is not run to. */
    t.where = PMU_EXACT;
    assert_int_equal(pmu_run(&p, &t, &err), -ESRCH);
}

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
        struct fake_host h;
        struct pmu_tsc tsc;
        struct pmu p;
        struct err err = {0};
        struct fake_faults f = {.ns_per_insn = 100 + fake_random(&random) % 3000,
                                .skid = 100,
                                .kick_latency = fake_random(&random) % 40000};
        fake_init(&h, (u32)fake_random(&random), fake_random(&random), &f);
        assert_int_equal(pmu_tsc_init(&tsc, &fake_ops, &h, &err), 0);
        assert_int_equal(pmu_init(&p, &fake_ops, &h, &intel, &tsc, &err), 0);
        for (u64 value = 1000; h.cpu.insns < 20000; value += 1 + fake_random(&random) % 100000) {
            struct pmu_target t = {.where = PMU_FIRST, .branches = h.cpu.branches + 300};
            pmu_tsc_set(&tsc, value);
            int code = pmu_run(&p, &t, &err);
            if (code < 0)
                fail_msg("seed %" PRIu64 ", host %" PRIu64 ": %s", seed, n, err.text);
            if (h.tsc_read) {
                assert_int_equal(h.tsc_first, value);
                assert_int_equal(h.tsc_last, value);
            }
        }
        slices += tsc.slices;
        assert_int_equal(tsc.over, 0);
    }
    print_message("%" PRIu64 " hosts, %" PRIu64 " slices, seed %" PRIu64 "\n", count, slices, seed);
    assert_true(slices > 10 * count);
}

static int held_up(struct fake_faults f, struct err *err)
{
    struct fake_host h;
    struct pmu_tsc tsc;
    struct pmu p;
    int code;
    fake_init(&h, 6, 1, &f);
    code = pmu_tsc_init(&tsc, &fake_ops, &h, err);
    if (code)
        return code;
    assert_int_equal(pmu_init(&p, &fake_ops, &h, &intel, &tsc, err), 0);
    pmu_tsc_set(&tsc, 77);
    struct pmu_target t = {.where = PMU_ANYWHERE, .branches = 20000};
    do
        code = pmu_run(&p, &t, err);
    while (code == PMU_EXIT);
    assert_int_equal(tsc.over, code == -ETIME);
    return code;
}

static void tsc_ticks(void **state)
{
    struct err err = {0};
    struct fake_faults f = {.ns_per_insn = 300};
    assert_int_equal(held_up(f, &err), PMU_AT);
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

/* As the engine runs it (counter.h): free while far, then step by step; never beyond, and all
 * counts add up. */
static int by_windows(struct fake_host *h, u64 target, struct err *err)
{
    struct pmu_window w;
    u64 count = 0, events;
    pmu_window_init(&w, &fake_ops, h, &intel);
    while (count < target) {
        int code = pmu_window_start(&w, target - count, err);
        if (code < 0)
            return code;
        fake_ops.debug(h, code == COUNTER_STEP, NULL, err);
        fake_ops.kick_at(h, h->ns + 1000000);
        fake_ops.run(h, err);
        code = pmu_window_stop(&w, &events, err);
        if (code)
            return code;
        count += events;
    }
    return 0;
}

static void windows(void **state)
{
    u64 count = from_environment("PMU_INJECTIONS", 6000) / 4,
        seed = from_environment("PMU_SEED", 1);
    u64 random = seed, told = 0;
    for (u64 n = 0; n < count; n++) {
        struct fake_host h;
        struct err err = {0};
        struct fake_faults f = {
            .skid = intel.margin, .early = fake_random(&random) % 10, .ns_per_insn = 500};
        u32 program = (u32)fake_random(&random);
        u64 noise = fake_random(&random), target = 1 + fake_random(&random) % 1500;
        fake_init(&h, program, 0, &(struct fake_faults){0});
        struct fake_cpu truth = h.cpu;
        while (truth.branches < target && truth.insns < 200000)
            fake_step(program, &truth);
        if (truth.branches < target)
            continue; /* a program that ends up without branches */
        fake_init(&h, program, noise, &f);
        if (by_windows(&h, target, &err) || h.cpu.insns != truth.insns)
            fail_msg("window %" PRIu64 ", PMU_SEED=%" PRIu64 ": %s", n, seed, err.text);
        f.late = intel.margin + 1 + (u32)(fake_random(&random) % 400);
        fake_init(&h, program, noise, &f);
        int code = by_windows(&h, target, &err);
        if (code != -EOVERFLOW && (code || h.cpu.insns != truth.insns))
            fail_msg("window %" PRIu64 ", PMU_SEED=%" PRIu64 ": %d %s", n, seed, code, err.text);
        told += code == -EOVERFLOW;
    }
    assert_true(told > count / 8);
    struct fake_host h;
    struct err err = {0};
    fake_init(&h, 4, 1, &(struct fake_faults){.taken_at = 300});
    assert_int_equal(by_windows(&h, 5000, &err), -ENODATA);
    fake_init(&h, 4, 1, &(struct fake_faults){.migrates_at = 300});
    assert_int_equal(by_windows(&h, 5000, &err), -EXDEV);
    fake_init(&h, 4, 1, &(struct fake_faults){.wound_back = 300, .early = 20});
    assert_int_equal(by_windows(&h, 5000, &err), -ENODATA);
}

static void choose_fault(struct fake_faults *f, u64 length, u64 *random)
{
    f->ns_per_insn = 50 + fake_random(random) % 1000;
    f->kick_latency = fake_random(random) % 50000;
    u64 at = 1 + fake_random(random) % length;
    switch (fake_random(random) % 8) {
    case 0: f->taken_at = at; break;
    case 1: f->wound_back = at; break;
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
    u64 random = seed, errors[256] = {0}, exact_ones = 0;
    for (u64 n = 0; n < count; n++) {
        struct injection j;
        struct fake_host h;
        struct pmu_tsc tsc;
        struct pmu p;
        struct err err = {0};
        bool saw_other = false;
        choose(&j, &random);
        choose_fault(&j.faults, j.insns + 1, &random);
        fake_init(&h, j.program, j.random, &j.faults);
        assert_int_equal(pmu_tsc_init(&tsc, &fake_ops, &h, &err), 0);
        int code = pmu_init(&p, &fake_ops, &h, j.event, &tsc, &err);
        pmu_tsc_set(&tsc, 4711);
        do {
            code = code < 0 ? code : pmu_run(&p, &j.target, &err);
            saw_other = saw_other || (h.tsc_read && h.tsc_last != 4711);
        } while (code == PMU_EXIT);
        if (code == PMU_AT ? !exact(&j, &h) || saw_other : code >= 0 || !*err.text)
            again(&j, n, seed, &err);
        exact_ones += code == PMU_AT;
        errors[code < 0 ? -code & 255 : 0]++;
    }
    print_message("%" PRIu64 " runs with any fault: %" PRIu64 " exact; told: overshoot %" PRIu64
                  ", counter lost %" PRIu64 ", another core %" PRIu64 ", tick %" PRIu64
                  ", another run %" PRIu64 "\n",
                  count, exact_ones, errors[EOVERFLOW], errors[ENODATA], errors[EXDEV],
                  errors[ETIME], errors[ESRCH]);
    assert_true(errors[EOVERFLOW] && errors[ENODATA] && errors[EXDEV] && errors[ETIME]);
}

/* One slice; a tick in the middle of it takes it back to its begin, and it is run again. */
static void slice_with_rollback(struct fake_host *h, struct pmu *p, struct pmu_tsc *tsc, u64 value,
                                unsigned *rolled)
{
    struct err err = {0};
    struct fake_cpu checkpoint = h->cpu;
    struct pmu_target t = {.where = PMU_ANYWHERE, .branches = h->cpu.branches + 50};
    pmu_tsc_set(tsc, value);
    int code = pmu_run(p, &t, &err);
    if (code == -ETIME) {
        h->cpu = checkpoint;
        h->pending = false;
        h->signal_at = h->overflow_at = NEVER;
        h->faults.stall_at = 0;
        assert_int_equal(pmu_init(p, &fake_ops, h, &intel, tsc, &err), 0);
        code = pmu_run(p, &t, &err);
        ++*rolled;
    }
    if (code != PMU_AT && code != PMU_EXIT)
        fail_msg("%d %s", code, err.text);
    assert_true(!h->tsc_read || (h->tsc_first == value && h->tsc_last == value));
}

static void tsc_rollback(void **state)
{
    u64 random = from_environment("PMU_SEED", 1);
    unsigned rolled = 0;
    for (unsigned n = 0; n < 50; n++) {
        struct fake_faults f = {.ns_per_insn = 300, .skid = 100};
        struct fake_host h;
        struct pmu_tsc tsc;
        struct pmu p;
        struct err err = {0};
        fake_init(&h, 4, fake_random(&random), &f);
        struct fake_cpu truth = h.cpu;
        assert_int_equal(pmu_tsc_init(&tsc, &fake_ops, &h, &err), 0);
        assert_int_equal(pmu_init(&p, &fake_ops, &h, &intel, &tsc, &err), 0);
        for (u64 value = 1; h.cpu.insns < 10000; value++) {
            h.faults.stall_at = h.cpu.insns + 1 + fake_random(&random) % 100;
            h.faults.stall_ns = fake_random(&random) % 2 ? 1500000 : 0;
            slice_with_rollback(&h, &p, &tsc, value, &rolled);
            while (truth.insns < h.cpu.insns)
                fake_step(h.seed, &truth);
            assert_int_equal(fake_hash(&truth), fake_hash(&h.cpu));
        }
    }
    assert_true(rolled > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(campaign),     cmocka_unit_test(counter_taken),
        cmocka_unit_test(another_core), cmocka_unit_test(lost_overflow),
        cmocka_unit_test(elsewhere),    cmocka_unit_test(ambiguous),
        cmocka_unit_test(first_behind), cmocka_unit_test(anywhere_and_kicks),
        cmocka_unit_test(events),       cmocka_unit_test(tsc_stands),
        cmocka_unit_test(tsc_ticks),    cmocka_unit_test(tsc_rollback),
        cmocka_unit_test(windows),      cmocka_unit_test(everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
