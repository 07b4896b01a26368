/*
 * See serve.h. One request after the other, to its end: the client may send far ahead, nothing here
 * overtakes. Every size and id is checked here or in objects.c before the library sees it.
 */
#define _GNU_SOURCE
#include "virtio-gpu-log/renderer/serve.h"
#include "virtio-gpu-log/renderer/objects.h"
#include "virtio-gpu-log/renderer/sandbox.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define RUNS_MAX   65536u
#define FAULTS_MAX 16u
/* Address space of a context: Mesa 25's llvmpipe takes 27 MiB, and ends where it gets none. */
#define CONTEXT_BYTES (32ull << 20)

/* Bytes that grow; `failed` stays set once there was no memory. */
struct bytes {
    u8 *data;
    size_t used, room;
    bool failed;
};

struct server {
    int fd;
    struct host *h;
    struct objects o;
    bool greeted;
    struct wire_run *runs; /* since the last fence */
    u32 run_count, fault_count;
    struct wire_fault faults[FAULTS_MAX];
    struct bytes ranges, data; /* of the reply that is being made */
    u32 range_count;
    u8 *scratch;
    size_t scratch_size;
    u8 *in; /* WIRE_REQUEST_MAX */
    size_t in_used;
};

/* Memory */

static u8 *more(struct bytes *b, size_t size)
{
    if (b->used + size > WIRE_REPLY_MAX)
        b->failed = true;
    if (b->failed)
        return NULL;
    if (b->used + size > b->room) {
        size_t room = MAX(b->used + size, b->room * 2);
        u8 *grown = realloc(b->data, room);
        if (!grown) {
            b->failed = true;
            return NULL;
        }
        b->data = grown;
        b->room = room;
    }
    b->used += size;
    return b->data + b->used - size;
}

static void clear(struct bytes *b)
{
    /* What one big picture took is not kept. */
    if (b->room > 16u << 20) {
        free(b->data);
        *b = (struct bytes){0};
    }
    b->used = 0;
    b->failed = false;
}

static u8 *scratch(struct server *s, size_t size)
{
    if (size > s->scratch_size) {
        free(s->scratch);
        s->scratch = malloc(size);
        s->scratch_size = s->scratch ? size : 0;
    }
    if (s->scratch)
        memset(s->scratch, 0, size);
    return s->scratch;
}

/* Results and replies */

static void note(struct server *s, u64 seq, u32 result)
{
    struct wire_run *last = s->run_count ? &s->runs[s->run_count - 1] : NULL;
    if (last && last->seq + last->count == seq && last->count < UINT32_MAX &&
        (last->result == result || last->result == WIRE_R_NOT_KEPT)) {
        last->count++;
        return;
    }
    if (s->run_count == RUNS_MAX)
        return;
    if (s->run_count == RUNS_MAX - 1)
        result = WIRE_R_NOT_KEPT;
    s->runs[s->run_count++] = (struct wire_run){seq, 1, result};
}

static void fault(struct server *s, struct context *c, const char *text)
{
    c->latched = true;
    if (s->fault_count == FAULTS_MAX)
        return;
    struct wire_fault *f = &s->faults[s->fault_count++];
    *f = (struct wire_fault){.context = c->id};
    snprintf(f->text, sizeof(f->text), "%s", text);
}

static bool put(int fd, const void *data, size_t size)
{
    const u8 *at = data;
    while (size) {
        ssize_t n = send(fd, at, size, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        size -= (size_t)n;
    }
    return true;
}

static void range(struct server *s, u32 resource, u64 offset, const u8 *bytes, size_t size)
{
    struct wire_range *last =
        s->range_count ? (struct wire_range *)(void *)(s->ranges.data + s->ranges.used) - 1 : NULL;
    if (last && last->resource == resource && last->offset + last->size == offset) {
        last->size += (u32)size;
    } else {
        struct wire_range r = {resource, (u32)size, offset};
        u8 *to = more(&s->ranges, sizeof(r));
        if (!to)
            return;
        memcpy(to, &r, sizeof(r));
        s->range_count++;
    }
    u8 *to = more(&s->data, size);
    if (to)
        memcpy(to, bytes, size);
}

/* `r` has result and sizes of pixels; ranges and data were gathered. */
static bool reply(struct server *s, const struct wire_header *q, struct wire_reply r, bool fence)
{
    u32 runs = fence ? s->run_count : 0, faults = fence ? s->fault_count : 0;
    if (s->ranges.failed || s->data.failed)
        r.result = WIRE_R_BUDGET;
    if (r.result != WIRE_R_OK && r.result != WIRE_R_LOST) {
        s->ranges.used = s->data.used = 0;
        s->range_count = 0;
    }
    u64 size = sizeof(struct wire_header) + sizeof(r) + runs * sizeof(struct wire_run) +
               faults * sizeof(struct wire_fault) + s->ranges.used + s->data.used;
    if (size > WIRE_REPLY_MAX) {
        size -= s->ranges.used + s->data.used;
        s->ranges.used = s->data.used = 0;
        s->range_count = 0;
        r.result = WIRE_R_BUDGET;
    }
    r.runs = runs;
    r.faults = faults;
    r.ranges = s->range_count;
    r.data_size = s->data.used;
    struct wire_header head = {(u32)size, q->type | WIRE_REPLY, q->seq};
    bool ok = put(s->fd, &head, sizeof(head)) && put(s->fd, &r, sizeof(r)) &&
              put(s->fd, s->runs, runs * sizeof(struct wire_run)) &&
              put(s->fd, s->faults, faults * sizeof(struct wire_fault)) &&
              put(s->fd, s->ranges.data, s->ranges.used) && put(s->fd, s->data.data, s->data.used);
    clear(&s->ranges);
    clear(&s->data);
    s->range_count = 0;
    if (fence)
        s->run_count = s->fault_count = 0;
    return ok;
}

/* Objects */

static u32 do_context(struct server *s, u32 type, const struct wire_context *b, const u8 *tail,
                      size_t size)
{
    char name[65] = "";
    if (type == WIRE_CONTEXT_DESTROY) {
        if (!objects_context(&s->o, b->context))
            return WIRE_R_NO_CONTEXT;
        host_context_destroy(s->h, b->context);
        objects_remove_context(&s->o, b->context);
        return WIRE_R_OK;
    }
    u32 r = objects_add_context(&s->o, b->context);
    if (r)
        return r;
    memcpy(name, tail, MIN(size, sizeof(name) - 1));
    r = host_context_create(s->h, b->context, name);
    if (r)
        objects_remove_context(&s->o, b->context);
    return r;
}

static u32 do_pair(struct server *s, u32 type, const struct wire_pair *b)
{
    if (!objects_context(&s->o, b->context))
        return WIRE_R_NO_CONTEXT;
    if (!objects_resource(&s->o, b->resource))
        return WIRE_R_NO_RESOURCE;
    host_context_attach(s->h, b->context, b->resource, type == WIRE_CONTEXT_ATTACH);
    return WIRE_R_OK;
}

static u32 do_create(struct server *s, const struct wire_resource_create *b)
{
    u32 r = objects_add_resource(&s->o, b);
    if (r)
        return r;
    r = host_resource_create(s->h, b);
    if (r)
        objects_remove_resource(&s->o, b->resource);
    return r;
}

static void detach(struct server *s, struct resource *r)
{
    if (r->shadow)
        host_detach(s->h, r->args.resource);
    objects_detach(&s->o, r);
}

static u32 do_resource(struct server *s, u32 type, u32 id)
{
    struct resource *r = objects_resource(&s->o, id);
    if (!r)
        return WIRE_R_NO_RESOURCE;
    if (type == WIRE_DETACH_BACKING && !r->shadow)
        return WIRE_R_NO_BACKING;
    detach(s, r);
    if (type == WIRE_RESOURCE_UNREF) {
        host_resource_unref(s->h, id);
        objects_remove_resource(&s->o, id);
    }
    return WIRE_R_OK;
}

static u32 do_backing(struct server *s, u32 type, const struct wire_backing *b, const u8 *tail,
                      size_t size)
{
    struct resource *r = objects_resource(&s->o, b->resource);
    if (!r)
        return WIRE_R_NO_RESOURCE;
    if (type == WIRE_ATTACH_BACKING) {
        u32 result = objects_attach(&s->o, r, b->offset);
        if (result)
            return result;
        result = host_attach(s->h, b->resource, r->shadow->shared, r->shadow->size);
        if (result)
            objects_detach(&s->o, r);
        return result;
    }
    if (!r->shadow)
        return WIRE_R_NO_BACKING;
    if (b->offset > r->shadow->size || size > r->shadow->size - b->offset)
        return WIRE_R_INVALID;
    shadow_write(r->shadow, b->offset, tail, size);
    return WIRE_R_OK;
}

/* Pixels */

static bool multisampled(const struct resource *r)
{
    return r->args.nr_samples > 1;
}

/* The layer-th layer of a box: the library moves only one at a time. */
static struct wire_box layer_box(const struct wire_box *box, u32 layer)
{
    struct wire_box b = *box;
    b.z += layer;
    b.d = 1;
    return b;
}

/* One layer of a box, packed, to `out`. A part of a level is right only where OpenGL can render to
 * the format; of the others (compressed, L8_SRGB) the library gives another part: so the whole. */
static u32 read_layer(struct server *s, const struct resource *r, u32 level,
                      const struct wire_box *box, const struct layout *l, u8 *out)
{
    u32 id = r->args.resource, format = r->args.format;
    struct wire_box whole;
    struct layout w;
    resource_level(r, level, &whole);
    /* Where it cannot render to the format, 1.1 of the library wants room for all layers. */
    u32 layers = whole.d;
    whole.z = box->z;
    whole.d = 1;
    bool all = box->w == whole.w && box->h == whole.h;
    bool renders =
        format < 16 * 32 && model_caps(WIRE_MODEL_NEWEST)->render[format / 32] >> format % 32 & 1;
    if ((all && layers == 1) || renders || r->args.target == TARGET_BUFFER)
        return host_transfer(s->h, false, id, level, (u32)l->row_bytes, box, out,
                             l->row_bytes * l->rows);
    resource_layout(r, level, &whole, 0, 0, &w);
    u8 *memory = scratch(s, w.span * layers);
    if (!memory)
        return WIRE_R_BUDGET;
    u32 result =
        host_transfer(s->h, false, id, level, (u32)w.row_bytes, &whole, memory, w.span * layers);
    const u8 *from = memory + (u64)(box->y / r->block.h) * w.row_bytes +
                     (u64)(box->x / r->block.w) * r->block.bytes;
    for (u32 row = 0; row < l->rows; row++)
        memcpy(out + row * l->row_bytes, from + row * w.row_bytes, l->row_bytes);
    return result;
}

static u32 to_host(struct server *s, const struct wire_transfer *t, const struct resource *r,
                   const struct layout *l)
{
    u64 bytes = (l->rows - 1) * l->stride + l->row_bytes;
    for (u32 layer = 0; layer < l->layers; layer++) {
        struct wire_box box = layer_box(&t->box, layer);
        u64 at = t->offset + layer * l->layer_stride;
        u8 *memory = r->shadow->shared + at;
        if (!format_reads_back(r->args.format)) {
            /* Converted in place: not in the shadow. */
            memory = scratch(s, bytes);
            if (!memory)
                return WIRE_R_BUDGET;
            memcpy(memory, r->shadow->own + at, bytes);
        }
        u32 result =
            host_transfer(s->h, true, t->resource, t->level, (u32)l->stride, &box, memory, bytes);
        if (result)
            return result;
    }
    return WIRE_R_OK;
}

/* A buffer that is memory of the library's or of nobody: what it gives is found by reading over
 * zeros, then over ones. */
static u32 from_memory(struct server *s, const struct wire_transfer *t, u64 size)
{
    u8 *zeros = scratch(s, size * 2);
    if (!zeros)
        return WIRE_R_BUDGET;
    u8 *ones = zeros + size;
    memset(ones, 0xff, size);
    for (int i = 0; i < 2; i++) {
        u32 result =
            host_transfer(s->h, false, t->resource, t->level, 0, &t->box, i ? ones : zeros, size);
        if (result)
            return result;
    }
    for (u64 i = 0; i < size; i++)
        if (zeros[i] == ones[i])
            range(s, t->resource, t->offset + i, zeros + i, 1);
    return WIRE_R_OK;
}

static u32 from_host(struct server *s, const struct wire_transfer *t, const struct resource *r,
                     const struct layout *l)
{
    /* The reply would be too long: before anything is read. */
    if ((l->row_bytes + sizeof(struct wire_range)) * l->rows * l->layers > WIRE_REPLY_MAX / 2)
        return WIRE_R_BUDGET;
    if (r->args.target == TARGET_BUFFER && r->args.bind & BIND_HAS_NO_COPY)
        return from_memory(s, t, l->row_bytes);
    u64 bytes = l->row_bytes * l->rows;
    u8 *memory = calloc(1, bytes);
    u32 result = memory ? WIRE_R_OK : WIRE_R_BUDGET;
    for (u32 layer = 0; layer < l->layers && !result; layer++) {
        struct wire_box box = layer_box(&t->box, layer);
        result = read_layer(s, r, t->level, &box, l, memory);
        for (u32 row = 0; row < l->rows && !result; row++)
            range(s, t->resource, t->offset + layer * l->layer_stride + row * l->stride,
                  memory + row * l->row_bytes, l->row_bytes);
    }
    free(memory);
    return result;
}

static u32 do_transfer(struct server *s, u32 type, const struct wire_transfer *t)
{
    struct resource *r = objects_resource(&s->o, t->resource);
    struct layout l;
    if (!r)
        return WIRE_R_NO_RESOURCE;
    if (!r->shadow)
        return WIRE_R_NO_BACKING;
    if (!resource_layout(r, t->level, &t->box, t->stride, t->layer_stride, &l))
        return WIRE_R_INVALID;
    if (t->offset > r->shadow->size || l.span > r->shadow->size - t->offset)
        return WIRE_R_INVALID;
    if (multisampled(r))
        return WIRE_R_UNREADABLE;
    return type == WIRE_TRANSFER_TO_HOST ? to_host(s, t, r, &l) : from_host(s, t, r, &l);
}

/* 4 bytes a pixel, from one order of channels to another. */
static void swizzle(u8 *pixels, u64 count, const u8 order[4], bool bgra)
{
    unsigned red = order[bgra ? 2 : 0] * 8u, green = order[1] * 8u, blue = order[bgra ? 0 : 2] * 8u;
    unsigned alpha = order[3] & 3 ? order[3] % 4 * 8u : 0;
    u32 opaque = order[3] == 4 ? 0xff000000u : 0;
    u32 *p = (u32 *)(void *)pixels;
    if (red == 0 && green == 8 && blue == 16 && order[3] == 3)
        return;
    for (u64 i = 0; i < count; i++)
        p[i] = (p[i] >> red & 0xff) | (p[i] >> green & 0xff) << 8 | (p[i] >> blue & 0xff) << 16 |
               (p[i] >> alpha & 0xff) << 24 | opaque;
}

static u32 do_read(struct server *s, const struct wire_read *q, struct wire_reply *out)
{
    struct resource *r = objects_resource(&s->o, q->resource);
    struct wire_box box = q->box;
    struct layout l;
    u8 order[4];
    if (!r)
        return WIRE_R_NO_RESOURCE;
    if (q->layout > WIRE_RGBA || q->level > r->args.last_level)
        return WIRE_R_INVALID;
    if (!box.w)
        resource_level(r, q->level, &box);
    if (!resource_layout(r, q->level, &box, 0, 0, &l))
        return WIRE_R_INVALID;
    if (multisampled(r) || !format_reads_back(r->args.format) ||
        (r->args.target == TARGET_BUFFER && r->args.bind & BIND_HAS_NO_COPY) ||
        (q->layout != WIRE_RAW && !format_channels(r->args.format, order)))
        return WIRE_R_UNREADABLE;
    u64 bytes = l.row_bytes * l.rows;
    if (bytes * l.layers > WIRE_REPLY_MAX / 2)
        return WIRE_R_BUDGET;
    for (u32 layer = 0; layer < l.layers; layer++) {
        struct wire_box one = layer_box(&box, layer);
        u8 *to = more(&s->data, bytes);
        if (!to)
            return WIRE_R_BUDGET;
        memset(to, 0, bytes);
        u32 result = read_layer(s, r, q->level, &one, &l, to);
        if (result)
            return result;
        if (q->layout != WIRE_RAW)
            swizzle(to, bytes / 4, order, q->layout == WIRE_BGRA);
    }
    out->width = box.w;
    out->height = box.h;
    out->depth = box.d;
    out->row_bytes = (u32)l.row_bytes;
    return WIRE_R_OK;
}

/* Commands */

static u32 do_submit(struct server *s, u32 id, const u8 *tail, size_t size)
{
    struct context *c = objects_context(&s->o, id);
    char text[WIRE_FAULT_TEXT];
    u32 which;
    if (!c)
        return WIRE_R_NO_CONTEXT;
    if (size % sizeof(u32))
        return WIRE_R_MALFORMED;
    if (c->latched)
        return WIRE_R_LATCHED;
    u8 *words = scratch(s, size ? size : 1); /* aligned, and the library's to change */
    if (!words)
        return WIRE_R_BUDGET;
    memcpy(words, tail, size);
    c->used = true;
    u32 result = host_submit(s->h, id, (u32 *)(void *)words, (u32)(size / sizeof(u32)));
    while (host_fault(s->h, &which, text)) {
        c = objects_context(&s->o, which);
        if (c && !c->latched)
            fault(s, c, text);
    }
    return result;
}

struct change {
    struct server *s;
    struct resource *r;
};

static void changed(void *opaque, u64 offset, size_t size)
{
    struct change *c = opaque;
    range(c->s, c->r->args.resource, offset, c->r->shadow->own + offset, size);
}

static void do_fence(struct server *s)
{
    host_finish(s->h);
    /* The error of a context that said nothing. */
    for (struct context *c = s->o.contexts; c; c = c->next) {
        if (c->used && !c->latched && !host_context_alive(s->h, c->id))
            fault(s, c, "takes no more commands");
        c->used = false;
    }
    for (u32 i = 0; shadow_any() && i < RESOURCE_BUCKETS; i++)
        for (struct resource *r = s->o.buckets[i]; r; r = r->next)
            if (r->shadow)
                shadow_changes(r->shadow, changed, &(struct change){s, r});
}

static void do_reset(struct server *s)
{
    while (s->o.contexts) {
        u32 id = s->o.contexts->id;
        host_context_destroy(s->h, id);
        objects_remove_context(&s->o, id);
    }
    for (u32 i = 0; i < RESOURCE_BUCKETS; i++)
        while (s->o.buckets[i])
            do_resource(s, WIRE_RESOURCE_UNREF, s->o.buckets[i]->args.resource);
}

/* The greeting */

static bool greet(struct server *s, const struct wire_header *q, const struct wire_hello *b,
                  const char *wrong)
{
    struct wire_hello_reply r = {
        WIRE_MAGIC, WIRE_VERSION, WIRE_R_OK, 0, MODEL_CAPSET_ID, MODEL_CAPSET_VERSION, 0, 0, 0, 0};
    char text[4096] = "", *problem = text;
    const struct virgl_caps *caps = model_caps(b->model);
    struct virgl_caps host;

    if (wrong)
        snprintf(text, sizeof(text), "%s", wrong);
    else if (b->magic != WIRE_MAGIC || b->version != WIRE_VERSION)
        snprintf(text, sizeof(text),
                 "reprise-gpu speaks version %u, reprise version %u: install both from one build",
                 WIRE_VERSION, b->version);
    else if (!caps)
        snprintf(text, sizeof(text), "no capability model %u: the newest is %u", b->model,
                 WIRE_MODEL_NEWEST);
    else {
        host_caps(s->h, &host);
        r.missing = model_missing(b->model, &host, text, sizeof(text));
        objects_init(&s->o, b);
        /* Address space is virtual: a shadow is mapped twice and has a copy. */
        char why[256];
        u64 memory = 2 * s->o.budget.texture_bytes + 3 * s->o.budget.backing_bytes +
                     s->o.budget.contexts * CONTEXT_BYTES + (2ull << 30);
        s->greeted = sandbox_enter(host_is_device(s->h), memory, why, sizeof(why));
        if (!s->greeted)
            snprintf(text, sizeof(text), "%s", why);
    }
    const char *driver = s->greeted ? host_driver(s->h) : "";
    r.result = s->greeted ? WIRE_R_OK : WIRE_R_REFUSED;
    r.capset_size = s->greeted ? sizeof(*caps) : 0;
    r.driver_size = (u32)strlen(driver);
    r.text_size = (u32)strlen(problem);
    u32 size = (u32)(sizeof(*q) + sizeof(r)) + r.capset_size + r.driver_size + r.text_size;
    struct wire_header head = {size, WIRE_HELLO | WIRE_REPLY, q->seq};
    return put(s->fd, &head, sizeof(head)) && put(s->fd, &r, sizeof(r)) &&
           put(s->fd, caps, r.capset_size) && put(s->fd, driver, r.driver_size) &&
           put(s->fd, problem, r.text_size) && s->greeted;
}

/* Messages */

static const struct {
    u32 body;
    bool tail, reply;
} shapes[] = {
#define X(name, number, body, tail, reply) [number] = {sizeof(body), tail, reply},
    WIRE_REQUESTS(X)
#undef X
};

/* False: the client is gone, or there is nothing to say to it any more. */
static bool handle(struct server *s, const struct wire_header *q, const u8 *at, const char *wrong)
{
    union {
        struct wire_hello hello;
        struct wire_context context;
        struct wire_resource resource;
        struct wire_pair pair;
        struct wire_resource_create create;
        struct wire_backing backing;
        struct wire_transfer transfer;
        struct wire_read read;
    } b = {0};
    bool known = q->type && q->type < ARRAY_SIZE(shapes);
    u32 body = known ? shapes[q->type].body : 0, size = q->size - (u32)sizeof(*q);
    struct wire_reply out = {0};
    u32 result = WIRE_R_MALFORMED;

    if (!s->greeted) {
        /* A first message that is none is answered, so that a client of another version learns. */
        memcpy(&b, at, MIN(size, sizeof(b.hello)));
        return greet(s, q, &b.hello, wrong);
    }
    if (known && size >= body && (size == body || shapes[q->type].tail)) {
        const u8 *tail = at + body;
        memcpy(&b, at, body);
        size -= body;
        result = WIRE_R_OK;
        switch (q->type) {
        case WIRE_CONTEXT_CREATE:
        case WIRE_CONTEXT_DESTROY: result = do_context(s, q->type, &b.context, tail, size); break;
        case WIRE_CONTEXT_ATTACH:
        case WIRE_CONTEXT_DETACH: result = do_pair(s, q->type, &b.pair); break;
        case WIRE_RESOURCE_CREATE: result = do_create(s, &b.create); break;
        case WIRE_RESOURCE_UNREF:
        case WIRE_DETACH_BACKING: result = do_resource(s, q->type, b.resource.resource); break;
        case WIRE_ATTACH_BACKING:
        case WIRE_WRITE_BACKING: result = do_backing(s, q->type, &b.backing, tail, size); break;
        case WIRE_TRANSFER_TO_HOST:
        case WIRE_TRANSFER_FROM_HOST: result = do_transfer(s, q->type, &b.transfer); break;
        case WIRE_SUBMIT: result = do_submit(s, b.context.context, tail, size); break;
        case WIRE_FENCE: do_fence(s); break;
        case WIRE_READ: result = do_read(s, &b.read, &out); break;
        case WIRE_RESET: do_reset(s); break;
        default: result = WIRE_R_MALFORMED; /* a second greeting */
        }
    }
    if (known && shapes[q->type].reply) {
        out.result = result;
        if (q->type != WIRE_FENCE)
            note(s, q->seq, result);
        return reply(s, q, out, q->type == WIRE_FENCE);
    }
    note(s, q->seq, result);
    return true;
}

int serve(int fd, struct host *h, const char *wrong)
{
    struct server *s = calloc(1, sizeof(*s));
    size_t at = 0;
    if (s) {
        s->fd = fd;
        s->h = h;
        s->in = malloc(WIRE_REQUEST_MAX);
        s->runs = malloc(RUNS_MAX * sizeof(*s->runs));
    }
    if (!s || !s->in || !s->runs) {
        fprintf(stderr, "reprise-gpu: out of memory\n");
        return 1;
    }
    for (;;) {
        struct wire_header q;
        size_t have = s->in_used - at;
        if (have >= sizeof(q)) {
            memcpy(&q, s->in + at, sizeof(q));
            if (q.size < sizeof(q) || q.size > WIRE_REQUEST_MAX) {
                fprintf(stderr, "reprise-gpu: a request of %u bytes: not the protocol\n", q.size);
                return 2;
            }
            if (have >= q.size) {
                if (!handle(s, &q, s->in + at + sizeof(q), wrong))
                    return s->greeted ? 0 : 1;
                at += q.size;
                continue;
            }
        }
        memmove(s->in, s->in + at, have);
        at = 0;
        s->in_used = have;
        ssize_t n = read(fd, s->in + have, WIRE_REQUEST_MAX - have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return 1;
        if (n == 0)
            return 0; /* the client is gone */
        s->in_used += (size_t)n;
    }
}
