/*
 * "branches=N" on the command line: N conditional branches and then none any more, with interrupts
 * off. Where positions are branches, a test so puts the record "place" at a position it chooses.
 */
#include "tiny.h"

extern const u8 *zero_page;

/* The number after "branches=". */
static u64 wanted(void)
{
    static const char name[] = "branches=";
    const char *line = (const char *)(u64) * (const u32 *)(zero_page + 0x228);
    u64 n = 0;

    for (; *line; line++)
        if (!memcmp(line, name, sizeof(name) - 1)) {
            for (line += sizeof(name) - 1; *line >= '0' && *line <= '9'; line++)
                n = 10 * n + (u64)(*line - '0');
            break;
        }
    return n;
}

void guest_main(void)
{
    u64 n = wanted();

    __asm__ volatile("cli\n1:\tdec %0\n\tjnz 1b\n2:\tjmp 2b" : "+r"(n) : : "cc");
}
