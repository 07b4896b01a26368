/* cpu/features.h: what is accepted, what it becomes, and what is said of the rest. */
#include "cpu/features.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void accepted(void **state)
{
    static const struct {
        const char *text, *changes;
        enum cpu_model model;
    } rows[] = {
        {"x86-64-v2", "", CPU_X86_64_V2},
        {"x86-64", "", CPU_X86_64_V1},
        {"zen,-sha", "-sha_ni", CPU_ZEN2},
        {"x86-64-v2,+SSE4.2,+sse4-1,-mtrr2", NULL, 0},
        {"x86-64-v2,+SSE4.2,+sse4-1", "", CPU_X86_64_V2},      /* it has them */
        {"x86-64-v2,+avx2,+avx", "+avx,+avx2", CPU_X86_64_V2}, /* in our order */
        {"x86-64-v2,+rdseed,+RDRAND", "+rdrand,+rdseed", CPU_X86_64_V2},
        {"haswell,-abm,-pni,-ssse3,-sse4_1,-sse4_2,-avx,-avx2,-fma,-f16c",
         "-sse3,-ssse3,-fma,-sse4_1,-sse4_2,-avx,-f16c,-avx2,-lzcnt", CPU_HASWELL},
        {"nehalem,-avx,+sse2", "", CPU_NEHALEM},
        {"nehalem,+xsave,+pcid,+invpcid", "+pcid,+xsave,+invpcid", CPU_NEHALEM},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct cpu_choice c, again;
        struct err err;
        char text[CPU_CHANGES];
        if (!rows[i].changes) {
            assert_true(cpu_choose(rows[i].text, &c, &err) < 0);
            continue;
        }
        if (cpu_choose(rows[i].text, &c, &err))
            fail_msg("%s: %s", rows[i].text, err.text);
        cpu_changes_text(&c, text);
        assert_string_equal(text, rows[i].changes);
        assert_int_equal(c.model, rows[i].model);
        assert_int_equal(cpu_change(c.model, text, &again, &err), 0);
        assert_memory_equal(&again, &c, sizeof(c));
    }
}

static void refused(void **state)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"", "no model ''"},
        {"x86-64-v5", "is x86-64-v"},
        {"hasswell", "is haswell meant?"},
        {"x86-64-v2,", "ends with a comma"},
        {"x86-64-v2,,+avx", "neither +FEATURE nor -FEATURE"},
        {"x86-64-v2,avx", "neither +FEATURE nor -FEATURE"},
        {"x86-64-v2,+", "no feature ''"},
        {"x86-64-v2,+sse4_3", "is sse4_1 meant?"},
        {"x86-64-v2,+xyzzyplugh", "`reprise cpu list`"},
        {"x86-64-v2,+avx512f",
         "avx512f needs avx2, which the model x86-64-v2 lacks: +fma,+avx,+f16c,+avx2,+avx512f"},
        {"x86-64-v2,+rtm", "rtm is not executed here"},
        {"x86-64-v2,+clzero", "clzero is not executed here, on any host"},
        {"x86-64-v2,+avx2", "avx2 needs avx, which the model x86-64-v2 lacks: +avx,+avx2"},
        {"nehalem,+fma", "+fma,+xsave,+avx"},
        {"x86-64-v3,-avx", "-fma,-avx,-f16c,-avx2"},
        {"x86-64-v3,-sse3", "ssse3 needs sse3: to be without, -sse3,-ssse3,-fma,-sse4_1"},
        {"icelake,-aes", "vaes needs aes: to be without, -aes,-vaes"},
        {"x86-64-v2,-sse2", "sse2 cannot be turned off"},
        {"x86-64-v2,-lm", "lm cannot be turned off"},
        {"x86-64-v2,+topoext", "topoext cannot be turned on"},
        {"x86-64-v2,+aes,-aes", "aes is there twice"},
        {"icelake,-sha,-sha_ni", "sha_ni is there twice"},
        {"x86-64-v2,+"
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
         "no feature '+aaaa"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct cpu_choice c;
        struct err err;
        assert_int_equal(cpu_choose(rows[i].text, &c, &err), -22);
        if (!strstr(err.text, rows[i].says))
            fail_msg("%s: \"%s\", without \"%s\"", rows[i].text, err.text, rows[i].says);
    }
}

/* Each that may be changed can be, one at a time or with what goes with it, on each model; and what
 * it becomes is said by one text. */
static void all(void **state)
{
    unsigned changed = 0;
    for (enum cpu_model m = CPU_MODEL_FIRST; m <= CPU_MODEL_LAST; m++)
        for (size_t i = 0; i < cpu_feature_count; i++) {
            const struct cpu_feature_row *r = &cpu_feature_rows[i];
            char name[CPU_FEATURE_NAME], text[CPU_FEATURE_NAME + 1], all[CPU_CHANGES];
            struct cpu_choice c;
            struct err err;
            bool on = !cpu_model_has(m, r->feature);
            cpu_feature_name(r, name);
            snprintf(text, sizeof(text), "%c%s", on ? '+' : '-', name);
            int code = cpu_change(m, text, &c, &err);
            if (!r->free) {
                assert_true(code);
                continue;
            }
            if (code) { /* the text ends with what would do */
                const char *last = strrchr(err.text, ' ');
                assert_non_null(last);
                assert_int_equal(cpu_change(m, last + 1, &c, &err), 0);
            }
            changed++;
            assert_int_equal(cpu_words_have(c.words, r->feature), on);
            cpu_changes_text(&c, all);
            assert_int_equal(cpu_change(m, all, &c, &err), 0);
            const struct cpuid_live live = {.words = c.words, .xcr0 = 1};
            struct cpuid_result now, was;
            static const u32 leaves[] = {1, 7, 0x80000001};
            u32 differs = 0;
            for (size_t k = 0; k < ARRAY_SIZE(leaves); k++) {
                cpu_model_cpuid(m, leaves[k], 0, &live, &now);
                cpu_model_cpuid(m, leaves[k], 0, &(struct cpuid_live){.xcr0 = 1}, &was);
                differs |= (now.ebx ^ was.ebx) | (now.ecx ^ was.ecx) | (now.edx ^ was.edx);
            }
            assert_int_not_equal(differs, 0);
        }
    assert_true(changed > 200);
}

static void host(void **state)
{
    struct cpu_choice c, with;
    struct err err;
    char lacks[256], text[CPU_CHANGES];
    u32 missing[CPU_WORDS];
    unsetenv("REPRISE_TEST_LACKS");
    assert_int_equal(cpu_choose("host", &with, &err), 0);
    assert_null(cpu_host_lacks(with.words));
    setenv("REPRISE_TEST_LACKS", "aes|sse4_2|rdrand", 1);
    assert_int_equal(cpu_choose("host", &c, &err), 0);
    assert_int_equal(c.model, CPU_X86_64_V1);
    assert_false(cpu_words_have(c.words, FEAT_AES) || cpu_words_have(c.words, FEAT_SSE42) ||
                 cpu_words_have(c.words, FEAT_AVX) || cpu_words_have(c.words, FEAT_RDRAND));
    cpu_changes_text(&c, text);
    assert_int_equal(cpu_change(c.model, text, &c, &err), 0);
    assert_string_equal(cpu_host_lacks(cpu_model_words(CPU_NEHALEM)), "SSE4.2");
    cpu_host_lacks_all(cpu_model_words(CPU_X86_64_V1), lacks, sizeof(lacks));
    assert_string_equal(lacks, "");
    /* RDRAND is ours: no host has to have it. */
    assert_int_equal(cpu_choose("x86-64-v1,+rdrand", &c, &err), 0);
    assert_null(cpu_host_lacks(c.words));
    setenv("REPRISE_TEST_LACKS", "aes", 1);
    assert_int_equal(cpu_choose("x86-64-v2,+aes", &c, &err), 0);
    cpu_host_missing(c.words, missing);
    assert_int_equal(missing[FEAT_AES / 32], 1u << FEAT_AES % 32);
    cpu_host_lacks_all(c.words, lacks, sizeof(lacks));
    assert_string_equal(lacks, "AES");
    unsetenv("REPRISE_TEST_LACKS");
}

static void freely(void **state)
{
    static const struct {
        const char *text;
        bool free;
    } rows[] = {{"haswell", true},
                {"haswell,+adx", true},
                {"haswell,-aes", false},
                {"haswell,+rdrand", false},
                {"haswell,+rdseed", false}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct cpu_choice c;
        struct err err;
        assert_int_equal(cpu_choose(rows[i].text, &c, &err), 0);
        assert_int_equal(!cpu_not_free(&c), rows[i].free);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepted), cmocka_unit_test(refused), cmocka_unit_test(all),
        cmocka_unit_test(host),     cmocka_unit_test(freely),
    };
    return cmocka_run_group_tests_name("cpu/features", tests, NULL, NULL);
}
