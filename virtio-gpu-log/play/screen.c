/* See screen.h. */
#include "virtio-gpu-log/play/screen.h"

#include <string.h>

static void unref(struct gpu_screen *s, u32 id)
{
    for (u32 i = 0; i < ARRAY_SIZE(s->scanout); i++) {
        struct gpu_scanout *o = &s->scanout[i];
        if (o->resource == id)
            o->resource = o->x = o->y = o->width = o->height = 0;
        if (o->cursor == id)
            o->cursor = 0;
    }
}

void gpu_screen_step(struct gpu_screen *s, const struct gpu_command *c)
{
    struct virtio_gpu_set_scanout set;
    struct virtio_gpu_update_cursor cursor;
    if (c->response)
        return;
    switch (c->type) {
    case VIRTIO_GPU_CMD_SET_SCANOUT:
        memcpy(&set, c->bytes, sizeof(set));
        if (set.scanout_id < ARRAY_SIZE(s->scanout)) {
            struct gpu_scanout *o = &s->scanout[set.scanout_id];
            o->resource = set.resource_id;
            o->x = set.r.x;
            o->y = set.r.y;
            o->width = set.r.width;
            o->height = set.r.height;
        }
        break;
    case VIRTIO_GPU_CMD_UPDATE_CURSOR:
    case VIRTIO_GPU_CMD_MOVE_CURSOR:
        memcpy(&cursor, c->bytes, sizeof(cursor));
        if (cursor.pos.scanout_id < ARRAY_SIZE(s->scanout)) {
            struct gpu_scanout *o = &s->scanout[cursor.pos.scanout_id];
            o->cursor_x = (i32)cursor.pos.x;
            o->cursor_y = (i32)cursor.pos.y;
            if (c->type == VIRTIO_GPU_CMD_UPDATE_CURSOR)
                o->cursor = cursor.resource_id;
        }
        break;
    case VIRTIO_GPU_CMD_RESOURCE_UNREF: unref(s, gpu_u32(c->bytes + GPU_HEADER)); break;
    default: break;
    }
}

void gpu_screen_blend(u8 *rgb, u32 width, i64 x, const u8 *rgba, u32 count)
{
    for (u32 i = 0; i < count; i++, x++) {
        const u8 *from = rgba + (size_t)i * 4;
        if (x < 0 || x >= width)
            continue;
        u8 *to = rgb + (size_t)x * 3;
        for (u32 k = 0; k < 3; k++)
            to[k] = (u8)MIN(255u, from[k] + to[k] * (255u - from[3]) / 255u);
    }
}
