/*
 * Bytes in Zstandard frames that are unpacked one at a time (the "seekable format" that zstd's
 * contrib/seekable_format specifies): ordinary frames, which any zstd unpacks, and at the end a
 * skippable frame with a table of their sizes. Reading trusts nothing: a frame is unpacked to what
 * the table says of it, at most SEEKABLE_FRAME_MAX bytes, or not at all.
 */
#ifndef REPRISE_SEEKABLE_H
#define REPRISE_SEEKABLE_H

#include "base/blob.h"

#define SEEKABLE_FRAME     (256u << 10) /* bytes in each frame that we write */
#define SEEKABLE_FRAME_MAX (4u << 20)   /* a reader's limit */

struct seekable_writer;
/* `put` gets what is to be written, in order; 0 or -errno. NULL: no memory. */
struct seekable_writer *seekable_create(int (*put)(void *opaque, const void *data, size_t len),
                                        void *opaque);
/* 0 or -errno. */
int seekable_add(struct seekable_writer *w, const void *data, size_t len);
/* The last frame and the table; another stream may follow. 0 or -errno. */
int seekable_end(struct seekable_writer *w);
void seekable_destroy(struct seekable_writer *w); /* NULL is safe */

/* The bytes that lie packed in [offset, offset + size) of `fd`, of which it keeps a copy.
 * *out.size: how many they are. */
int seekable_open(struct blob *out, int fd, u64 offset, u64 size, struct err *err);

#endif
