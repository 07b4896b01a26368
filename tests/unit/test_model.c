/* cpu/model.h: the facts Linux and the engine rely on, and what must never appear. */
#include "cpu/model.h"
#include "cpu/vcpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <xxhash.h>

#include <cmocka.h>

static struct cpuid_result id(enum cpu_model m, u32 leaf, u32 subleaf)
{
    struct cpuid_live live = {.cr4 = 0, .xcr0 = 1, .apic_enabled = true, .apic_id = 0};
    struct cpuid_result r;
    cpu_model_cpuid(m, leaf, subleaf, &live, &r);
    return r;
}

static void names(void **state)
{
    assert_string_equal(cpu_model_name(CPU_X86_64_V2), "x86-64-v2");
    assert_int_equal(cpu_model_find("x86-64-v3"), CPU_X86_64_V3);
    assert_int_equal(cpu_model_find("x86-64-v4"), CPU_MODEL_NONE);
    assert_int_equal(cpu_model_find(""), CPU_MODEL_NONE);
    assert_null(cpu_model_name(CPU_MODEL_NONE));
    assert_null(cpu_model_name(99));
    assert_non_null(cpu_model_host_lacks(CPU_MODEL_NONE));
    assert_null(cpu_model_host_lacks(CPU_X86_64_V2)); /* or no test could run */
}

static void identity(void **state)
{
    for (enum cpu_model m = CPU_X86_64_V2; m <= CPU_X86_64_V3; m++) {
        struct cpuid_result r = id(m, 0, 0);
        char text[49] = {0};
        assert_true(r.eax >= 0x16);
        memcpy(text, &r.ebx, 4);
        memcpy(text + 4, &r.edx, 4);
        memcpy(text + 8, &r.ecx, 4);
        assert_string_equal(text, "GenuineIntel");
        r = id(m, 1, 0);
        assert_int_equal(r.eax >> 8 & 15, 6);
        assert_true((r.eax >> 12 & 0xf0) + (r.eax >> 4 & 15) > 0xe);
        memset(text, 0, sizeof(text));
        for (u32 i = 0; i < 3; i++) {
            r = id(m, 0x80000002 + i, 0);
            memcpy(text + 16 * i, &r, 16);
        }
        assert_memory_equal(text, "Reprise x86-64-v", 16);
        r = id(m, 0x40000000, 0);
        assert_memory_equal(&r.ebx, "KVMKVMKVM\0\0\0", 12);
        r = id(m, 0x40000001, 0);
        assert_int_equal(r.eax | r.ebx | r.ecx | r.edx, 0);
    }
}

static void clocks(void **state)
{
    struct cpuid_result r = id(CPU_X86_64_V2, 0x15, 0);
    assert_int_equal((u64)r.ecx * r.ebx / r.eax, TSC_HZ);
    assert_int_equal(r.eax, 1);
    assert_int_equal(r.ebx, 40);
    assert_int_equal(r.ecx, 25000000);
    assert_int_equal(id(CPU_X86_64_V2, 0x16, 0).eax, 1000);
    assert_true(id(CPU_X86_64_V2, 6, 0).eax & 4);               /* ARAT */
    assert_true(id(CPU_X86_64_V2, 0x80000007, 0).edx & 1 << 8); /* invariant TSC */
    assert_true(id(CPU_X86_64_V2, 1, 0).ecx & 1 << 24);         /* TSC deadline */
    assert_true(id(CPU_X86_64_V2, 7, 0).ebx & 1 << 1);          /* TSC_ADJUST */
    /* Beyond the last basic leaf: the last one's data. */
    struct cpuid_result b = id(CPU_X86_64_V2, 0x17, 0);
    assert_int_equal(b.eax, 1000);
}

static void never(void **state)
{
    for (enum cpu_model m = CPU_X86_64_V2; m <= CPU_X86_64_V3; m++) {
        struct cpuid_result l1 = id(m, 1, 0), l7 = id(m, 7, 0), d1 = id(m, 0xd, 1);
        assert_false(l1.ecx & (1u << 3 | 1u << 30));            /* MONITOR, RDRAND */
        assert_false(l7.ebx & (1u << 4 | 1u << 11 | 1u << 18)); /* HLE, RTM, RDSEED */
        assert_false(l7.ebx & 1u << 6);                         /* FDP_EXCPTN_ONLY */
        assert_true(l7.ebx & 1u << 13);                         /* no FCS, FDS */
        assert_false(l7.ecx & (1u << 3 | 1u << 4));             /* PKU */
        assert_false(l7.edx & 1u << 20);                        /* CET */
        assert_int_equal(d1.eax | d1.ebx | d1.ecx | d1.edx, 0);
        assert_true(l1.ecx & 1u << 31);
        assert_int_equal(id(m, 0xa, 0).eax, 0);
        assert_int_equal(id(m, 5, 0).edx, 0);
    }
}

static void levels(void **state)
{
    const u32 v3_1c = 1u << 12 | 1u << 22 | 1u << 28 | 1u << 29;
    const u32 v3_7b = 1u << 3 | 1u << 5 | 1u << 8;
    struct cpuid_result a = id(CPU_X86_64_V2, 1, 0), b = id(CPU_X86_64_V3, 1, 0);
    assert_int_equal(a.ecx & v3_1c, 0);
    assert_int_equal(b.ecx, a.ecx | v3_1c);
    assert_int_equal(b.edx, a.edx);
    a = id(CPU_X86_64_V2, 7, 0), b = id(CPU_X86_64_V3, 7, 0);
    assert_int_equal(a.ebx & v3_7b, 0);
    assert_int_equal(b.ebx, a.ebx | v3_7b);
    assert_int_equal(id(CPU_X86_64_V2, 0x80000001, 0).ecx, 1);
    assert_int_equal(id(CPU_X86_64_V3, 0x80000001, 0).ecx, 1 | 1 << 5);
    assert_int_equal(id(CPU_X86_64_V2, 0xd, 0).ecx, 576);
    assert_int_equal(id(CPU_X86_64_V3, 0xd, 0).ecx, 832);
    assert_int_equal(id(CPU_X86_64_V3, 0xd, 0).ebx, 576); /* XCR0 is 1 */
    assert_int_equal(id(CPU_X86_64_V3, 0xd, 2).eax, 256);
    assert_int_equal(id(CPU_X86_64_V2, 0xd, 2).eax, 0);
    assert_int_equal(cpu_model_xcr0(CPU_X86_64_V2), 3);
    assert_int_equal(cpu_model_xcr0(CPU_X86_64_V3), 7);
}

static void live_bits(void **state)
{
    struct cpuid_live live = {.cr4 = CR4_OSXSAVE, .xcr0 = 7, .apic_enabled = false, .apic_id = 5};
    struct cpuid_result r;
    cpu_model_cpuid(CPU_X86_64_V3, 1, 0, &live, &r);
    assert_true(r.ecx & 1u << 27);
    assert_false(r.edx & 1u << 9);
    assert_int_equal(r.ebx >> 24, 5);
    cpu_model_cpuid(CPU_X86_64_V3, 0xb, 1, &live, &r);
    assert_int_equal(r.edx, 5);
    assert_int_equal(r.ecx, 0x201);
    cpu_model_cpuid(CPU_X86_64_V3, 0xd, 0, &live, &r);
    assert_int_equal(r.ebx, 832);
}

/* Released models do not change: a hash over every leaf. */
static void frozen(void **state)
{
    static const u64 hashes[] = {0x9cf7ddf7b4303354ull, 0xe797bea0209c633full};
    for (enum cpu_model m = CPU_X86_64_V2; m <= CPU_X86_64_V3; m++) {
        static const u32 bases[] = {0, 0x40000000, 0x80000000};
        u64 h = ARCH_CAPABILITIES_VALUE;
        for (size_t b = 0; b < ARRAY_SIZE(bases); b++)
            for (u32 leaf = 0; leaf < 0x30; leaf++)
                for (u32 sub = 0; sub < 8; sub++) {
                    struct cpuid_result r = id(m, bases[b] + leaf, sub);
                    h = XXH3_64bits_withSeed(&r, sizeof(r), h);
                }
        assert_int_equal(h, hashes[m - CPU_X86_64_V2]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),  cmocka_unit_test(identity), cmocka_unit_test(clocks),
        cmocka_unit_test(never),  cmocka_unit_test(levels),   cmocka_unit_test(live_bits),
        cmocka_unit_test(frozen),
    };
    return cmocka_run_group_tests_name("cpu/model", tests, NULL, NULL);
}
