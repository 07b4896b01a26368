/*
 * BTF, the type information that a Linux kernel keeps of itself in memory (Documentation/bpf/btf),
 * and what it lets us read out of a guest: the symbols of loaded modules, the list of tasks. All
 * of it is the guest's to forge; every walk is bounded.
 */
#ifndef REPRISE_BTF_H
#define REPRISE_BTF_H

#include "inspect/guest_linux.h"

struct btf {
    u8 *data; /* the types, then the strings with a NUL after them */
    u32 types_size, strings_size;
    u32 *types; /* offset of type i in data; type 0 is void */
    u32 count;
};

/* Reads the kernel's own. -ENOENT with a text if it has none, -EINVAL if it makes no sense. */
int btf_read(struct btf *b, const struct guest_linux *g, const struct symbols *s, struct err *err);
/* The same from bytes, which are copied. */
int btf_parse(struct btf *b, const void *data, size_t size, struct err *err);
void btf_free(struct btf *b); /* safe on zeros */

/* Byte offset of a member, "a.b" of nested ones, of a struct or union; what is in an anonymous one
 * counts as its own. `size`, unless NULL: bytes of the struct that it is (of an array: of one
 * element), 0 for other types. false if there is none. */
bool btf_member(const struct btf *b, const char *type, const char *member, u32 *offset, u32 *size);
/* The same of each; false: one is not there, and those after it are as they were. */
struct btf_place {
    const char *type, *member;
    u32 *offset;
};
bool btf_members(const struct btf *b, const struct btf_place *list, size_t n);

/* What stays of a module, and what is given back. */
#define OLD_PARTS 2u

/* Offsets in struct module and what it points to. */
struct module_layout {
    u32 list, name, kallsyms, symtab, num_symtab, strtab, typetab;
    unsigned parts; /* OLD_PARTS at most: each with its code first (Linux up to 6.3) */
    u32 base, size, text, stride;
    bool has_orc;
    u32 orc_offsets, orc_entries, orc_count;
};

/* Adds the symbols and unwind tables of loaded modules, and a range for each part of one, to *s,
 * which must be finished again then. 0 also where they cannot be read: *s has those that could.
 * -ENOMEM. */
int guest_modules_add(const struct guest_linux *g, struct symbols *s, struct err *err);

struct guest_task {
    u64 address;   /* its task_struct */
    i32 pid;       /* in the kernel's words: of the thread */
    i32 tgid;      /* of the process */
    u32 state;     /* 0: running or ready; 1: sleeping; 2: in uninterruptible sleep; ... */
    bool current;  /* of CPU 0 */
    char comm[16]; /* printable */
};
struct guest_tasks {
    struct guest_task *list; /* in the kernel's order, threads after their process */
    u32 count;
};
/* -ENOENT with a text where the kernel has no BTF or no tasks yet. */
int guest_tasks_read(struct guest_tasks *out, const struct guest_linux *g, const struct symbols *s,
                     struct err *err);
void guest_tasks_free(struct guest_tasks *t); /* safe on zeros */

/* Where a kernel keeps which task CPU 0 runs, the same at all times: running.h and process.h look
 * there. */
struct guest_current {
    bool narrow;   /* a kernel of 32 bits: its per-CPU variables begin where kernel_code.h says */
    gva_t offsets; /* of 64: of the variable __per_cpu_offset */
    u64 variable;  /* from what that holds: the pointer to the task */
    u32 pid, tgid, comm; /* members of the task */
    u32 mm;              /* ... the pointer to its address space */
    bool has_space;
    u32 space;     /* member of that: its number, which is not used twice */
    bool isolated; /* page table isolation: CR3 with bit 12 leads to tables without the kernel */
};
/* -ENOENT with a text where the kernel has no BTF or another form; of 32 bits by its code. */
int guest_current_find(struct guest_current *out, const struct guest_linux *g,
                       const struct symbols *s, struct err *err);
/* The same of a kernel of 64 bits whose BTF was read already. */
int guest_current_of(struct guest_current *out, const struct guest_linux *g,
                     const struct symbols *s, const struct btf *b, struct err *err);

#endif
