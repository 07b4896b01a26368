/*
 * A disk: a base image on the host, which is never written, and the pages of 4 KiB that the guest
 * wrote since power-on. What the guest wrote follows from the replay, so nothing of it is logged;
 * that the base image is still the same is seen by a running digest of all that was read of it.
 *
 * A request is done in two steps, so that what the host cannot do is known before it is done: what
 * it will need of the host is got ahead (disk_ahead_...), which may fail without harm; then it is
 * performed, which cannot fail if the first step did not.
 */
#ifndef REPRISE_HOST_DISK_H
#define REPRISE_HOST_DISK_H

#include "base/blob.h"
#include "base/err.h"
#include "base/page_image.h"
#include "host/disk_format.h"
#include "host/disk_reads.h"

#define DISK_SECTOR       512u
#define DISK_MEMORY       (64u << 20) /* bytes written by the guest that are kept in memory */
#define DISK_OVERLAY_DIRS 4u
#define DISK_TIMEOUT      30u /* seconds */

struct nbd_source;

/* What the host says of an image's file: by it a change is suspected before anything is read. */
struct disk_stamp {
    u64 bytes;    /* of the file, whatever size the disk in it has */
    u64 modified; /* ns since 1970 */
    u64 device, inode;
};

struct disk_config {
    const char *file;   /* of a file or block device, or an NBD URI (host/nbd.h) */
    int fd;             /* > 0: it is open already, and raw; the disk's from then on */
    struct blob blob;   /* with `ops`: the image, raw, instead of a file; the same */
    const char *format; /* disk_format.h; NULL or "auto": guessed */
    const char *serial; /* at most 20 bytes */
    bool readonly;
    bool backing;     /* the image may name other files, which are then read too */
    bool again;       /* the disk of a recording: errors say that there were none then */
    unsigned timeout; /* of a server, seconds; 0: DISK_TIMEOUT */
};

struct disk {
    int fd;                   /* the image, or what qemu-nbd reads it from; 0: none */
    struct nbd_source *nbd;   /* what is read, unless it is `fd` itself */
    struct blob base;         /* the same, with `ops`; no file, and no server */
    struct disk_reads *reads; /* gets what the guest is given of the base; NULL: nobody asks */
    char *path;
    char format[DISK_FORMAT_MAX]; /* "nbd" for a URI */
    u64 size;                     /* bytes, a multiple of DISK_SECTOR */
    struct disk_stamp stamp;      /* as it was opened; zeros: of no file */
    bool readonly, backing, again;
    unsigned timeout;        /* as it was asked for */
    u64 base_reads;          /* bytes that the guest was given of the base, since it was opened */
    char serial[21];         /* 20 characters at most, NUL */
    struct page_store store; /* what `written` takes */
    struct page_image *written; /* pages that differ from the base */
    char *overlay_dir[DISK_OVERLAY_DIRS];
    bool told;          /* that the overlay becomes large */
    struct err trouble; /* what could not be got ahead last; code 0: nothing yet */
    u64 troubles;       /* how often */
    struct err failed;  /* what could not be performed; code 0: nothing. The disk is wrong now. */
};

/*
 * Opens an image; other formats than raw by qemu-nbd, which is started and ends with the disk. *d
 * is zeroed first.
 */
int disk_open(struct disk *d, const struct disk_config *config, struct err *err);
void disk_close(struct disk *d); /* safe on zeros; once every copy of d->written is gone */

/* Where more than DISK_MEMORY of what the guest writes may go: tried before those of earlier calls
 * and before the directories for temporary files. */
void disk_overlay_in(struct disk *d, const char *dir);
/* What the guest will write has a file by now, where one can be made: later none can be opened. */
void disk_overlay_ready(struct disk *d);

/* What more than DISK_MEMORY may take of the host. Before the machine runs. */
void disk_overlay_room(struct disk *d, u64 keep_free, u64 limit);

/* What a request needs of the host. All zero: nothing. */
struct disk_piece;
struct disk_ahead {
    struct disk_piece *first, *last;
    u64 reserved; /* pages of the overlay */
    int failed;   /* -errno: the request cannot be done (d->trouble says why) */
};

enum disk_access { DISK_READ, DISK_WRITE, DISK_ZERO };

/* Starts to get what an access to [offset, offset + len), within the disk, needs. *a is zero. */
void disk_ahead_start(struct disk *d, struct disk_ahead *a, enum disk_access access, u64 offset,
                      u64 len);
/* Until all of it is there, or a->failed. */
void disk_ahead_wait(struct disk *d, struct disk_ahead *a);
/* Gives it back; *a is zero then. */
void disk_ahead_drop(struct disk *d, struct disk_ahead *a);

/*
 * [offset, offset + len) lies within the disk. What is read from the base goes into *digest as
 * well. `a`: what was got ahead for this access, or NULL; what is missing of it is read now.
 * <0: the host failed (d->failed says how).
 */
int disk_read(struct disk *d, const struct disk_ahead *a, u64 offset, void *out, size_t len,
              u64 *digest);
int disk_write(struct disk *d, const struct disk_ahead *a, u64 offset, const void *in, size_t len,
               u64 *digest);
int disk_zero(struct disk *d, const struct disk_ahead *a, u64 offset, u64 len, u64 *digest);
/* The promise of room in the overlay ends: before what it was made for is performed. */
void disk_ahead_take(struct disk *d, struct disk_ahead *a);

/* The guest has no use for the contents: whole pages that it had written become zeros and take no
 * room; all else stays. A function of what was written, not of the host. */
int disk_discard(struct disk *d, u64 offset, u64 len);

/* Goes back (or on) to what had been written when `image` was copied from d->written; failures are
 * forgotten. */
int disk_restore(struct disk *d, const struct page_image *image, struct err *err);

/* The base, whatever was written since; [offset, offset + len) lies within the disk. */
int disk_base(struct disk *d, u64 offset, void *out, size_t len, struct err *err);

/* Writes the whole disk as it is now to `fd`, leaving holes for zeros. */
int disk_export(struct disk *d, int fd, struct err *err);

#endif
