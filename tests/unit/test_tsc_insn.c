/* What the guest module takes for RDTSC and RDTSCP. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <Zydis/Zydis.h>

#include "guest-agent/tsc/insn.h"

static void test_known(void **state)
{
    static const struct {
        const char *bytes;
        int n, bits, length;
        enum tsc_insn what;
    } cases[] = {
        {"\x0f\x31", 2, 64, 2, TSC_RDTSC},
        {"\x0f\x31", 2, 32, 2, TSC_RDTSC},
        {"\x0f\x01\xf9", 3, 64, 3, TSC_RDTSCP},
        {"\x48\x0f\x31", 3, 64, 3, TSC_RDTSC},
        {"\x48\x0f\x31", 3, 32, 0, TSC_OTHER}, /* DEC EAX */
        {"\x48\x66\xf3\x0f\x31", 5, 64, 5, TSC_RDTSC},
        {"\xf0\x0f\x31", 3, 64, 0, TSC_OTHER},
        {"\x0f", 1, 64, 0, TSC_OTHER},
        {"\x0f\x01", 2, 64, 0, TSC_OTHER},
        {"\x66", 1, 64, 0, TSC_OTHER},
        {"", 0, 64, 0, TSC_OTHER},
        {"\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x0f\x31", 15, 64, 15, TSC_RDTSC},
        {"\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x0f\x31", 16, 64, 0, TSC_OTHER},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int length = 0;
        const unsigned char *bytes = (const unsigned char *)cases[i].bytes;
        enum tsc_insn what = tsc_decode(bytes, cases[i].n, cases[i].bits, &length);
        assert_int_equal(what, cases[i].what);
        assert_int_equal(length, cases[i].length);
    }
}

/* Random prefixes before these and other instructions: the same verdict as Zydis'. */
static void test_against_zydis(void **state)
{
    static const unsigned char prefixes[] = {0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67,
                                             0xf2, 0xf3, 0xf0, 0x40, 0x48, 0x4f, 0x41};
    static const unsigned char ends[][3] = {{0x0f, 0x31, 0x90},
                                            {0x0f, 0x01, 0xf9},
                                            {0x0f, 0x30, 0x00},
                                            {0x0f, 0x01, 0xf8},
                                            {0x0f, 0x33, 0x00}};
    srand(1);
    ZydisDecoder decoders[2];
    ZydisDecoderInit(&decoders[0], ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
    ZydisDecoderInit(&decoders[1], ZYDIS_MACHINE_MODE_LONG_COMPAT_32, ZYDIS_STACK_WIDTH_32);
    unsigned found = 0;
    for (unsigned i = 0; i < 100000; i++) {
        unsigned char code[24];
        int n = rand() % 16, mode = rand() % 2;
        for (int k = 0; k < n; k++)
            code[k] = prefixes[(unsigned)rand() % sizeof(prefixes)];
        memcpy(code + n, ends[(unsigned)rand() % 5], 3);
        n += 3 - rand() % 2;
        ZydisDecodedInstruction in;
        enum tsc_insn want = TSC_OTHER;
        if (ZYAN_SUCCESS(
                ZydisDecoderDecodeInstruction(&decoders[mode], NULL, code, (size_t)n, &in)))
            want = in.mnemonic == ZYDIS_MNEMONIC_RDTSC    ? TSC_RDTSC
                   : in.mnemonic == ZYDIS_MNEMONIC_RDTSCP ? TSC_RDTSCP
                                                          : TSC_OTHER;
        int length = 0;
        enum tsc_insn what = tsc_decode(code, n, mode ? 32 : 64, &length);
        if (what != want || (what != TSC_OTHER && length != in.length))
            fail_msg("case %u: is %d, should be %d; length %d, %d", i, what, want, length,
                     in.length);
        found += what != TSC_OTHER;
    }
    assert_true(found > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known),
        cmocka_unit_test(test_against_zydis),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
