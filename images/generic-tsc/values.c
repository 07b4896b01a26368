/* Values, counts, processes: everything that needs the module. */
#include "tsc-test.h"

#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROCESSES 24
#define READS     50

void test_values(void)
{
    long long before = answers_user();
    uint64_t last = 0;
    for (int i = 0; i < READS; i++) {
        uint32_t aux = 0xdeadbeef;
        uint64_t a = rdtsc(), m = msr_tsc(), b = rdtscp(&aux);
        check(a >= last && m >= a && b >= m,
              "not in order: %llu, RDTSC %llu, RDMSR %llu, RDTSCP %llu", (unsigned long long)last,
              (unsigned long long)a, (unsigned long long)m, (unsigned long long)b);
        check(b - a < 1000000000, "a second between two reads");
        check((aux & 0xfff) == 0, "TSC_AUX is %#x on the only CPU", aux);
        last = b;
    }
    check(answers_user() - before == 2ll * READS, "%lld answers to %d reads",
          answers_user() - before, 2 * READS);
}

void test_processes(void)
{
    long long before = answers_user();
    for (int i = 0; i < PROCESSES; i++)
        if (!fork()) {
            uint64_t last = rdtsc();
            for (int k = 1; k < READS; k++) {
                sched_yield();
                uint64_t now = rdtsc();
                if (now < last)
                    _exit(1);
                last = now;
            }
            _exit(0);
        }
    int status, bad = 0;
    while (wait(&status) > 0)
        bad += status != 0;
    check(!bad, "%d processes saw it go back, or died", bad);
    check(answers_user() - before == (long long)PROCESSES * READS, "%lld answers to %d reads",
          answers_user() - before, PROCESSES * READS);
    check(answers_kernel() > 0, "the kernel asked %lld times", answers_kernel());
}

static void one_rdtsc(void)
{
    rdtsc();
}

static void forbidden(void)
{
    prctl(PR_SET_TSC, PR_TSC_SIGSEGV);
    for (int i = 0; i < READS; i++)
        sched_yield();
    rdtsc();
}

/* A child of one that may not, which may. */
static void allowed_again(void)
{
    prctl(PR_SET_TSC, PR_TSC_SIGSEGV);
    if (signal_of(one_rdtsc) != SIGSEGV)
        raise(SIGABRT);
    prctl(PR_SET_TSC, PR_TSC_ENABLE);
    for (int i = 0; i < READS; i++) {
        sched_yield();
        rdtsc();
    }
}

/* Processes with and without PR_TSC_SIGSEGV take turns: that is where the kernel toggles CR4.TSD.
 */
void test_prctl(void)
{
    long long before = answers_user();
    int mode = 0;
    check(!prctl(PR_GET_TSC, &mode) && mode == PR_TSC_ENABLE, "the mode is %d", mode);
    pid_t other = fork();
    if (!other) {
        prctl(PR_SET_TSC, PR_TSC_SIGSEGV);
        for (;;)
            sched_yield();
    }
    for (int i = 0; i < READS; i++) {
        sched_yield();
        rdtsc();
    }
    check(signal_of(forbidden) == SIGSEGV, "PR_TSC_SIGSEGV brought no SIGSEGV");
    check(signal_of(allowed_again) == 0, "PR_TSC_ENABLE did not bring it back");
    for (int i = 0; i < READS; i++) {
        sched_yield();
        rdtsc();
    }
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    check(answers_user() - before == 3ll * READS, "%lld answers to %d reads",
          answers_user() - before, 3 * READS);
}

/* The vDSO has no clock that needs the TSC. */
void test_clocks(void)
{
    long long before = answers_user();
    struct timespec t, last = {0};
    for (int i = 0; i < READS; i++) {
        clock_gettime(CLOCK_MONOTONIC, &t);
        check(t.tv_sec > last.tv_sec || (t.tv_sec == last.tv_sec && t.tv_nsec >= last.tv_nsec),
              "the clock went back");
        last = t;
    }
    check(answers_user() == before, "clock_gettime read the TSC %lld times",
          answers_user() - before);
}
