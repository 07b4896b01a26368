/*
 * Turns the kernel file a user names into the ELF that boot.h loads. The file is hostile: every
 * size in it is checked, and the result is at most KERNEL_MAX_SIZE.
 */
#ifndef REPRISE_KERNEL_H
#define REPRISE_KERNEL_H

#include "base/err.h"
#include "base/types.h"

#define KERNEL_MAX_SIZE (1ull << 30)

struct kernel_image {
    const void *elf; /* points into the caller's file, or into `owned`; NULL: none that we know */
    size_t elf_size;
    const void *header; /* the file, if it is a bzImage; else NULL */
    size_t header_size;
    /* "ELF", or the bzImage's packing: "gzip", "xz", "zstd", "lz4", "raw"; "setup code": it is to
     * unpack itself. */
    const char *format;
    void *owned;
};

/*
 * Accepts an ELF file of x86 with 64 or 32 bits, or an x86 bzImage of boot protocol 2.10 or later
 * packed with gzip, xz, zstd or lz4, or with code of 32 bits instead, or one of 2.02 or later, to
 * be entered by its code of 16 bits only, or a file whose Multiboot header has addresses. `file`
 * must live as long as `out`. Anything else is refused with a text that says what the file looks
 * like. The texts have the file as their subject ("is truncated: ..."): the caller puts its name in
 * front.
 */
int kernel_extract(const void *file, size_t size, struct kernel_image *out, struct err *err);
void kernel_image_free(struct kernel_image *image);

/* What a file that is not wanted looks like ("is empty", "is an xz-compressed file"); never NULL.
 */
const char *kernel_file_looks_like(const void *file, size_t size);

#endif
