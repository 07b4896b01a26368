/* cpu/x86/heads.h: what is found by its head is what Zydis decodes, whatever displacement and
 * immediate are. */
#include "cpu/model.h"
#include "cpu/x86/heads.h"
#include "tests/splitmix.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TRIES 400000u

static u64 seed;

static u32 drawn(u32 n)
{
    return (u32)(splitmix64(&seed) % n);
}

/* Some prefixes, an opcode of any map, and anything. */
static void draw(u8 bytes[15], enum code_size code)
{
    static const u8 prefixes[] = {0x66, 0x66, 0xf2, 0xf3, 0x67, 0xf0, 0x2e, 0x64, 0x65, 0x36};
    unsigned n = 0;
    for (unsigned i = 0; i < 15; i++)
        bytes[i] = (u8)drawn(256);
    while (n < 5 && !drawn(3))
        bytes[n++] = prefixes[drawn(ARRAY_SIZE(prefixes))];
    if (code == CODE_64 && drawn(2))
        bytes[n++] = (u8)(0x40 | drawn(16));
    switch (drawn(6)) {
    case 0: bytes[n++] = 0x0f; break;
    case 1:
        bytes[n++] = 0x0f;
        bytes[n++] = drawn(2) ? 0x38 : 0x3a;
        break;
    case 2: bytes[n++] = drawn(2) ? 0xc4 : 0xc5; break;
    default: break;
    }
}

static void same(const struct insn *got, const struct insn *want, const u8 bytes[15], u64 first)
{
    const u8 *a = (const void *)got, *b = (const void *)want;
    for (size_t i = 0; i < offsetof(struct insn, snippet); i++)
        if (a[i] != b[i] && i != 15) {
            fprintf(stderr, "seed %llu: ", (unsigned long long)first);
            for (unsigned k = 0; k < 15; k++)
                fprintf(stderr, "%02x ", bytes[k]);
            fail_msg("byte %zu of what was found is %02x, of what is decoded %02x", i, a[i], b[i]);
        }
}

static void any_rest(void **state)
{
    static const enum cpu_model models[] = {CPU_X86_64_V2, CPU_X86_64_V3, CPU_X86_64_V4};
    struct heads *h = calloc(1, heads_bytes());
    assert_non_null(h);
    const char *given = getenv("TEST_SEED");
    u64 first = seed = given ? strtoull(given, NULL, 10) : 1;
    u32 found = 0, cut = 0;
    for (u32 i = 0; i < TRIES; i++) {
        if (i % (TRIES / 24) == 0)
            memset(h, 0, heads_bytes());
        u32 kind = i / (TRIES / 24);
        enum code_size code = (enum code_size)(kind % CODE_SIZES);
        const u32 *words = cpu_model_words(models[kind / CODE_SIZES % ARRAY_SIZE(models)]);
        unsigned rules = kind & 1 ? RULE_CANONICAL : 0;
        u8 bytes[16] __attribute__((aligned(8))) = {0};
        struct insn in, got, want;
        draw(bytes, code);
        insn_decode(words, code, rules, bytes, 15, &in);
        heads_keep(h, &in);
        /* The same head, or something else; all of it, or less. */
        for (unsigned k = in.head; k < 15 && in.head; k++)
            bytes[k] = (u8)drawn(drawn(3) ? 256 : 2);
        unsigned avail = drawn(4) ? 15 : 1 + drawn(15);
        memset(bytes + avail, 0, 15 - avail);
        if (!heads_find(h, code, bytes, avail, &got))
            continue;
        insn_decode(words, code, rules, bytes, avail, &want);
        same(&got, &want, bytes, first);
        found++;
        cut += avail < 15;
    }
    printf("%u of %u were found, %u of them with less than 15 bytes\n", found, TRIES, cut);
    assert_true(found > TRIES / 4 && cut > TRIES / 100);
    free(h);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_rest)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
