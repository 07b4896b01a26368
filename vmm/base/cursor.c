/* See cursor.h. */
#include "base/cursor.h"

#include <string.h>

void cursor_put(struct cursor *c, const void *data, size_t len)
{
    if (c->bad || len > c->end - c->at) {
        c->bad = true;
        return;
    }
    if (len)
        memcpy(c->out + c->at, data, len);
    c->at += len;
}

void cursor_put_varint(struct cursor *c, u64 v)
{
    u8 buf[10];
    size_t n = 0;
    do {
        buf[n++] = (u8)(v & 0x7f) | (v > 0x7f ? 0x80 : 0);
        v >>= 7;
    } while (v);
    cursor_put(c, buf, n);
}

const u8 *cursor_get(struct cursor *c, size_t len)
{
    if (c->bad || len > c->end - c->at) {
        c->bad = true;
        return NULL;
    }
    const u8 *p = c->in + c->at;
    c->at += len;
    return p;
}

u64 cursor_get_varint(struct cursor *c)
{
    u64 v = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        const u8 *p = cursor_get(c, 1);
        if (!p)
            return 0;
        u64 bits = *p & 0x7f;
        if (shift == 63 && bits > 1)
            break;
        v |= bits << shift;
        if (!(*p & 0x80))
            return v;
    }
    c->bad = true;
    return 0;
}

u64 cursor_get_u64(struct cursor *c)
{
    u64 v = 0;
    const u8 *p = cursor_get(c, 8);
    if (p)
        memcpy(&v, p, 8);
    return v;
}
