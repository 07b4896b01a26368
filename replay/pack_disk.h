/*
 * The disks' images in a pack: not the images, but the sectors that were read of them. Each disk
 * has a map, disks/N.map: a header, then for each page of 4096 bytes in ascending order which of
 * its sectors are known, where in disks/pages it lies, and its hash (the other sectors as zeros).
 * Pages of all disks are in disks/pages, each once. Little-endian.
 */
#ifndef REPRISE_PACK_DISK_H
#define REPRISE_PACK_DISK_H

#include "host/disk.h"
#include "replay/pack_write.h"
#include "replay/recording.h"

#define DISK_MAP_MAGIC   "RPRDISK\n"
#define DISK_MAP_VERSION 1u
#define DISK_MAP_ALL     1u /* a page that is not in the map is zero; else it is not known */
#define DISK_MAP_NOWHERE UINT32_MAX

struct disk_map_header {
    char magic[8];
    u32 version;
    u32 flags; /* DISK_MAP_ALL */
    u64 size;  /* of the disk, bytes */
    u64 pages; /* entries that follow */
};
struct disk_map_entry {
    u64 page; /* ascending */
    u32 slot; /* in disks/pages, in pages; DISK_MAP_NOWHERE: not in this pack */
    u32 sectors;
    struct hash128 hash; /* XXH3-128 of the page */
};
_Static_assert(sizeof(struct disk_map_entry) == 32 && sizeof(struct disk_map_header) == 32,
               "part of the format");

/* A map in memory. */
struct disk_map {
    struct disk_map_header head;
    struct disk_map_entry *entry; /* malloc'ed */
};
/* Trusts nothing: `bytes` of a file, for a disk of that size, whose pages file has `slots` pages.
 */
int disk_map_parse(struct disk_map *m, const void *data, u64 bytes, u64 size, u64 slots,
                   struct err *err);
void disk_map_free(struct disk_map *m);
/* Is that image the one that the map is of? Reads what is known of it. false: *at, the first byte
 * of the page that differs, or cannot be read. */
bool disk_map_fits(const struct disk_map *m, int fd, u64 *at);

/* That image, disk `n`, of which nothing is given that the map does not know, by its hash. Takes
 * over the map's entries and `fd`, unless it fails. */
int disk_map_blob(struct disk_map *m, unsigned n, int fd, struct blob *out, struct err *err);

/* Puts maps and pages of all disks into a pack: of those that disk->reads has, with PACK_DISK_ALL
 * of all that are not zero. */
int pack_disks(struct pack_writer *w, struct disk *const *disks, unsigned n, enum pack_disk how,
               struct err *err);

/* The image of disk N, of `size` bytes, that a recording has in this form. Nothing is read of it
 * before somebody reads of the blob, while the recording is open. -ENOENT: it has none. */
int pack_disk_blob(const struct recording *r, unsigned n, u64 size, struct blob *out,
                   struct err *err);
/* The map of disk N; -ENOENT: there is none. */
int disk_map_load(const struct recording *r, unsigned n, u64 size, struct disk_map *m,
                  struct err *err);

#endif
