/* Single steps and breakpoints around RDTSC: the trap comes after it, as without the module. */
#define _GNU_SOURCE
#include "tsc-test.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define TF   0x100
#define MOST 16

extern const char step_begin[], step_tsc[], step_after[], step_tscp[], step_last[], step_end[];
void stepped(void);

/* Each label is an instruction that a trap must come to. */
__asm__(".text\n"
        "stepped: push %rbx\n"
        "step_begin: nop\n"
        "step_tsc: rdtsc\n"
        "step_after: nop\n"
        "step_tscp: rdtscp\n"
        "step_last: pop %rbx\n"
        "step_end: ret\n");

static uintptr_t trapped[MOST];
static int traps, codes_wrong;

static void on_trap(int number, siginfo_t *info, void *context)
{
    ucontext_t *u = context;
    if (traps < MOST)
        trapped[traps++] = (uintptr_t)u->uc_mcontext.gregs[REG_RIP];
    codes_wrong += info->si_code != TRAP_TRACE;
    if (trapped[traps - 1] == (uintptr_t)step_end)
        u->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TF;
}

static void check_traps(const uintptr_t *seen, int n)
{
    const char *const want[] = {step_tsc, step_after, step_tscp, step_last, step_end};
    int from = 0;
    while (from < n && seen[from] != (uintptr_t)step_tsc)
        from++;
    for (int i = 0; i < 5; i++)
        check(from + i < n && seen[from + i] == (uintptr_t)want[i],
              "step %d is at %+ld from the first", i,
              from + i < n ? (long)(seen[from + i] - (uintptr_t)step_begin) : -1);
}

void test_trap_flag(void)
{
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    sigaction(SIGTRAP, &action, NULL);
    traps = 0;
    __asm__ volatile("sub $128, %%rsp\n\t"
                     "pushfq\n\t"
                     "orl $0x100, (%%rsp)\n\t"
                     "popfq\n\t"
                     "call stepped\n\t"
                     "add $128, %%rsp"
                     :
                     :
                     : "rax", "rcx", "rdx", "memory", "cc");
    check_traps(trapped, traps);
    check(!codes_wrong, "%d signals are not TRAP_TRACE", codes_wrong);
    signal(SIGTRAP, SIG_DFL);
}

static uintptr_t rip(pid_t child)
{
    struct user_regs_struct regs = {0};
    ptrace(PTRACE_GETREGS, child, NULL, &regs);
    return (uintptr_t)regs.rip;
}

static bool stopped_by_trap(pid_t child)
{
    int status = 0;
    return waitpid(child, &status, 0) == child && WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP;
}

static bool breakpoint_at(pid_t child, const char *where)
{
    return !ptrace(PTRACE_POKEUSER, child, offsetof(struct user, u_debugreg[7]), 0) &&
           !ptrace(PTRACE_POKEUSER, child, offsetof(struct user, u_debugreg[0]), where) &&
           !ptrace(PTRACE_POKEUSER, child, offsetof(struct user, u_debugreg[7]), 1);
}

void test_ptrace(void)
{
    pid_t child = fork();
    if (!child) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGTRAP);
        stepped();
        stepped();
        _exit(7);
    }
    check(stopped_by_trap(child), "the child does not begin");
    /* A breakpoint on RDTSC, and on the instruction after it: RF must not be left set. */
    check(breakpoint_at(child, step_tsc), "no debug registers: errno %d", errno);
    ptrace(PTRACE_CONT, child, NULL, NULL);
    check(stopped_by_trap(child) && rip(child) == (uintptr_t)step_tsc, "no stop at RDTSC");
    check(breakpoint_at(child, step_after), "no second breakpoint");
    ptrace(PTRACE_CONT, child, NULL, NULL);
    check(stopped_by_trap(child) && rip(child) == (uintptr_t)step_after, "no stop after RDTSC");
    check(breakpoint_at(child, step_begin), "no third breakpoint");
    ptrace(PTRACE_CONT, child, NULL, NULL);
    check(stopped_by_trap(child), "no stop at the second call");
    ptrace(PTRACE_POKEUSER, child, offsetof(struct user, u_debugreg[7]), 0);

    uintptr_t seen[MOST];
    int n = 0;
    while (n < 5) {
        ptrace(PTRACE_SINGLESTEP, child, NULL, NULL);
        if (!stopped_by_trap(child))
            break;
        seen[n++] = rip(child);
    }
    check_traps(seen, n);
    ptrace(PTRACE_CONT, child, NULL, NULL);
    int status = 0;
    waitpid(child, &status, 0);
    check(WIFEXITED(status) && WEXITSTATUS(status) == 7, "the child ends with %#x", status);
}
