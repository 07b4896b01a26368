/*
 * Which sectors of a disk's image a guest was given. `reprise pack` has a replay gather them: they
 * are what a later replay needs of the image, and no more (replay/pack_disk.h).
 */
#ifndef REPRISE_HOST_DISK_READS_H
#define REPRISE_HOST_DISK_READS_H

#include "base/types.h"

#define DISK_SECTOR_OF_PAGE 8u /* sectors of 512 bytes in a page of 4096 */

struct disk_reads;

/* Of a disk of that many bytes. NULL: no memory. */
struct disk_reads *disk_reads_create(u64 size);
void disk_reads_destroy(struct disk_reads *r); /* NULL is safe */
/* Those that [offset, offset + len) touches; NULL is safe. */
void disk_reads_add(struct disk_reads *r, u64 offset, u64 len);
/* The first page from `page` on of which a sector was read, and a bit for each of its sectors, the
 * first in bit 0. false: there is none. */
bool disk_reads_next(const struct disk_reads *r, u64 *page, u8 *sectors);
/* It had no memory for some: they are not in it. */
bool disk_reads_failed(const struct disk_reads *r);

#endif
