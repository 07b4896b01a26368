/*
 * BTF, the type information that a Linux kernel keeps of itself in memory (Documentation/bpf/btf),
 * and what it lets us read out of a guest: the symbols of loaded modules, the list of tasks. All
 * of it is the guest's to forge; every walk is bounded.
 */
#ifndef REPRISE_BTF_H
#define REPRISE_BTF_H

#include "replay/guest_linux.h"

struct btf {
    u8 *data; /* the types, then the strings with a NUL behind them */
    u32 types_size, strings_size;
    u32 *types; /* offset of type i in data; type 0 is void */
    u32 count;
};

/* Reads the kernel's own BTF. -ENOENT with a text if it has none, -EINVAL if it makes no sense. */
int btf_read(struct btf *b, const struct guest_linux *g, const struct symbols *s, struct err *err);
/* The same from bytes, which are copied. */
int btf_parse(struct btf *b, const void *data, size_t size, struct err *err);
void btf_free(struct btf *b); /* safe on zeros */

/* Byte offset of a member, "a.b" of nested ones, of a struct or union; what is in an anonymous one
 * counts as its own. `size`, unless NULL: bytes of the struct that it is (of an array: of one
 * element), 0 for other types. false if there is none. */
bool btf_member(const struct btf *b, const char *type, const char *member, u32 *offset, u32 *size);

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
    struct guest_task *list; /* in the kernel's order, threads behind their process */
    u32 count;
};
/* -ENOENT with a text where the kernel has no BTF or no tasks yet. */
int guest_tasks_read(struct guest_tasks *out, const struct guest_linux *g, const struct symbols *s,
                     struct err *err);
void guest_tasks_free(struct guest_tasks *t); /* safe on zeros */

#endif
