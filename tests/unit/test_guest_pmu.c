/*
 * The registers of the guest's performance counters (cpu/x86/pmu.c): which there are, the bits that
 * a write may have, and what is read back. SDM vol. 4, table 2-2, and vol. 3, chapter 20; APM vol.
 * 2, 13.2. What counters count is tests/insn's (insn --counters).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "board/ram.h"
#include "cpu/engine.h"
#include "cpu/x86/pmu.h"

#define WIDTH 0xffffffffffffull /* 48 bits */

static unsigned told; /* interrupts of counters, */
static void *told_of; /* of the last one the CPU (engine_env.cpu) */

static void pmi(void *cpu, bool mask)
{
    (void)mask;
    told++;
    told_of = cpu;
}

static const struct engine_env env = {.pmi = pmi};

struct cpu {
    struct ram ram;
    struct engine *engine;
};

static struct core *start(struct cpu *c, enum cpu_model model, bool pmu)
{
    struct err err = {0};
    const struct engine_config config = {.model = model,
                                         .ram = &c->ram,
                                         .env = &env,
                                         .kind = ENGINE_DBT,
                                         .revision = ENGINE_REVISION,
                                         .pmu = pmu};

    assert_int_equal(ram_create(&c->ram, 16 << 20, &err), 0);
    assert_int_equal(engine_create(&c->engine, &config, &err), 0);
    return core_of(c->engine);
}

static void stop(struct cpu *c)
{
    engine_destroy(c->engine);
    ram_destroy(&c->ram);
}

enum { GP = 1, NONE = 2 }; /* a fault; not a register of this CPU's counters */

static int write_msr(struct core *d, u32 msr, u64 v)
{
    bool ok = false;

    return !pmu_wrmsr(d, msr, v, &ok) ? NONE : ok ? 0 : GP;
}

static int read_msr(struct core *d, u32 msr, u64 *v)
{
    bool ok = false;

    return !pmu_rdmsr(d, msr, v, &ok) ? NONE : ok ? 0 : GP;
}

/* Every bit by itself: exactly those of `may` can be written, and are read back, but for `pulse`.
 */
static void bits(enum cpu_model model, u32 msr, u64 may, bool pulse)
{
    struct cpu c;
    struct core *d = start(&c, model, true);

    for (unsigned i = 0; i < 64; i++) {
        u64 v = 1ull << i, got = ~0ull;

        if (write_msr(d, msr, v) != (may & v ? 0 : GP))
            fail_msg("%s: bit %u of MSR %x", cpu_model_name(model), i, msr);
        if (!(may & v))
            continue;
        assert_int_equal(read_msr(d, msr, &got), 0);
        if (got != (pulse ? 0 : v))
            fail_msg("%s: MSR %x: %llx was written, %llx read", cpu_model_name(model), msr,
                     (unsigned long long)v, (unsigned long long)got);
    }
    stop(&c);
}

static const struct {
    enum cpu_model model;
    u64 select, fixed, reset, set; /* may be written; set: 0 is no register */
} intels[] = {
    {CPU_NEHALEM, 0xffffffff, 0xfff, 0xc00000070000000f, 0},
    {CPU_HASWELL, 0xffffffff, 0xfff, 0xc00000070000000f, 0},
    {CPU_SKYLAKE_SERVER, 0xffffffff, 0xfff, 0xfc8000070000000f, 0x7c8000070000000f},
    /* Version 5 has no any-thread bits. */
    {CPU_ICELAKE_SERVER, 0xffdfffff, 0xbbb, 0xfc8000070000000f, 0x7c8000070000000f},
};

static void intel_bits(void **state)
{
    (void)state;
    for (unsigned k = 0; k < ARRAY_SIZE(intels); k++) {
        enum cpu_model m = intels[k].model;

        for (u32 i = 0; i < 4; i++) {
            bits(m, 0x186 + i, intels[k].select, false);
            bits(m, 0x4c1 + i, WIDTH, false);
        }
        for (u32 i = 0; i < 3; i++)
            bits(m, 0x309 + i, WIDTH, false);
        bits(m, 0x38d, intels[k].fixed, false);
        bits(m, 0x38f, 0x70000000f, false);
        bits(m, 0x390, intels[k].reset, true);
        if (intels[k].set)
            bits(m, 0x391, intels[k].set, true);
        bits(m, 0x1d9, 0x1803, false);
        bits(m, 0x1c8, m == CPU_NEHALEM ? 0x1ff : 0x3ff, false);
        bits(m, 0x1c9, m == CPU_NEHALEM || m == CPU_HASWELL ? 0xf : 0x1f, false);
        if (m == CPU_SKYLAKE_SERVER || m == CPU_ICELAKE_SERVER)
            bits(m, 0xdc0, 0xe00000000000ffff, false);
    }
}

static void amd_bits(void **state)
{
    (void)state;
    for (u32 i = 0; i < 12; i++)
        if (i % 2 == 0)
            bits(CPU_ZEN2, 0xc0010200 + i, 0x30fffdfffff, false);
    for (u32 i = 0; i < 4; i++)
        bits(CPU_ZEN2, 0xc0010000 + i, 0x30fffdfffff, false);
    bits(CPU_ZEN2, 0x1d9, 2, false);
}

/* Read-only, whatever is written; and those that a version or a maker does not have. */
static void absent(void **state)
{
    static const struct {
        enum cpu_model model;
        u32 msr;
        int reads, writes;
    } rows[] = {
        {CPU_SKYLAKE_SERVER, 0x38e, 0, GP},
        {CPU_SKYLAKE_SERVER, 0x345, 0, GP},
        {CPU_SKYLAKE_SERVER, 0x392, 0, GP},
        {CPU_SKYLAKE_SERVER, 0xc5, NONE, NONE},
        {CPU_SKYLAKE_SERVER, 0x18a, NONE, NONE},
        {CPU_SKYLAKE_SERVER, 0x30c, NONE, NONE},
        {CPU_SKYLAKE_SERVER, 0x4c5, NONE, NONE},
        {CPU_SKYLAKE_SERVER, 0x4c0, NONE, NONE},
        {CPU_HASWELL, 0x391, NONE, NONE},
        {CPU_HASWELL, 0x38e, 0, GP},
        {CPU_ZEN2, 0xc1, NONE, NONE},
        {CPU_ZEN2, 0x186, NONE, NONE},
        {CPU_ZEN2, 0x38f, NONE, NONE},
        {CPU_ZEN2, 0x38e, NONE, NONE},
        {CPU_ZEN2, 0xc001020c, NONE, NONE},
        {CPU_ZEN2, 0xc0010008, NONE, NONE},
        {CPU_SKYLAKE_SERVER, 0xc0010200, NONE, NONE},
        {CPU_SKYLAKE_SERVER, 0x69f, 0, 0},
        {CPU_SKYLAKE_SERVER, 0x6a0, NONE, NONE},
        {CPU_HASWELL, 0x690, NONE, NONE},
        {CPU_HASWELL, 0x6d0, NONE, NONE},
        {CPU_HASWELL, 0xdc0, NONE, NONE},
        {CPU_ZEN2, 0x680, NONE, NONE},
        {CPU_ZEN2, 0x1c9, NONE, NONE},
    };
    struct cpu c;
    u64 v;

    (void)state;
    for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
        struct core *d = start(&c, rows[i].model, true);

        if (read_msr(d, rows[i].msr, &v) != rows[i].reads ||
            write_msr(d, rows[i].msr, 0) != rows[i].writes)
            fail_msg("%s: MSR %x", cpu_model_name(rows[i].model), rows[i].msr);
        stop(&c);
    }
    struct core *d = start(&c, CPU_SKYLAKE_SERVER, false);
    assert_int_equal(read_msr(d, 0xc1, &v), NONE);
    assert_int_equal(read_msr(d, 0x38f, &v), NONE);
    assert_int_equal(read_msr(d, 0x1d9, &v), NONE);
    assert_false(pmu_rdpmc(d, 0, &v));
    stop(&c);
}

/* IA32_PMCx takes 32 bits and their sign, IA32_A_PMCx all 48; AMD's counters what they have. */
static void widths(void **state)
{
    struct cpu c;
    struct core *d = start(&c, CPU_SKYLAKE_SERVER, true);
    u64 v;

    (void)state;
    assert_int_equal(write_msr(d, 0xc1, 0x80000000), 0);
    assert_int_equal(read_msr(d, 0xc1, &v), 0);
    assert_int_equal(v, 0xffff80000000);
    assert_int_equal(read_msr(d, 0x4c1, &v), 0);
    assert_int_equal(v, 0xffff80000000);
    assert_int_equal(write_msr(d, 0xc1, 0x123456787fffffff), 0);
    assert_int_equal(read_msr(d, 0xc1, &v), 0);
    assert_int_equal(v, 0x7fffffff);
    assert_int_equal(write_msr(d, 0x4c1, 0x80000000), 0);
    assert_true(pmu_rdpmc(d, 0, &v));
    assert_int_equal(v, 0x80000000);
    stop(&c);

    d = start(&c, CPU_ZEN2, true);
    assert_int_equal(write_msr(d, 0xc0010203, -5ull), 0);
    assert_int_equal(read_msr(d, 0xc0010203, &v), 0);
    assert_int_equal(v, -5ull & WIDTH);
    assert_int_equal(read_msr(d, 0xc0010005, &v), 0); /* the same by its old number */
    assert_int_equal(v, -5ull & WIDTH);
    assert_int_equal(write_msr(d, 0xc0010003, 0x4300c0), 0);
    assert_int_equal(read_msr(d, 0xc0010206, &v), 0);
    assert_int_equal(v, 0x4300c0);
    stop(&c);
}

static void rdpmc_indices(void **state)
{
    struct cpu c;
    u64 v;

    (void)state;
    struct core *d = start(&c, CPU_SKYLAKE_SERVER, true);
    for (u64 i = 0; i < 4; i++)
        assert_true(pmu_rdpmc(d, (u32)i, &v));
    for (u64 i = 0; i < 3; i++)
        assert_true(pmu_rdpmc(d, (u32)(0x40000000 + i), &v));
    static const u32 bad[] = {4, 5, 0x20000000, 0x40000003, 0x80000000, 0xc0000000, 0xffffffff};
    for (unsigned i = 0; i < ARRAY_SIZE(bad); i++)
        assert_false(pmu_rdpmc(d, bad[i], &v));
    stop(&c);
    d = start(&c, CPU_ZEN2, true);
    for (u32 i = 0; i < 6; i++)
        assert_true(pmu_rdpmc(d, i, &v));
    assert_false(pmu_rdpmc(d, 6, &v));
    assert_false(pmu_rdpmc(d, 0x40000000, &v));
    stop(&c);
}

/* Status bits are set and reset by registers of their own; GLOBAL_INUSE follows the others. */
static void status(void **state)
{
    struct cpu c;
    struct core *d = start(&c, CPU_SKYLAKE_SERVER, true);
    u64 v;

    (void)state;
    assert_int_equal(read_msr(d, 0x38f, &v), 0);
    assert_int_equal(v, 0xf); /* at power-on (SDM vol. 3, table 10-1) */
    assert_int_equal(write_msr(d, 0x391, 1ull << 59 | 5), 0);
    assert_int_equal(read_msr(d, 0x38e, &v), 0);
    assert_int_equal(v, 1ull << 59 | 5);
    assert_int_equal(write_msr(d, 0x38e, 0), GP);
    assert_int_equal(write_msr(d, 0x390, 4), 0);
    assert_int_equal(read_msr(d, 0x38e, &v), 0);
    assert_int_equal(v, 1ull << 59 | 1);
    assert_int_equal(write_msr(d, 0x390, 1ull << 59 | 1), 0);
    assert_int_equal(read_msr(d, 0x38e, &v), 0);
    assert_int_equal(v, 0);
    assert_int_equal(read_msr(d, 0x392, &v), 0);
    assert_int_equal(v, 0);
    assert_int_equal(write_msr(d, 0x187, 0x5300c0), 0); /* with INT */
    assert_int_equal(write_msr(d, 0x38d, 0x300), 0);
    assert_int_equal(read_msr(d, 0x392, &v), 0);
    assert_int_equal(v, 1ull << 63 | 1ull << 34 | 2);
    stop(&c);
}

/* Freeze on PMI: of version 4 a bit of the status, before it all of GLOBAL_CTRL. */
static void freeze(void **state)
{
    static const enum cpu_model models[] = {CPU_HASWELL, CPU_SKYLAKE_SERVER};

    (void)state;
    for (unsigned i = 0; i < ARRAY_SIZE(models); i++) {
        struct cpu c;
        struct core *d = start(&c, models[i], true);
        u64 v;

        told = 0;
        assert_int_equal(write_msr(d, 0x1d9, 0x1000), 0);
        assert_int_equal(write_msr(d, 0x38d, 0xb0), 0); /* cycles, everywhere, INT */
        assert_int_equal(write_msr(d, 0x38f, 0x70000000f), 0);
        assert_int_equal(write_msr(d, 0x30a, WIDTH), 0);
        d->target_pos += 3; /* as if three positions had passed */
        assert_true(pmu_sync(d));
        d->target_pos += 7;
        assert_false(pmu_sync(d));
        assert_int_equal(told, 1);
        assert_int_equal(read_msr(d, 0x30a, &v), 0);
        assert_int_equal(v, 2);
        assert_int_equal(read_msr(d, 0x38e, &v), 0);
        assert_int_equal(v, 1ull << 33 | (models[i] == CPU_HASWELL ? 0 : 1ull << 59));
        assert_int_equal(read_msr(d, 0x38f, &v), 0);
        assert_int_equal(v, models[i] == CPU_HASWELL ? 0 : 0x70000000full);
        stop(&c);
    }
}

/* Two cores of two threads. AnyThread counts both threads of the core, each in its own ring, up to
 * version 4 and from machine revision 9 on. */
static void threads(void **state)
{
    static const struct {
        enum cpu_model model;
        u32 revision;
        bool counts;
    } rows[] = {
        {CPU_NEHALEM, 9, true},
        {CPU_HASWELL, 9, true},
        {CPU_SKYLAKE_SERVER, 9, true},
        {CPU_SKYLAKE_SERVER, 8, false},
    };

    (void)state;
    for (unsigned k = 0; k < ARRAY_SIZE(rows); k++) {
        struct ram ram;
        struct engine *e[4];
        struct engine_env own[4];
        struct core *d[4];
        struct err err = {0};
        u64 v;

        assert_int_equal(ram_create(&ram, 16 << 20, &err), 0);
        for (u32 i = 0; i < 4; i++) {
            own[i] = (struct engine_env){.cpu = &own[i], .pmi = pmi};
            const struct engine_config config = {.model = rows[k].model,
                                                 .ram = &ram,
                                                 .env = &own[i],
                                                 .kind = ENGINE_DBT,
                                                 .revision = rows[k].revision,
                                                 .pmu = true,
                                                 .id = i,
                                                 .parts = {4, 2, 2},
                                                 .sibling = i ? e[0] : NULL};
            assert_int_equal(engine_create(&e[i], &config, &err), 0);
            d[i] = core_of(e[i]);
        }
        assert_int_equal(write_msr(d[0], 0x38f, 0x70000000f), 0);
        assert_int_equal(write_msr(d[0], 0x38d, 0x770), 0);    /* cycles and reference cycles */
        assert_int_equal(write_msr(d[0], 0x186, 0x7300c0), 0); /* instructions, any thread */
        assert_int_equal(write_msr(d[0], 0x187, 0x5300c0), 0); /* its own */
        assert_int_equal(write_msr(d[0], 0x188, 0x7200c0), 0); /* any thread's in ring 0 */
        assert_int_equal(write_msr(d[0], 0x189, 0x7100c0), 0); /* ... in other rings */
        assert_int_equal(write_msr(d[0], 0xc1, (u64)-20), 0);
        told = 0;
        for (u32 i = 0; i < 4; i++) {
            d[i]->target_pos += 10u << 4 * i;
            assert_int_equal(pmu_sync(d[i]), i == 1 && rows[k].counts);
        }
        u64 both = rows[k].counts ? 10 + 160 : 10;
        const u64 due[] = {(both - 20) & WIDTH, 10, both, 0};
        for (u32 i = 0; i < 4; i++) {
            assert_int_equal(read_msr(d[0], 0xc1 + i, &v), 0);
            if (v != due[i])
                fail_msg("%s, revision %u, counter %u: %llx", cpu_model_name(rows[k].model),
                         rows[k].revision, i, (unsigned long long)v);
        }
        assert_int_equal(read_msr(d[0], 0x30a, &v), 0);
        assert_int_equal(v, both);
        assert_int_equal(read_msr(d[0], 0x38e, &v), 0);
        assert_int_equal(v, rows[k].counts);
        assert_int_equal(told, rows[k].counts);
        assert_true(!rows[k].counts || told_of == &own[0]);
        assert_int_equal(read_msr(d[1], 0xc1, &v), 0);
        assert_int_equal(v, 0);
        /* The other one stops there, too. */
        if (rows[k].counts) {
            assert_int_equal(write_msr(d[0], 0x4c1, WIDTH - 6), 0);
            assert_int_equal(pmu_distance(d[1]), 7);
            assert_int_equal(pmu_distance(d[2]), NEVER);
        }
        for (u32 i = 0; i < 4; i++)
            engine_destroy(e[i]);
        ram_destroy(&ram);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(intel_bits),    cmocka_unit_test(amd_bits), cmocka_unit_test(absent),
        cmocka_unit_test(widths),        cmocka_unit_test(status),   cmocka_unit_test(freeze),
        cmocka_unit_test(rdpmc_indices), cmocka_unit_test(threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
