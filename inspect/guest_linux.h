/*
 * What a Linux kernel says about itself in a guest's memory: VMCOREINFO, the text that kdump keeps
 * for crash dumps, and kallsyms, its own compressed symbol table. Read from RAM without any help
 * by the guest and without changing it.
 *
 * Everything here is a hostile guest's to forge: lengths and addresses are bounded, and a table
 * that does not hold together is refused with a text. Formats: kernel/vmcore_info (text lines
 * KEY=VALUE in a page of its own), scripts/kallsyms.c of Linux (tables). Kernels of 32 bits are
 * told from those of 64 by the size of their list_head, or by their tables.
 */
#ifndef REPRISE_GUEST_LINUX_H
#define REPRISE_GUEST_LINUX_H

#include "base/err.h"
#include "base/types.h"
#include "inspect/symbols.h"

#define KERNEL_MAP 0xffffffff80000000ull /* __START_KERNEL_map, of 64 bits */

/* RAM is searched in pieces (one that was never touched is not), for so many candidates at most. */
#define GUEST_REGION     (2u << 20)
#define GUEST_CANDIDATES 1000u

struct machine;
struct ram;

/* Where bytes come from: a machine's memory, or a test's. */
struct guest_memory {
    const struct ram *ram;
    /* Linear address by the CPU's current page tables; false unless all of it is mapped RAM. */
    bool (*peek)(void *opaque, gva_t va, void *out, size_t len);
    void *opaque;
};

struct guest_linux {
    struct guest_memory memory;
    char *vmcoreinfo;       /* its text with a NUL, "" if there is none */
    size_t vmcoreinfo_size; /* without the NUL */
    bool narrow;            /* a kernel of 32 bits */
    bool has_phys_base;
    /* physical = virtual - map + phys_base: in the kernel's image; where the kernel has 32 bits, in
     * all of its direct map. */
    u64 map, phys_base;
};

/* The memory of a machine, valid while the machine is. */
void guest_memory_init(struct guest_memory *mem, struct machine *m);

/* Finds VMCOREINFO; 0 also when there is none (vmcoreinfo is then ""). -ENOMEM. */
int guest_linux_open(struct guest_linux *g, const struct guest_memory *mem, struct err *err);
void guest_linux_close(struct guest_linux *g); /* safe on zeros */

/* Bytes at a linear address: by the current page tables, or where those do not map the kernel's
 * image, by phys_base. false unless all of it is there. */
bool guest_linux_read(const struct guest_linux *g, gva_t va, void *out, size_t len);

/* The value of VMCOREINFO's line KEY=VALUE as a number in that base; false: it is missing, or none.
 */
bool guest_linux_number(const struct guest_linux *g, const char *key, int base, u64 *out);

/* One of the kernel's longs or pointers. */
bool guest_linux_word(const struct guest_linux *g, gva_t va, u64 *out);

/* Reads the kernel's symbols, with its unwind tables (orc.h; frames.h), and those of its modules
 * where it has BTF (btf.h), into *out (finished; zeroed on failure), by VMCOREINFO or, without it
 * or before Linux 6.0, by searching RAM for the tables. -ENOENT with a text: no Linux here. */
int guest_linux_symbols(struct guest_linux *g, struct symbols *out, struct err *err);

/* The same of the kernel itself only: without modules and unwind tables, which take most of the
 * time. */
int guest_linux_kernel(struct guest_linux *g, struct symbols *out, struct err *err);

/* All of guest_linux_symbols() for a machine, where it stands. */
int guest_symbols_read(struct symbols *out, struct machine *m, struct err *err);

#endif
