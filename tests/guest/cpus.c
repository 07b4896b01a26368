/*
 * Threads on several CPUs that use what CPUs have in common (tests/suite/smp.py): counters with and
 * without atomic instructions, a lock that is spun on, a condition variable, pages that one thread
 * unmaps or protects while others use them, code that one writes and another calls, signals; CPUs
 * that are taken off and put on again. Prints a line for each, "ok" or what was wrong.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ROUNDS 2000
#define PAGE   4096

static int cpus;

static void check(const char *what, int good)
{
    printf("%s %s\n", what, good ? "ok" : "WRONG");
    fflush(stdout);
}

static void go_to(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu % cpus, &set);
    if (sched_setaffinity(0, sizeof(set), &set) || sched_getcpu() != cpu % cpus)
        check("a CPU of one's own", 0);
}

static void on_each(void *(*run)(void *))
{
    pthread_t t[32];
    for (long i = 0; i < cpus; i++)
        pthread_create(&t[i], NULL, run, (void *)i);
    for (int i = 0; i < cpus; i++)
        pthread_join(t[i], NULL);
}

/* ---- counting ---- */

static atomic_long counted;
static long locked;
static atomic_flag lock = ATOMIC_FLAG_INIT;

static void *counts(void *me)
{
    go_to((int)(long)me);
    for (int i = 0; i < ROUNDS; i++) {
        atomic_fetch_add(&counted, 1);
        while (atomic_flag_test_and_set(&lock))
            __builtin_ia32_pause();
        locked++;
        atomic_flag_clear(&lock);
    }
    return NULL;
}

/* ---- taking turns ---- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
static long whose, wrong;

static void *takes_turns(void *me)
{
    go_to((int)(long)me);
    for (int i = 0; i < 100; i++) {
        pthread_mutex_lock(&mutex);
        while (whose % cpus != (long)me)
            pthread_cond_wait(&moved, &mutex);
        wrong += whose != (long)i * cpus + (long)me;
        whose++;
        pthread_cond_broadcast(&moved);
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

/* ---- pages ---- */

static char *volatile shared;
static atomic_int stage, done;
static _Thread_local sigjmp_buf out;
static atomic_long faults;

static void on_fault(int sig)
{
    (void)sig;
    atomic_fetch_add(&faults, 1);
    siglongjmp(out, 1);
}

/* Writes the page until it is told to end; not while it cannot be written. */
static void *uses(void *me)
{
    if (!me)
        return NULL;
    go_to((int)(long)me);
    while (!atomic_load(&done)) {
        int before = atomic_load(&stage);
        if (sigsetjmp(out, 1))
            continue;
        shared[64 * (long)me]++;
        if (before % 2 && atomic_load(&stage) == before)
            wrong++;
    }
    return NULL;
}

static void *changes(void *unused)
{
    (void)unused;
    go_to(0);
    for (int i = 0; i < 100; i++) {
        usleep(200);
        mprotect(shared, PAGE, PROT_READ);
        atomic_fetch_add(&stage, 1);
        usleep(200);
        atomic_fetch_add(&stage, 1);
        mprotect(shared, PAGE, PROT_READ | PROT_WRITE);
    }
    atomic_store(&done, 1);
    return NULL;
}

static void *pages(void *me)
{
    return me ? uses(me) : changes(me);
}

/* ---- code ---- */

static unsigned char *code;
static atomic_int version, answered;

static void *calls(void *me)
{
    go_to((int)(long)me);
    if (!me) {
        for (int v = 1; v <= 200; v++) {
            memcpy(code + 1, &v, 4);
            atomic_store(&answered, 0);
            atomic_store(&version, v);
            while (atomic_load(&answered) != cpus - 1)
                __builtin_ia32_pause();
        }
        atomic_store(&version, -1);
        return NULL;
    }
    for (int seen = 0, v; (v = atomic_load(&version)) >= 0;) {
        if (v == seen) {
            __builtin_ia32_pause();
            continue;
        }
        if (((int (*)(void))(void *)code)() != v)
            __atomic_fetch_add(&wrong, 1, __ATOMIC_SEQ_CST);
        seen = v;
        atomic_fetch_add(&answered, 1);
    }
    return NULL;
}

/* ---- signals ---- */

static atomic_int got;

static void on_signal(int sig)
{
    (void)sig;
    atomic_fetch_add(&got, 1);
}

static void *spins(void *unused)
{
    (void)unused;
    go_to(cpus - 1);
    atomic_store(&stage, 1);
    while (atomic_load(&got) < 50)
        ;
    return NULL;
}

static int put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    return !f || fputs(text, f) < 0 || fclose(f);
}

int main(void)
{
    cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
    printf("cpus %d\n", cpus);
    on_each(counts);
    check("atomic", counted == (long)cpus * ROUNDS);
    check("lock", locked == (long)cpus * ROUNDS);
    on_each(takes_turns);
    check("turns", !wrong && whose == 100L * cpus);

    signal(SIGSEGV, on_fault);
    shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    on_each(pages);
    check("pages", !wrong && (cpus == 1 || faults > 0));

    code = mmap(NULL, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(code, "\xb8\0\0\0\0\xc3", 6); /* mov eax, imm32; ret */
    on_each(calls);
    check("code", !wrong);

    signal(SIGUSR1, on_signal);
    atomic_store(&stage, 0);
    pthread_t t;
    pthread_create(&t, NULL, spins, NULL);
    while (!atomic_load(&stage))
        sched_yield();
    for (int i = 0; i < 50; i++) {
        pthread_kill(t, SIGUSR1);
        while (atomic_load(&got) <= i)
            sched_yield();
    }
    pthread_join(t, NULL);
    check("signals", got == 50);

    if (cpus > 1) {
        const char *last = "/sys/devices/system/cpu/cpu1/online";
        int off = put(last, "0"), fewer = (int)sysconf(_SC_NPROCESSORS_ONLN), on = put(last, "1");
        check("off and on",
              !off && !on && fewer == cpus - 1 && sysconf(_SC_NPROCESSORS_ONLN) == cpus);
        counted = 0;
        on_each(counts);
        check("again", counted == (long)cpus * ROUNDS);
    }
    return 0;
}
