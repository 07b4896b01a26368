/* Lines and functions to step over and into, both ways (tests/suite/gdb.py). */
#include <stdio.h>

static volatile int total;

int square(int n)
{
    int r = n * n;
    total += r;
    return r;
}

int main(void)
{
    int a = 1;
    a += 2;
    a = square(a);
    a += 4;
    a = square(a) + 5;
    total = a;
    printf("lines %d %d\n", a, total);
    return 0;
}
