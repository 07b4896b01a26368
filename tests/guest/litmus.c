/*
 * Litmus tests: what several CPUs see of each other's stores (tests/suite/litmus.py knows what they
 * may). Each shape has the forms plain, fence (MFENCE between the accesses of a thread) and atomic
 * (stores are XCHG); each form prints a line
 *
 *     SHAPE FORM OUTCOME=COUNT ...
 *
 * an outcome being the digits of what was read, in order of threads, and behind a point what x and
 * y are in the end.
 *
 *     litmus ROUNDS
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 4
#define READS   4

static struct {
    _Alignas(64) volatile int x;
    _Alignas(64) volatile int y;
} cell;
static int got[READS];
static _Alignas(64) atomic_int arrived;
static int threads, rounds;

enum form { PLAIN, FENCE, ATOMIC };

/* A form is a constant where this is expanded, so nothing but the accesses is left of it. */
static inline __attribute__((always_inline)) void put(enum form form, volatile int *at, int value)
{
    if (form == ATOMIC)
        __asm__ volatile("xchgl %0, %1" : "+r"(value), "+m"(*at)::"memory");
    else
        *at = value;
}

static inline __attribute__((always_inline)) void between(enum form form)
{
    if (form == FENCE)
        __asm__ volatile("mfence" ::: "memory");
}

/* Two accesses of a thread: W stores, R reads. */
#define W(AT, VALUE)  put(form, &cell.AT, VALUE)
#define R(INTO, FROM) got[INTO] = cell.FROM
#define BODY(NAME, FIRST, SECOND)                                                                  \
    static inline __attribute__((always_inline)) void NAME(enum form form)                         \
    {                                                                                              \
        FIRST;                                                                                     \
        between(form);                                                                             \
        SECOND;                                                                                    \
    }
#define NOTHING (void)0

BODY(sb0, W(x, 1), R(0, y))
BODY(sb1, W(y, 1), R(1, x))
BODY(lb0, R(0, x), W(y, 1))
BODY(lb1, R(1, y), W(x, 1))
BODY(mp0, W(x, 1), W(y, 1))
BODY(mp1, R(0, y), R(1, x))
BODY(s0, W(x, 2), W(y, 1))
BODY(s1, R(0, y), W(x, 1))
BODY(r0, W(x, 1), W(y, 1))
BODY(r1, W(y, 2), R(0, x))
BODY(w0, W(x, 1), W(y, 2))
BODY(w1, W(y, 1), W(x, 2))
BODY(iriw0, W(x, 1), NOTHING)
BODY(iriw1, W(y, 1), NOTHING)
BODY(iriw2, R(0, x), R(1, y))
BODY(iriw3, R(2, y), R(3, x))

#define FORMS(NAME)                                                                                \
    static void NAME##_plain(void)                                                                 \
    {                                                                                              \
        NAME(PLAIN);                                                                               \
    }                                                                                              \
    static void NAME##_fence(void)                                                                 \
    {                                                                                              \
        NAME(FENCE);                                                                               \
    }                                                                                              \
    static void NAME##_atomic(void)                                                                \
    {                                                                                              \
        NAME(ATOMIC);                                                                              \
    }
FORMS(sb0)
FORMS(sb1)
FORMS(lb0)
FORMS(lb1)
FORMS(mp0)
FORMS(mp1)
FORMS(s0)
FORMS(s1)
FORMS(r0)
FORMS(r1)
FORMS(w0)
FORMS(w1)
FORMS(iriw0)
FORMS(iriw1)
FORMS(iriw2)
FORMS(iriw3)

struct test {
    const char *shape, *form;
    int reads;
    void (*body[THREADS])(void); /* NULL: no more */
};

#define OF(SHAPE, READ, FORM, ...)                                                                 \
    {                                                                                              \
        SHAPE, #FORM, READ,                                                                        \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define TWO(SHAPE, READ, A, B)                                                                     \
    OF(SHAPE, READ, plain, A##_plain, B##_plain), OF(SHAPE, READ, fence, A##_fence, B##_fence),    \
        OF(SHAPE, READ, atomic, A##_atomic, B##_atomic)
#define FOUR(SHAPE, READ, A, B, C, D)                                                              \
    OF(SHAPE, READ, plain, A##_plain, B##_plain, C##_plain, D##_plain),                            \
        OF(SHAPE, READ, fence, A##_fence, B##_fence, C##_fence, D##_fence),                        \
        OF(SHAPE, READ, atomic, A##_atomic, B##_atomic, C##_atomic, D##_atomic)

static const struct test tests[] = {
    TWO("SB", 2, sb0, sb1),
    TWO("LB", 2, lb0, lb1),
    TWO("MP", 2, mp0, mp1),
    TWO("S", 1, s0, s1),
    TWO("R", 1, r0, r1),
    TWO("2+2W", 0, w0, w1),
    FOUR("IRIW", 4, iriw0, iriw1, iriw2, iriw3),
};

static const struct test *running;
/* By what was read, and x and y in the end: each is 0, 1 or 2. */
static unsigned long counts[3 * 3 * 3 * 3 * 3 * 3];

/* All threads begin a round together. */
static void meet(int *times)
{
    int all = ++*times * threads;
    if (atomic_fetch_add(&arrived, 1) == all - 1)
        return;
    while (atomic_load_explicit(&arrived, memory_order_acquire) < all)
        __builtin_ia32_pause();
}

static void count(void)
{
    int index = 0;
    for (int i = 0; i < READS; i++)
        index = index * 3 + got[i];
    counts[(index * 3 + cell.x) * 3 + cell.y]++;
    memset(got, 0, sizeof(got));
    cell.x = cell.y = 0;
}

static void *runs(void *which)
{
    int me = (int)(long)which, times = 0;
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(me, &own);
    if (sched_setaffinity(0, sizeof(own), &own))
        abort();
    void (*body)(void) = running->body[me];
    for (int i = 0; i < rounds; i++) {
        meet(&times);
        body();
        meet(&times);
        if (!me)
            count();
    }
    return NULL;
}

static void print(const struct test *t)
{
    printf("%s %s", t->shape, t->form);
    for (int i = 0; i < (int)(sizeof(counts) / sizeof(counts[0])); i++) {
        if (!counts[i])
            continue;
        putchar(' ');
        for (int k = 0, rest = i / 9, place = 27; k < READS; k++, place /= 3)
            if (k < t->reads)
                putchar('0' + rest / place % 3);
        printf(".%d%d=%lu", i / 3 % 3, i % 3, counts[i]);
    }
    putchar('\n');
}

int main(int argc, char **argv)
{
    rounds = argc > 1 ? atoi(argv[1]) : 0;
    if (rounds < 1) {
        fputs("litmus ROUNDS\n", stderr);
        return 2;
    }
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
        pthread_t thread[THREADS];
        running = &tests[i];
        memset(counts, 0, sizeof(counts));
        arrived = 0;
        for (threads = 0; threads < THREADS && running->body[threads];)
            threads++;
        for (long n = 0; n < threads; n++)
            if (pthread_create(&thread[n], NULL, runs, (void *)n))
                return 1;
        for (int n = 0; n < threads; n++)
            pthread_join(thread[n], NULL);
        print(running);
    }
    return 0;
}
