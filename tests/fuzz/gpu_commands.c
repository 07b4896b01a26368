/* See gpu_commands.h. */
#include "gpu_commands.h"

#include <string.h>

#include "virtio-gpu-log/decode.h"

#define MEMORY 0x8000u /* where backings are, mostly */

struct out {
    u8 *bytes;
    u32 at, room;
};

static void put(struct out *o, const void *data, u32 size)
{
    size = MIN(size, o->room - o->at);
    memcpy(o->bytes + o->at, data, size);
    o->at += size;
}

static void put_u32(struct out *o, u32 value)
{
    put(o, &value, 4);
}

static void put_u64(struct out *o, u64 value)
{
    put(o, &value, 8);
}

/* Mostly small, as sizes, ids and enums are. */
static u32 number(struct program *s)
{
    u32 v = (u32)take(s, 1);
    if (v < 0xd0)
        return v % 48;
    return v < 0xe8 ? v << (v & 15) : v < 0xf0 ? ~0u - (v & 7) : (u32)take(s, 4);
}

static u32 format(struct program *s)
{
    static const u32 usual[] = {1, 2, 67, 121, 64, 16, 20, 21, 30, 68, 100, 134};
    u32 v = (u32)take(s, 1);
    return v < 0xf0 ? usual[v % ARRAY_SIZE(usual)] : number(s);
}

static void put_row(struct out *o, const struct gpu_row *r, struct program *s)
{
    u8 tail[256];
    u32 n;
    switch (r->kind) {
    case GPU_NAME:
        for (u32 i = 0; i < 16; i++)
            put_u32(o, (u32)take(s, 1) * 0x01010101u);
        break;
    case GPU_NUM64:
    case GPU_HEX64:
    case GPU_DOUBLE: put_u64(o, take(s, 1) < 0xe0 ? number(s) : take(s, 8)); break;
    case GPU_FORMAT: put_u32(o, format(s)); break;
    case GPU_FLOAT: put_u32(o, 0x3f800000u + number(s)); break;
    default:
        if (!r->is_tail) {
            put_u32(o, number(s));
            break;
        }
        n = MIN(r->argument * 4 + 4 * ((u32)take(s, 1) % 20), (u32)sizeof(tail));
        for (u32 i = 0; i < n; i++)
            tail[i] = (u8)take(s, 1);
        put(o, tail, n);
    }
}

/* The fields of a command as its description has them; one in so many is left out. */
static void put_fields(struct out *o, const struct gpu_desc *d, struct program *s)
{
    u32 each = 0, repeat = 0;
    for (u32 i = 0; i < d->nrows; i++) {
        const struct gpu_row *r = &d->rows[i];
        if (r->kind == GPU_MORE && take(s, 1) & 1)
            return;
        if (r->kind == GPU_EACH || r->kind == GPU_TIMES) {
            each = i;
            repeat = r->kind == GPU_TIMES ? r->argument - 1u : (u32)take(s, 1) % 6;
        } else if (r->kind != GPU_MORE && !r->bits) {
            put_row(o, r, s);
        }
        if (i + 1 == d->nrows && repeat) {
            repeat--;
            i = each;
        }
    }
}

u32 make_virgl(u32 *words, u32 room, struct program *s)
{
    u32 n = 0;
    for (u32 count = 1 + (u32)take(s, 1) % 12; count && n < room; count--) {
        static const u8 often[] = {VIRGL_CCMD_TRANSFER3D, VIRGL_CCMD_COPY_TRANSFER3D,
                                   VIRGL_CCMD_CREATE_OBJECT, VIRGL_CCMD_GET_QUERY_RESULT,
                                   VIRGL_CCMD_GET_MEMORY_INFO};
        struct out o = {(u8 *)(words + n + 1), 0, 4 * (room - n - 1)};
        u32 which = (u32)take(s, 1),
            id = which < 0x80 ? often[which % ARRAY_SIZE(often)] : which - 0x80;
        u32 object = id == VIRGL_CCMD_CREATE_OBJECT ? (u32)take(s, 1) : 0;
        object = object < 0x80 ? VIRGL_OBJECT_QUERY * (object != 0) : object % 14;
        const struct gpu_desc *d = virgl_desc(id, object);
        if (d)
            put_fields(&o, d, s);
        o.at = (o.at + 3) / 4;
        u32 bent = (u32)take(s, 1); /* another length than it has, another command */
        words[n] = (id ^ (bent == 0xff)) | object << 8 |
                   (bent == 0xfe ? number(s) : MIN(o.at, 0xffffu)) << 16;
        n += 1 + o.at;
    }
    return n;
}

/* ---- commands ---- */

static void put_header(struct out *o, u32 type, u32 ctx, struct program *s)
{
    u8 how = (u8)take(s, 1);
    const struct virtio_gpu_ctrl_hdr h = {
        .type = type,
        .flags = how & 0x80 ? how : how & 1, /* a fence */
        .fence_id = how * 0x100000001ull,
        .ctx_id = ctx,
        .ring_idx = how >> 5,
    };
    put(o, &h, sizeof(h));
}

static void of_table(struct out *o, struct program *s)
{
    u32 which = (u32)take(s, 1);
    const struct gpu_desc *d = &gpu_command_table[which % gpu_command_table_size];
    u32 type = which == 0xff ? number(s) : d->number;
    put_header(o, type, number(s) % 4, s);
    put_fields(o, d, s);
    if (which == 0xfe)
        o->at = number(s) % (o->at + 1);
}

static void submit(struct out *o, struct program *s)
{
    u32 words[400], n, odd;
    put_header(o, VIRTIO_GPU_CMD_SUBMIT_3D, 1 + (u32)take(s, 1) % 3, s);
    odd = (u32)take(s, 1);
    n = make_virgl(words, ARRAY_SIZE(words), s);
    put_u32(o, odd == 0xff ? number(s) : n * 4 + (odd == 0xfe));
    put_u32(o, 0);
    put(o, words, n * 4);
}

static void create(struct out *o, bool two_d, struct program *s)
{
    put_header(o, two_d ? VIRTIO_GPU_CMD_RESOURCE_CREATE_2D : VIRTIO_GPU_CMD_RESOURCE_CREATE_3D, 0,
               s);
    put_u32(o, number(s) % 13);
    if (!two_d)
        put_u32(o, number(s)); /* target */
    put_u32(o, format(s));
    if (!two_d)
        put_u32(o, 1u << ((u32)take(s, 1) & 31)); /* bind */
    for (unsigned i = 0; i < 2; i++)
        put_u32(o, number(s) * 4);
    for (unsigned i = 0; !two_d && i < 4; i++)
        put_u32(o, number(s) % 7 * (i < 2)); /* depth, array size, levels, samples */
    put_u32(o, 0);
    put_u32(o, 0);
}

static void backing(struct out *o, struct program *s)
{
    u32 id, n;
    put_header(o, VIRTIO_GPU_CMD_RESOURCE_ATTACH_BACKING, 0, s);
    id = number(s) % 13;
    n = (u32)take(s, 1) % 100;
    put_u32(o, id);
    put_u32(o, n > 90 ? 1000u * (n - 90) * (n - 90) : n);
    for (u32 i = 0; i < n; i++) {
        u32 page = (u32)take(s, 1);
        put_u64(o, page < 0xf8 ? MEMORY + page % 64 * 512 : take(s, 8));
        put_u32(o, page & 0x40 ? number(s) : 512 * (1 + page % 16));
        put_u32(o, 0);
    }
}

static void transfer(struct out *o, struct program *s)
{
    static const u32 types[] = {VIRTIO_GPU_CMD_TRANSFER_TO_HOST_2D,
                                VIRTIO_GPU_CMD_TRANSFER_TO_HOST_3D,
                                VIRTIO_GPU_CMD_TRANSFER_FROM_HOST_3D};
    u32 which = (u32)take(s, 1) % 3, id = number(s) % 13;
    put_header(o, types[which], 1, s);
    u32 x = number(s), y = number(s), w = number(s), h = number(s);
    put_u32(o, x);
    put_u32(o, y);
    if (which)
        put_u32(o, 0);
    put_u32(o, w);
    put_u32(o, h);
    if (which)
        put_u32(o, 1);
    u32 offset = (u32)take(s, 1);
    put_u64(o, offset < 0xf0 ? offset * 4 : take(s, 8));
    put_u32(o, id);
    put_u32(o, 0);
    if (which) {
        put_u32(o, number(s)); /* stride */
        put_u32(o, number(s));
    }
}

static void screen(struct out *o, struct program *s)
{
    bool flush = take(s, 1) & 1;
    u32 id = number(s) % 13;
    put_header(o, flush ? VIRTIO_GPU_CMD_RESOURCE_FLUSH : VIRTIO_GPU_CMD_SET_SCANOUT, 0, s);
    put_u32(o, number(s) & 7);
    put_u32(o, 0);
    for (unsigned i = 0; i < 2; i++)
        put_u32(o, number(s) * 4);
    if (!flush)
        put_u32(o, take(s, 1) > 0xf8);
    put_u32(o, id);
    put_u32(o, 0);
}

static void context(struct out *o, struct program *s)
{
    static const char name[64] = "context";
    static const u32 types[] = {VIRTIO_GPU_CMD_CTX_CREATE, VIRTIO_GPU_CMD_CTX_DESTROY,
                                VIRTIO_GPU_CMD_CTX_ATTACH_RESOURCE,
                                VIRTIO_GPU_CMD_CTX_DETACH_RESOURCE};
    u32 type = types[take(s, 1) % 4];
    put_header(o, type, (u32)take(s, 1) % 4, s);
    put_u32(o, number(s) % 13); /* also a name's length */
    put_u32(o, 0);
    if (type == VIRTIO_GPU_CMD_CTX_CREATE)
        put(o, name, sizeof(name));
}

static void cursor(struct out *o, struct program *s)
{
    bool move = take(s, 1) & 1;
    put_header(o, move ? VIRTIO_GPU_CMD_MOVE_CURSOR : VIRTIO_GPU_CMD_UPDATE_CURSOR, 0, s);
    put_u32(o, 0);
    put_u32(o, number(s));
    put_u32(o, number(s));
    put_u32(o, 0);
    put_u32(o, number(s) % 13);
    put_u32(o, number(s) & 7);
    put_u32(o, number(s) & 7);
    put_u32(o, 0);
}

static void of_one_id(struct out *o, struct program *s)
{
    static const u32 types[] = {
        VIRTIO_GPU_CMD_RESOURCE_UNREF, VIRTIO_GPU_CMD_RESOURCE_DETACH_BACKING,
        VIRTIO_GPU_CMD_GET_CAPSET,     VIRTIO_GPU_CMD_GET_CAPSET_INFO,
        VIRTIO_GPU_CMD_GET_EDID,       VIRTIO_GPU_CMD_GET_DISPLAY_INFO};
    put_header(o, types[take(s, 1) % ARRAY_SIZE(types)], 0, s);
    put_u32(o, number(s) % 13);
    put_u32(o, 0);
}

u32 make_command(u8 out[GPU_COMMAND_BYTES], unsigned kind, struct program *s)
{
    struct out o = {out, 0, GPU_COMMAND_BYTES};
    switch (kind) {
    case 0: of_table(&o, s); break;
    case 1: submit(&o, s); break;
    case 2:
    case 3: create(&o, kind == 2, s); break;
    case 4: backing(&o, s); break;
    case 5: transfer(&o, s); break;
    case 6: screen(&o, s); break;
    case 7: context(&o, s); break;
    case 8: cursor(&o, s); break;
    default: of_one_id(&o, s); break;
    }
    return o.at;
}

u32 flood_command(u8 out[GPU_COMMAND_BYTES], unsigned kind, u32 id)
{
    static const u32 types[] = {VIRTIO_GPU_CMD_RESOURCE_CREATE_2D,
                                VIRTIO_GPU_CMD_RESOURCE_CREATE_3D, VIRTIO_GPU_CMD_CTX_CREATE};
    static const u32 bodies[][12] = {{0, 1, 16, 16}, {0, 2, 1, 2, 8, 8, 1, 1, 0, 0, 0, 0}, {0}};
    struct virtio_gpu_ctrl_hdr h = {.type = types[kind], .ctx_id = kind == 2 ? id : 0};
    memset(out, 0, GPU_COMMAND_BYTES);
    memcpy(out, &h, sizeof(h));
    memcpy(out + sizeof(h), bodies[kind], sizeof(bodies[kind]));
    if (kind < 2)
        memcpy(out + sizeof(h), &id, sizeof(id));
    return sizeof(struct virtio_gpu_ctx_create);
}
