/* Little-endian numbers in bytes, wherever they lie. */
#ifndef REPRISE_BYTES_H
#define REPRISE_BYTES_H

#include <string.h>

#include "base/types.h"

static inline u16 get16(const u8 *p)
{
    u16 v;
    memcpy(&v, p, sizeof(v));
    return v;
}

static inline u32 get32(const u8 *p)
{
    u32 v;
    memcpy(&v, p, sizeof(v));
    return v;
}

static inline u64 get64(const u8 *p)
{
    u64 v;
    memcpy(&v, p, sizeof(v));
    return v;
}

static inline void put16(u8 *p, u16 v)
{
    memcpy(p, &v, sizeof(v));
}

static inline void put32(u8 *p, u32 v)
{
    memcpy(p, &v, sizeof(v));
}

static inline void put64(u8 *p, u64 v)
{
    memcpy(p, &v, sizeof(v));
}

#endif
