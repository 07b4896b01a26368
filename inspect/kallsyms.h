/*
 * kallsyms, the kernel's own table of its symbols, in a guest's memory.
 *
 * As the kernel keeps it: `count` names, each a length and that many bytes, each byte an
 * index in a table of 256 tokens; the tokens' texts one after the other are nm's type letter and
 * the name. A length of 128 and more takes two bytes (from Linux 6.1). An address is a 64-bit word,
 * or a 32-bit offset: with per-CPU symbols kept absolute, v >= 0 is the value itself and v < 0
 * means base - 1 - v; without, base + v. In a kernel of 32 bits all words are of 32 bits and
 * aligned to as many.
 *
 * All of it is the guest's: whatever stands there, reading it ends, and says what is wrong.
 */
#ifndef REPRISE_KALLSYMS_H
#define REPRISE_KALLSYMS_H

#include "inspect/guest_linux.h"

#define KALLSYMS_TOKENS 256u
#define KALLSYMS_GROUP  256u /* names from marker to marker */

/* Where the tables are: linear addresses, or offsets in RAM's host memory when `found` by shape. */
struct kallsyms {
    bool found, wide; /* wide: whole addresses, no base */
    bool narrow;      /* of a kernel of 32 bits */
    u32 count;
    u64 names, token_table, token_index, addresses;
    u64 base;
};

/* Where VMCOREINFO says they are (from Linux 6.0 on). */
bool kallsyms_by_name(const struct guest_linux *g, struct kallsyms *t);
/* Where there is something of their shape in RAM (kallsyms_search.c). */
bool kallsyms_by_shape(const struct guest_linux *g, struct kallsyms *t);

/* Reads the tables into *out; *out is the caller's to free, also on failure. -EINVAL: no such
 * tables. */
int kallsyms_decode(const struct guest_linux *g, const struct kallsyms *t, struct symbols *out,
                    struct err *err);

/* Bytes of a long, and of what is aligned as one. */
unsigned kallsyms_word_size(const struct kallsyms *t);
size_t kallsyms_addresses_size(const struct kallsyms *t);
/* Values are offsets: absolute ones are there if any is negative (a kernel is less than 2 GiB). */
bool kallsyms_has_negative(const u8 *table, u32 count);
/* Symbol i's address by the table of addresses; `percpu`: absolute ones are there. */
u64 kallsyms_address(const struct kallsyms *t, const u8 *table, bool percpu, u32 i, bool *absolute);

#endif
