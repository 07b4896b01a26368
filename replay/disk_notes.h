/*
 * What this user's recorder noted about the images of a recording's disks, outside of it. Names
 * that stand in a recording are its author's, who may be anybody; these were given by the user.
 *
 *     the private directory's disks/IDENTITY (private_dir.h)
 *
 * IDENTITY is the SHA-256 of machine.dtb, which has a random id in it (board/description.h): a
 * recording that was moved or copied keeps its notes, one that was made or changed by somebody else
 * has none. The DISK_NOTES_KEPT last used are kept.
 *
 * Written by `record` and `replay -o`, read by whoever builds the machine (disk_sources.h).
 */
#ifndef REPRISE_DISK_NOTES_H
#define REPRISE_DISK_NOTES_H

#include "base/sha256.h"
#include "board/description.h"
#include "host/disk.h"

#define DISK_NOTES_KEPT 1000u

struct disk_note {
    char file[sizeof(((struct description_disk *)0)->path)]; /* absolute, or a URI */
    char format[DISK_FORMAT_MAX];
    u32 backing, timeout; /* as the user said */
    struct disk_stamp stamp;
};

struct disk_notes {
    unsigned n;
    struct disk_note disk[DESCRIPTION_DISKS];
};

/* The name that a recording's notes have. -ENOENT: it has no id. */
int disk_notes_identity(const struct machine_description *d, const void *dtb, size_t size,
                        struct sha256 *out, struct err *err);

int disk_notes_save(const struct sha256 *identity, const struct disk_notes *notes, struct err *err);
/* -ENOENT: there are none. Another error: they are not to be believed, and why. */
int disk_notes_load(const struct sha256 *identity, struct disk_notes *notes, struct err *err);

/* The file's text, malloc'ed; and the opposite, which takes nothing else. */
char *disk_notes_text(const struct disk_notes *notes);
int disk_notes_parse(const char *text, size_t size, struct disk_notes *notes, struct err *err);

#endif
