/*
 * Which function of an ELF file of 64 bits some bytes of it are: by its program headers, and its
 * symbol tables (System V ABI, chapter 4). Any file may be given, also one of which parts are
 * missing; none is trusted: what is read is bounded, and a name is printable.
 */
#ifndef REPRISE_ELF_FUNCTION_H
#define REPRISE_ELF_FUNCTION_H

#include "base/types.h"

#define ELF_FUNCTION_MAX 96u /* bytes of a name with its NUL; longer ones are cut */

struct elf_bytes {
    void *opaque;
    /* Reads from `offset` on; fewer than `len` where there are no more. */
    size_t (*read)(void *opaque, u64 offset, void *out, size_t len);
};

/* The function at that offset in the file, and how far in it. False: none is known. */
bool elf_function(const struct elf_bytes *file, u64 offset, char name[ELF_FUNCTION_MAX],
                  u64 *beyond);

#endif
