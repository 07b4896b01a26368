/* Pictures of what is shown, and pixels of resources. */
#include "virtio-gpu-log/play/play_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/check.h"
#include "virtio-gpu-log/picture.h"

void play_forget_shots(struct gpu_player *p)
{
    for (u32 i = 0; i < GPU_SHOTS; i++) {
        free(p->shots[i].picture);
        free(p->shots[i].cursor);
        p->shots[i] = (struct asked_shot){0};
    }
    p->shot_first = p->shot_count = 0;
}

void play_shot_reply(struct gpu_player *p, const struct owed_reply *o, struct renderer_reply *reply)
{
    struct renderer_reply **to = o->cursor ? &p->shots[o->shot].cursor : &p->shots[o->shot].picture;
    free(*to);
    *to = reply;
}

void gpu_player_shown(const struct gpu_player *p, u32 scanout, struct gpu_shown *out)
{
    struct gpu_shape shape;
    *out = (struct gpu_shown){0};
    if (scanout >= ARRAY_SIZE(p->screen.scanout))
        return;
    const struct gpu_scanout *s = &p->screen.scanout[scanout];
    if (!s->resource || !gpu_drive_shape(p->drive, s->resource, &shape) || s->x >= shape.width ||
        s->y >= shape.height)
        return;
    *out = (struct gpu_shown){s->resource, s->x, s->y, MIN(s->width, shape.width - s->x),
                              MIN(s->height, shape.height - s->y)};
    if (!out->width || !out->height)
        *out = (struct gpu_shown){0};
}

static int ask_read(struct gpu_player *p, u32 resource, const struct wire_box *box, u32 shot,
                    bool cursor, struct err *err)
{
    struct owed_reply o = {
        .kind = OWED_SHOT,
        .seq = renderer_read(gpu_drive_renderer(p->drive), resource, 0, box, WIRE_RAW),
        .number = p->place.commands,
        .shot = shot,
        .cursor = cursor};
    return play_owe(p, &o, err);
}

static int no_memory(struct err *err)
{
    return err_set(err, -ENOMEM, "no memory for a picture of the GPU's");
}

static int no_picture(u32 format, struct err *err)
{
    const struct gpu_format *f = gpu_format(format);
    return err_set(err, -ENOTSUP, "no picture can be made of format %s (%u)",
                   f ? f->name : "unknown", format);
}

int gpu_player_ask_shot(struct gpu_player *p, u32 scanout, struct err *err)
{
    struct gpu_shown shown;
    struct gpu_shape shape;
    CHECK(p->shot_count < GPU_SHOTS, "more than %u shots are asked for", GPU_SHOTS);
    u32 index = (p->shot_first + p->shot_count) % GPU_SHOTS;
    struct asked_shot *s = &p->shots[index];
    *s = (struct asked_shot){0};
    gpu_player_shown(p, scanout, &shown);
    if (shown.resource) {
        gpu_drive_shape(p->drive, shown.resource, &shape);
        if (!gpu_picture_format(shape.format))
            return no_picture(shape.format, err);
        s->on = true;
        s->format = shape.format;
        s->scanout = p->screen.scanout[scanout];
        s->scanout.width = shown.width;
        s->scanout.height = shown.height;
        struct wire_box box = {shown.x, shown.y, 0, shown.width, shown.height, 1};
        if (ask_read(p, shown.resource, &box, index, false, err))
            return err->code;
        if (s->scanout.cursor && gpu_drive_shape(p->drive, s->scanout.cursor, &shape) &&
            gpu_picture_format(shape.format)) {
            s->wants_cursor = true;
            s->cursor_format = shape.format;
            s->cursor_width = shape.width;
            s->cursor_height = shape.height;
            box = (struct wire_box){0, 0, 0, shape.width, shape.height, 1};
            if (ask_read(p, s->scanout.cursor, &box, index, true, err))
                return err->code;
        }
    }
    p->shot_count++;
    return 0;
}

static int draw_cursor(const struct asked_shot *s, struct gpu_shot *out, struct err *err)
{
    const struct renderer_reply *c = s->cursor;
    if (!c || c->result || c->row_bytes * (u64)s->cursor_height != c->data_size)
        return 0;
    u8 *rgba = malloc((size_t)s->cursor_width * 4);
    if (!rgba)
        return no_memory(err);
    for (u32 y = 0; y < s->cursor_height; y++) {
        i64 at = (i64)s->scanout.cursor_y + y;
        if (at < 0 || at >= out->height)
            continue;
        gpu_picture_row(s->cursor_format, c->data + (size_t)y * c->row_bytes, s->cursor_width,
                        rgba);
        gpu_screen_blend(out->rgb + (size_t)at * out->width * 3, out->width, s->scanout.cursor_x,
                         rgba, s->cursor_width);
    }
    free(rgba);
    return 0;
}

/* The rows of a reply as R, G, B, A; NULL with a text. */
static u8 *rows(const struct renderer_reply *r, u32 resource, u32 format, u32 width, u32 height,
                struct err *err)
{
    const struct gpu_format *f = gpu_format(format);
    if (!r || r->result) {
        err_set(err, -ENOTSUP, "resource %u cannot be read: %s", resource,
                r ? wire_result_text(r->result) : "no answer");
        return NULL;
    }
    if (r->width != width || r->height != height || (u64)width * f->bytes > r->row_bytes ||
        (u64)r->row_bytes * height != r->data_size) {
        err_set(err, -EPROTO, "the renderer gives %u x %u pixels of resource %u instead of %u x %u",
                r->width, r->height, resource, width, height);
        return NULL;
    }
    u8 *rgba = malloc((size_t)width * height * 4);
    if (!rgba) {
        no_memory(err);
        return NULL;
    }
    for (u32 y = 0; y < height; y++)
        gpu_picture_row(format, r->data + (size_t)y * r->row_bytes, width,
                        rgba + (size_t)y * width * 4);
    return rgba;
}

static u64 hash(const struct gpu_shot *s)
{
    return XXH3_64bits_withSeed(s->rgb ? s->rgb : (const u8 *)"", (size_t)s->width * s->height * 3,
                                (u64)s->width << 32 | s->height);
}

static int finish(struct asked_shot *s, struct gpu_shot *out, struct err *err)
{
    u32 w = s->scanout.width, h = s->scanout.height;
    *out = (struct gpu_shot){0};
    if (s->on) {
        u8 *rgba = rows(s->picture, s->scanout.resource, s->format, w, h, err);
        if (!rgba)
            return err->code;
        *out = (struct gpu_shot){w, h, s->scanout.resource, malloc((size_t)w * h * 3), 0};
        for (size_t i = 0; out->rgb && i < (size_t)w * h; i++)
            memcpy(out->rgb + i * 3, rgba + i * 4, 3);
        free(rgba);
        if (!out->rgb || draw_cursor(s, out, err)) {
            gpu_shot_free(out);
            return no_memory(err);
        }
    }
    out->hash = hash(out);
    return 0;
}

int gpu_player_take_shot(struct gpu_player *p, struct gpu_shot *out, struct err *err)
{
    CHECK(p->shot_count, "no shot was asked for");
    struct asked_shot *s = &p->shots[p->shot_first];
    int code = 0;
    while (!code && p->owed_count && ((s->on && !s->picture) || (s->wants_cursor && !s->cursor)))
        code = play_settle(p, p->owed_count - 1, err);
    if (code) /* all shots are forgotten */
        return code;
    code = finish(s, out, err);
    free(s->picture);
    free(s->cursor);
    *s = (struct asked_shot){0};
    p->shot_first = (p->shot_first + 1) % GPU_SHOTS;
    p->shot_count--;
    return code;
}

int gpu_player_shot(struct gpu_player *p, u32 scanout, struct gpu_shot *out, struct err *err)
{
    *out = (struct gpu_shot){0};
    int code = gpu_player_ask_shot(p, scanout, err);
    return code ? code : gpu_player_take_shot(p, out, err);
}

void gpu_shot_free(struct gpu_shot *s)
{
    free(s->rgb);
    *s = (struct gpu_shot){0};
}

int gpu_player_pixels(struct gpu_player *p, u32 resource, const struct wire_box *box,
                      struct gpu_shot *rgba, struct err *err)
{
    struct gpu_shape shape;
    *rgba = (struct gpu_shot){0};
    if (!gpu_drive_shape(p->drive, resource, &shape))
        return err_set(err, -ENOENT, "there is no resource %u", resource);
    if (!gpu_picture_format(shape.format) || shape.target == 0)
        return no_picture(shape.target ? shape.format : 0, err);
    struct wire_box whole = {0, 0, 0, shape.width, shape.height, 1};
    box = box ? box : &whole;
    CHECK(!p->shot_count, "shots are asked for");
    struct asked_shot *s = &p->shots[p->shot_first];
    int code = ask_read(p, resource, box, p->shot_first, false, err);
    while (!code && !s->picture && p->owed_count)
        code = play_settle(p, p->owed_count - 1, err);
    if (code)
        return code;
    u8 *pixels = rows(s->picture, resource, shape.format, box->w, box->h, err);
    free(s->picture);
    *s = (struct asked_shot){0};
    if (!pixels)
        return err->code;
    *rgba = (struct gpu_shot){box->w, box->h, resource, pixels, 0};
    return 0;
}
