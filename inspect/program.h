/*
 * One process of a Linux guest, as its kernel keeps it: its threads wherever they are, their
 * registers, its memory by its own page tables. Of kernels of 64 bits with type information (BTF).
 * It only reads; all of it is the guest's to forge, every walk is bounded.
 */
#ifndef REPRISE_PROGRAM_H
#define REPRISE_PROGRAM_H

#include "inspect/page_cache.h"
#include "inspect/process.h"

struct vcpu;

/* Where the kernel keeps what is asked here; zeros: not known. */
struct program_layout {
    struct process_layout current; /* also what it says of any task */
    u64 first_task;                /* init_task */
    u64 entry_start, entry_end;    /* the kernel's entries, where registers are still to be saved */
    u32 stack_size;                /* bytes of a task's kernel stack */
    u32 tasks, mm, pgd, stack, signal, flags, live, threads, node, started;
    u32 fs_base, gs_base, thread_flags;
    bool has_fpu, fpu_pointer; /* saved FPU state: in the task, or where it points */
    u32 fpu, fpu_state;
    bool has_proc; /* program_proc.h */
    u32 arguments, arguments_end, heap, heap_end, stack_start, parent, cred, ids;
    struct page_cache_layout cache;
    bool has_maps, maps_tree; /* program_maps.h */
    u32 maps, map_next, map_start, map_end, map_offset, map_flags, map_file, map_ops;
    bool has_vdso;
    u32 vdso, vdso_image, vdso_data, vdso_size;
    u32 range_pivot, range_slot, arange_pivot, arange_slot;
    u32 vfork_done;  /* 0: not known */
    bool has_signal; /* members of struct ksignal */
    u32 signal_number, signal_info, signal_flags;
    /* Of its file: program_file.h. */
    bool has_auxv, has_file, has_directory, has_backing;
    u32 directory_mount, directory_entry;
    u32 file_mode, backing_mount, backing_entry; /* of files that others stand behind */
    u32 auxv, exe_file, file_mount, file_entry, fs, root_mount, root_entry;
    u32 entry_parent, entry_name, entry_len, mounted_root, mount, mount_parent, mount_point;
};

/* A word of the kernel's memory. */
static inline bool program_word(const struct program_layout *l, struct machine *m, u64 at, u64 *out)
{
    return process_kernel_bytes(&l->current, m, at, out, 8);
}

/* Bytes that the kernel keeps of a siginfo_t. */
#define SIGINFO_KERNEL 48u

struct program_thread {
    u64 task;
    i32 tid;
    bool running;  /* it is a CPU's current task, */
    unsigned cpu;  /* ... that one's */
    bool user;     /* ... and in ring 3 */
    char comm[16]; /* printable */
};

struct program {
    i32 pid;
    u64 task;    /* of its first thread */
    u64 started; /* the kernel's time: tells it from a later one with that number */
    u64 root;    /* of its page tables; 0: it has none (any more) */
    u64 mm;      /* its mm_struct; 0 likewise */
    struct program_thread *threads; /* the first one first */
    u32 count, room;
};

/* -ENOENT with a text: the guest's kernel has 32 bits, no BTF, or another form. */
int program_learn(struct program_layout *l, struct machine *m, const struct symbols *s,
                  struct err *err);
/* The process `pid`, or where there is a name the k-th (from 1, in the kernel's order) that runs a
 * program of that name, as it is where the machine stands; k 0: the only one. `out` is zeros or one
 * looked at before, whose memory is used again. -ENOENT with a text: there is none; -EINVAL:
 * several. */
int program_find(struct program *out, const struct program_layout *l, struct machine *m, i32 pid,
                 const char *name, u32 k, struct err *err);
/* Looks again. False: it is not there (any more, or yet). -ENOMEM is false too. */
bool program_look(struct program *p, const struct program_layout *l, struct machine *m);
void program_free(struct program *p); /* safe on zeros */

/* What a thread has in ring 3: live, or as its kernel stack and its task have it. *out is then the
 * CPU as it would run the thread; what is the whole CPU's (control registers) is as it is now.
 * *fpu: its x87, SSE and AVX state is known too. *call: the number of the system call that it is
 * in, else -1 (orig_ax of the kernel's struct pt_regs). False: not known: a kernel's worker, or the
 * kernel is just being entered. *fpu may be false. */
bool program_registers(const struct program_layout *l, struct machine *m,
                       const struct program_thread *t, struct vcpu *out, bool *fpu, u64 *call);
/* Is `task` the last thread of its process, while it begins to end? */
bool program_last(const struct program_layout *l, struct machine *m, u64 task);
/* The number of the system call that a task is in, wherever in the kernel, else a negative one: as
 * orig_ax of its saved registers. */
u64 program_call(const struct program_layout *l, struct machine *m, u64 task);
/* Does the process of `task` end already? */
bool program_is_ending(const struct program_layout *l, struct machine *m, u64 task);
/* Bytes of its memory, within one page; false: not mapped, or the kernel's. What it has not touched
 * yet is what it would find: zeros, or the page of a file that the kernel has in memory. */
bool program_peek(const struct program *p, const struct program_layout *l, struct machine *m,
                  u64 va, void *out, size_t len);

#endif
