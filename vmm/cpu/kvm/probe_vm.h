/*
 * A throw-away virtual machine for tests of the host: 2 MiB of RAM, 64-bit code in ring 0 or 3 with
 * ports allowed, an IDT whose entries tell which exception came. Runs are limited in time.
 */
#ifndef REPRISE_CPU_KVM_PROBE_VM_H
#define REPRISE_CPU_KVM_PROBE_VM_H

#include <linux/kvm.h>

#include "base/err.h"
#include "cpu/kvm/pmu_kvm.h"

#define PROBE_CODE           0x100000u /* where the code is loaded */
#define PROBE_DATA           0x190000u /* zeros; RDI of the code */
#define PROBE_STUB           0x10000u  /* the handler of vector V is at PROBE_STUB + 16 * V */
#define PROBE_SYSCALL_VECTOR 0x81u     /* what SYSCALL arrives as */
#define PROBE_PORT           0x10u     /* OUT to it ends a test's code */
#define PROBE_TRAP           0x12u     /* a handler's OUT to it says the vector (AL) */

struct probe_vm {
    int kvm, vm, vcpu;
    struct kvm_run *run;
    size_t run_size;
    u8 *ram;
    struct pmu_kvm host; /* runs it */
    bool opened;
};

enum probe_exit {
    PROBE_DONE = 1, /* OUT to PROBE_PORT */
    PROBE_TRAPPED,  /* an exception: *vector */
    PROBE_DEBUGGED, /* single step or breakpoint, told to the host */
    PROBE_SIGNAL,   /* a signal: time, or an overflow */
    PROBE_OTHER,    /* the text says which exit */
};

/* `before`: called when the vCPU is there and has no state yet; NULL: nothing. */
int probe_vm_open(struct probe_vm *v, int (*before)(struct probe_vm *v, struct err *err),
                  struct err *err);
void probe_vm_close(struct probe_vm *v); /* safe on a zeroed struct */

/* Puts code at PROBE_CODE, to begin in that ring with these RCX and RDX; registers are reset. */
int probe_vm_load(struct probe_vm *v, const void *code, size_t size, unsigned ring, u64 rcx,
                  u64 rdx, struct err *err);
/* One KVM_RUN of at most `ms`: enum probe_exit; or <0. `vector` may be NULL. */
int probe_vm_run(struct probe_vm *v, unsigned ms, unsigned *vector, struct err *err);
int probe_vm_regs(struct probe_vm *v, struct kvm_regs *out, struct err *err);

#endif
