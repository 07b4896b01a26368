/* Work that is mostly the kernel's. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "speed.h"

static uint64_t finish(pid_t child)
{
    int status;
    must(waitpid(child, &status, 0) == child, "waitpid");
    must(status == 0, "child");
    return 0;
}

uint64_t pipe_round_trips(uint64_t n)
{
    int there[2], back[2];
    uint8_t byte = 1;
    uint64_t sum = 0;
    must(!pipe(there) && !pipe(back), "pipe");
    pid_t child = fork();
    must(child >= 0, "fork");
    if (!child) {
        close(there[1]); /* so that the end of the file is seen */
        while (read(there[0], &byte, 1) == 1) {
            byte = (uint8_t)(byte * 5 + 1);
            must(write(back[1], &byte, 1) == 1, "write");
        }
        _exit(0);
    }
    while (n--) {
        must(write(there[1], &byte, 1) == 1, "write");
        must(read(back[0], &byte, 1) == 1, "read");
        sum = mix(sum, byte);
    }
    close(there[1]);
    finish(child);
    close(there[0]);
    close(back[0]);
    close(back[1]);
    return sum;
}

/* Five of getppid for each round trip through pipes. */
static uint64_t syscalls(uint64_t n)
{
    pid_t parent = getppid();
    uint64_t sum = 0;
    for (uint64_t i = 0; i < 5 * n; i++)
        sum += getppid() == parent;
    return mix(sum, pipe_round_trips(n));
}

static uint64_t forks(uint64_t n)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < n; i++) {
        pid_t child = fork();
        must(child >= 0, "fork");
        if (!child) {
            execl("/proc/self/exe", "speed", "nothing", (char *)NULL);
            _exit(1);
        }
        finish(child);
        sum = mix(sum, i);
    }
    return sum;
}

static volatile sig_atomic_t caught;

static void on_signal(int number, siginfo_t *info, void *context)
{
    caught++;
}

/* The store that faulted is `movb $1,(%rax)`, three bytes: it is left out. */
static void on_fault(int number, siginfo_t *info, void *context)
{
    ucontext_t *u = context;
    u->uc_mcontext.gregs[REG_RIP] += 3;
    caught++;
}

/* Half of them sent by kill, half of them page faults. */
static uint64_t signals(uint64_t n)
{
    struct sigaction sent = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    struct sigaction fault = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    uint8_t *page = pages(4096, PROT_NONE);
    pid_t self = getpid();
    must(!sigaction(SIGUSR1, &sent, NULL) && !sigaction(SIGSEGV, &fault, NULL), "sigaction");
    for (uint64_t i = 0; i < n / 2; i++) {
        must(!kill(self, SIGUSR1), "kill");
        __asm__ volatile("movb $1,(%0)" : : "a"(page) : "memory");
    }
    munmap(page, 4096);
    return mix(0, (uint64_t)caught);
}

/* Of small pages: a kernel may give large ones, of which one fault makes 2 MiB. */
static uint64_t faults(uint64_t n)
{
    enum { PAGES = 256 };
    uint64_t sum = 0;
    for (uint64_t i = 0; i < n; i++) {
        uint8_t *p = pages(PAGES * 4096, PROT_READ | PROT_WRITE);
        must(!madvise(p, PAGES * 4096, MADV_NOHUGEPAGE) || errno == EINVAL, "madvise");
        for (uint64_t j = 0; j < PAGES; j++)
            p[j * 4096] = (uint8_t)(i + j);
        sum = mix(sum, p[i % PAGES * 4096]);
        must(!munmap(p, PAGES * 4096), "munmap");
    }
    return sum;
}

struct game {
    uint32_t turn; /* whose; a futex */
    uint64_t n, sum;
};

static void turn_and_wait(struct game *g, uint32_t mine)
{
    uint32_t seen;
    while ((seen = __atomic_load_n(&g->turn, __ATOMIC_ACQUIRE)) != mine)
        syscall(SYS_futex, &g->turn, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    g->sum = mix(g->sum, mine);
    __atomic_store_n(&g->turn, !mine, __ATOMIC_RELEASE);
    syscall(SYS_futex, &g->turn, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void *other_player(void *opaque)
{
    struct game *g = opaque;
    for (uint64_t i = 0; i < g->n; i++)
        turn_and_wait(g, 1);
    return NULL;
}

static uint64_t futex(uint64_t n)
{
    struct game g = {.n = n};
    pthread_t other;
    must(!pthread_create(&other, NULL, other_player, &g), "pthread_create");
    for (uint64_t i = 0; i < n; i++)
        turn_and_wait(&g, 0);
    must(!pthread_join(other, NULL), "pthread_join");
    return g.sum;
}

const struct work system_works[] = {
    {"syscalls", 200000, syscalls}, {"fork", 2000, forks},    {"signals", 400000, signals},
    {"faults", 3000, faults},       {"futex", 200000, futex}, {0},
};
