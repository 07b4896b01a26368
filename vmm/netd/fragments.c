/* See fragments.h. Units are the 8 bytes in which offsets count. */
#include "netd/fragments.h"

#include <string.h>

#define ETHERNET 14u
#define DATA_MAX 65535u
#define UNITS    (65536u / 8)

#define FLAG_RESERVED 0x8000u
#define FLAG_MORE     0x2000u
#define OFFSET_MASK   0x1fffu

struct datagram {
    bool used;
    u64 since;
    u8 key[11];             /* source, destination, identification, protocol */
    u8 head[ETHERNET + 60]; /* Ethernet and IP header of the first fragment */
    u32 head_len;           /* 0: has not come */
    u32 total;              /* bytes of data; 0: the last fragment has not come */
    u32 have, end;          /* bytes; end of the farthest */
    u8 seen[UNITS / 8];     /* a bit a unit */
    u8 data[DATA_MAX + 1];
};

struct fragments {
    struct datagram datagram[FRAGMENTS_DATAGRAMS];
    u8 out[FRAGMENTS_FRAME_MAX];
};

size_t fragments_size(void)
{
    return sizeof(struct fragments);
}

static u32 be16(const u8 *p)
{
    return (u32)p[0] << 8 | p[1];
}

static void put16(u8 *p, u32 v)
{
    p[0] = (u8)(v >> 8);
    p[1] = (u8)v;
}

static void begin(struct datagram *d, const u8 key[11], u64 now)
{
    d->used = true;
    d->since = now;
    memcpy(d->key, key, sizeof(d->key));
    d->head_len = d->total = d->have = d->end = 0;
    memset(d->seen, 0, sizeof(d->seen));
}

/* The datagram of that key; a free place, or that of the oldest, for a new one. */
static struct datagram *find(struct fragments *f, const u8 key[11], u64 now)
{
    struct datagram *place = &f->datagram[0];
    for (unsigned i = 0; i < FRAGMENTS_DATAGRAMS; i++) {
        struct datagram *d = &f->datagram[i];
        if (d->used && now - d->since > FRAGMENTS_NS)
            d->used = false;
        if (d->used && !memcmp(d->key, key, sizeof(d->key)))
            return d;
        if (place->used && (!d->used || d->since < place->since))
            place = d;
    }
    begin(place, key, now);
    return place;
}

static bool any_seen(const struct datagram *d, u32 from, u32 to)
{
    for (u32 u = from; u < to; u++)
        if (d->seen[u / 8] >> (u % 8) & 1)
            return true;
    return false;
}

static size_t finish(struct fragments *f, struct datagram *d)
{
    u8 *ip = f->out + ETHERNET;
    u32 hlen = d->head_len - ETHERNET, sum = 0;
    d->used = false;
    if (hlen + d->total > DATA_MAX)
        return 0;
    memcpy(f->out, d->head, d->head_len);
    memcpy(f->out + d->head_len, d->data, d->total);
    put16(ip + 2, hlen + d->total);
    put16(ip + 6, 0);
    put16(ip + 10, 0);
    for (u32 i = 0; i < hlen; i += 2)
        sum += be16(ip + i);
    sum = (sum & 0xffff) + (sum >> 16);
    put16(ip + 10, ~((sum & 0xffff) + (sum >> 16)));
    return d->head_len + d->total;
}

size_t fragments_take(struct fragments *f, const u8 *frame, size_t len, u64 now, const u8 **out)
{
    const u8 *ip = frame + ETHERNET;
    *out = frame;
    if (len < ETHERNET + 20 || be16(frame + 12) != 0x0800 || ip[0] >> 4 != 4)
        return len;
    u32 hlen = (ip[0] & 15u) * 4, total = be16(ip + 2), flags = be16(ip + 6);
    bool more = flags & FLAG_MORE;
    u32 offset = (flags & OFFSET_MASK) * 8;
    if (!more && !offset && !(flags & FLAG_RESERVED))
        return len;
    if ((flags & FLAG_RESERVED) || hlen < 20 || total <= hlen || total > len - ETHERNET)
        return 0;
    u32 n = total - hlen, from = offset / 8, to = (offset + n + 7) / 8;
    if (offset + n > DATA_MAX || (more && n % 8))
        return 0;
    u8 key[11];
    memcpy(key, ip + 12, 8);
    memcpy(key + 8, ip + 4, 2);
    key[10] = ip[9];
    struct datagram *d = find(f, key, now);
    if (any_seen(d, from, to) || (d->total && (!more || offset + n > d->total)) ||
        (!more && d->end > offset + n))
        return 0;
    memcpy(d->data + offset, ip + hlen, n);
    for (u32 u = from; u < to; u++)
        d->seen[u / 8] |= (u8)(1u << u % 8);
    d->have += n;
    d->end = MAX(d->end, offset + n);
    if (!more)
        d->total = offset + n;
    if (!offset) {
        d->head_len = ETHERNET + hlen;
        memcpy(d->head, frame, d->head_len);
    }
    if (!d->total || d->have != d->total)
        return 0;
    *out = f->out;
    return finish(f, d);
}
