/*
 * `--add FILE[:PATH]`: the user's files as a newc cpio archive appended to an initrd. Linux unpacks
 * archives one after the other (Documentation/driver-api/early-userspace/buffer-format.rst), so
 * the initrd itself is not opened and may be packed in any way. The bytes are a function of names,
 * modes and contents: no times, owners or inode numbers of the host.
 */
#ifndef REPRISE_INITRD_H
#define REPRISE_INITRD_H

#include "base/err.h"
#include "base/types.h"

#define INITRD_MAX_SIZE (2ull << 30)

struct initrd_builder {
    u8 *bytes;
    size_t size, room;
    u32 inodes;  /* numbers given so far */
    char **dirs; /* directories made so far, so that each is made once */
    size_t ndirs;
};

/* Starts with the bytes of `initrd` (copied; may be NULL and 0). */
int initrd_init(struct initrd_builder *b, const void *initrd, size_t size, struct err *err);

/*
 * Adds what `spec` names: FILE is a regular file or a directory (with all below it; symbolic links
 * in it stay links). PATH is where it goes in the guest, "/NAME" when missing; "DIR/" puts it into
 * DIR. The last ':' separates them, unless a file of the whole name exists.
 */
int initrd_add(struct initrd_builder *b, const char *spec, struct err *err);

/* Ends the archive. The result is owned by the builder; nothing can be added afterwards. Without
 * any initrd_add it is the initrd as it was. */
int initrd_finish(struct initrd_builder *b, const u8 **bytes, size_t *size, struct err *err);

void initrd_fini(struct initrd_builder *b);

/*
 * Is it what Linux unpacks: newc archives up to their trailers, then perhaps something packed
 * (which is not looked into)? The texts have the file as their subject, as kernel.h's have.
 */
int initrd_check(const void *bytes, size_t size, struct err *err);

#endif
