/* What the display of virtio-gpu says of itself (EDID) and shows. */
#include <string.h>

#include "dev/virtio/gpu_internal.h"

/* ---- EDID 1.4 (VESA E-EDID, section 3) ---- */

/* Blanking as in reduced-blanking modes (VESA CVT 1.2): any refresh rate follows from the clock. */
static void detailed_timing(const struct description_gpu *c, u8 *d)
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
    d[8] = 48;          /* sync starts so many pixels after the picture, */
    d[9] = 32;          /* and is so long */
    d[10] = 3 << 4 | 6; /* lines */
    u32 mm_w = c->width * 254 / 960, mm_h = c->height * 254 / 960; /* 96 pixels an inch */
    d[12] = (u8)mm_w;
    d[13] = (u8)mm_h;
    d[14] = (u8)((mm_w >> 8 & 15) << 4 | (mm_h >> 8 & 15));
    d[17] = 0x1e; /* digital separate sync, both positive */
}

void gpu_make_edid(const struct description_gpu *c, u8 edid[128])
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

/* ---- the screen ---- */

void virtio_gpu_screen(const struct device *dev, struct dev_screen *out)
{
    const struct gpu_state *s = dev->state;
    struct gpu_resource r;
    bool found = gpu_find(&gpu_self(dev)->store, s->scanout, &r) >= 0;
    bool drawn = found && (r.kind == GPU_3D || gpu_self(dev)->config.capset_size);
    *out = (struct dev_screen){.width = s->width,
                               .height = s->height,
                               .frames = s->frames,
                               .commands = s->commands,
                               .resource = s->scanout,
                               .x = s->x,
                               .y = s->y,
                               .cursor = s->cursor,
                               .cursor_x = s->cursor_x,
                               .cursor_y = s->cursor_y,
                               .drawn = drawn,
                               .kept = found && r.kind == GPU_2D};
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

void virtio_gpu_screen_cursor(struct device *dev, u32 y, u8 *rgb)
{
    struct virtio_gpu *g = gpu_self(dev);
    const struct gpu_state *s = dev->state;
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
    struct virtio_gpu *g = gpu_self(dev);
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
    virtio_gpu_screen_cursor(dev, y, rgb);
}
