/* A fixed amount of work for counters: `work N`: loops, calls, branches; no system call in it. */
#include <stdio.h>
#include <stdlib.h>

static __attribute__((noinline)) unsigned step(unsigned x)
{
    return x & 1 ? x * 3 + 1 : x >> 1;
}

int main(int argc, char **argv)
{
    unsigned long n = argc > 1 ? strtoul(argv[1], NULL, 0) : 100000, sum = 0;
    for (unsigned long i = 1; i <= n; i++)
        for (unsigned x = (unsigned)i; x != 1 && x < 1u << 24; x = step(x))
            sum += x;
    printf("%lx\n", sum);
    return 0;
}
