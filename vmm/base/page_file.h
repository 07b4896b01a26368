/*
 * Pages kept in an unlinked file instead of in memory: for images that may become larger than RAM.
 * The file grows in steps whose blocks are allocated first, so that a full disk is an error of the
 * call that needs more. It is read, never mapped: a disk that fails would be a signal. Not for
 * several threads.
 */
#ifndef REPRISE_PAGE_FILE_H
#define REPRISE_PAGE_FILE_H

#include "base/room.h"
#include "base/types.h"

struct page_file;

/* In the first directory that takes it (NULL entries are skipped). `room` is asked before it grows,
 * and outlives it. NULL: errno says why. */
struct page_file *page_file_create(const char *const *dirs, unsigned n, struct room *room);
void page_file_destroy(struct page_file *f); /* NULL is safe */

/* Until there are that many. -errno: as many as before; -ENOSPC also if `room` says no. */
int page_file_grow(struct page_file *f, u64 room);

/* A free slot with these contents; -errno. */
int page_file_put(struct page_file *f, const u8 *data, u32 *slot);
int page_file_change(struct page_file *f, u32 slot, const u8 *data);
void page_file_free(struct page_file *f, u32 slot);
int page_file_read(const struct page_file *f, u32 slot, u8 *out);

#endif
