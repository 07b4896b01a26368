/*
 * One process of a Linux guest, as its kernel keeps it: its threads wherever they are, their
 * registers, its memory by its own page tables. Of kernels of 64 bits with type information (BTF).
 * It only reads; all of it is the guest's to forge, every walk is bounded.
 */
#ifndef REPRISE_PROGRAM_H
#define REPRISE_PROGRAM_H

#include "inspect/process.h"

struct vcpu;

/* Where the kernel keeps what is asked here; zeros: not known. */
struct program_layout {
    struct process_layout current; /* also what it says of any task */
    u64 first_task;                /* init_task */
    u64 entry_start, entry_end;    /* the kernel's entries, where registers are still to be saved */
    u32 stack_size;                /* bytes of a task's kernel stack */
    u32 tasks, mm, pgd, stack, signal, live, threads, node, started;
    u32 fs_base, gs_base, thread_flags;
    bool has_fpu, fpu_pointer; /* saved FPU state: in the task, or where it points */
    u32 fpu, fpu_state;
};

struct program_thread {
    u64 task;
    i32 tid;
    bool running;  /* it is the CPU's current task */
    bool user;     /* ... and in ring 3 */
    char comm[16]; /* printable */
};

struct program {
    i32 pid;
    u64 task;    /* of its first thread */
    u64 started; /* the kernel's time: tells it from a later one with that number */
    u64 root;    /* of its page tables; 0: it has none (any more) */
    struct program_thread *threads; /* the first one first */
    u32 count, room;
};

/* -ENOENT with a text: the guest's kernel has 32 bits, no BTF, or another form. */
int program_learn(struct program_layout *l, struct machine *m, const struct symbols *s,
                  struct err *err);
/* The process `pid`, or with 0 the k-th (from 1, in the kernel's order) that runs a program of that
 * name, as it is where the machine stands; k 0: the only one. `out` is zeros or one looked at
 * before, whose memory is used again. -ENOENT with a text: there is none; -EINVAL: several. */
int program_find(struct program *out, const struct program_layout *l, struct machine *m, i32 pid,
                 const char *name, u32 k, struct err *err);
/* Looks again. False: it is not there (any more, or yet). -ENOMEM is false too. */
bool program_look(struct program *p, const struct program_layout *l, struct machine *m);
void program_free(struct program *p); /* safe on zeros */

/* What a thread has in ring 3: live, or as its kernel stack and its task have it. *out is then the
 * CPU as it would run the thread; what is the whole CPU's (control registers) is as it is now.
 * *fpu: its x87, SSE and AVX state is known too. False: not known: a kernel's worker, or the kernel
 * is just being entered. *fpu may be false. */
bool program_registers(const struct program_layout *l, struct machine *m,
                       const struct program_thread *t, struct vcpu *out, bool *fpu);
/* Is `task` the last thread of its process, while it begins to end? */
bool program_last(const struct program_layout *l, struct machine *m, u64 task);
/* Bytes of its memory, within one page; false: not mapped, or the kernel's. */
bool program_peek(const struct program *p, struct machine *m, u64 va, void *out, size_t len);

#endif
