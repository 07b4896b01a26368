/*
 * An imitation of /dev/kvm and of perf events, for tests: README.md. A machine has one vCPU, whose
 * processor is an engine dbt of its own ("the hardware") over the very memory that the program
 * gave to KVM.
 */
#ifndef REPRISE_TESTS_IMITATION_H
#define REPRISE_TESTS_IMITATION_H

#include <linux/kvm.h>
#include <signal.h>
#include <sys/types.h>

#include "cpu/dbt/dbt.h"
#include "cpu/x86/core.h"
#include "cpu/x86/insn.h"
#include "cpu/x86/memory.h"
#include "cpu/x86/except.h"
#include "cpu/x86/msr.h"
#include "cpu/x86/park.h"
#include "cpu/x86/points.h"
#include "cpu/x86/run.h"
#include "cpu/x86/tlb.h"

/* options.c: REPRISE_IMITATION. Of `1/N` options the N; 0: never. */
struct im_options {
    u64 seed, skid; /* skid: the largest of an ordinary overflow, in branches */
    u64 late, lost, early, stolen, tick, suspend, core, unknown, internal, fails;
    bool nopmu, noscale, nostep, miscount, speclock, tlb, later;
    const char *fail; /* "CALL@N"; NULL: none */
    u64 fail_at;
    const char *cpu; /* what pmu_cpu_read() says; NULL: this one, if an event is known for it */
};
const struct im_options *im_options(void);
u64 im_random(u64 below); /* below 0: 0 */
bool im_happens(u64 one_in);
u64 im_skid(void);
struct im_vcpu;
/* This thread runs that one: with `later`, trials of the host go well, as im_spared() says. */
void im_options_for(const struct im_vcpu *v);
bool im_spared(void);

/* fail.c: does this ioctl fail now (or, IM_PERF_READ, reading a counter)? Then errno is set. */
#define IM_PERF_READ 0ul
bool im_fails(unsigned long request);
bool im_fail_known(const char *name, size_t len); /* what an option may name */

/* calls.c: descriptors of ours, each a real one as well. */
enum im_kind { IM_NONE, IM_DEVICE, IM_VM, IM_VCPU, IM_PERF };
int im_fd_new(enum im_kind kind, void *object); /* -1 with errno */
/* What the program is told, and what a test's log shows. Returns -1 with errno = error. */
int im_refuse(int error, const char *fmt, ...) PRINTF(2, 3);

/* device.c: /dev/kvm and a machine. */
#define IM_SLOTS  16
#define IM_RANGES 16
struct im_slot {
    struct kvm_userspace_memory_region r; /* memory_size 0: none */
};
struct im_range {
    u32 flags, base, n;
    u8 *bitmap; /* ours */
};
struct im_vm {
    unsigned users; /* descriptors: its own and the vCPU's */
    struct im_slot slot[IM_SLOTS];
    u64 layout;    /* changes with the memory */
    u64 *dirty;    /* a bit a page of RAM, by ram_page_index(); NULL: nothing is logged */
    u32 user_msr;  /* KVM_MSR_EXIT_REASON_* that go to user space */
    bool filtered; /* there is a filter */
    bool deny;     /* its default */
    struct im_range range[IM_RANGES];
    u32 khz; /* of vCPUs to come */
    struct im_vcpu *vcpu;
};
int im_device_ioctl(unsigned long request, void *arg);
int im_vm_ioctl(struct im_vm *vm, unsigned long request, void *arg);
void im_vm_release(struct im_vm *vm);
/* The machine's memory as the hardware has it; false: it is not in one piece. */
bool im_vm_ram(const struct im_vm *vm, struct ram *out, bool *has_rom);
/* KVM_MSR_EXIT_REASON_FILTER is what follows. */
bool im_msr_allowed(const struct im_vm *vm, u32 msr, bool write);

struct im_event {
    bool injected, pending, has_error;
    u8 vector;
    u32 error;
};

#define IM_WRITES 8
struct im_write {
    gpa_t gpa; /* or port */
    u32 len;
    u64 value;
    bool port;
};

struct im_vcpu {
    struct im_vm *vm;
    struct kvm_run *run;
    struct kvm_cpuid_entry2 *cpuid;
    u32 ncpuid;
    /* What KVM keeps besides the processor. */
    u64 apic_base, cr8;
    struct im_event exception;
    bool irq;
    u8 irq_vector;
    bool nmi;
    u32 debug_control;
    u64 debugreg[8];
    u64 step_rip; /* KVM sets the trap flag there only */
    bool masked;
    u64 mask; /* of signals, while it runs */
    u32 khz;
    u64 tsc_offset, tsc_adjust;
    /* The processor. */
    enum cpu_model model;
    struct core *hw;
    const struct insn *executed; /* in exec() */
    u64 layout;                  /* of the memory that it was made for */
    bool stale;                  /* its model has changed */
    struct ram ram;
    bool has_rom; /* where board/ram.h has it, some memory is read-only */
    struct engine_env env;
    bool keeps_tlb; /* nothing but a guest's own flush empties it */
    u8 *shadow;     /* pages of code as they were at the last exit */
    u32 *looked;    /* by page: the epoch in which it was compared with its shadow */
    u32 epoch;
    u32 *pages; /* those of this epoch */
    u32 npages;
    /* The coroutine it runs in: hardware.c. */
    void *outside, *inside; /* stack pointers */
    u8 *stack;
    bool alive;   /* `inside` can be gone on with */
    bool mid;     /* it waits in the middle of an instruction */
    bool aborted; /* ... which is not to be finished */
    u64 insns;    /* to run */
    enum engine_exit result;
    struct err err;
    /* What an instruction left for its end. */
    struct im_write write[IM_WRITES];
    u32 nwrites, first_write;
    bool set_tpr, halted, debugged;
    u64 dr6;
    u64 until; /* host cycles: what is pending is to be looked at */
};

static inline u64 im_cycles(void)
{
    u32 low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (u64)high << 32 | low;
}

#define IM_MSR_APIC_BASE 0x1b

/* vcpu.c */
struct im_vcpu *im_vcpu_new(struct im_vm *vm, int *fd);
int im_vcpu_ioctl(struct im_vcpu *v, unsigned long request, void *arg);
void im_vcpu_free(struct im_vcpu *v);

/* state.c: registers between KVM's structs and the hardware's. */
void im_sync(struct im_vcpu *v);
void im_get_regs(struct im_vcpu *v, struct kvm_regs *out);
void im_set_regs(struct im_vcpu *v, const struct kvm_regs *in);
void im_get_sregs(struct im_vcpu *v, struct kvm_sregs *out);
int im_set_sregs(struct im_vcpu *v, const struct kvm_sregs *in);
void im_get_events(struct im_vcpu *v, struct kvm_vcpu_events *out);
int im_set_events(struct im_vcpu *v, const struct kvm_vcpu_events *in);
int im_set_debug(struct im_vcpu *v, const struct kvm_guest_debug *in);
void im_get_fpu(struct im_vcpu *v, struct kvm_fpu *out);
void im_set_fpu(struct im_vcpu *v, const struct kvm_fpu *in);
void im_get_xsave(struct im_vcpu *v, struct kvm_xsave *out);
int im_set_xsave(struct im_vcpu *v, const struct kvm_xsave *in);

/* msr.c */
bool im_msr_get(struct im_vcpu *v, u32 msr, u64 *value);
bool im_msr_set(struct im_vcpu *v, u32 msr, u64 value, bool guest);
/* RDMSR and WRMSR: DONE, or FAULT; may go to user space. */
int im_msr_insn(struct im_vcpu *v, bool write);
void im_cpuid(struct im_vcpu *v, u32 leaf, u32 subleaf, struct cpuid_result *out);

/* clock.c */
#define IM_HOST_KHZ 2000000u
u64 im_host_ticks(u32 khz);
u64 im_tsc(const struct im_vcpu *v);
/* The thread goes into its guest, is there for some instructions, goes out. */
void im_clock_begin(void); /* this thread has a vCPU */
u64 im_clock_enter(void);
void im_clock_tick(void);
u64 im_clock_left(void);
void im_sleep_over_tick(void);
void im_suspend(void);

/* hardware.c */
bool im_hw_ready(struct im_vcpu *v); /* makes it if need be; false: it cannot be made */
void im_hw_drop(struct im_vcpu *v);
bool im_is_hw(const struct core *d);
struct im_vcpu *im_of(const struct core *d);
/* Goes on inside until a boundary, or until `mid`. */
void im_hw_go(struct im_vcpu *v);
/* From inside: out to the program, and back with its answer. */
void im_hw_leave(struct im_vcpu *v);
/* From inside: out, and never back to this instruction. */
void im_hw_abort(struct im_vcpu *v);
/* The next store that waits, as KVM_EXIT_MMIO; false: there is none. */
bool im_hw_write_exit(struct im_vcpu *v);
/* From inside: one more of them. */
void im_hw_post(struct im_vcpu *v, const struct im_write *w);
/* Memory may have been written by others: before and after a KVM_RUN. */
void im_hw_enter(struct im_vcpu *v);
void im_hw_left(struct im_vcpu *v);

/* run.c */
int im_run(struct im_vcpu *v);

/* perf.c: counters of the calling thread. */
int im_perf_open(const void *attr, pid_t thread, int cpu, int group, unsigned long flags);
int im_perf_ioctl(void *event, unsigned long request, void *arg);
ssize_t im_perf_read(void *event, void *buf, size_t size);
int im_perf_fcntl(void *event, int command, long arg, bool *ours);
void im_perf_close(void *event);
void im_perf_before_branch(void); /* the last moment for whoever skids no farther */
void im_perf_enter(void);         /* the vCPU of this thread goes into the guest */
/* Branches until something is to be looked at; NEVER: nothing. *one: run single instructions. */
u64 im_perf_room(bool *one);
void im_perf_count(u64 branches, bool insn); /* as many have retired; insn: one instruction has */
/* Out of the guest: signals that are under way arrive. */
void im_perf_leave(u64 ns);

#endif
