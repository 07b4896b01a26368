/* Makes a mark of each argument, and with `xN` in front the next one N times, saying how long one
 * took by the guest's clock (tests/suite/agent_system.py, tests/bench). */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "guest-agent/reprise-mark.h"

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        long n = argv[i][0] == 'x' ? atol(argv[i] + 1) : 0;
        struct timespec from, to;
        if (!n || i + 1 == argc) {
            reprise_mark(argv[i]);
            continue;
        }
        i++;
        clock_gettime(CLOCK_MONOTONIC, &from);
        for (long k = 0; k < n; k++)
            reprise_mark(argv[i]);
        clock_gettime(CLOCK_MONOTONIC, &to);
        printf("%ld marks, %ld ns each\n", n,
               ((to.tv_sec - from.tv_sec) * 1000000000 + to.tv_nsec - from.tv_nsec) / n);
    }
    return 0;
}
