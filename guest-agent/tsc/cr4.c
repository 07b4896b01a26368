// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * CR4.TSD, on every CPU. The kernel sets and clears the same bit for tasks that asked for a signal
 * (prctl(PR_SET_TSC)), by toggling it in a copy of CR4 that it keeps for each CPU. That copy is
 * left to it; every write of CR4 itself goes through native_write_cr4(), and gets the bit there.
 */
#include "module.h"

#include <asm/processor-flags.h>
#include <asm/tlbflush.h>
#include <linux/cpuhotplug.h>
#include <linux/kprobes.h>

static int add_tsd(struct kprobe *probe, struct pt_regs *regs)
{
    regs->di |= X86_CR4_TSD;
    return 0;
}
NOKPROBE_SYMBOL(add_tsd);

static struct kprobe writes = {.symbol_name = "native_write_cr4", .pre_handler = add_tsd};
static int state;

static void write_cr4(unsigned long bits)
{
    unsigned long flags, cr4;
    local_irq_save(flags);
    cr4 = cr4_read_shadow() | bits;
    asm volatile("mov %0, %%cr4" : : "r"(cr4) : "memory");
    local_irq_restore(flags);
}

static int cpu_up_tsd(unsigned int cpu)
{
    write_cr4(X86_CR4_TSD);
    return 0;
}

static int cpu_down_tsd(unsigned int cpu)
{
    write_cr4(0);
    return 0;
}

int cr4_begin(void)
{
    int error = register_kprobe(&writes);
    if (error) {
        pr_err("not loaded: no kprobe on native_write_cr4 (error %d)\n", error);
        return error;
    }
    state =
        cpuhp_setup_state(CPUHP_AP_ONLINE_DYN, "x86/reprise_tsc:online", cpu_up_tsd, cpu_down_tsd);
    if (state < 0) {
        unregister_kprobe(&writes);
        pr_err("not loaded: no place for another CPU hotplug callback (error %d)\n", state);
        return state;
    }
    return 0;
}

void cr4_end(void)
{
    unregister_kprobe(&writes);
    cpuhp_remove_state(state);
}
