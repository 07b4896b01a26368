/* Copies of images in other formats than raw, for programs that read raw ones only. */
#ifndef REPRISE_BOOT_RAW_COPY_H
#define REPRISE_BOOT_RAW_COPY_H

#include "base/err.h"
#include "host/disk.h"

/* Copies the base of `d`, as far as it is allocated, to a temporary file, whose name goes to *path:
 * the caller's to remove and free, also after an error. NULL: there is none. */
int raw_copy(struct disk *d, char **path, struct err *err);

#endif
