/*
 * Reading a disk image over NBD, by libnbd: from somebody's server, or from a qemu-nbd of our own,
 * which knows the image formats that we do not. Only reading: the export is never written.
 *
 * A server that goes away or does not answer fails what is under way and all that comes later;
 * there is no second connection, so that what a disk answers does not come and go.
 */
#ifndef REPRISE_HOST_NBD_H
#define REPRISE_HOST_NBD_H

#include "base/err.h"
#include "host/landlock.h"

struct nbd_source;

#define NBD_SOURCE_PENDING (-1)

/* Is this a URI for nbd_source_connect()? */
bool nbd_source_uri(const char *text);

/* nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH. `timeout`: seconds without an answer
 * after which the server counts as dead. */
int nbd_source_connect(struct nbd_source **out, const char *uri, unsigned timeout, struct err *err);

/* Starts qemu-nbd on an image, `format` as qemu calls it, `path` absolute. It ends with us, has no
 * network, and opens nothing but `files` (confine.h). */
int nbd_source_start(struct nbd_source **out, const char *path, const char *format,
                     const struct landlock_path *files, size_t nfiles, unsigned timeout,
                     struct err *err);
void nbd_source_close(struct nbd_source *s); /* NULL is safe */

u64 nbd_source_size(const struct nbd_source *s); /* bytes */

/*
 * Starts to read. *error is NBD_SOURCE_PENDING until nbd_source_wait() has waited for it, then 0 or
 * an errno; until then it and `buf` must stay.
 */
void nbd_source_read(struct nbd_source *s, u64 offset, void *buf, u32 len, int *error);
/* Until nothing is pending. */
void nbd_source_wait(struct nbd_source *s);

/* Sets a text that says what an *error other than 0 was, as a continuation of "cannot read x: ". */
int nbd_source_explain(struct nbd_source *s, int error, struct err *err);

#endif
