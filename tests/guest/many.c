/*
 * Much of one thing, for a debugger that looks for one of it (tests/suite/gdb_many.py): writes to a
 * variable, and turns of loops in functions that the compiler has put into their callers.
 */
#include <stdio.h>

static volatile int value;
static volatile unsigned long turns;
static volatile int last;

/* Every other write leaves the value that was there two before. */
static void write_often(int n)
{
    for (int i = 0; i < n; i++)
        value = i % 1000 == 999 ? 1000 : i & 1;
}

static inline __attribute__((always_inline)) unsigned mix(unsigned x)
{
    x ^= x << 13;
    x ^= x >> 17;
    return x ^ x << 5;
}

static __attribute__((noinline)) unsigned call(unsigned x)
{
    turns++;
    return x + 1;
}

static inline __attribute__((always_inline)) unsigned churn(unsigned n)
{
    unsigned x = 1;
    for (unsigned i = 0; i < n; i++) {
        x = mix(x + i);
        last = (int)x;
    }
    return x;
}

static inline __attribute__((always_inline)) unsigned calls(unsigned n)
{
    unsigned x = 1;
    for (unsigned i = 0; i < n; i++)
        x = mix(call(x) + i);
    return x;
}

static __attribute__((noinline)) unsigned few(unsigned n)
{
    unsigned x = n + 1;
    x += churn(n);
    last = 0;
    x += calls(n);
    turns = 0;
    return x;
}

static __attribute__((noinline)) unsigned many(unsigned n)
{
    unsigned x = n + 1;
    x += churn(n);
    last = 0;
    x += calls(n);
    turns = 0;
    return x;
}

int main(void)
{
    write_often(100000);
    unsigned x = few(60);
    x += many(3000000);
    printf("many %u %d %d\n", x, value, last);
    return 0;
}
