/* A program for Windows, of 32 and of 64 bits. */
#include <stdio.h>
#include <windows.h>

int main(void)
{
    unsigned sum = 0;
    for (unsigned i = 0; i < 1000; i++)
        sum = sum * 31 + i;
    char name[64] = "";
    GetEnvironmentVariableA("OS", name, sizeof name);
    printf("hello from %u bits of %s, sum %u\n", (unsigned)(8 * sizeof(void *)), name, sum);
    return 3;
}
