/*
 * Two threads on two CPUs hand a number to and fro, each waiting for the other one in a loop that
 * has no PAUSE: prints the nanoseconds that a turn takes. An argument: only so many turns.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static volatile long at;
static long most = 1000;
static pthread_barrier_t both;   /* are where they belong */
static struct timespec from, to; /* of the first one */

static void *hand(void *parity)
{
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET((int)(long)parity, &own);
    if (sched_setaffinity(0, sizeof(own), &own))
        abort();
    pthread_barrier_wait(&both);
    if (!parity)
        clock_gettime(CLOCK_MONOTONIC, &from);
    for (long me = (long)parity; me < most; me += 2) {
        while (at != me)
            ;
        at = me + 1;
    }
    if (!parity)
        clock_gettime(CLOCK_MONOTONIC, &to);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t other;
    if (argc > 1)
        most = atol(argv[1]);
    if (most < 1 || pthread_barrier_init(&both, NULL, 2) ||
        pthread_create(&other, NULL, hand, (void *)1))
        return 1;
    hand(NULL);
    pthread_join(other, NULL);
    printf("%ld ns\n", ((to.tv_sec - from.tv_sec) * 1000000000 + to.tv_nsec - from.tv_nsec) / most);
    return 0;
}
