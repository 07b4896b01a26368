/*
 * Who runs on the CPU of a machine: the address space that is current and, where the guest is a
 * Linux that says what its tasks look like (symbols and BTF), the task. Cheap enough to be asked at
 * each hit of a debug point. Everything read is the guest's to forge; nothing of it is followed
 * further than a few words.
 */
#ifndef REPRISE_PROCESS_H
#define REPRISE_PROCESS_H

#include "inspect/btf.h"

struct process {
    bool user; /* ring 3 */
    /* Physical address of the page table's root: CR3 without the PCID and without the bit by which
     * a kernel with page table isolation keeps two of them. */
    u64 root;
    u64 fs_base; /* of ring 3: what threads differ in */
    u64 kernel;  /* where the kernel's addresses begin */
    /* Of Linux; zeros where not known. */
    u64 task;      /* its task_struct */
    u64 space;     /* the kernel's number of its address space, never used twice; 0: has none */
    i32 pid, tgid; /* in the kernel's words: of the thread, of the process */
    char comm[16]; /* printable */
};

/* Where a kernel keeps it; zeros: not known. */
struct process_layout {
    bool known;
    struct guest_current where;
    u64 floor;   /* where the kernel's addresses begin, 0: not known */
    bool looked; /* process_due said so, last at: */
    pos_t looked_at;
};

/* Is it time to learn it? A kernel that has not come far enough says nothing, and looking takes a
 * while. */
bool process_due(struct process_layout *l, pos_t now);

/* Learns the layout from a machine whose kernel has booted; false: not to be known here (yet).
 * Costs as much as reading the symbols. */
bool process_learn(struct process_layout *l, struct machine *m, const struct symbols *s);

void process_read(const struct process_layout *l, struct machine *m, struct process *out);

/* Bytes of the kernel's memory, of at most a page, also while the CPU is in ring 3 with page tables
 * that lack the kernel. False: not mapped RAM, or no address of the kernel's. */
bool process_kernel_bytes(const struct process_layout *l, struct machine *m, u64 va, void *out,
                          size_t len);
/* The physical page at a linear address, by the 64-bit page tables that begin at `root`. */
bool process_page(struct machine *m, u64 root, u64 va, gpa_t *page);
/* The same, with what else it may be: nothing was ever there, or it is not in memory. */
enum page_state { PAGE_AWAY, PAGE_UNTOUCHED, PAGE_THERE };
enum page_state process_page_state(struct machine *m, u64 root, u64 va, gpa_t *page);

/* Is it the same address space, as far as can be known? */
bool process_same_space(const struct process *a, const struct process *b);
/* ... the same thread? `fs_base`: it cannot have changed, where there is nothing better. */
bool process_same_thread(const struct process *a, const struct process *b, bool fs_base);

/* A thread of Linux stands at the beginning of do_exit(code): a sentence about it. */
void process_end_sentence(const struct process *p, struct machine *m, char *text, size_t size);

#endif
