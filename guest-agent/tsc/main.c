// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * reprise_tsc: RDTSC and RDTSCP of a guest whose host's KVM cannot make the TSC stand still. They
 * are answered with the virtual TSC, read by RDMSR, which our VMM sees and logs or computes.
 * README.md says how to boot a guest for it.
 */
#include "module.h"

#include <asm/msr.h>
#include <linux/module.h>

static int get_count(char *buffer, const struct kernel_param *param)
{
    return sysfs_emit(buffer, "%lld\n", (long long)atomic64_read(param->arg));
}

static const struct kernel_param_ops count_ops = {.get = get_count};

static int get_tsc(char *buffer, const struct kernel_param *param)
{
    return sysfs_emit(buffer, "%llu\n", __rdmsr(MSR_TSC));
}

static const struct kernel_param_ops tsc_ops = {.get = get_tsc};

module_param_cb(tsc, &tsc_ops, NULL, 0444);
MODULE_PARM_DESC(tsc, "what RDMSR of IA32_TSC says now (read only)");
module_param_cb(user_answers, &count_ops, &user_answers, 0444);
MODULE_PARM_DESC(user_answers, "RDTSC and RDTSCP of programs answered so far (read only)");
module_param_cb(kernel_answers, &count_ops, &kernel_answers, 0444);
MODULE_PARM_DESC(kernel_answers, "those of the kernel answered so far (read only)");
module_param(kernel_places, uint, 0444);
MODULE_PARM_DESC(kernel_places, "instructions of the kernel that are answered (read only)");
module_param(kernel_left, uint, 0444);
MODULE_PARM_DESC(kernel_left, "those that it does not let us answer (read only)");

static int check(void)
{
    if (boot_cpu_has(X86_FEATURE_TSC)) {
        pr_err("not loaded: the kernel itself uses the TSC; boot it with clearcpuid=tsc\n");
        return -EBUSY;
    }
    if (boot_cpu_has(X86_FEATURE_XENPV)) {
        pr_err("not loaded: under Xen's paravirtualization CR4.TSD is not the kernel's\n");
        return -ENODEV;
    }
    return 0;
}

/* From here on, or no longer, the VMM may let a CPU run that has another TSC. Another VMM does not
 * know the register. */
static void tell_vmm(u64 hidden)
{
    wrmsrl_safe(MSR_GUEST_TSC, hidden);
}

static int __init begin(void)
{
    int error = check();
    if (!error)
        error = names_find();
    if (error)
        return error;
    /* A program may read the TSC as soon as the first CPU has TSD. */
    error = user_begin();
    if (error)
        return error;
    error = ring0_begin();
    if (error)
        goto no_ring0;
    error = cr4_begin();
    if (error)
        goto no_cr4;
    tell_vmm(1);
    pr_info("RDTSC is answered with the virtual TSC: of programs, and in %u places of the kernel\n",
            kernel_places);
    return 0;
no_cr4:
    ring0_end();
no_ring0:
    user_end();
    return error;
}

static void __exit end(void)
{
    tell_vmm(0);
    cr4_end();
    ring0_end();
    user_end();
    pr_info("unloaded after %lld answers to programs and %lld to the kernel\n",
            (long long)atomic64_read(&user_answers), (long long)atomic64_read(&kernel_answers));
}

module_init(begin);
module_exit(end);
MODULE_DESCRIPTION("RDTSC answered with the virtual TSC of the Reprise VMM");
MODULE_LICENSE("Dual MIT/GPL");
