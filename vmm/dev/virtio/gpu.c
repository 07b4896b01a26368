/*
 * virtio GPU device (virtio 1.2, 5.7). A command is copied and carried out at the position of the
 * guest's notification: also what it reads of guest memory (backing), so that pixels are a function
 * of the guest's own run, and nothing of it is logged. Commands with a fence complete a fixed
 * virtual time later, in order; the kernel draws without waiting for a vertical blank, so this time
 * is what bounds the frame rate.
 */
#include "dev/virtio/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/virtio_gpu.h>
#include <xxhash.h>

#include "dev/util.h"

#define F_EDID (1ull << VIRTIO_GPU_F_EDID)

enum { CONTROL = 0, CURSOR = 1 };

#define UNDER_WAY   VIRTIO_QUEUE_MAX
#define TRANSFER_NS 100000u /* a fenced command that draws nothing takes so long */

#define GPU_STATE(F, A)                                                                            \
    VIRTIO_STATE(F, A)                                                                             \
    F(u64, commands)                                                                               \
    F(u64, digest)  /* running, of all commands and of what they read of guest memory */           \
    F(u64, frames)  /* times that what the scanout shows was flushed */                            \
    F(u32, events)  /* configuration: events_read */                                               \
    F(u32, scanout) /* resource shown; 0: off */                                                   \
    F(u32, x)       /* the part of it that is shown */                                             \
    F(u32, y)                                                                                      \
    F(u32, width)                                                                                  \
    F(u32, height)                                                                                 \
    F(u32, cursor) /* resource; 0: none */                                                         \
    F(u32, cursor_x)                                                                               \
    F(u32, cursor_y)                                                                               \
    F(u32, hot_x)                                                                                  \
    F(u32, hot_y)                                                                                  \
    F(u16, first) /* of the fenced ones under way */                                               \
    F(u16, count)                                                                                  \
    A(u16, head, UNDER_WAY)                                                                        \
    A(u32, response, UNDER_WAY) /* what it will be */                                              \
    A(u64, due, UNDER_WAY)      /* virtual time */

struct gpu_state {
    GPU_STATE(STATE_MEMBER, STATE_MEMBER_ARRAY)
};

#define F(t, n)    STATE_FIELD(gpu_state, t, n)
#define A(t, n, c) STATE_FIELD_ARRAY(gpu_state, t, n, c)
static const struct state_field gpu_fields[] = {GPU_STATE(F, A)};
#undef F
#undef A
static const struct state_desc gpu_desc = {"virtio-gpu", gpu_fields, ARRAY_SIZE(gpu_fields),
                                           sizeof(struct gpu_state)};

static struct virtio_gpu *self(const struct device *dev)
{
    return dev->host;
}

static void note(struct gpu_state *s, const void *bytes, u64 len)
{
    s->digest = XXH3_64bits_withSeed(bytes, len, s->digest);
}

/* ---- configuration (5.7.4) ---- */

static void gpu_config_read(struct device *dev, unsigned offset, unsigned size, u8 *out)
{
    const struct gpu_state *s = dev->state;
    struct virtio_gpu_config c = {.events_read = s->events, .num_scanouts = 1};
    memcpy(out, (const u8 *)&c + offset, size);
}

static void gpu_config_write(struct device *dev, unsigned offset, unsigned size, const u8 *in)
{
    struct gpu_state *s = dev->state;
    u32 clear = 0;
    if (offset != offsetof(struct virtio_gpu_config, events_clear) || size != 4)
        return;
    memcpy(&clear, in, 4);
    s->events &= ~clear;
}

/* ---- EDID 1.4 (VESA E-EDID, section 3) ---- */

/* Blanking as in reduced-blanking modes (VESA CVT 1.2): any refresh rate follows from the clock. */
static void detailed_timing(const struct gpu_config *c, u8 *d)
{
    u32 hblank = 160, vblank = 35;
    u64 clock = (u64)(c->width + hblank) * (c->height + vblank) * c->hz / 10000;
    clock = MIN(clock, 65535u);
    d[0] = (u8)clock;
    d[1] = (u8)(clock >> 8);
    d[2] = (u8)c->width;
    d[3] = (u8)hblank;
    d[4] = (u8)((c->width >> 8 & 15) << 4 | hblank >> 8);
    d[5] = (u8)c->height;
    d[6] = (u8)vblank;
    d[7] = (u8)((c->height >> 8 & 15) << 4 | vblank >> 8);
    d[8] = 48;          /* sync starts so many pixels behind the picture, */
    d[9] = 32;          /* and is so long */
    d[10] = 3 << 4 | 6; /* lines */
    u32 mm_w = c->width * 254 / 960, mm_h = c->height * 254 / 960; /* 96 pixels an inch */
    d[12] = (u8)mm_w;
    d[13] = (u8)mm_h;
    d[14] = (u8)((mm_w >> 8 & 15) << 4 | (mm_h >> 8 & 15));
    d[17] = 0x1e; /* digital separate sync, both positive */
}

static void make_edid(const struct gpu_config *c, u8 edid[128])
{
    static const u8 head[] = {
        0,    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, /* header */
        0x4a, 0x50, 0x01, 0,    0,    0,    0,    0, /* maker "RRP", product 1 */
        1,    33,   1,    4,                         /* week, year 2023, version 1.4 */
        0xa5, 0,    0,    0x78, 0x06,                /* digital, 8 bits; size below; sRGB */
        0xee, 0x91, 0xa3, 0x54, 0x4c, 0x99, 0x26, 0x0f, 0x50, 0x54, /* sRGB primaries */
        0,    0,    0};                                             /* no established timings */
    static const u8 name[] = {0,   0,   0,   0xfc, 0,   'R', 'e', 'p', 'r',
                              'i', 's', 'e', '\n', ' ', ' ', ' ', ' ', ' '};
    static const u8 dummy[] = {0, 0, 0, 0x10};
    memset(edid, 0, 128);
    memcpy(edid, head, sizeof(head));
    edid[21] = (u8)(c->width * 254 / 9600);
    edid[22] = (u8)(c->height * 254 / 9600);
    memset(edid + 38, 1, 16); /* standard timings: unused */
    detailed_timing(c, edid + 54);
    memcpy(edid + 72, name, sizeof(name));
    memcpy(edid + 90, dummy, sizeof(dummy));
    memcpy(edid + 108, dummy, sizeof(dummy));
    u8 sum = 0;
    for (unsigned i = 0; i < 127; i++)
        sum += edid[i];
    edid[127] = (u8)-sum;
}

/* ---- 2D commands (5.7.6.8) ---- */

static bool known_format(u32 format)
{
    switch (format) {
    case VIRTIO_GPU_FORMAT_B8G8R8A8_UNORM:
    case VIRTIO_GPU_FORMAT_B8G8R8X8_UNORM:
    case VIRTIO_GPU_FORMAT_A8R8G8B8_UNORM:
    case VIRTIO_GPU_FORMAT_X8R8G8B8_UNORM:
    case VIRTIO_GPU_FORMAT_R8G8B8A8_UNORM:
    case VIRTIO_GPU_FORMAT_X8B8G8R8_UNORM:
    case VIRTIO_GPU_FORMAT_A8B8G8R8_UNORM:
    case VIRTIO_GPU_FORMAT_R8G8B8X8_UNORM: return true;
    default: return false;
    }
}

static bool within(const struct virtio_gpu_rect *r, u32 width, u32 height)
{
    return r->x <= width && r->width <= width - r->x && r->y <= height &&
           r->height <= height - r->y;
}

static u32 create_2d(struct virtio_gpu *g, const struct virtio_gpu_resource_create_2d *c)
{
    struct gpu_resource r;
    if (!c->resource_id || gpu_find(&g->store, c->resource_id, &r) >= 0)
        return VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID;
    if (!known_format(c->format) || !c->width || !c->height || c->width > 16384 ||
        c->height > 16384)
        return VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER;
    r = (struct gpu_resource){.id = c->resource_id,
                              .kind = GPU_2D,
                              .format = c->format,
                              .width = c->width,
                              .height = c->height,
                              .depth = 1,
                              .array_size = 1};
    return gpu_add(&g->store, &r, (u64)c->width * c->height * 4) < 0
               ? VIRTIO_GPU_RESP_ERR_OUT_OF_MEMORY
               : VIRTIO_GPU_RESP_OK_NODATA;
}

static u32 unref(struct virtio_gpu *g, u32 id)
{
    struct gpu_state *s = g->v.dev->state;
    struct gpu_resource r;
    int slot = gpu_find(&g->store, id, &r);
    if (slot < 0)
        return VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID;
    gpu_remove(&g->store, slot);
    if (s->scanout == id)
        s->scanout = s->width = s->height = 0;
    if (s->cursor == id)
        s->cursor = 0;
    return VIRTIO_GPU_RESP_OK_NODATA;
}

static u32 set_scanout(struct virtio_gpu *g, const struct virtio_gpu_set_scanout *c)
{
    struct gpu_state *s = g->v.dev->state;
    struct gpu_resource r;
    if (c->scanout_id)
        return VIRTIO_GPU_RESP_ERR_INVALID_SCANOUT_ID;
    if (!c->resource_id) {
        s->scanout = s->width = s->height = 0;
        return VIRTIO_GPU_RESP_OK_NODATA;
    }
    if (gpu_find(&g->store, c->resource_id, &r) < 0)
        return VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID;
    if (!within(&c->r, r.width, r.height) || c->r.width < 16 || c->r.height < 16)
        return VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER;
    s->scanout = c->resource_id;
    s->x = c->r.x;
    s->y = c->r.y;
    s->width = c->r.width;
    s->height = c->r.height;
    return VIRTIO_GPU_RESP_OK_NODATA;
}

static u32 flush(struct virtio_gpu *g, const struct virtio_gpu_resource_flush *c)
{
    struct device *dev = g->v.dev;
    struct gpu_state *s = dev->state;
    struct gpu_resource r;
    if (gpu_find(&g->store, c->resource_id, &r) < 0)
        return VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID;
    if (!within(&c->r, r.width, r.height))
        return VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER;
    if (s->scanout == c->resource_id) {
        s->frames++;
        dev->env->emit(dev->env->machine, EMIT_FRAME, 0, &s->frames, sizeof(s->frames));
    }
    return VIRTIO_GPU_RESP_OK_NODATA;
}

/* Reads len bytes at `offset` of a resource's backing; what is not RAM reads as zeros. */
struct backing {
    const struct gpu_entry *e;
    u32 n, at;
    u64 start; /* of e[at] */
};

static bool backing_read(struct virtio_gpu *g, struct backing *b, u64 offset, u8 *out, u64 len)
{
    const struct dev_env *env = g->v.dev->env;
    if (offset < b->start) {
        b->at = 0;
        b->start = 0;
    }
    while (len) {
        while (b->at < b->n && offset - b->start >= b->e[b->at].len) {
            b->start += b->e[b->at].len;
            b->at++;
        }
        if (b->at == b->n)
            return false;
        u64 in = offset - b->start, part = MIN(len, b->e[b->at].len - in);
        if (!env->dma_read(env->machine, b->e[b->at].gpa + in, out, part))
            memset(out, 0, part);
        out += part;
        offset += part;
        len -= part;
    }
    return true;
}

static u32 transfer_2d(struct virtio_gpu *g, const struct virtio_gpu_transfer_to_host_2d *c)
{
    struct gpu_state *s = g->v.dev->state;
    struct gpu_resource r;
    if (gpu_find(&g->store, c->resource_id, &r) < 0)
        return VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID;
    u64 stride = (u64)r.width * 4, row = (u64)c->r.width * 4;
    if (r.kind != GPU_2D || !r.entries || !within(&c->r, r.width, r.height) ||
        c->offset > (u64)16384 * 16384 * 4)
        return VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER;
    gpu_get_backing(&g->store, &r, g->entries);
    struct backing b = {.e = g->entries, .n = r.entries};
    for (u32 y = 0; y < c->r.height; y++) {
        if (!backing_read(g, &b, c->offset + y * stride, g->row, row))
            return VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER;
        note(s, g->row, row);
        gpu_data_write(&g->store, r.pixels, (c->r.y + y) * stride + (u64)c->r.x * 4, g->row, row);
    }
    return VIRTIO_GPU_RESP_OK_NODATA;
}

static u32 attach_backing(struct virtio_gpu *g, const u8 *request, u64 len)
{
    struct virtio_gpu_resource_attach_backing c;
    struct gpu_resource r;
    memcpy(&c, request, sizeof(c));
    int slot = gpu_find(&g->store, c.resource_id, &r);
    if (slot < 0)
        return VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID;
    if (r.entries || !c.nr_entries || c.nr_entries > GPU_ENTRIES ||
        len - sizeof(c) < (u64)c.nr_entries * sizeof(struct virtio_gpu_mem_entry))
        return VIRTIO_GPU_RESP_ERR_UNSPEC;
    for (u32 i = 0; i < c.nr_entries; i++) {
        struct virtio_gpu_mem_entry e;
        memcpy(&e, request + sizeof(c) + i * sizeof(e), sizeof(e));
        g->entries[i] = (struct gpu_entry){e.addr, e.length, 0};
    }
    return gpu_set_backing(&g->store, slot, g->entries, c.nr_entries)
               ? VIRTIO_GPU_RESP_OK_NODATA
               : VIRTIO_GPU_RESP_ERR_OUT_OF_MEMORY;
}

static u32 detach_backing(struct virtio_gpu *g, u32 id)
{
    struct gpu_resource r;
    int slot = gpu_find(&g->store, id, &r);
    if (slot < 0)
        return VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID;
    if (!r.entries)
        return VIRTIO_GPU_RESP_ERR_UNSPEC;
    gpu_set_backing(&g->store, slot, NULL, 0);
    return VIRTIO_GPU_RESP_OK_NODATA;
}

/* ---- dispatch ---- */

static const struct command {
    u32 type, size;
} commands[] = {
    {VIRTIO_GPU_CMD_GET_DISPLAY_INFO, sizeof(struct virtio_gpu_ctrl_hdr)},
    {VIRTIO_GPU_CMD_RESOURCE_CREATE_2D, sizeof(struct virtio_gpu_resource_create_2d)},
    {VIRTIO_GPU_CMD_RESOURCE_UNREF, sizeof(struct virtio_gpu_resource_unref)},
    {VIRTIO_GPU_CMD_SET_SCANOUT, sizeof(struct virtio_gpu_set_scanout)},
    {VIRTIO_GPU_CMD_RESOURCE_FLUSH, sizeof(struct virtio_gpu_resource_flush)},
    {VIRTIO_GPU_CMD_TRANSFER_TO_HOST_2D, sizeof(struct virtio_gpu_transfer_to_host_2d)},
    {VIRTIO_GPU_CMD_RESOURCE_ATTACH_BACKING, sizeof(struct virtio_gpu_resource_attach_backing)},
    {VIRTIO_GPU_CMD_RESOURCE_DETACH_BACKING, sizeof(struct virtio_gpu_resource_detach_backing)},
    {VIRTIO_GPU_CMD_GET_EDID, sizeof(struct virtio_gpu_cmd_get_edid)},
};

static u32 execute(struct virtio_gpu *g, u32 type, const u8 *request, u64 len)
{
    union {
        struct virtio_gpu_resource_create_2d create_2d;
        struct virtio_gpu_resource_unref unref;
        struct virtio_gpu_set_scanout set_scanout;
        struct virtio_gpu_resource_flush flush;
        struct virtio_gpu_transfer_to_host_2d transfer;
        struct virtio_gpu_resource_detach_backing detach;
        struct virtio_gpu_cmd_get_edid edid;
    } c;
    const struct command *known = commands;
    while (known < commands + ARRAY_SIZE(commands) && known->type != type)
        known++;
    if (known == commands + ARRAY_SIZE(commands) || len < known->size)
        return VIRTIO_GPU_RESP_ERR_UNSPEC;
    memcpy(&c, request, MIN(len, sizeof(c)));
    switch (type) {
    case VIRTIO_GPU_CMD_GET_DISPLAY_INFO: return VIRTIO_GPU_RESP_OK_DISPLAY_INFO;
    case VIRTIO_GPU_CMD_RESOURCE_CREATE_2D: return create_2d(g, &c.create_2d);
    case VIRTIO_GPU_CMD_RESOURCE_UNREF: return unref(g, c.unref.resource_id);
    case VIRTIO_GPU_CMD_SET_SCANOUT: return set_scanout(g, &c.set_scanout);
    case VIRTIO_GPU_CMD_RESOURCE_FLUSH: return flush(g, &c.flush);
    case VIRTIO_GPU_CMD_TRANSFER_TO_HOST_2D: return transfer_2d(g, &c.transfer);
    case VIRTIO_GPU_CMD_RESOURCE_ATTACH_BACKING: return attach_backing(g, request, len);
    case VIRTIO_GPU_CMD_RESOURCE_DETACH_BACKING: return detach_backing(g, c.detach.resource_id);
    default:
        return c.edid.scanout ? VIRTIO_GPU_RESP_ERR_INVALID_SCANOUT_ID : VIRTIO_GPU_RESP_OK_EDID;
    }
}

/* ---- responses ---- */

static void respond(struct virtio_gpu *g, u16 head, u32 response)
{
    union {
        struct virtio_gpu_ctrl_hdr hdr;
        struct virtio_gpu_resp_display_info display;
        struct virtio_gpu_resp_edid edid;
    } r;
    struct virtio_gpu_ctrl_hdr request = {0};
    u32 size = sizeof(r.hdr);
    virtio_read(&g->v, 0, &request, sizeof(request));
    memset(&r, 0, sizeof(r));
    if (response == VIRTIO_GPU_RESP_OK_DISPLAY_INFO) {
        r.display.pmodes[0].r.width = g->config.width;
        r.display.pmodes[0].r.height = g->config.height;
        r.display.pmodes[0].enabled = 1;
        size = sizeof(r.display);
    } else if (response == VIRTIO_GPU_RESP_OK_EDID) {
        make_edid(&g->config, r.edid.edid);
        r.edid.size = 128;
        size = sizeof(r.edid);
    }
    r.hdr.type = response;
    if (request.flags & VIRTIO_GPU_FLAG_FENCE) {
        r.hdr.flags = VIRTIO_GPU_FLAG_FENCE;
        r.hdr.fence_id = request.fence_id;
        r.hdr.ctx_id = request.ctx_id;
    }
    virtio_push(&g->v, CONTROL, head, (u32)virtio_write(&g->v, 0, &r, size));
}

static void control(struct virtio_gpu *g)
{
    struct device *dev = g->v.dev;
    struct gpu_state *s = dev->state;
    while (s->count < UNDER_WAY && virtio_pop(&g->v, CONTROL)) {
        struct virtio_gpu_ctrl_hdr h;
        u16 head = g->v.chain.head;
        u64 len = g->v.chain.read_len;
        u32 response = VIRTIO_GPU_RESP_ERR_UNSPEC;
        if (len < sizeof(h) || len > GPU_REQUEST_MAX ||
            virtio_read(&g->v, 0, g->request, len) != len) {
            virtio_broken(&g->v);
            return;
        }
        memcpy(&h, g->request, sizeof(h));
        s->commands++;
        note(s, g->request, len);
        response = execute(g, h.type, g->request, len);
        if (!(h.flags & VIRTIO_GPU_FLAG_FENCE) || !g->v.chain.write_len) {
            respond(g, head, response);
            continue;
        }
        unsigned i = (s->first + s->count) % UNDER_WAY;
        vns_t due = dev_now(dev) + TRANSFER_NS;
        if (s->count)
            due = MAX(due, s->due[(i + UNDER_WAY - 1) % UNDER_WAY]);
        s->head[i] = head;
        s->response[i] = response;
        s->due[i] = due;
        s->count++;
    }
    virtio_signal(&g->v, CONTROL);
    dev_changed(dev);
}

static void cursor(struct virtio_gpu *g)
{
    struct gpu_state *s = g->v.dev->state;
    while (virtio_pop(&g->v, CURSOR)) {
        struct virtio_gpu_update_cursor c;
        u16 head = g->v.chain.head;
        if (virtio_read(&g->v, 0, &c, sizeof(c)) == sizeof(c) && !c.pos.scanout_id) {
            s->commands++;
            note(s, &c, sizeof(c));
            if (c.hdr.type == VIRTIO_GPU_CMD_UPDATE_CURSOR) {
                s->cursor = c.resource_id;
                s->hot_x = c.hot_x;
                s->hot_y = c.hot_y;
            }
            if (c.hdr.type == VIRTIO_GPU_CMD_UPDATE_CURSOR ||
                c.hdr.type == VIRTIO_GPU_CMD_MOVE_CURSOR) {
                s->cursor_x = c.pos.x;
                s->cursor_y = c.pos.y;
            }
        }
        virtio_push(&g->v, CURSOR, head, 0);
    }
    virtio_signal(&g->v, CURSOR);
}

static void gpu_notify(struct device *dev, unsigned queue)
{
    if (queue == CONTROL)
        control(self(dev));
    else
        cursor(self(dev));
}

static vns_t gpu_deadline(const struct device *dev)
{
    const struct gpu_state *s = dev->state;
    return s->count ? s->due[s->first] : NEVER;
}

static void gpu_expire(struct device *dev, vns_t now)
{
    struct virtio_gpu *g = self(dev);
    struct gpu_state *s = dev->state;
    while (s->count && s->due[s->first] <= now) {
        unsigned i = s->first;
        s->first = (u16)((s->first + 1) % UNDER_WAY);
        s->count--;
        if (virtio_again(&g->v, CONTROL, s->head[i]))
            respond(g, s->head[i], s->response[i]);
    }
    virtio_signal(&g->v, CONTROL);
    if (virtio_ready(&g->v))
        control(g); /* what had to wait for room */
}

/* ---- the screen ---- */

void virtio_gpu_screen(const struct device *dev, struct dev_screen *out)
{
    const struct gpu_state *s = dev->state;
    *out = (struct dev_screen){s->width, s->height, s->frames};
}

/* Where red, green, blue and alpha are in a pixel; alpha 4: it has none. */
static void channels(u32 format, unsigned at[4])
{
    static const u8 order[][5] = {
        {VIRTIO_GPU_FORMAT_B8G8R8A8_UNORM, 2, 1, 0, 3},
        {VIRTIO_GPU_FORMAT_B8G8R8X8_UNORM, 2, 1, 0, 4},
        {VIRTIO_GPU_FORMAT_A8R8G8B8_UNORM, 1, 2, 3, 0},
        {VIRTIO_GPU_FORMAT_X8R8G8B8_UNORM, 1, 2, 3, 4},
        {VIRTIO_GPU_FORMAT_R8G8B8A8_UNORM, 0, 1, 2, 3},
        {VIRTIO_GPU_FORMAT_X8B8G8R8_UNORM, 3, 2, 1, 4},
        {VIRTIO_GPU_FORMAT_A8B8G8R8_UNORM, 3, 2, 1, 0},
        {VIRTIO_GPU_FORMAT_R8G8B8X8_UNORM, 0, 1, 2, 4},
    };
    const u8 *o = order[0];
    for (unsigned i = 0; i < ARRAY_SIZE(order); i++)
        if (order[i][0] == format)
            o = order[i];
    for (unsigned k = 0; k < 4; k++)
        at[k] = o[k + 1];
}

static void draw_cursor(struct virtio_gpu *g, u32 y, u8 *rgb)
{
    const struct gpu_state *s = g->v.dev->state;
    struct gpu_resource r;
    i64 top = (i64)s->cursor_y, left = (i64)s->cursor_x;
    if (gpu_find(&g->store, s->cursor, &r) < 0 || r.kind != GPU_2D || y < top ||
        y - top >= r.height)
        return;
    unsigned at[4];
    channels(r.format, at);
    gpu_data_read(&g->store, r.pixels, (u64)(y - top) * r.width * 4, g->row, (u64)r.width * 4);
    for (u32 x = 0; x < r.width && left + x < s->width; x++) {
        const u8 *p = g->row + 4 * x;
        unsigned alpha = at[3] < 4 ? p[at[3]] : 255;
        u8 *to = rgb + 3 * (left + x);
        for (unsigned k = 0; k < 3; k++) /* premultiplied, as the kernel's cursors are */
            to[k] = (u8)MIN(255u, p[at[k]] + to[k] * (255 - alpha) / 255);
    }
}

void virtio_gpu_screen_row(struct device *dev, u32 y, u8 *rgb)
{
    struct virtio_gpu *g = self(dev);
    const struct gpu_state *s = dev->state;
    struct gpu_resource r;
    memset(rgb, 0, (size_t)s->width * 3);
    if (y >= s->height || gpu_find(&g->store, s->scanout, &r) < 0)
        return;
    if (r.kind == GPU_2D) {
        unsigned at[4];
        channels(r.format, at);
        gpu_data_read(&g->store, r.pixels, ((u64)(s->y + y) * r.width + s->x) * 4, g->row,
                      (u64)s->width * 4);
        for (u32 x = 0; x < s->width; x++)
            for (unsigned k = 0; k < 3; k++)
                rgb[3 * x + k] = g->row[4 * x + at[k]];
    }
    draw_cursor(g, y, rgb);
}

/* ---- life ---- */

/* 5.7.6.1: everything is forgotten. */
static void gpu_driver_reset(struct device *dev)
{
    struct gpu_state *s = dev->state;
    s->first = s->count = 0;
    s->scanout = s->x = s->y = s->width = s->height = 0;
    s->cursor = s->cursor_x = s->cursor_y = s->hot_x = s->hot_y = 0;
    gpu_store_clear(&self(dev)->store);
}

static void gpu_reset(struct device *dev)
{
    virtio_reset(dev);
    if (dev->host)
        gpu_driver_reset(dev);
}

/* The rectangle that is shown must lie in its resource: as guests get no other, neither do files.
 */
static int gpu_loaded(struct device *dev, struct err *err)
{
    const struct gpu_state *s = dev->state;
    if (s->first >= UNDER_WAY || s->count > UNDER_WAY)
        return dev_bad_state(dev, err, "commands");
    if (s->width > 16384 || s->height > 16384 || s->x > 16384 || s->y > 16384)
        return dev_bad_state(dev, err, "scanout");
    self(dev)->store.stale = true;
    return virtio_loaded(dev, err);
}

static const struct virtio_class gpu_class = {
    .type = 16,
    .pci_class = {0x00, 0x80, 0x03}, /* display controller, not VGA */
    .features = F_EDID,
    .queues = 2,
    .queue_max = VIRTIO_QUEUE_MAX,
    .config_size = sizeof(struct virtio_gpu_config),
    .config_read = gpu_config_read,
    .config_write = gpu_config_write,
    .notify = gpu_notify,
    .reset = gpu_driver_reset,
};

static const struct device_ops gpu_ops = {
    .name = "gpu",
    .state = &gpu_desc,
    .reset = gpu_reset,
    .deadline = gpu_deadline,
    .expire = gpu_expire,
    .loaded = gpu_loaded,
};

static void release(struct virtio_gpu *g)
{
    gpu_store_fini(&g->store);
    free(g->request);
    free(g->row);
    free(g->entries);
}

int virtio_gpu_create(struct device *dev, const struct dev_env *env, struct virtio_gpu *g,
                      struct device *pci, unsigned slot, const struct gpu_config *config,
                      struct err *err)
{
    int r = dev_alloc(dev, &gpu_ops, env, sizeof(struct gpu_state), err);
    if (r)
        return r;
    r = gpu_store_init(&g->store, err);
    g->config = *config;
    g->request = malloc(GPU_REQUEST_MAX);
    g->row = malloc(16384 * 4);
    g->entries = malloc(GPU_ENTRIES * sizeof(*g->entries));
    if (!r && (!g->request || !g->row || !g->entries))
        r = err_set(err, -ENOMEM, "no memory for the GPU");
    if (r) {
        release(g);
        dev_free(dev);
        return r;
    }
    virtio_connect(&g->v, dev, &gpu_class, pci, slot);
    return 0;
}

void virtio_gpu_destroy(struct device *dev)
{
    release(self(dev));
    dev_free(dev);
}
