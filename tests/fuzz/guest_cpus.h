/* Drawn guests of several vCPUs (guest_cpus.c): where things are in their memory. guest_stub_cpus.S
 * includes it, too. */
#ifndef REPRISE_FUZZ_GUEST_CPUS_H
#define REPRISE_FUZZ_GUEST_CPUS_H

#define CPUS_MAX         8
#define CPUS_TRAMPOLINE  0x8000
#define CPUS_STACKS      0x80000 /* one of 4 KiB for each vCPU, down from here */
#define CPUS_IDT         0x101000
#define CPUS_TSS         0x102000
#define CPUS_PML4        0x110000 /* and the other tables behind it, in the order of their clearing */
#define CPUS_PDPT        0x111000
#define CPUS_PD          0x112000
#define CPUS_PD_APIC     0x113000
#define CPUS_PT          0x114000 /* of 2..4 MiB: code and data */
#define CPUS_CODE        0x200000
#define CPUS_PIECES      4096
#define CPUS_PIECE_SHIFT 8
#define CPUS_DATA        0x300000

#ifndef __ASSEMBLER__
#include <stddef.h>

#include "base/types.h"

/* An ELF kernel of 64 bits whose code is drawn from `seed`; the caller's to free. */
void *guest_cpus_elf(u64 seed, size_t *size);
/* The next number of a sequence that is never 0. */
u64 guest_random(u64 *s);
/* Fills a 64-bit ELF with a stub at 1 MiB and `code` bytes at 2 MiB, which the caller writes at
 * *at; the caller's to free. */
void *guest_elf(const u8 *stub, size_t stub_size, size_t code, u8 **at, size_t *size);
#endif

#endif
