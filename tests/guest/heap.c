/*
 * A program with a bug for tests/suite/gdb.py: at a moment that no one can foretell, one word of
 * its heap is overwritten through a pointer that is one too far. Much later it notices, says where
 * that is, and crashes.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#define HISTORY 16

struct bank {
    uint64_t history[HISTORY]; /* what was paid last */
    uint64_t reserve;
    uint64_t balance[15];
};

__attribute__((noinline)) void deposit(struct bank *b, uint64_t amount)
{
    b->reserve += amount;
}

__attribute__((noinline)) void remember(uint64_t *cursor, uint64_t what)
{
    *cursor = what;
}

static uint64_t draw(void)
{
    uint64_t r = 0;
    if (getrandom(&r, sizeof(r), 0) != sizeof(r))
        abort();
    return r;
}

int main(void)
{
    struct bank *b = calloc(1, sizeof(*b));
    uint64_t expected = 0, bug = 2000 + draw() % 6000;
    for (uint64_t i = 0; i < 10000; i++) {
        uint64_t r = draw(), amount = r >> 40;
        if (i < 1000) {
            deposit(b, amount);
            expected += amount;
        }
        b->balance[r % 15] += amount;
        /* The ring's end, checked one time too late. */
        remember(b->history + (i == bug ? HISTORY : i % HISTORY), amount | 1);
    }
    if (b->reserve == expected)
        return 3;
    printf("corrupt %p: %llu, not %llu, since round %llu\n", (void *)&b->reserve,
           (unsigned long long)b->reserve, (unsigned long long)expected, (unsigned long long)bug);
    fflush(stdout);
    *(volatile int *)b->reserve = 1;
    return 0;
}
