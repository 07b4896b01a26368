/*
 * Boot protocols besides Linux': what a kernel says of itself, and what it finds in memory and in
 * registers. The kernel file is hostile.
 *
 *   PVH         Xen public interface, "hvm/start_info"; "x86/HVM direct boot ABI"
 *   Multiboot   Multiboot Specification 0.6.96 and 2.0
 */
#ifndef REPRISE_PROTOCOL_H
#define REPRISE_PROTOCOL_H

#include "board/boot.h"

/* The entry in notes of `size` bytes, each padded to `align`; 0: none. */
u64 protocol_pvh_entry(const u8 *notes, u64 size, unsigned align);
/* Is there a header? Of an ELF file: it is loaded as its program headers say. One that has
 * addresses must mean the same entry. */
bool protocol_multiboot(const u8 *file, size_t size, u64 entry);
bool protocol_multiboot2(const u8 *file, size_t size);

/* A file that is loaded as its Multiboot header says. */
struct protocol_flat {
    u64 offset, size;      /* in the file */
    u32 load, room, entry; /* physical addresses, bytes in memory */
};
/* 1: it is one. 0: there is no header with addresses. -EINVAL: they make no sense; the text's
 * subject is the file. */
int protocol_flat(const u8 *file, size_t size, struct protocol_flat *out, struct err *err);

struct protocol_info {
    const char *append;
    gpa_t initrd; /* the first module */
    u64 initrd_size;
    gpa_t acpi_rsdp;
    bool bios_data; /* of Multiboot: boot_config has it */
};

/* Writes what the kernel is told, and sets the registers that say where. */
void protocol_write(struct ram *ram, enum boot_protocol protocol, const struct protocol_info *info,
                    struct boot_state *state);

#endif
