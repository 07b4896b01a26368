/*
 * Loads the ELF's segments at p_paddr and says in which state the CPU starts, by one of these:
 *
 *   linux       Linux' 64-bit boot protocol (Documentation/arch/x86/boot.rst), also used for bare
 *               guests of 64 bits: zero page, e820, command line, SETUP_RNG_SEED, initrd, GDT and
 *               identity page tables; of a kernel of 32 bits the 32-bit boot protocol
 *   linux16     the same file by its code of 16 bits, as a boot loader of a PC does it, with the
 *               firmware that it asks (linux16.h, bios.h)
 *   pvh         the entry of an ELF note of Xen's, XEN_ELFNOTE_PHYS32_ENTRY (protocol.h)
 *   multiboot   Multiboot Specification 0.6.96, and multiboot2 2.0 (protocol.h)
 */
#ifndef REPRISE_BOOT_H
#define REPRISE_BOOT_H

#include "board/ram.h"

/* The part of a bzImage that the zero page has: up to the end of its copy of the header. */
#define BOOT_HEADER_SIZE 0x290

/* Where the boot data lie. A kernel's segments start at KERNEL_MIN_ADDR or above. */
#define BOOT_GDT        0x1000ull
#define BOOT_ZERO_PAGE  0x2000ull
#define BOOT_CMDLINE    0x3000ull /* one page */
#define BOOT_SETUP_DATA 0x4000ull
#define BOOT_STACK_TOP  0xc000ull /* 16 KiB below it are free for it */
#define BOOT_PAGE_TABLE 0x10000ull
#define BOOT_LOW_END    0x9fc00ull
#define KERNEL_MIN_ADDR 0x100000ull

#define BOOT_SEED_SIZE 32

enum boot_protocol {
    BOOT_LINUX,
    BOOT_PVH,
    BOOT_MULTIBOOT,
    BOOT_MULTIBOOT2,
    BOOT_LINUX16,
    BOOT_PROTOCOLS
};
extern const char *const boot_protocol_name[BOOT_PROTOCOLS];

struct boot_config {
    const char *protocol; /* a name; NULL or "": what fits the kernel best */
    const void *kernel;   /* ELF, ET_EXEC or ET_DYN, of x86 with 64 or 32 bits; or NULL */
    size_t kernel_size;
    const void *header; /* the bzImage, whole; or NULL */
    size_t header_size;
    const void *initrd;
    size_t initrd_size;
    const char *append;
    u64 seed;
    gpa_t acpi_rsdp;
    bool bios_data; /* a Multiboot kernel finds where a BIOS has its data, and how much is below 1
                       MiB */
};

struct boot_state {
    bool wide; /* it starts in 64-bit mode; else in protected mode without paging */
    bool real; /* or in real-address mode, with this CS: */
    u16 cs;
    u64 rip, rax, rbx, rsp, rsi, cr3;
    u64 gdt_base;
    u16 gdt_limit;
};

/* What of physical memory is what, as e820 has it: type 1 is RAM, 2 reserved. */
struct boot_range {
    u64 base, size;
    u32 type;
};
#define BOOT_RANGES 5
unsigned boot_memory_map(const struct ram *ram, struct boot_range out[BOOT_RANGES]);

/* The guest's entropy: word i (little-endian) is XXH3-64 of the 16 bytes le64(seed) le64(i). */
void boot_seed_bytes(u64 seed, u8 out[BOOT_SEED_SIZE]);

/* The seed where the kernel's setup data are, at BOOT_SETUP_DATA. */
void boot_write_seed(struct ram *ram, u64 seed);
/* Is it short enough for a page and a kernel that takes `most` bytes? */
int boot_check_cmdline(const char *append, size_t most, struct err *err);

/* Fails (with text) when the ELF is not one, wants memory that is not there, or things overlap. */
int boot_load(struct ram *ram, const struct boot_config *config, struct boot_state *out,
              struct err *err);

#endif
