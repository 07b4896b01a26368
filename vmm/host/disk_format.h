/* Which format a disk image has: by its name, or by its first bytes. */
#ifndef REPRISE_HOST_DISK_FORMAT_H
#define REPRISE_HOST_DISK_FORMAT_H

#include "base/err.h"

#define DISK_FORMAT_MAX 16 /* bytes of a name with its NUL */

/* What qemu-nbd calls a format that we know by `name`; "": we read it ourselves; NULL: unknown. */
const char *disk_format_driver(const char *name);
/* Names of all of them, for messages: "raw, qcow2, ...". */
void disk_format_names(char *out, size_t size);

/*
 * The name of the format of an image that nobody named. A file is of another format than raw only
 * if both its first bytes and the end of its name say so: a guest decides what the first bytes of a
 * raw image are, and one that looked like a qcow2 would be given any file that it names as its
 * backing file. Where the two do not agree, the user has to say.
 */
int disk_format_guess(int fd, const char *path, const char **name, struct err *err);

/* What qemu calls the format that the first bytes are of; "raw": of none. */
const char *disk_format_inside(int fd);

#endif
