/*
 * Reading and writing bytes within bounds: a cursor that remembers failure, so that callers check
 * once at the end. A varint is little-endian base 128 with the high bit set on all bytes but the
 * last.
 */
#ifndef REPRISE_CURSOR_H
#define REPRISE_CURSOR_H

#include "base/types.h"

struct cursor {
    u8 *out;      /* when writing */
    const u8 *in; /* when reading */
    size_t at, end;
    bool bad;
};

void cursor_put(struct cursor *c, const void *data, size_t len);
void cursor_put_varint(struct cursor *c, u64 v);

/* The next `len` bytes; NULL when there are fewer. */
const u8 *cursor_get(struct cursor *c, size_t len);
u64 cursor_get_varint(struct cursor *c);
u64 cursor_get_u64(struct cursor *c);

#endif
