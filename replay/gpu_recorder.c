/* See gpu_recorder.h. */
#include "replay/gpu_recorder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "machine/machine.h"
#include "virtio-gpu-log/decode.h"
#include "virtio-gpu-log/log.h"

/* Guest memory that was written for a command which has no answer yet. */
struct written {
    struct written *next;
    u64 number;
    struct gpu_range *ranges; /* offsets in `bytes` instead of pointers */
    u32 count, room;
    u8 *bytes;
    u64 size, bytes_room;
};

struct gpu_recorder {
    struct gpu_log_writer *log;
    struct written *written;
    struct err failed;
};

int gpu_recorder_create(struct gpu_recorder **out, int fd, const struct machine_description *d,
                        struct err *err)
{
    struct gpu_recorder *r = calloc(1, sizeof(*r));
    if (!r) {
        close(fd);
        return err_set(err, -ENOMEM, "no memory for " GPU_LOG_NAME);
    }
    struct gpu_rec_start start = {.virgl = d->gpu.capset_size != 0,
                                  .scanouts = 1,
                                  .width = d->gpu.width,
                                  .height = d->gpu.height,
                                  .hz = d->gpu.hz,
                                  .capset_id = d->gpu.capset_id,
                                  .capset_version = d->gpu.capset_version,
                                  .capset = {d->gpu.capset_size, d->gpu.capset}};
    int code = gpu_log_create(&r->log, fd, &start, err);
    if (code) {
        free(r);
        return code;
    }
    *out = r;
    return 0;
}

void gpu_recorder_room(struct gpu_recorder *r, const struct room *room)
{
    gpu_log_room(r->log, room);
}

const char *gpu_recorder_failure(const struct gpu_recorder *r)
{
    return r->failed.code ? r->failed.text : NULL;
}

static struct written **find(struct gpu_recorder *r, u64 number)
{
    struct written **at = &r->written;
    while (*at && (*at)->number != number)
        at = &(*at)->next;
    return at;
}

static void drop(struct written **at)
{
    struct written *w = *at;
    *at = w->next;
    free(w->ranges);
    free(w->bytes);
    free(w);
}

static bool grow(void **p, u64 need, u64 *room, size_t size)
{
    if (need <= *room)
        return true;
    u64 more = MAX(need, *room * 2);
    void *q = realloc(*p, more * size);
    if (!q)
        return false;
    *p = q;
    *room = more;
    return true;
}

/* Neighbours become one range. */
static bool add_range(struct written *w, const struct gpu_range *range)
{
    u64 room = w->room, size = range->bytes.size;
    if (!grow((void **)&w->ranges, w->count + 1u, &room, sizeof(*w->ranges)) ||
        !grow((void **)&w->bytes, w->size + size, &w->bytes_room, 1))
        return false;
    w->room = (u32)room;
    struct gpu_range *last = w->count ? &w->ranges[w->count - 1] : NULL;
    if (last && last->resource == range->resource &&
        last->offset + last->bytes.size == range->offset)
        last->bytes.size += size;
    else
        w->ranges[w->count++] = *range;
    memcpy(w->bytes + w->size, range->bytes.data, size);
    w->size += size;
    return true;
}

static int written(struct gpu_recorder *r, const struct dev_gpu *what)
{
    struct written **at = find(r, what->number);
    if (!*at) {
        *at = calloc(1, sizeof(**at));
        if (*at)
            (*at)->number = what->number;
    }
    for (u32 i = 0; *at && i < what->count; i++)
        if (!add_range(*at, &what->ranges[i]))
            break;
        else if (i + 1 == what->count)
            return 0;
    return err_set(&r->failed, -ENOMEM, "no memory for " GPU_LOG_NAME);
}

static int answered(struct gpu_recorder *r, struct machine *m, const struct dev_gpu *what)
{
    struct written **at = find(r, what->number), *w = *at;
    u64 offset = 0;
    for (u32 i = 0; w && i < w->count; i++) {
        w->ranges[i].bytes.data = w->bytes + offset;
        offset += w->ranges[i].bytes.size;
    }
    int code =
        gpu_log_reply(r->log, machine_position(m), machine_now(m), what->number, what->response,
                      what->body, what->size, w ? w->ranges : NULL, w ? w->count : 0, &r->failed);
    if (w)
        drop(at);
    return code;
}

void gpu_recorder_emit(struct gpu_recorder *r, struct machine *m, const struct dev_gpu *what)
{
    const struct gpu_command *c = what->command;
    pos_t position = machine_position(m);
    vns_t now = machine_now(m);
    if (r->failed.code)
        return;
    switch (what->what) {
    case DEV_GPU_TAKEN:
        gpu_log_command(r->log, position, now, what->queue, c->bytes, c->size, what->ranges,
                        what->count, what->response, &r->failed);
        break;
    case DEV_GPU_WRITTEN: written(r, what); break;
    case DEV_GPU_ANSWERED: answered(r, m, what); break;
    case DEV_GPU_LOST: gpu_log_lost(r->log, position, now, what->body, &r->failed); break;
    case DEV_GPU_FAULT:
        gpu_log_fault(r->log, position, now, (u32)what->number, what->body, &r->failed);
        break;
    case DEV_GPU_RESET:
        while (r->written)
            drop(&r->written);
        gpu_log_reset(r->log, position, now, &r->failed);
        break;
    }
}

int gpu_recorder_finish(struct gpu_recorder *r, struct machine *m, u64 *commands, struct err *err)
{
    struct err closing = {0};
    if (!r)
        return 0;
    if (m && !r->failed.code)
        gpu_log_end(r->log, machine_position(m), machine_now(m), &r->failed);
    if (commands)
        *commands = gpu_log_next_number(r->log);
    int code = gpu_log_close(r->log, &closing);
    if (code && !r->failed.code)
        r->failed = closing;
    code = r->failed.code;
    if (code)
        *err = r->failed;
    while (r->written)
        drop(&r->written);
    free(r);
    return code;
}
