/*
 * A core dump of a machine as kdump and dump-guest-memory write it: an ELF core of physical
 * memory for crash, drgn and gdb. Notes: NT_PRSTATUS and floating-point registers of each vCPU,
 * VMCOREINFO, QEMU's CPU state. Segments: all RAM at its place in the kernel's direct map, the
 * kernel image, and what else the page tables map for the kernel (vmalloc: stacks, modules), which
 * shares its bytes with the first. Pages of zeros are holes in the file.
 */
#ifndef REPRISE_CORE_H
#define REPRISE_CORE_H

#include "base/err.h"
#include "base/types.h"

struct machine;

/* What was written, to be told to the user. */
struct core_report {
    u64 bytes;         /* of the file, holes included */
    u64 data;          /* of pages that are not holes */
    unsigned segments; /* PT_LOAD */
    bool vmcoreinfo;   /* VMCOREINFO was there */
    bool direct_map;   /* segments are at the kernel's virtual addresses, else at physical ones */
    bool cut;          /* more mappings than segments fit: the last ones are left out */
    u32 cpus, turn;    /* vCPUs, each with its registers, and whose turn it is */
    u32 tasks;         /* of the kernel; 0 if unknown */
    i32 pid;           /* of the task on that vCPU, if comm is not "" */
    char comm[16];
    char release[128]; /* of the kernel, "" if unknown */
};

/* One more note, of those named "REPRISE". */
#define CORE_NOTE_GPU                                                                              \
    0x52500001u /* what the GPU has, as JSON; gdb takes small numbers for its own */
struct core_note {
    u32 type;
    const void *data;
    size_t size;
};

/* Writes the core of the machine where it stands to an empty file. `note` NULL: no more than
 * there always are. -errno with a text. The machine is not changed. */
int core_write(struct machine *m, int fd, const struct core_note *note, struct core_report *report,
               struct err *err);

#endif
