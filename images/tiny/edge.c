/*
 * "branches=N" on the command line: N conditional branches and then none any more, with interrupts
 * off. Where positions are branches, a test so puts the record "place" at a position it chooses.
 */
#include "tiny.h"

void guest_main(void)
{
    u64 n = command_number("branches");

    __asm__ volatile("cli\n1:\tdec %0\n\tjnz 1b\n2:\tjmp 2b" : "+r"(n) : : "cc");
}
