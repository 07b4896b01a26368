/*
 * What a user says of a disk image: FILE[,OPTION]..., a comma in FILE doubled. Of `record --disk`
 * and of the `--disk N=FILE` of all that replays; nothing that a recording holds is read by it.
 */
#ifndef REPRISE_HOST_DISK_SPEC_H
#define REPRISE_HOST_DISK_SPEC_H

#include "base/parts.h"
#include "host/disk_format.h"

#define DISK_SERIAL_MAX 21 /* bytes with the NUL */

struct disk_spec {
    char *file;                   /* a path or URI; NULL: not said */
    char format[DISK_FORMAT_MAX]; /* "": not said */
    char serial[DISK_SERIAL_MAX];
    bool readonly;
    bool backing;     /* the image may name other files, which are then read too */
    unsigned timeout; /* of a server, seconds; 0: not said */
};

#define DISK_OF_MACHINE 1u /* kind: parts that say what the guest sees of the disk */
extern const struct parts disk_parts;

/* `of_machine`: also what the guest sees of the disk, readonly and serial=. *s is zeroed first; an
 * error names `text`. */
int disk_spec_parse(struct disk_spec *s, const char *text, bool of_machine, struct err *err);
void disk_spec_free(struct disk_spec *s); /* safe on zeros */

#endif
