/*
 * The file `contents` of a recording: pieces of the files that a guest read through its shares,
 * each once, named by its XXH3-128. The log says where which piece enters the machine (record
 * `content`). docs/format.md has the bytes.
 *
 * Pieces are written by a thread of their own, and the log waits for them: a piece is written
 * before the record that names it. What a killed recorder leaves at the end is no piece, or one
 * whose record is not in the log. Reading trusts nothing: a piece is what its name says or an
 * error.
 */
#ifndef REPRISE_CONTENTS_H
#define REPRISE_CONTENTS_H

#include "base/blob.h"
#include "base/room.h"
#include "replay/record.h"

#define CONTENTS_NAME "contents"

struct contents;

/* Of an empty file, to be added to as far as `room` lets it; takes `fd` over, also on error. */
int contents_create(struct contents **out, int fd, const struct room *room, struct err *err);
/* Of one that has pieces already, to be added to; the same. What they are shows behind the door. */
int contents_follow(struct contents **out, int fd, const struct room *room, struct err *err);
/* Of one that a recorder left, to be read only; the same. What it is shows when it is read. */
int contents_open(struct contents **out, struct blob blob, struct err *err);
void contents_destroy(struct contents *c); /* NULL is safe */

/* Keeps a piece, 1 to INPUT_CONTENT_MAX bytes, if it is not there yet: it is on its way. */
int contents_put(struct contents *c, const u8 *data, u32 len, struct hash128 *hash,
                 struct err *err);
/* Until all that was put is in the file. After an error nothing more is, every further call has it,
 * and the file is cut back to what was there the last time. */
int contents_wait(struct contents *c, struct err *err);
/* Would contents_wait() wait? */
bool contents_busy(const struct contents *c);
/* The piece of that name, `len` bytes. */
int contents_get(struct contents *c, const struct hash128 *hash, u32 len, u8 *out, struct err *err);

/* Reads all pieces: each is what its name says. `whole`: nothing but pieces, as its recorder ended.
 */
int contents_check(struct contents *c, bool whole, struct err *err);

/* The file again, to `put`, with the pieces that are `wanted` and no others. *left: how many it
 * leaves out. */
int contents_copy(struct contents *c, bool (*wanted)(void *opaque, const struct hash128 *hash),
                  int (*put)(void *opaque, const void *data, size_t len, struct err *err),
                  void *opaque, u64 *left, struct err *err);

/* Bytes of the file. */
u64 contents_bytes(const struct contents *c);

#endif
