/* The guest's test of the module reprise_tsc: what its parts share. */
#ifndef REPRISE_TSC_TEST_H
#define REPRISE_TSC_TEST_H

#include <stdbool.h>
#include <stdint.h>

/* Notes a verdict; `what` is printed if it is not `good`. */
void check(bool good, const char *what, ...) __attribute__((format(printf, 2, 3)));

/* RDTSC and RDTSCP answered to programs, or to the kernel, since the module was loaded; -1: not
 * loaded. */
long long answers_user(void);
long long answers_kernel(void);
uint64_t msr_tsc(void); /* as the module reads it */

static inline uint64_t rdtsc(void)
{
    uint32_t a, d;
    __asm__ volatile("rdtsc" : "=a"(a), "=d"(d));
    return a | (uint64_t)d << 32;
}

static inline uint64_t rdtscp(uint32_t *aux)
{
    uint32_t a, d;
    __asm__ volatile("rdtscp" : "=a"(a), "=d"(d), "=c"(*aux));
    return a | (uint64_t)d << 32;
}

/* The signal that `f` ends in, in a child; 0: none, it returned. */
int signal_of(void (*f)(void));

/* The tests: each calls check(). */
void test_values(void);
void test_prefixes(void);
void test_page_ends(void);
void test_compat(void);
void test_other_faults(void);
void test_umip(void);
void test_trap_flag(void);
void test_ptrace(void);
void test_prctl(void);
void test_processes(void);
void test_clocks(void);

#endif
