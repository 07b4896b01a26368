/* Counts for ever and prints a growing pattern: for tests that kill the recorder at any moment. */
#include "tiny.h"

void guest_main(void)
{
    u64 h = 1;

    for (u64 line = 0;; line++) {
        for (u64 i = 0; i < 200000; i++)
            h = (h ^ i) * 0x9e3779b97f4a7c15ull;
        print("%lu %lx ", line, h);
        for (u64 i = 0; i < line % 64; i++)
            put_char((char)('a' + (h >> (i % 56)) % 26));
        print("\n");
    }
}
