/*
 * Parts of files that a recording has beside what its guest read (record `kept`): what a debugger
 * wants of programs and libraries, so that it needs none of the files. Found in one pass over the
 * log, read out of `contents` when they are asked for. All of it is the recording's to forge: a
 * part is what its hash says, and whose it is nobody proves.
 */
#ifndef REPRISE_KEPT_H
#define REPRISE_KEPT_H

#include "replay/contents.h"

struct kept_part {
    u64 inode, length, offset;
    u32 size;
    struct hash128 hash;
};

/* All zero: none. */
struct kept {
    struct contents *contents; /* whoever reads says where they are; outlive it */
    struct kept_part *part;    /* ascending once it was asked */
    size_t count, room;
    bool sorted;
    u8 *data; /* of `loaded` */
    const struct kept_part *loaded;
};

/* Hears of each record of a log (log_pass()). Without memory for more those stay unknown. */
void kept_take(void *kept, const struct record *rec);
/* Of the file with that inode number and length: how many bytes are kept from `offset` on; 0: none
 * there. */
u64 kept_there(struct kept *k, u64 inode, u64 length, u64 offset);
/* Reads them, as many as there are of `len`; 0: none, or they are lost. */
size_t kept_read(struct kept *k, u64 inode, u64 length, u64 offset, void *out, size_t len);
void kept_free(struct kept *k);

#endif
