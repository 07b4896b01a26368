// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * RDTSC and RDTSCP in user programs. With CR4.TSD they raise #GP, and the kernel asks
 * fixup_umip_exception(), for every #GP of user mode and before anything else, whether that was an
 * instruction that it should carry out. Calls of that function are led here, as live patching does;
 * what is no RDTSC goes on to it. So entry, interrupts and every other #GP stay the kernel's own.
 */
#include "module.h"

#include "insn.h"

#include <asm/debugreg.h>
#include <asm/insn.h>
#include <asm/msr.h>
#include <asm/processor-flags.h>
#include <asm/segment.h>
#include <asm/siginfo.h>
#include <asm/traps.h>
#include <linux/delay.h>
#include <linux/ftrace.h>
#include <linux/kdebug.h>
#include <linux/kprobes.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/signal.h>

atomic64_t user_answers;

static bool (*kernels_own)(struct pt_regs *regs);
static atomic_t inside; /* tasks in fixup(), which may sleep there */

void notrace answer(struct pt_regs *regs, bool with_aux)
{
    u64 tsc;
    preempt_disable_notrace(); /* both of one CPU */
    tsc = __rdmsr(MSR_TSC);
    if (with_aux)
        regs->cx = (u32)__rdmsr(MSR_TSC_AUX);
    preempt_enable_notrace();
    regs->ax = (u32)tsc;
    regs->dx = tsc >> 32;
}
NOKPROBE_SYMBOL(answer);

/* The trap that the CPU would have made after the instruction, had it executed it. */
static void single_step_trap(struct pt_regs *regs)
{
    unsigned long dr6 = DR_STEP;
    int said;
    if (test_thread_flag(TIF_BLOCKSTEP)) /* then TF means: at branches */
        return;
    local_irq_disable();
    current->thread.virtual_dr6 = DR_STEP;
    said = names.notify_die(DIE_DEBUG, "debug", regs, (long)&dr6, 0, SIGTRAP);
    local_irq_enable();
    if (said != NOTIFY_STOP)
        names.send_sigtrap(regs, 0, TRAP_TRACE);
}

static bool answered(struct pt_regs *regs)
{
    unsigned char code[MAX_INSN_SIZE];
    bool long_mode = regs->cs == __USER_CS;
    int length, n;
    enum tsc_insn what;

    if (test_thread_flag(TIF_NOTSC)) /* it asked for a signal: prctl(PR_SET_TSC) */
        return false;
    n = names.insn_fetch_from_user(regs, code);
    what = n > 0 ? tsc_decode(code, n, long_mode ? 64 : 32, &length) : TSC_OTHER;
    if (what == TSC_OTHER)
        return false;
    answer(regs, what == TSC_RDTSCP);
    regs->ip = long_mode ? regs->ip + length : (u32)(regs->ip + length);
    regs->flags &= ~X86_EFLAGS_RF; /* a fault's: the next instruction has its breakpoints */
    atomic64_inc(&user_answers);
    if (regs->flags & X86_EFLAGS_TF)
        single_step_trap(regs);
    return true;
}

static bool fixup(struct pt_regs *regs)
{
    bool good;
    atomic_inc(&inside);
    good = answered(regs) || kernels_own(regs);
    atomic_dec(&inside);
    return good;
}

/* Also says where the function goes on after the call of the tracer, which is what led here. */
static void notrace lead_here(unsigned long ip, unsigned long parent, struct ftrace_ops *ops,
                              struct ftrace_regs *regs)
{
    WRITE_ONCE(kernels_own, (void *)(ip + MCOUNT_INSN_SIZE));
    instruction_pointer_set(ftrace_get_regs(regs),
                            (unsigned long)fixup); /* it has them all: flags */
}

/* PERMANENT: with the sysctl kernel.ftrace_enabled it cannot be switched off meanwhile. */
static struct ftrace_ops hook = {
    .func = lead_here,
    .flags = FTRACE_OPS_FL_SAVE_REGS | FTRACE_OPS_FL_IPMODIFY | FTRACE_OPS_FL_PERMANENT,
};

int user_begin(void)
{
    static unsigned char name[] = "fixup_umip_exception";
    int error;
    if (!boot_cpu_has(X86_FEATURE_UMIP)) {
        pr_err("not loaded: the kernel does not use UMIP (no CPU feature, or clearcpuid=), and "
               "without it does not ask whether a #GP can be helped\n");
        return -ENODEV;
    }
    error = ftrace_set_filter(&hook, name, sizeof(name) - 1, 1);
    if (!error)
        error = register_ftrace_function(&hook);
    if (error) {
        ftrace_free_filter(&hook);
        pr_err("not loaded: %s cannot be hooked (error %d; is kernel.ftrace_enabled 0, or is "
               "there a live patch?)\n",
               name, error);
    }
    return error;
}

void user_end(void)
{
    unregister_ftrace_function(&hook);
    ftrace_free_filter(&hook);
    synchronize_rcu_tasks(); /* who was on the way here has come in */
    while (atomic_read(&inside))
        msleep(1);
    synchronize_rcu_tasks(); /* and who went out has left our code */
}
