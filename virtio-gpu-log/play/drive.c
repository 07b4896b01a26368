/* See drive.h. What exists is kept here too, so that uploads and replies can be checked against it;
 * the renderer checks everything once more. */
#include "virtio-gpu-log/play/drive.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define BUCKETS 8192u
/* More than any renderer's budget: what is beyond it is refused there. */
#define RESOURCES_MAX 65536u
/* Of an upload, so that each piece is one request. */
#define PIECE (1u << 20)

/* What a 2D resource may be used for: sampled by contexts, drawn to. */
#define BIND_2D (1u << 1 | 1u << 3)

struct driven_resource {
    u32 id;
    bool attached;
    u64 backing;
    struct gpu_shape shape;
    struct driven_resource *next;
};

struct gpu_drive {
    struct renderer *renderer;
    struct renderer_config config; /* its strings are ours */
    struct driven_resource *buckets[BUCKETS];
    u32 resources;
    u32 *words; /* the buffer of a submit, aligned and as the renderer gets it */
    size_t room;
};

static int no_memory(struct err *err)
{
    return err_set(err, -ENOMEM, "no memory for the renderer's commands");
}

static bool copy_text(const char **to, const char *text)
{
    *to = text ? strdup(text) : NULL;
    return *to || !text;
}

int gpu_drive_create(struct gpu_drive **out, const struct renderer_config *config, struct err *err)
{
    *out = NULL;
    struct gpu_drive *d = calloc(1, sizeof(*d));
    if (!d)
        return no_memory(err);
    d->config = *config;
    bool copied = copy_text(&d->config.program, config->program);
    copied = copy_text(&d->config.driver, config->driver) && copied;
    int code = copied ? renderer_create(&d->renderer, &d->config, err) : no_memory(err);
    if (code)
        gpu_drive_destroy(d);
    else
        *out = d;
    return code;
}

static void forget(struct gpu_drive *d)
{
    for (u32 i = 0; d->resources && i < BUCKETS; i++)
        while (d->buckets[i]) {
            struct driven_resource *r = d->buckets[i];
            d->buckets[i] = r->next;
            free(r);
        }
    d->resources = 0;
}

void gpu_drive_destroy(struct gpu_drive *d)
{
    if (!d)
        return;
    forget(d);
    renderer_destroy(d->renderer);
    free((char *)(uintptr_t)d->config.program);
    free((char *)(uintptr_t)d->config.driver);
    free(d->words);
    free(d);
}

struct renderer *gpu_drive_renderer(struct gpu_drive *d)
{
    return d->renderer;
}

int gpu_drive_reset(struct gpu_drive *d, struct err *err)
{
    forget(d);
    if (!renderer_death(d->renderer)) {
        renderer_reset(d->renderer);
        return 0;
    }
    struct renderer *fresh;
    int code = renderer_create(&fresh, &d->config, err);
    if (code)
        return code; /* the dead one stays: whoever asks it learns why */
    renderer_destroy(d->renderer);
    d->renderer = fresh;
    return 0;
}

/* --- Resources --- */

/* Guests choose the ids: seeded with what they do not know, or they could choose ones that collide.
 */
static struct driven_resource **link_of(const struct gpu_drive *d, u32 id)
{
    u64 bucket = XXH3_64bits_withSeed(&id, sizeof(id), (uintptr_t)d) % BUCKETS;
    struct driven_resource **link = (struct driven_resource **)(uintptr_t)&d->buckets[bucket];
    while (*link && (*link)->id != id)
        link = &(*link)->next;
    return link;
}

static struct driven_resource *find(const struct gpu_drive *d, u32 id)
{
    return *link_of(d, id);
}

bool gpu_drive_backing(const struct gpu_drive *d, u32 resource, u64 offset, u64 size)
{
    const struct driven_resource *r = find(d, resource);
    return r && r->attached && offset <= r->backing && size <= r->backing - offset;
}

bool gpu_drive_shape(const struct gpu_drive *d, u32 resource, struct gpu_shape *out)
{
    const struct driven_resource *r = find(d, resource);
    if (r)
        *out = r->shape;
    return r != NULL;
}

/* --- Commands --- */

/* Notes a request of the command. */
static u64 note(struct gpu_driven *out, u64 seq)
{
    if (!out->first)
        out->first = seq;
    out->last = seq;
    return seq;
}

static int create(struct gpu_drive *d, const struct gpu_command *c, u32 id,
                  const struct gpu_shape *shape, struct gpu_driven *out, struct err *err)
{
    bool two_d = c->type == VIRTIO_GPU_CMD_RESOURCE_CREATE_2D;
    struct driven_resource **link = link_of(d, id);
    if (!id || *link || d->resources == RESOURCES_MAX)
        return 0;
    struct driven_resource *r = calloc(1, sizeof(*r));
    if (!r)
        return no_memory(err);
    r->id = id;
    r->shape = *shape;
    *link = r;
    d->resources++;
    /* The library does not have the one 2D format; another has the same bytes. */
    u32 format = two_d && shape->format == VIRGL_FORMAT_X8B8G8R8_UNORM ? VIRGL_FORMAT_A8B8G8R8_UNORM
                                                                       : shape->format;
    /* Not Y_0_TOP, 2D or not: the first row of memory is the first row of the texture, as a context
     * of the guest that samples it or draws to it expects. */
    struct wire_resource_create w = {.resource = id,
                                     .target = shape->target,
                                     .format = format,
                                     .bind = two_d ? BIND_2D : shape->bind,
                                     .width = shape->width,
                                     .height = shape->height,
                                     .depth = shape->depth,
                                     .array_size = shape->array_size,
                                     .last_level = shape->last_level,
                                     .nr_samples = shape->nr_samples,
                                     .flags = shape->flags};
    out->main = note(out, renderer_resource_create(d->renderer, &w));
    return 0;
}

static u64 unref(struct gpu_drive *d, u32 id, struct gpu_driven *out)
{
    struct driven_resource **link = link_of(d, id), *r = *link;
    if (!r)
        return 0;
    *link = r->next;
    free(r);
    d->resources--;
    return note(out, renderer_resource_unref(d->renderer, id));
}

static u64 attach(struct gpu_drive *d, const struct gpu_command *c, struct gpu_driven *out)
{
    struct driven_resource *r = find(d, gpu_u32(c->bytes + GPU_HEADER));
    if (!r || r->attached)
        return 0;
    r->attached = true;
    r->backing = gpu_command_backing(c);
    return note(out, renderer_attach_backing(d->renderer, r->id, r->backing));
}

static u64 detach(struct gpu_drive *d, u32 id, struct gpu_driven *out)
{
    struct driven_resource *r = find(d, id);
    if (!r || !r->attached)
        return 0;
    r->attached = false;
    r->backing = 0;
    return note(out, renderer_detach_backing(d->renderer, id));
}

static void upload(struct gpu_drive *d, const struct gpu_range *uploads, u32 count,
                   struct gpu_driven *out)
{
    for (u32 i = 0; i < count; i++) {
        const struct gpu_range *u = &uploads[i];
        if (!u->bytes.data || !gpu_drive_backing(d, u->resource, u->offset, u->bytes.size))
            continue;
        for (u64 at = 0; at < u->bytes.size; at += PIECE)
            note(out,
                 renderer_write_backing(d->renderer, u->resource, u->offset + at,
                                        u->bytes.data + at, MIN(u->bytes.size - at, (u64)PIECE)));
    }
}

static u64 transfer(struct gpu_drive *d, const struct gpu_transfer *t, struct gpu_driven *out)
{
    /* A stride of 0 is that of the whole level: what a 2D transfer means. */
    struct wire_transfer w = {.resource = t->resource,
                              .level = t->level,
                              .stride = t->stride,
                              .layer_stride = t->layer_stride,
                              .box = {t->box.x, t->box.y, t->box.z, t->box.w, t->box.h, t->box.d},
                              .offset = t->offset};
    if (!find(d, t->resource))
        return 0;
    if (t->to_host)
        return note(out, renderer_transfer_to_host(d->renderer, &w));
    out->reply = true;
    return note(out, renderer_transfer_from_host(d->renderer, &w));
}

static int submit(struct gpu_drive *d, const struct gpu_command *c, struct gpu_driven *out,
                  struct err *err)
{
    if (!virgl_check(c->payload, c->payload_size, NULL))
        return 0;
    if (c->payload_size > d->room) {
        u32 *words = malloc(c->payload_size);
        if (!words)
            return no_memory(err);
        free(d->words);
        d->words = words;
        d->room = c->payload_size;
    }
    if (c->payload_size)
        memcpy(d->words, c->payload, c->payload_size);
    virgl_for_renderer(d->words, c->payload_size);
    out->main = note(out, renderer_submit(d->renderer, c->ctx, d->words, c->payload_size / 4));
    return 0;
}

static u64 context_create(struct gpu_drive *d, const struct gpu_command *c, struct gpu_driven *out)
{
    struct virtio_gpu_ctx_create args;
    memcpy(&args, c->bytes, sizeof(args));
    size_t length = strnlen(args.debug_name, MIN(args.nlen, (u32)sizeof(args.debug_name)));
    return note(out, renderer_context_create(d->renderer, c->ctx, args.debug_name, length));
}

int gpu_drive_command(struct gpu_drive *d, const struct gpu_command *c,
                      const struct gpu_range *uploads, u32 count, struct gpu_driven *out,
                      struct err *err)
{
    struct gpu_shape shape;
    struct gpu_transfer t;
    u32 id;
    *out = (struct gpu_driven){0};
    if (c->response || c->desc->queue != GPU_QUEUE_control)
        return 0;
    upload(d, uploads, count, out);
    if (gpu_command_shape(c, &id, &shape))
        return create(d, c, id, &shape, out, err);
    if (gpu_command_transfer(c, &t)) {
        out->main = transfer(d, &t, out);
        return 0;
    }
    id = c->size >= GPU_HEADER + 4 ? gpu_u32(c->bytes + GPU_HEADER) : 0;
    switch (c->type) {
    case VIRTIO_GPU_CMD_RESOURCE_UNREF: out->main = unref(d, id, out); break;
    case VIRTIO_GPU_CMD_RESOURCE_ATTACH_BACKING: out->main = attach(d, c, out); break;
    case VIRTIO_GPU_CMD_RESOURCE_DETACH_BACKING: out->main = detach(d, id, out); break;
    case VIRTIO_GPU_CMD_CTX_CREATE: out->main = context_create(d, c, out); break;
    case VIRTIO_GPU_CMD_CTX_DESTROY:
        out->main = note(out, renderer_context_destroy(d->renderer, c->ctx));
        break;
    case VIRTIO_GPU_CMD_CTX_ATTACH_RESOURCE:
        out->main = note(out, renderer_context_attach(d->renderer, c->ctx, id));
        break;
    case VIRTIO_GPU_CMD_CTX_DETACH_RESOURCE:
        out->main = note(out, renderer_context_detach(d->renderer, c->ctx, id));
        break;
    case VIRTIO_GPU_CMD_SUBMIT_3D: return submit(d, c, out, err);
    default: break;
    }
    return 0;
}
