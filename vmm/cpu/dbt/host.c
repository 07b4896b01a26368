/*
 * What ties the engine to its host thread: the GS base, from which its state is reached, and the
 * signals that guest instructions raise in translated code (#DE, #MF, #XM, #GP by misalignment).
 * A signal handler finds the engine through GS as well, copies the registers to sregs and unwinds
 * into the run loop. One machine runs per thread; several may exist in a process.
 *
 * The stack pointer in translated code is the guest's. So each handler of this process has
 * SA_ONSTACK (a test says so): without it the kernel writes its frame where the guest points, or,
 * where nothing is mapped there, makes a SIGSEGV of a signal that is lost.
 */
#define _GNU_SOURCE
#include "host.h"

#include <asm/prctl.h>
#include <cpuid.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/phase.h"

#define ALTSTACK  65536
#define HYGON_EBX 0x6f677948u

#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1u << 31)
#endif

static _Thread_local struct dbt *current;
static _Thread_local void *stack_now; /* where this thread's handlers run */

/* Vectors of the CPU that the host's kernel makes a signal of. */
static const struct {
    int number;
    u32 vectors;
} signals[] = {
    {SIGSEGV, 1u << 4 | 1u << 5 | 1u << 13 | 1u << 14},
    {SIGBUS, 1u << 11 | 1u << 12 | 1u << 14 | 1u << 17},
    {SIGFPE, 1u << 0 | 1u << 16 | 1u << 19},
    {SIGILL, 1u << 6},
};

/* Somebody's kill is no fault of the guest. */
static bool raised_by_cpu(int sig, const siginfo_t *si, u64 vector)
{
    for (unsigned i = 0; i < ARRAY_SIZE(signals); i++)
        if (signals[i].number == sig)
            return si->si_code > 0 && vector < 32 && (signals[i].vectors >> vector & 1);
    return false;
}

static void on_signal(int sig, siginfo_t *si, void *ctx)
{
    ucontext_t *uc = ctx;
    greg_t *g = uc->uc_mcontext.gregs;
    struct dbt *d = current;
    u64 rip = (u64)g[REG_RIP];
    if (!d || rip - (u64)(uintptr_t)d->code->rx >= d->code->size ||
        !raised_by_cpu(sig, si, (u64)g[REG_TRAPNO])) {
        /* A bug of ours, or somebody's kill. Let it kill the process with its own report. */
        signal(sig, SIG_DFL);
        if (si->si_code <= 0)
            raise(sig); /* on return: it does not come again by itself */
        return;
    }
    static const int map[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                REG_R12, REG_R13, REG_R14, REG_R15};
    for (int r = 0; r < 16; r++)
        d->sregs[r] = (u64)g[map[r]];
    d->sflags = (u64)g[REG_EFL];
    d->signal_rip = (u32)(rip - (u64)(uintptr_t)d->code->rx);
    d->signal_trap = (u8)g[REG_TRAPNO];
    d->signalled = true;
    g[REG_RIP] = (greg_t)(uintptr_t)(d->code->rx + d->code->unwind);
}

/* AMD's had PEXT in microcode up to family 17h. */
static bool slow_pext(void)
{
    unsigned a, b, c, e;
    __cpuid(1, a, b, c, e);
    unsigned family = (a >> 8 & 15) + (a >> 20 & 255);
    __cpuid(0, a, b, c, e);
    return (b == signature_AMD_ebx && family < 0x19) || b == HYGON_EBX;
}

static bool has_bmi2(void)
{
    unsigned a = 0, b = 0, c = 0, e = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &e) && (b & bit_BMI2);
}

/* One for a machine: of its vCPUs one runs at a time, and another is then no call of the kernel. */
static int make_stack(struct dbt *d, struct err *err)
{
    if (d->c.sibling != &d->c) {
        d->altstack = dbt_of(d->c.sibling)->altstack;
        return 0;
    }
    void *p = mmap(NULL, ALTSTACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return err_set(err, -ENOMEM, "out of memory");
    d->altstack = p;
    return 0;
}

static void use_stack(void *stack)
{
    stack_t on = {.ss_sp = stack, .ss_size = ALTSTACK, .ss_flags = (int)SS_AUTODISARM};
    stack_t off = {.ss_flags = SS_DISABLE};
    sigaltstack(stack ? &on : &off, NULL);
    stack_now = stack;
}

int host_init(struct dbt *d, struct err *err)
{
    int r = make_stack(d, err);
    if (r)
        return r;
    struct sigaction sa = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&sa.sa_mask);
    for (unsigned i = 0; i < ARRAY_SIZE(signals); i++)
        sigaction(signals[i].number, &sa, NULL);
    d->fsgsbase = getauxval(AT_HWCAP2) & 2;
    d->bmi2 = has_bmi2() && !getenv("REPRISE_TEST_NO_PEXT");
    d->avx2 = __builtin_cpu_supports("avx2");
    d->pext = d->bmi2 && !slow_pext();
    d->second_left = SECOND_MOST;
    d->hot_at = getenv("REPRISE_TEST_HOT") ? 1 : HOT_AT;
    d->test_copies = getenv("REPRISE_TEST_COPIES");
    d->test_clobber = getenv("REPRISE_TEST_CLOBBER") != NULL;
    const char *blocks = getenv("REPRISE_TEST_CODE_CACHE");
    d->test_blocks = blocks ? (u32)strtoul(blocks, NULL, 10) : 0;
    for (unsigned k = 0; k < ARRAY_SIZE(d->outside); k++)
        d->outside[k] = ~(u64)(PAGE_SIZE - 1) | ((1u << k) - 1);
    return 0;
}

void host_fini(struct dbt *d)
{
    bool last = d->c.sibling == &d->c;
    if (current == d) {
        current = NULL;
        phases.code_size = 0;
        use_stack(NULL);
    }
    if (!d->altstack || !last)
        return;
    if (stack_now == d->altstack)
        use_stack(NULL);
    munmap(d->altstack, ALTSTACK);
}

void host_enter(struct dbt *d)
{
    if (current != d) {
        if (stack_now != d->altstack)
            use_stack(d->altstack);
        current = d;
        phases.code = d->code->rx;
        phases.code_size = d->code->size;
    }
    if (d->fsgsbase)
        __asm__ volatile("wrgsbase %0" : : "r"((u8 *)d + GS_OFFSET));
    else
        syscall(SYS_arch_prctl, ARCH_SET_GS, (u8 *)d + GS_OFFSET);
}
