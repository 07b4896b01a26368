/*
 * A file of the guest as far as its kernel has it in memory, or whoever asks has it, in a form that
 * a debugger takes: of an ELF file whose sections are not all there, the section headers are such
 * that what is missing has no contents; where the headers themselves are missing, others are made
 * of what the program headers and the dynamic section say (System V ABI, chapters 4 and 5). So a
 * program's file that this machine does not have gives at least the names that it exports.
 */
#ifndef REPRISE_GUEST_FILE_H
#define REPRISE_GUEST_FILE_H

#include "inspect/program.h"

/* What somebody else has of files, besides. */
struct guest_file_more {
    void *opaque;
    /* Bytes from `offset` on that can be read; 0: none. */
    u64 (*there)(void *opaque, const struct page_cache_file *file, u64 offset);
    /* Reads them; fewer than `len` where there are no more. */
    size_t (*read)(void *opaque, const struct page_cache_file *file, u64 offset, void *out,
                   size_t len);
};

struct guest_file {
    struct page_cache_file cache;
    const struct guest_file_more *more; /* NULL: nothing */
    u8 head[64];                        /* the ELF header as it is shown */
    u32 head_size;
    u8 *tail; /* new section headers and their names, from tail_at on */
    u64 tail_at, tail_size;
    u64 size; /* as it is shown */
};

/* Of a struct file. `more` stays the caller's; NULL: nothing but memory. -ENOENT: nothing of it is
 * there; -ENOMEM. */
int guest_file_open(struct guest_file *f, const struct guest_file_more *more,
                    const struct program_layout *l, struct machine *m, u64 file);
/* Bytes from `offset` on, up to what is not there; <0: -EIO: that is not. */
i64 guest_file_read(const struct guest_file *f, const struct program_layout *l, struct machine *m,
                    u64 offset, void *out, size_t len);
void guest_file_close(struct guest_file *f); /* safe on zeros */

#endif
