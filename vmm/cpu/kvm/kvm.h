/*
 * The KVM engine, shared declarations of its files. See README.md for how it works.
 *
 * The vCPU's state is the core's (cpu/x86), canonical as there; KVM gets what an instruction needs,
 * runs it, and its results are taken back. What KVM cannot do exactly exec() does.
 */
#ifndef REPRISE_KVM_H
#define REPRISE_KVM_H

#include <linux/kvm.h>

#include "cpu/x86/core.h"
#include "cpu/x86/insn.h"
#include "cpu/x86/memory.h"

#define KVM_MNEMONICS 2048u /* more than Zydis has */

/* How a single step ends in a ring. */
enum kvm_stop {
    KVM_STOP_NONE,     /* it does not: the ring is the core's */
    KVM_STOP_DEBUG,    /* KVM_EXIT_DEBUG */
    KVM_STOP_SHUTDOWN, /* the trap went to the guest, which has no IDT then: KVM_EXIT_SHUTDOWN */
};

struct kvm_vm {
    int dev, vm, vcpu; /* -1: none */
    struct kvm_run *run;
    size_t run_size;
};

struct kvm_slot {
    gpa_t gpa;
    u64 size;
    void *host;
    bool readonly;
};

struct kvm_free;

struct kvm {
    struct core *core; /* owns the vCPU; core->stepper_opaque is this */
    struct kvm_vm h;
    struct engine_ops ops; /* the core's but for a few */
    struct kvm_slot slot[4];
    u32 nslots;
    struct kvm_free *free; /* free.h; NULL: it runs by single steps */
    enum kvm_stop stop[4]; /* by ring */
    bool keeps;            /* the registers, at a triple fault */
    u64 flushes;           /* of the core's TLB, when KVM's was last in line with it */
    bool armed;            /* single step is on for the registers as they are in KVM */
    bool sent_regs, sent_sregs, sent_fpu, sent_xcr0;
    struct kvm_regs regs;   /* as KVM has them */
    struct kvm_sregs sregs; /* as they were sent */
    u64 xcr0;
    u8 fpu[XSAVE_SIZE];
    struct kvm_xsave *image; /* a transfer buffer */
    u64 turn_ends;           /* coarse host time at which a run by single steps looks up */
    u64 looked;              /* instructions since it looked at the clock */
    u64 steps;               /* instructions and REP iterations that KVM ran */
    u64 exits;               /* of KVM_RUN, single steps included */
    u64 corrected;           /* CPUIDs that KVM answered otherwise than the model */
    u64 refused;             /* instructions that KVM's own emulator does not know */
    u8 unknown[KVM_MNEMONICS];
    struct kvm_undo *undo; /* undo.c */
};

/* vm.c: /dev/kvm and a machine in it. <0 with a text that says what to do. */
int kvm_open(struct kvm_vm *h, struct err *err);
/* `own`: it reads and writes the MSRs by itself that are no event (cpu/x86/msr.c). */
int kvm_create_vcpu(struct kvm_vm *h, bool own, struct err *err);
int kvm_add_memory(struct kvm_vm *h, u32 slot, gpa_t gpa, u64 size, void *host, u32 flags,
                   struct err *err);
void kvm_close(struct kvm_vm *h);
/* KVM notes which pages of a slot the guest writes, from now on. */
int kvm_log_dirty(struct kvm *k, u32 slot, struct err *err);
/* Of a machine's vCPU; `of` NULL: of one that is alone. */
int kvm_set_cpuid(struct kvm_vm *h, enum cpu_model model, const struct core *of, struct err *err);

/* ring.c: proves how a single step ends in each ring of this host, in a machine of its own, and
 * whether a triple fault leaves the registers as they were. */
int kvm_prove_step(enum kvm_stop stop[4], bool *keeps, struct err *err);

/* state.c: the vCPU into KVM and back. <0 with a text. */
void kvm_regs_of(struct core *d, struct kvm_regs *out);
void kvm_sregs_of(const struct vcpu *c, unsigned cpl, struct kvm_sregs *out);
int kvm_send(struct kvm *k, bool fpu, struct err *err);
int kvm_send_sregs(struct kvm *k, const struct kvm_sregs *sregs, struct err *err);
int kvm_send_fpu(struct kvm *k, struct err *err);
int kvm_get_fpu(struct kvm *k, struct err *err); /* into k->image */
int kvm_clear_events(struct kvm *k, struct err *err);
/* KVM's own idea of registers is gone: the next kvm_send() sends all. */
void kvm_forget(struct kvm *k);

/* exit.c: what the guest came out for. */
enum kvm_next {
    KVM_AGAIN = 1,   /* answered: KVM_RUN completes the instruction */
    KVM_STEPPED,     /* the instruction is done */
    KVM_NOT_STEPPED, /* nothing of it happened */
};
int kvm_exit(struct kvm *k, const struct insn *in, struct err *err); /* <0 or enum kvm_next */
/* KVM_EXIT_IO; and KVM_EXIT_MMIO: <0 or KVM_AGAIN. */
void kvm_port_access(struct kvm *k);
int kvm_memory_access(struct kvm *k, struct err *err);
/* Everything that KVM says about an exit that has no answer. -EIO. */
int kvm_dump(struct kvm *k, const char *what, struct err *err);

static inline struct kvm *kvm_of(const struct engine *e)
{
    return core_of_const(e)->stepper_opaque;
}

/* undo.c: an instruction that KVM began and could not end. */
int kvm_undo_create(struct kvm *k, struct err *err); /* free(k->undo) with the core */
/* The machine listens to atomic operations and system calls, or does no more (engine_env.sync). */
void kvm_undo_listen(struct kvm *k);
/* Before it begins: `op` are its operands. */
void kvm_undo_begin(struct kvm *k, const struct operand *op, unsigned n);
/* It failed, core->err says why: memory is as before it. false: devices are not, so exec() must do
 * it, and kvm_undo_failed() is true from then on, with the text in core->err again. */
bool kvm_undo(struct kvm *k);
bool kvm_undo_failed(struct kvm *k);

/* step.c: the engine's run by single steps, which ends after some 20 ms; and struct core's stepper.
 */
enum engine_exit kvm_run_steps(struct engine *e, pos_t stop_at, struct err *err);
int kvm_step(struct core *d, struct insn *in);

#endif
