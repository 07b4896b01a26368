/* See gpu.h. */
#include "live/gpu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/cursor.h"
#include "dev/virtio/gpu_reply.h"
#include "dev/virtio/gpu_store.h"
#include "virtio-gpu-log/play/drive.h"

#define UNDER_WAY 256u       /* as the device has: its queue's size */
#define SEEN      (1u << 15) /* pieces that came back, by hash */
#define OP_MAX    64u        /* bytes of an operation besides what it carries */
#define READ_WAIT 5000u      /* milliseconds for a picture */

struct pending {
    u64 number;
    struct gpu_driven driven;
    u64 fence;
    bool lost; /* taken when there was no renderer any more */
};

struct seen {
    XXH128_hash_t hash;
    u64 number; /* of the piece, + 1; 0: none */
};

/* Ranges of a renderer's reply on their way into the machine. */
struct source {
    struct renderer_reply *reply; /* NULL: there is none */
    u32 range;
    u64 at; /* in it */
    const u8 *data;
};

struct gpu_host {
    struct gpu_drive *drive;
    struct pending list[UNDER_WAY];
    u32 first, count;
    struct err failed; /* set: a command could not be given to the renderer, nor any after it */
    bool told;         /* the machine knows that the renderer is gone */
    bool follows;      /* the machine has its replies from a log */
    /* The reply that is being handed out: */
    bool started;
    struct source main, fence;
    u64 pieces; /* as the device counts them */
    struct seen *seen;
    u8 out[INPUT_MAX];
};

static struct renderer *renderer(const struct gpu_host *h)
{
    return gpu_drive_renderer(h->drive);
}

int gpu_host_create(struct gpu_host **out, const struct renderer_config *config, struct err *err)
{
    struct gpu_host *h = calloc(1, sizeof(*h));
    if (h)
        h->seen = calloc(SEEN, sizeof(*h->seen));
    if (!h || !h->seen) {
        free(h);
        return err_set(err, -ENOMEM, "no memory for the GPU");
    }
    /* The device is the one that refuses what is too much. */
    struct renderer_config c = *config;
    c.contexts = GPU_CONTEXTS;
    c.resources = GPU_RESOURCES;
    int code = gpu_drive_create(&h->drive, &c, err);
    if (code) {
        gpu_host_destroy(h);
        return code;
    }
    *out = h;
    return 0;
}

void gpu_host_destroy(struct gpu_host *h)
{
    if (!h)
        return;
    free(h->main.reply);
    free(h->fence.reply);
    gpu_drive_destroy(h->drive);
    free(h->seen);
    free(h);
}

const struct renderer_about *gpu_host_about(const struct gpu_host *h)
{
    return renderer_about(renderer(h));
}

const char *gpu_host_death(const struct gpu_host *h)
{
    return h->failed.code ? h->failed.text : renderer_death(renderer(h));
}

/* ---- from the machine ---- */

static void taken(struct gpu_host *h, const struct dev_gpu *what)
{
    struct gpu_driven driven = {0};
    /* A dead renderer would be asked for replies that nobody takes. */
    if (!what->response && !gpu_host_death(h))
        gpu_drive_command(h->drive, what->command, what->ranges, what->count, &driven, &h->failed);
    if (!what->awaited)
        return;
    CHECK(h->count < UNDER_WAY, "more GPU commands under way than there are");
    h->list[(h->first + h->count++) % UNDER_WAY] =
        (struct pending){what->number, driven, renderer_fence(renderer(h)), gpu_host_death(h)};
    renderer_poll(renderer(h));
}

static void drop_reply(struct gpu_host *h)
{
    free(h->main.reply);
    free(h->fence.reply);
    memset(&h->main, 0, sizeof(h->main));
    memset(&h->fence, 0, sizeof(h->fence));
    h->started = false;
}

/* Replies that are owed still are taken, so that none is left over for later. */
static void reset(struct gpu_host *h)
{
    struct err ignored;
    while (h->count) {
        const struct pending *p = &h->list[h->first];
        if (p->driven.reply && !h->main.reply)
            free(renderer_wait(renderer(h), p->driven.main, 0));
        if (!h->fence.reply)
            free(renderer_wait(renderer(h), p->fence, 0));
        drop_reply(h);
        h->first = (h->first + 1) % UNDER_WAY;
        h->count--;
    }
    if (h->pieces)
        memset(h->seen, 0, SEEN * sizeof(*h->seen));
    h->pieces = 0;
    h->told = false;
    h->failed.code = 0;
    gpu_drive_reset(h->drive,
                    &ignored); /* if it cannot be started anew, the next command says so */
}

/* The log had the reply to the one that was due. */
static void answered(struct gpu_host *h, u64 number)
{
    const struct pending *p = &h->list[h->first];
    if (!h->count || p->number != number)
        return;
    if (p->driven.reply)
        renderer_forget(renderer(h), p->driven.main);
    renderer_forget(renderer(h), p->fence);
    h->first = (h->first + 1) % UNDER_WAY;
    h->count--;
}

void gpu_host_follow(struct gpu_host *h)
{
    h->follows = true;
}

void gpu_host_live(struct gpu_host *h, u64 pieces)
{
    h->follows = false;
    h->pieces = pieces; /* none of which can be named again: which they were is not known here */
}

void gpu_host_emit(struct gpu_host *h, const struct dev_gpu *what)
{
    if (what->what == DEV_GPU_TAKEN)
        taken(h, what);
    else if (what->what == DEV_GPU_ANSWERED && h->follows)
        answered(h, what->number);
    else if (what->what == DEV_GPU_LOST && h->follows)
        h->told = true;
    else if (what->what == DEV_GPU_RESET)
        reset(h);
}

/* ---- to the machine ---- */

static u32 response_of(u32 result)
{
    switch (result) {
    case WIRE_R_OK: return VIRTIO_GPU_RESP_OK_NODATA;
    case WIRE_R_NO_CONTEXT: return VIRTIO_GPU_RESP_ERR_INVALID_CONTEXT_ID;
    case WIRE_R_NO_RESOURCE:
    case WIRE_R_EXISTS: return VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID;
    case WIRE_R_MALFORMED:
    case WIRE_R_INVALID:
    case WIRE_R_NO_BACKING: return VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER;
    case WIRE_R_BUDGET: return VIRTIO_GPU_RESP_ERR_OUT_OF_MEMORY;
    default: return VIRTIO_GPU_RESP_ERR_UNSPEC;
    }
}

/* The number of a piece that the device has; adds it (then the device must get it) if it has not.
 */
static bool seen(struct gpu_host *h, const u8 *piece, u64 *number)
{
    XXH128_hash_t hash = XXH3_128bits(piece, GPU_KEPT_PIECE);
    struct seen *s = &h->seen[hash.low64 % SEEN];
    *number = s->number - 1;
    if (s->number && XXH128_isEqual(s->hash, hash) && h->pieces - *number <= GPU_KEPT_PAGES)
        return true;
    *s = (struct seen){hash, ++h->pieces};
    return false;
}

/* Adds operations for what is left of a source; false: no more room. */
static bool put_ranges(struct gpu_host *h, struct source *s, struct cursor *c)
{
    const struct renderer_reply *r = s->reply;
    if (r && !s->data)
        s->data = r->data;
    while (r && s->range < r->range_count) {
        const struct wire_range *range = &r->ranges[s->range];
        u64 number, len = MIN(range->size - s->at, (u64)GPU_KEPT_PIECE);
        if (c->end - c->at < len + OP_MAX)
            return false;
        if (len) {
            bool same = len == GPU_KEPT_PIECE && seen(h, s->data, &number);
            cursor_put_varint(c, same ? GPU_OP_SAME : GPU_OP_WRITE);
            cursor_put_varint(c, range->resource);
            cursor_put_varint(c, range->offset + s->at);
            cursor_put_varint(c, same ? number : len);
            if (!same)
                cursor_put(c, s->data, len);
        }
        s->data += len;
        s->at += len;
        if (s->at == range->size) {
            s->range++;
            s->at = 0;
        }
    }
    return true;
}

static void put_text(struct cursor *c, const char *text)
{
    size_t len = MIN(strlen(text), (size_t)400);
    cursor_put_varint(c, len);
    cursor_put(c, text, len);
}

/* Contexts that met an error, the renderer's death, the answer. They take little room. */
static void put_end(struct gpu_host *h, const struct pending *p, struct cursor *c)
{
    const struct renderer_reply *fence = h->fence.reply;
    u32 result = WIRE_R_LOST;
    for (u32 i = 0; fence && i < MIN(fence->fault_count, 16u); i++) {
        cursor_put_varint(c, GPU_OP_FAULT);
        cursor_put_varint(c, fence->faults[i].context);
        put_text(c, fence->faults[i].text);
    }
    if (fence && fence->result != WIRE_R_LOST && !p->lost)
        result = !p->driven.main   ? WIRE_R_OK
                 : p->driven.reply ? (h->main.reply ? h->main.reply->result : WIRE_R_LOST)
                                   : renderer_result(fence, p->driven.main);
    if (result == WIRE_R_LOST && !h->told) {
        const char *why = gpu_host_death(h);
        cursor_put_varint(c, GPU_OP_LOST);
        put_text(c, why ? why : "it does not answer");
        h->told = true;
    }
    cursor_put_varint(c, GPU_OP_DONE);
    cursor_put_varint(c, response_of(result));
}

static bool collect(struct gpu_host *h, const struct pending *p, u32 milliseconds)
{
    struct renderer *r = renderer(h);
    if (h->started)
        return true;
    if (p->driven.reply && !h->main.reply)
        h->main.reply = renderer_wait(r, p->driven.main, milliseconds);
    /* In this order: a fence that comes when the time for the reply before it was over finds that
     * reply here as well, and without it the command would count as lost. */
    if (p->driven.reply && !h->main.reply && !renderer_death(r))
        return false;
    if (!h->fence.reply)
        h->fence.reply = renderer_wait(r, p->fence, milliseconds);
    h->started = h->fence.reply || renderer_death(r);
    return h->started;
}

bool gpu_host_reply(struct gpu_host *h, u64 number, u32 milliseconds, struct input *in)
{
    const struct pending *p = &h->list[h->first];
    CHECK(h->count && p->number == number, "GPU command %llu waits for a reply that is not owed",
          (unsigned long long)number);
    if (!collect(h, p, milliseconds))
        return false;
    struct cursor c = {.out = h->out, .end = sizeof(h->out) - 16 * 512};
    if (put_ranges(h, &h->main, &c) && put_ranges(h, &h->fence, &c)) {
        c.end = sizeof(h->out);
        put_end(h, p, &c);
        drop_reply(h);
        h->first = (h->first + 1) % UNDER_WAY;
        h->count--;
    }
    *in = (struct input){.kind = INPUT_GPU, .len = (u32)c.at, .data = h->out};
    return true;
}

/* ---- pictures ---- */

int gpu_host_read(struct gpu_host *h, u32 resource, u32 x, u32 y, u32 width, u32 height, u8 *out,
                  struct err *err)
{
    struct wire_box box = {x, y, 0, width, height, 1};
    if (h->failed.code)
        return err_set(err, h->failed.code, "there is no picture: %s", h->failed.text);
    u64 seq = renderer_read(renderer(h), resource, 0, &box, WIRE_BGRA);
    struct renderer_reply *r = renderer_wait(renderer(h), seq, READ_WAIT);
    int code = 0;
    if (!r)
        renderer_forget(renderer(h), seq);
    if (!r)
        code = err_set(err, -ETIMEDOUT, "the renderer gives no picture");
    else if (r->result != WIRE_R_OK || r->width != width || r->height != height ||
             r->row_bytes < width * 4 || r->data_size < (u64)r->row_bytes * height)
        code = err_set(err, -EIO, "the renderer gives no picture: %s", wire_result_text(r->result));
    for (u32 row = 0; !code && row < height; row++)
        memcpy(out + (size_t)row * width * 4, r->data + (size_t)row * r->row_bytes,
               (size_t)width * 4);
    free(r);
    return code;
}
