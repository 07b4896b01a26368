/*
 * What the commands of virtio-gpu do (virtio 1.2, 5.7.6.8, and the 3D ones of virgl). Everything
 * that they read of guest memory is gathered here, once, where the command is taken: it is what the
 * device keeps (pixels of 2D resources), what the log holds, and what the renderer gets.
 */
#include <string.h>
#include <xxhash.h>

#include "dev/virtio/gpu_internal.h"
#include "virtio-gpu-log/log.h"

/* What no OpenGL implementation exceeds: products of these do not overflow. */
#define BUFFER_MAX  (1u << 30)
#define LAYERS_MAX  2048u
#define LEVELS_MAX  15u
#define SAMPLES_MAX 32u
#define TARGETS     9u /* of gallium */

/* Bytes of struct virgl_host_query_state, at offset 0 of a query's resource. */
#define QUERY_BYTES 16u

static void note(struct gpu_state *s, const void *bytes, u64 len)
{
    s->digest = XXH3_64bits_withSeed(bytes, len, s->digest);
}

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

/* ---- guest memory behind resources ---- */

/* What is not RAM reads as zeros. *at is gpu_backing_piece's. */
static void backing_read(struct virtio_gpu *g, const struct gpu_resource *r, u32 *at, u64 offset,
                         u8 *out, u64 len)
{
    const struct dev_env *env = g->v.dev->env;
    while (len) {
        gpa_t gpa;
        u64 part = gpu_backing_piece(&g->store, r, at, offset, len, &gpa);
        if (!part || !env->dma_read(env->machine, gpa, out, part))
            memset(out, 0, part ? part : len);
        if (!part)
            return;
        out += part;
        offset += part;
        len -= part;
    }
}

bool gpu_backing_write(struct virtio_gpu *g, u32 resource, u64 offset, const u8 *in, u64 len)
{
    const struct dev_env *env = g->v.dev->env;
    struct gpu_resource r;
    u32 at = 0;
    if (gpu_find(&g->store, resource, &r) < 0 || !r.entries)
        return false;
    u64 size = gpu_backing_size(&g->store, &r);
    if (offset > size || len > size - offset)
        return false;
    while (len) {
        gpa_t gpa;
        u64 part = gpu_backing_piece(&g->store, &r, &at, offset, len, &gpa);
        if (!part)
            return false; /* a list that is not in order: only a forged checkpoint has that */
        env->dma_write(env->machine, gpa, in, part); /* what is not RAM takes nothing */
        in += part;
        offset += part;
        len -= part;
    }
    return true;
}

/* ---- what a command reads of it ---- */

/* Room for `len` bytes; NULL: there is none. */
static u8 *upload(struct virtio_gpu *g, u32 at, u32 resource, u64 offset, u64 len)
{
    if (g->nranges == GPU_UPLOADS || len > GPU_UPLOAD_BYTES - g->uploaded)
        return NULL;
    u8 *to = g->upload + g->uploaded;
    g->ranges[g->nranges++] = (struct gpu_range){
        .at = at, .resource = resource, .offset = offset, .bytes = {.size = len, .data = to}};
    g->uploaded += len;
    return to;
}

/* Rows with much between them are read one by one. */
static u32 gather_extent(struct virtio_gpu *g, u32 at, u32 resource, const struct gpu_resource *r,
                         const struct gpu_extent *e)
{
    struct gpu_state *s = g->v.dev->state;
    u32 piece = 0;
    if (e->offset + e->size > gpu_backing_size(&g->store, r))
        return VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER;
    bool apart = e->rows > 1 && e->row <= e->stride / 2;
    u32 rows = apart ? e->rows : 1, layers = apart ? e->layers : 1;
    u64 len = apart ? e->row : e->size;
    for (u32 z = 0; z < layers; z++)
        for (u32 y = 0; y < rows; y++) {
            u64 offset = e->offset + z * e->layer_stride + y * e->stride;
            u8 *to = upload(g, at, resource, offset, len);
            if (!to)
                return VIRTIO_GPU_RESP_ERR_OUT_OF_MEMORY;
            backing_read(g, r, &piece, offset, to, len);
            note(s, to, len);
        }
    return 0;
}

static void shape_of(const struct gpu_resource *r, struct gpu_shape *out)
{
    *out = (struct gpu_shape){r->target, r->format,     r->bind,       r->width,   r->height,
                              r->depth,  r->array_size, r->last_level, r->samples, r->flags};
}

/* Also what a transfer from the host will write: only what then differs from this comes back. */
static u32 gather(struct virtio_gpu *g, u32 at, const struct gpu_transfer *t, struct gpu_extent *e)
{
    struct gpu_resource r, from;
    struct gpu_shape shape;
    if (gpu_find(&g->store, t->resource, &r) < 0 || gpu_find(&g->store, t->backing, &from) < 0)
        return VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID;
    shape_of(&r, &shape);
    if (!from.entries || gpu_transfer_extent(t, &shape, e))
        return VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER;
    return e->size ? gather_extent(g, at, t->backing, &from, e) : 0;
}

/* The first bytes of all resources of queries: a query's result lands there. */
static u32 gather_queries(struct virtio_gpu *g, u32 at)
{
    struct gpu_state *s = g->v.dev->state;
    struct gpu_resource r;
    for (int i = 0; g->store.queries && (i = gpu_next(&g->store, i, &r)) >= 0; i++) {
        if (!r.query || !r.entries)
            continue;
        u32 piece = 0;
        u64 len = MIN(gpu_backing_size(&g->store, &r), QUERY_BYTES);
        u8 *to = upload(g, at, r.id, 0, len);
        if (!to)
            return VIRTIO_GPU_RESP_ERR_OUT_OF_MEMORY;
        backing_read(g, &r, &piece, 0, to, len);
        note(s, to, len);
    }
    return 0;
}

/* ---- 2D ---- */

static u32 create_2d(struct virtio_gpu *g, u32 id, const struct gpu_shape *c)
{
    struct gpu_resource r;
    if (!id || gpu_find(&g->store, id, &r) >= 0)
        return VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID;
    if (!known_format(c->format) || !c->width || !c->height || c->width > GPU_EDGE_MAX ||
        c->height > GPU_EDGE_MAX)
        return VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER;
    r = (struct gpu_resource){.id = id,
                              .kind = GPU_2D,
                              .target = c->target,
                              .format = c->format,
                              .bind = c->bind,
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
    if (!within(&c->r, MIN(r.width, GPU_EDGE_MAX), MIN(r.height, GPU_EDGE_MAX)) ||
        c->r.width < 16 || c->r.height < 16)
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
    struct gpu_state *s = g->v.dev->state;
    struct gpu_resource r;
    if (gpu_find(&g->store, c->resource_id, &r) < 0)
        return VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID;
    if (!within(&c->r, r.width, r.height))
        return VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER;
    g->shown = s->scanout == c->resource_id;
    return VIRTIO_GPU_RESP_OK_NODATA;
}

/* The pixels are kept as well: the screen shows without a renderer. */
static u32 transfer_2d(struct virtio_gpu *g, const struct gpu_transfer *t)
{
    struct gpu_extent e;
    struct gpu_resource r;
    u32 refused = gather(g, 0, t, &e);
    gpu_find(&g->store, t->resource, &r);
    if (!refused && r.kind != GPU_2D)
        refused = VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER;
    if (refused)
        return refused;
    u64 stride = (u64)r.width * 4;
    for (u32 y = 0; e.size && y < e.rows; y++) {
        const u8 *row = g->nranges > 1 ? g->ranges[y].bytes.data : g->upload + y * e.stride;
        gpu_data_write(&g->store, r.pixels, (t->box.y + y) * stride + (u64)t->box.x * 4, row,
                       e.row);
    }
    return VIRTIO_GPU_RESP_OK_NODATA;
}

static u32 attach_backing(struct virtio_gpu *g, const struct gpu_command *c)
{
    struct gpu_resource r;
    u32 n = c->payload_size / (u32)sizeof(struct virtio_gpu_mem_entry);
    int slot = gpu_find(&g->store, gpu_u32(c->bytes + GPU_HEADER), &r);
    if (slot < 0)
        return VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID;
    if (r.entries || !n || n > GPU_ENTRIES)
        return VIRTIO_GPU_RESP_ERR_UNSPEC;
    u64 end = 0;
    for (u32 i = 0; i < n; i++) {
        struct virtio_gpu_mem_entry e;
        memcpy(&e, c->payload + i * sizeof(e), sizeof(e));
        end += e.length;
        g->entries[i] = (struct gpu_entry){e.addr, end};
    }
    return gpu_set_backing(&g->store, slot, g->entries, n) ? VIRTIO_GPU_RESP_OK_NODATA
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

/* ---- 3D ---- */

static u32 context_create(struct virtio_gpu *g, const struct gpu_command *c)
{
    struct virtio_gpu_ctx_create create;
    struct gpu_context x;
    memcpy(&create, c->bytes, sizeof(create));
    if (!c->ctx || gpu_context_find(&g->store, c->ctx, &x) >= 0)
        return VIRTIO_GPU_RESP_ERR_INVALID_CONTEXT_ID;
    x = (struct gpu_context){.id = c->ctx};
    x.name_len = MIN(create.nlen, (u32)sizeof(x.name));
    memcpy(x.name, create.debug_name, x.name_len);
    return gpu_context_add(&g->store, &x) < 0 ? VIRTIO_GPU_RESP_ERR_OUT_OF_MEMORY
                                              : VIRTIO_GPU_RESP_OK_NODATA;
}

static u32 context_command(struct virtio_gpu *g, const struct gpu_command *c)
{
    struct gpu_context x;
    struct gpu_resource r;
    int slot = gpu_context_find(&g->store, c->ctx, &x);
    if (slot < 0)
        return VIRTIO_GPU_RESP_ERR_INVALID_CONTEXT_ID;
    if (c->type == VIRTIO_GPU_CMD_CTX_DESTROY)
        gpu_context_remove(&g->store, slot);
    else if (gpu_find(&g->store, gpu_u32(c->bytes + GPU_HEADER), &r) < 0)
        return VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID;
    return VIRTIO_GPU_RESP_OK_NODATA;
}

static u32 create_3d(struct virtio_gpu *g, u32 id, const struct gpu_shape *c)
{
    struct gpu_resource r;
    bool buffer = c->target == 0;
    if (!id || gpu_find(&g->store, id, &r) >= 0)
        return VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID;
    if (c->target >= TARGETS || !c->width || c->width > (buffer ? BUFFER_MAX : GPU_EDGE_MAX) ||
        c->height > GPU_EDGE_MAX || c->depth > LAYERS_MAX || c->array_size > LAYERS_MAX ||
        c->last_level > LEVELS_MAX || c->nr_samples > SAMPLES_MAX ||
        (!buffer && !gpu_format(c->format)))
        return VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER;
    r = (struct gpu_resource){.id = id,
                              .kind = GPU_3D,
                              .target = c->target,
                              .format = c->format,
                              .bind = c->bind,
                              .width = c->width,
                              .height = MAX(1u, c->height),
                              .depth = MAX(1u, c->depth),
                              .array_size = MAX(1u, c->array_size),
                              .last_level = c->last_level,
                              .samples = c->nr_samples,
                              .flags = c->flags};
    return gpu_add(&g->store, &r, 0) < 0 ? VIRTIO_GPU_RESP_ERR_OUT_OF_MEMORY
                                         : VIRTIO_GPU_RESP_OK_NODATA;
}

static u32 submit(struct virtio_gpu *g, const struct gpu_command *c)
{
    struct gpu_context x;
    struct virgl_walk w;
    struct virgl_command v;
    struct virgl_query_info query;
    struct gpu_transfer t;
    struct gpu_extent e;
    u32 refused = 0;
    if (gpu_context_find(&g->store, c->ctx, &x) < 0)
        return VIRTIO_GPU_RESP_ERR_INVALID_CONTEXT_ID;
    if (!virgl_check(c->payload, c->payload_size, NULL))
        return VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER;
    bool results = false;
    virgl_walk_start(&w, c->payload, c->payload_size);
    while (!refused && virgl_next(&w, &v)) {
        if (virgl_transfer(&v, &t))
            refused = gather(g, v.at, &t, &e);
        else if (virgl_query(&v, &query))
            gpu_mark_query(&g->store, query.resource);
        else if (v.id == VIRGL_CCMD_GET_QUERY_RESULT && !results)
            refused = gather_queries(g, v.at), results = true;
    }
    return refused ? refused : VIRTIO_GPU_RESP_OK_NODATA;
}

/* ---- dispatch ---- */

static bool offered(const struct virtio_gpu *g, const struct gpu_desc *d)
{
    switch (d->feature) {
    case GPU_FEATURE_none: return true;
    case GPU_FEATURE_virgl: return virtio_has(&g->v, 1ull << VIRTIO_GPU_F_VIRGL);
    case GPU_FEATURE_edid: return virtio_has(&g->v, 1ull << VIRTIO_GPU_F_EDID);
    default: return false;
    }
}

u32 gpu_execute(struct virtio_gpu *g, const struct gpu_command *c)
{
    union {
        struct virtio_gpu_set_scanout set_scanout;
        struct virtio_gpu_resource_flush flush;
        struct virtio_gpu_cmd_get_edid edid;
        struct virtio_gpu_get_capset_info info;
        struct virtio_gpu_get_capset capset;
    } u;
    struct gpu_transfer t;
    struct gpu_shape shape;
    struct gpu_extent e;
    u32 id, refused;
    g->nranges = 0;
    g->uploaded = 0;
    g->shown = false;
    note(g->v.dev->state, c->bytes, c->size);
    if (c->response)
        return c->response;
    if (!offered(g, c->desc))
        return VIRTIO_GPU_RESP_ERR_UNSPEC;
    memset(&u, 0, sizeof(u));
    memcpy(&u, c->bytes, MIN(c->size, sizeof(u)));
    if (gpu_command_shape(c, &id, &shape))
        return c->type == VIRTIO_GPU_CMD_RESOURCE_CREATE_2D ? create_2d(g, id, &shape)
                                                            : create_3d(g, id, &shape);
    if (gpu_command_transfer(c, &t)) {
        if (t.two_d)
            return transfer_2d(g, &t);
        refused = gather(g, 0, &t, &e);
        return refused ? refused : VIRTIO_GPU_RESP_OK_NODATA;
    }
    switch (c->type) {
    case VIRTIO_GPU_CMD_RESOURCE_UNREF: return unref(g, gpu_u32(c->bytes + GPU_HEADER));
    case VIRTIO_GPU_CMD_SET_SCANOUT: return set_scanout(g, &u.set_scanout);
    case VIRTIO_GPU_CMD_RESOURCE_FLUSH: return flush(g, &u.flush);
    case VIRTIO_GPU_CMD_RESOURCE_ATTACH_BACKING: return attach_backing(g, c);
    case VIRTIO_GPU_CMD_RESOURCE_DETACH_BACKING:
        return detach_backing(g, gpu_u32(c->bytes + GPU_HEADER));
    case VIRTIO_GPU_CMD_GET_CAPSET_INFO:
        return u.info.capset_index ? VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER
                                   : VIRTIO_GPU_RESP_OK_CAPSET_INFO;
    case VIRTIO_GPU_CMD_GET_CAPSET:
        return u.capset.capset_id != g->config.capset_id ? VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER
                                                         : VIRTIO_GPU_RESP_OK_CAPSET;
    case VIRTIO_GPU_CMD_GET_EDID:
        return u.edid.scanout ? VIRTIO_GPU_RESP_ERR_INVALID_SCANOUT_ID : VIRTIO_GPU_RESP_OK_EDID;
    case VIRTIO_GPU_CMD_CTX_CREATE: return context_create(g, c);
    case VIRTIO_GPU_CMD_CTX_DESTROY:
    case VIRTIO_GPU_CMD_CTX_ATTACH_RESOURCE:
    case VIRTIO_GPU_CMD_CTX_DETACH_RESOURCE: return context_command(g, c);
    case VIRTIO_GPU_CMD_SUBMIT_3D: return submit(g, c);
    default: return c->desc->response; /* GET_DISPLAY_INFO */
    }
}
