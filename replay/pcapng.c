/* See pcapng.h. A block: type, length, body and options in multiples of 4 bytes, length again. */
#include "replay/pcapng.h"

#include <string.h>

#define BLOCK_SECTION   0x0a0d0d0au
#define BLOCK_INTERFACE 1u
#define BLOCK_PACKET    6u

#define OPT_END        0u
#define OPT_COMMENT    1u
#define SHB_USERAPPL   4u
#define IF_NAME        2u
#define IF_DESCRIPTION 3u
#define IF_MACADDR     6u
#define IF_TSRESOL     9u
#define EPB_FLAGS      2u

#define LINKTYPE_ETHERNET 1u

static void put32(FILE *out, u32 v)
{
    const u8 bytes[4] = {(u8)v, (u8)(v >> 8), (u8)(v >> 16), (u8)(v >> 24)};
    fwrite(bytes, 1, sizeof(bytes), out);
}

static void put_pair(FILE *out, u32 low, u32 high)
{
    put32(out, (low & 0xffff) | high << 16);
}

static u32 padded(u32 len)
{
    return (len + 3) & ~3u;
}

static void put_padded(FILE *out, const void *data, u32 len)
{
    static const u8 zeros[3];
    fwrite(data, 1, len, out);
    fwrite(zeros, 1, padded(len) - len, out);
}

struct option {
    u32 code, len;
    const void *data;
};

static u32 options_size(const struct option *o, unsigned n)
{
    u32 size = 4;
    for (unsigned i = 0; i < n; i++)
        size += 4 + padded(o[i].len);
    return size;
}

static void put_options(FILE *out, const struct option *o, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        put_pair(out, o[i].code, o[i].len);
        put_padded(out, o[i].data, o[i].len);
    }
    put_pair(out, OPT_END, 0);
}

static struct option text(u32 code, const char *s)
{
    return (struct option){code, (u32)MIN(strlen(s), (size_t)0xffff), s};
}

void pcapng_begin(FILE *out, const char *application)
{
    const struct option o[] = {text(SHB_USERAPPL, application)};
    u32 size = 12 + 16 + options_size(o, ARRAY_SIZE(o));
    put32(out, BLOCK_SECTION);
    put32(out, size);
    put32(out, 0x1a2b3c4du);
    put_pair(out, 1, 0);     /* version 1.0 */
    put32(out, 0xffffffffu); /* length of the section: not said */
    put32(out, 0xffffffffu);
    put_options(out, o, ARRAY_SIZE(o));
    put32(out, size);
}

void pcapng_interface(FILE *out, const char *name, const char *description, const u8 mac[6])
{
    static const u8 nanoseconds = 9;
    const struct option o[] = {text(IF_NAME, name),
                               text(IF_DESCRIPTION, description),
                               {IF_MACADDR, 6, mac},
                               {IF_TSRESOL, 1, &nanoseconds}};
    u32 size = 12 + 8 + options_size(o, ARRAY_SIZE(o));
    put32(out, BLOCK_INTERFACE);
    put32(out, size);
    put_pair(out, LINKTYPE_ETHERNET, 0);
    put32(out, 0); /* no limit of a packet's length */
    put_options(out, o, ARRAY_SIZE(o));
    put32(out, size);
}

void pcapng_packet(FILE *out, const struct pcapng_packet *p)
{
    const u8 flags[4] = {p->inbound ? 1 : 2};
    const struct option o[] = {{EPB_FLAGS, 4, flags}, text(OPT_COMMENT, p->comment)};
    u32 size = 12 + 20 + padded(p->len) + options_size(o, ARRAY_SIZE(o));
    put32(out, BLOCK_PACKET);
    put32(out, size);
    put32(out, p->interface);
    put32(out, (u32)(p->time >> 32));
    put32(out, (u32)p->time);
    put32(out, p->len);
    put32(out, p->len);
    put_padded(out, p->frame, p->len);
    put_options(out, o, ARRAY_SIZE(o));
    put32(out, size);
}
