/* See who.h. First it is found which commands may have changed the resource; then, from the last
 * ones backwards, the pixel is read after each of their draws. */
#include "virtio-gpu-log/play/who.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "virtio-gpu-log/play/grow.h"

/* How many commands are looked through first; then more and more. */
#define FEW 8u

struct search {
    struct gpu_player *p;
    u32 resource, x, y;
    u64 *numbers; /* commands that may have changed the resource, ascending */
    u64 count;
    size_t room;
    struct gpu_who *out;
    bool found;
};

static int pixel(struct search *s, u8 rgba[4], struct err *err)
{
    struct gpu_shot shot;
    struct wire_box box = {s->x, s->y, 0, 1, 1, 1};
    int code = gpu_player_pixels(s->p, s->resource, &box, &shot, err);
    if (!code)
        memcpy(rgba, shot.rgb, 4);
    gpu_shot_free(&shot);
    return code;
}

/* The commands up to `end` after which the resource may hold something else; those of an earlier
 * one of its number are forgotten. */
static int gather(struct search *s, u64 end, struct err *err)
{
    u64 changes = 0, birth = 0;
    int code = gpu_player_seek_frame(s->p, 0, err);
    while (!code && gpu_player_place(s->p)->commands < end) {
        code = gpu_player_step(s->p, err);
        if (!code)
            return err_set(err, -EIO, "the GPU log changed while it was read");
        code = MIN(code, 0);
        const struct track_resource *r = gpu_track_resource(gpu_player_track(s->p), s->resource);
        if (code || !r)
            continue;
        if (r->birth != birth)
            s->count = changes = 0;
        birth = r->birth;
        if (r->changes == changes)
            continue;
        changes = r->changes;
        u64 *more = list_grow(s->numbers, s->count, &s->room, sizeof(*more));
        if (!more)
            return err_set(err, -ENOMEM, "no memory for the commands that drew");
        s->numbers = more;
        s->numbers[s->count++] = gpu_player_place(s->p)->commands - 1;
    }
    return code;
}

static int look(struct search *s, u8 was[4], u64 number, u32 dword, struct err *err)
{
    u8 is[4];
    int code = pixel(s, is, err);
    if (code || !memcmp(was, is, 3))
        return code;
    const struct gpu_place *at = gpu_player_place(s->p);
    s->found = true;
    *s->out = (struct gpu_who){.number = number,
                               .dword = dword,
                               .frame = at->frames + 1,
                               .resource = s->resource,
                               .x = s->x,
                               .y = s->y};
    memcpy(s->out->before, was, 4);
    memcpy(s->out->after, is, 4);
    memcpy(was, is, 4);
    return 0;
}

/* The next command draws to the resource: which of its parts change the pixel? */
static int through(struct search *s, u8 was[4], struct err *err)
{
    const struct gpu_command *c = gpu_player_peek(s->p, err);
    u64 number = gpu_player_place(s->p)->commands;
    struct virgl_walk w;
    struct virgl_command v;
    if (!c)
        return err->code ? err->code : err_set(err, -EIO, "the GPU log changed while it was read");
    if (c->type != VIRTIO_GPU_CMD_SUBMIT_3D) {
        int code = gpu_player_step(s->p, err);
        return code < 0 ? code : look(s, was, number, GPU_WHO_COMMAND, err);
    }
    int code = 0;
    virgl_walk_start(&w, c->payload, c->payload_size);
    while (!code && virgl_next(&w, &v)) {
        u32 at = v.at;
        if (!virgl_changes(&v))
            continue;
        code = gpu_player_part(s->p, at + v.length + 1, err);
        code = code ? code : look(s, was, number, at, err);
    }
    if (!code)
        code = gpu_player_step(s->p, err);
    return MIN(code, 0);
}

static int through_one(struct search *s, u8 was[4], struct err *err)
{
    u64 number = gpu_player_place(s->p)->commands;
    int code = through(s, was, err);
    if (s->found && s->out->number == number)
        s->out->position = gpu_player_place(s->p)->position;
    return code;
}

/* Commands numbers[from] up to, not with, numbers[to]. */
static int search(struct search *s, u64 from, u64 to, struct err *err)
{
    u8 was[4];
    int code = gpu_player_seek_command(s->p, s->numbers[from], err);
    code = code ? code : pixel(s, was, err);
    for (u64 i = from; !code && i < to; i++) {
        code = gpu_player_seek_command(s->p, s->numbers[i], err);
        code = code ? code : through_one(s, was, err);
    }
    return code;
}

int gpu_who_drew(struct gpu_player *p, u32 scanout, u32 x, u32 y, struct gpu_who *out,
                 struct err *err)
{
    struct gpu_shown shown;
    struct search s = {.p = p, .out = out};
    u64 end = gpu_player_place(p)->commands;
    gpu_player_shown(p, scanout, &shown);
    if (!shown.resource)
        return err_set(err, -EINVAL, "scanout %u is off there: it has no pixels", scanout);
    if (x >= shown.width || y >= shown.height)
        return err_set(err, -EINVAL, "there is no pixel %u,%u: the screen is %ux%u there", x, y,
                       shown.width, shown.height);
    s.resource = shown.resource;
    s.x = shown.x + x;
    s.y = shown.y + y;
    int code = gather(&s, end, err);
    for (u64 to = s.count, few = FEW; !code && to && !s.found; few *= FEW) {
        u64 from = to > few ? to - few : 0;
        code = search(&s, from, to, err);
        to = from;
    }
    free(s.numbers);
    if (!code && !s.found)
        return err_set(err, -ENODATA,
                       "nothing has changed pixel %u,%u of resource %u since it was made", x, y,
                       shown.resource);
    return code;
}
