/*
 * What a pack says of itself: its last member, text. Lines, in this order:
 *
 *     reprise pack VERSION
 *     creator TEXT
 *     file NAME SIZE SHA256      each member, by the name that it has in a recording
 *     disk N HOW BYTES           read, all or none: what of disk N is there, and how many bytes
 *     left-out TEXT              for people: what the recording had and the pack has not
 *     end
 *
 * It is as hostile as the rest of a pack.
 */
#ifndef REPRISE_MANIFEST_H
#define REPRISE_MANIFEST_H

#include "base/sha256.h"
#include "board/description.h"

#define MANIFEST_NAME    "manifest"
#define MANIFEST_MAX     (16u << 20) /* bytes */
#define MANIFEST_VERSION 1u
#define PACK_NAME_MAX    96u /* of a member, with the NUL */
#define PACK_FILES_MAX   8192u

/* What of a disk's image is in a pack. */
enum pack_disk {
    PACK_DISK_NONE, /* which blocks are read, and their hashes */
    PACK_DISK_READ, /* and these blocks */
    PACK_DISK_ALL,  /* all blocks that are not zero */
};
extern const char *const pack_disk_names[3];

struct manifest_file {
    char name[PACK_NAME_MAX];
    u64 size;
    struct sha256 hash;
};

struct manifest {
    struct manifest_file *file;
    u32 n, room;
    unsigned ndisks;
    enum pack_disk disk[DESCRIPTION_DISKS];
    u64 disk_bytes[DESCRIPTION_DISKS];
    char *left_out; /* lines; NULL: nothing */
};

int manifest_add(struct manifest *m, const char *name, u64 size, const struct sha256 *hash,
                 struct err *err);
/* A line, without its end. */
int manifest_leave_out(struct manifest *m, struct err *err, const char *fmt, ...) PRINTF(3, 4);
/* malloc'ed; NULL: no memory. */
char *manifest_text(const struct manifest *m, size_t *size);
/* Takes nothing but what manifest_text() writes. -EPROTONOSUPPORT: of a later version. */
int manifest_parse(const char *text, size_t size, struct manifest *m, struct err *err);
const struct manifest_file *manifest_find(const struct manifest *m, const char *name);
void manifest_free(struct manifest *m); /* safe on zeros */

#endif
