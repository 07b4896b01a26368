/*
 * Runs inside the guest: a program that has CPUID and RDTSC taken away from itself, as rr does, and
 * the instructions by which crypto libraries choose. Prints "OK NAME" or "BAD NAME" a check, and
 * "NONE cpuid" where the kernel has no CPUID faulting.
 */
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <cpuid.h>
#include <immintrin.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static sigjmp_buf back;

static void on_fault(int sig)
{
    siglongjmp(back, sig);
}

static void same(const char *name, int good)
{
    printf("%s %s\n", good ? "OK" : "BAD", name);
}

static int cpuid_faults(void)
{
    unsigned a, b, c, d;
    if (sigsetjmp(back, 1))
        return 1;
    __cpuid(0, a, b, c, d);
    return 0;
}

static int rdtsc_faults(void)
{
    if (sigsetjmp(back, 1))
        return 1;
    (void)_rdtsc();
    return 0;
}

static int rdtscp_faults(void)
{
    unsigned aux;
    if (sigsetjmp(back, 1))
        return 1;
    (void)__rdtscp(&aux);
    return 0;
}

static void cpuid(void)
{
    if (syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0)) {
        printf("NONE cpuid\n");
        return;
    }
    int all = 1;
    for (int i = 0; i < 300; i++)
        all &= cpuid_faults();
    same("CPUID faults", all && syscall(SYS_arch_prctl, ARCH_GET_CPUID, 0) == 0);
    same("RDTSC does not", !rdtsc_faults());
    getppid();     /* a way into the kernel and back */
    usleep(20000); /* to another process and back: the kernel's own CPUID is its own */
    same("CPUID faults after another one ran", cpuid_faults());
    syscall(SYS_arch_prctl, ARCH_SET_CPUID, 1);
    same("CPUID no longer faults", !cpuid_faults());
}

static void tsc(void)
{
    prctl(PR_SET_TSC, PR_TSC_SIGSEGV);
    same("RDTSC and RDTSCP fault", rdtsc_faults() && rdtscp_faults());
    usleep(20000);
    same("and after another one ran", rdtsc_faults() && rdtscp_faults());
    prctl(PR_SET_TSC, PR_TSC_ENABLE);
    same("no longer", !rdtsc_faults() && !rdtscp_faults());
}

/* FIPS 197, appendix B: the first round of its example. */
__attribute__((target("aes"))) static void aes(void)
{
    static const unsigned char state[16] = {0x19, 0x3d, 0xe3, 0xbe, 0xa0, 0xf4, 0xe2, 0x2b,
                                            0x9a, 0xc6, 0x8d, 0x2a, 0xe9, 0xf8, 0x48, 0x08},
                               key[16] = {0xa0, 0xfa, 0xfe, 0x17, 0x88, 0x54, 0x2c, 0xb1,
                                          0x23, 0xa3, 0x39, 0x39, 0x2a, 0x6c, 0x76, 0x05},
                               want[16] = {0xa4, 0x9c, 0x7f, 0xf2, 0x68, 0x9f, 0x35, 0x2b,
                                           0x6b, 0x5b, 0xea, 0x43, 0x02, 0x6a, 0x50, 0x49};
    __m128i s = _mm_loadu_si128((const __m128i *)state), k = _mm_loadu_si128((const __m128i *)key);
    s = _mm_aesenc_si128(s, k);
    same("AESENC", !memcmp(&s, want, 16));
}

int main(void)
{
    struct sigaction sa = {.sa_handler = on_fault};
    unsigned a, b, c = 0, d;
    sigaction(SIGSEGV, &sa, NULL);
    cpuid();
    tsc();
    __get_cpuid(1, &a, &b, &c, &d);
    if (c & bit_AES)
        aes();
    else
        printf("NONE aes\n");
    return 0;
}
