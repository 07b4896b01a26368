/*
 * The other files that a disk image names: backing files, data files, extents. Whoever wrote the
 * image wrote those names, so they are followed only if the user says so (`backing=on`), and then
 * only to files of this host; all of them are found before qemu-nbd starts, which may open no
 * others (confine.h). Formats: QEMU docs/interop/qcow2.txt and qed_spec.txt; VMware's Virtual Disk
 * Format 5.0.
 */
#ifndef REPRISE_HOST_DISK_CHAIN_H
#define REPRISE_HOST_DISK_CHAIN_H

#include "base/err.h"

#define DISK_CHAIN_MAX 64u /* files */

struct disk_chain {
    char *path[DISK_CHAIN_MAX];
    unsigned n;
};

/*
 * Of the image `fd`, open, called `path` (absolute), of the format `driver` as qemu calls it. Not
 * allowed: that it names another file is an error, which says how to allow it.
 */
int disk_chain_find(struct disk_chain *c, int fd, const char *path, const char *driver,
                    bool allowed, struct err *err);
void disk_chain_free(struct disk_chain *c); /* safe on zeros */

#endif
