/*
 * Threads with values of their own in all of AVX-512's registers, over system calls, preemptions
 * and signals; then one that keeps them for a debugger (tests/suite/avx512.py).
 */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <sys/syscall.h>

#define THREADS 5
#define ROUNDS  300
#define ALL     "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31"
#define MASKS   "1,2,3,4,5,6,7"
#define FILL                                                                                       \
    ".irp n," ALL "\n\tlea \\n(%[mark]), %%rax\n\tvpbroadcastq %%rax, %%zmm\\n\n\t.endr\n\t"       \
    ".irp n," MASKS "\n\tlea 100+\\n(%[mark]), %%rax\n\tkmovq %%rax, %%k\\n\n\t.endr\n\t"
#define KEEP                                                                                       \
    ".irp n," ALL "\n\tvmovdqu64 %%zmm\\n, 64*\\n(%[out])\n\t.endr\n\t"                            \
    ".irp n," MASKS "\n\tkmovq %%k\\n, 2048+8*\\n(%[out])\n\t.endr\n\t"

static volatile int stop;

__attribute__((target("avx512f,avx512bw"))) static void asked(int sig)
{
    (void)sig;
    __asm__ volatile("vpternlogd $0xff, %%zmm9, %%zmm9, %%zmm9\n\tvmovdqa64 %%zmm9, %%zmm29\n\t"
                     "kxnorq %%k3, %%k3, %%k3"
                     :
                     :
                     : "xmm9", "xmm29", "k3");
}

__attribute__((target("avx512f,avx512bw"))) static int keeps(uint64_t mark, int call)
{
    static _Thread_local uint64_t out[32 * 8 + 8] __attribute__((aligned(64)));
    if (call) /* sched_yield(), and getpid(), in which signals come */
        __asm__ volatile(FILL "mov $24, %%eax\n\tsyscall\n\tmov $39, %%eax\n\tsyscall\n\t" KEEP
                         :
                         : [mark] "r"(mark), [out] "r"(out)
                         : "rax", "rcx", "r11", "memory", "cc", "xmm0", "xmm31", "k1", "k7");
    else
        __asm__ volatile(FILL "mov $30000, %%eax\n\t1: dec %%eax\n\tjnz 1b\n\t" KEEP
                         :
                         : [mark] "r"(mark), [out] "r"(out)
                         : "rax", "memory", "cc", "xmm0", "xmm31", "k1", "k7");
    for (unsigned n = 0; n < 32; n++)
        for (unsigned i = 0; i < 8; i++)
            if (out[8 * n + i] != mark + n)
                return 0;
    for (unsigned n = 1; n < 8; n++)
        if (out[256 + n] != mark + 100 + n)
            return 0;
    return 1;
}

static void *works(void *arg)
{
    uint64_t mark = 0x1122000000000000ull + ((uint64_t)(uintptr_t)arg << 32);
    for (unsigned i = 0; i < ROUNDS; i++)
        if (!keeps(mark + 1000 * i, i % 3 != 0)) {
            printf("BAD thread %d round %u\n", (int)(uintptr_t)arg, i);
            return (void *)1;
        }
    return NULL;
}

/* For a debugger: until the end. */
__attribute__((target("avx512f,avx512bw"))) static void *stays(void *arg)
{
    uint64_t mark = 0xaa55000000000000ull;
    printf("stays %d %ld\n", getpid(), syscall(SYS_gettid));
    fflush(stdout);
    __asm__ volatile(FILL "1: cmpl $0, %[stop]\n\tje 1b"
                     :
                     : [mark] "r"(mark), [stop] "m"(stop)
                     : "rax", "cc", "memory");
    return arg;
}

int main(void)
{
    pthread_t thread[THREADS], one;
    void *bad = NULL;
    if (!__builtin_cpu_supports("avx512bw")) {
        puts("BAD: no AVX-512");
        return 1;
    }
    signal(SIGUSR1, asked);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_create(&thread[i], NULL, works, (void *)(uintptr_t)(i + 1));
    for (unsigned i = 0; i < 200; i++) {
        usleep(300);
        pthread_kill(thread[i % THREADS], SIGUSR1);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        void *r;
        pthread_join(thread[i], &r);
        bad = r ? r : bad;
    }
    puts(bad ? "BAD: not kept" : "all kept");
    pthread_create(&one, NULL, stays, NULL);
    for (unsigned i = 0; i < 20; i++)
        usleep(2000); /* both run in turns */
    puts("looked at");
    fflush(stdout);
    usleep(20000);
    stop = 1;
    pthread_join(one, NULL);
    return bad != NULL;
}
