/*
 * The headers of tar archives (POSIX.1-1988 "ustar"), of plain files only: that is all that a pack
 * has (replay/pack.h). What else an archive may hold (links, directories, devices, extended
 * headers) is refused by name, so whoever reads gets names and sizes and nothing to act on. Names
 * are the caller's to judge.
 */
#ifndef REPRISE_TAR_H
#define REPRISE_TAR_H

#include "base/err.h"
#include "base/types.h"

#define TAR_BLOCK 512u
#define TAR_NAME  101u /* with the NUL */

struct tar_member {
    char name[TAR_NAME];
    u64 size; /* bytes that follow the header, filled up to TAR_BLOCK */
};

/* 0: a file's. 1: zeros, which end an archive. <0: neither; *err says what it is. */
int tar_header_read(const u8 block[TAR_BLOCK], struct tar_member *m, struct err *err);
/* The name fits. Owner, date: none, so that the same files make the same archive. */
void tar_header_write(u8 block[TAR_BLOCK], const char *name, u64 size);

static inline u64 tar_padded(u64 size)
{
    return (size + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
}

#endif
