/*
 * virtio GPU device (virtio 1.2, 5.7). A command is copied and carried out at the position of the
 * guest's notification: also what it reads of guest memory (backing), so that what the renderer
 * gets is a function of the guest's own run, and nothing of it is logged. Commands with a fence
 * complete a fixed virtual time later, in order; the kernel draws without waiting for a vertical
 * blank, so this time is what bounds the frame rate. When the renderer has a say in an answer, the
 * device then waits for its reply, which is an input of the machine.
 */
#include "dev/virtio/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <xxhash.h>

#include "base/cursor.h"
#include "dev/virtio/gpu_internal.h"
#include "dev/virtio/gpu_reply.h"
#include "dev/making.h"
#include "virtio-gpu-log/log.h"

#define F_VIRGL (1ull << VIRTIO_GPU_F_VIRGL)
#define F_EDID  (1ull << VIRTIO_GPU_F_EDID)

enum { CONTROL = 0, CURSOR = 1 };

#define TRANSFER_NS 100000u /* a fenced command that draws nothing takes so long */

STATE_DESC(gpu, "virtio-gpu", GPU_STATE);

static void emit(struct virtio_gpu *g, const struct dev_gpu *what)
{
    const struct dev_env *env = g->v.dev->env;
    env->emit(env->machine, EMIT_GPU, 0, what, sizeof(*what));
}

/* The guest cannot be told that the host has no memory: it would be told something else than in a
 * replay. */
static void look_for_failure(struct virtio_gpu *g)
{
    const struct dev_env *env = g->v.dev->env;
    struct err why;
    if (!g->store.failed)
        return;
    err_set(&why, g->store.failed, "no memory for the GPU's resources");
    env->failed(env->machine, &why);
}

/* ---- configuration (5.7.4) ---- */

static void gpu_config_read(struct device *dev, unsigned offset, unsigned size, u8 *out)
{
    const struct gpu_state *s = dev->state;
    struct virtio_gpu_config c = {.events_read = s->events,
                                  .num_scanouts = 1,
                                  .num_capsets = gpu_self(dev)->config.capset_size != 0};
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

/* ---- answers ---- */

/* What is after the header of an answer; returns its bytes. */
static u32 answer_body(const struct virtio_gpu *g, u32 response, u8 *body)
{
    const struct description_gpu *c = &g->config;
    if (response == VIRTIO_GPU_RESP_OK_DISPLAY_INFO) {
        struct virtio_gpu_resp_display_info d = {0};
        d.pmodes[0].r.width = c->width;
        d.pmodes[0].r.height = c->height;
        d.pmodes[0].enabled = 1;
        memcpy(body, d.pmodes, sizeof(d.pmodes));
        return sizeof(d.pmodes);
    }
    if (response == VIRTIO_GPU_RESP_OK_EDID) {
        struct virtio_gpu_resp_edid e = {.size = 128};
        gpu_make_edid(c, e.edid);
        memcpy(body, &e.size, sizeof(e) - sizeof(e.hdr));
        return sizeof(e) - sizeof(e.hdr);
    }
    if (response == VIRTIO_GPU_RESP_OK_CAPSET_INFO) {
        struct virtio_gpu_resp_capset_info i = {.capset_id = c->capset_id,
                                                .capset_max_version = c->capset_version,
                                                .capset_max_size = c->capset_size};
        memcpy(body, &i.capset_id, sizeof(i) - sizeof(i.hdr));
        return sizeof(i) - sizeof(i.hdr);
    }
    if (response == VIRTIO_GPU_RESP_OK_CAPSET) {
        memcpy(body, c->capset, c->capset_size);
        return c->capset_size;
    }
    return 0;
}

static void respond(struct virtio_gpu *g, u16 head, u64 number, u32 response)
{
    union {
        struct virtio_gpu_ctrl_hdr hdr;
        u8 bytes[sizeof(struct virtio_gpu_ctrl_hdr) +
                 MAX(DESCRIPTION_CAPSET_MAX, sizeof(struct virtio_gpu_resp_edid))];
    } r;
    struct virtio_gpu_ctrl_hdr request = {0};
    virtio_read(&g->v, 0, &request, sizeof(request));
    memset(&r, 0, sizeof(r));
    u32 size = answer_body(g, response, r.bytes + sizeof(r.hdr));
    r.hdr.type = response;
    if (request.flags & VIRTIO_GPU_FLAG_FENCE) {
        r.hdr.flags = VIRTIO_GPU_FLAG_FENCE;
        r.hdr.fence_id = request.fence_id;
        r.hdr.ctx_id = request.ctx_id;
    }
    emit(g, &(struct dev_gpu){.what = DEV_GPU_ANSWERED,
                              .number = number,
                              .response = response,
                              .body = r.bytes + sizeof(r.hdr),
                              .size = size});
    virtio_push(&g->v, CONTROL, head, (u32)virtio_write(&g->v, 0, &r, sizeof(r.hdr) + size));
}

/* Writes to a resource's backing for a command; what is gone by now takes nothing. */
static void write_backing(struct virtio_gpu *g, u64 number, u32 resource, u64 offset, const u8 *in,
                          u64 len)
{
    struct gpu_range range = {
        .resource = resource, .offset = offset, .bytes = {.size = len, .data = in}};
    if (gpu_backing_write(g, resource, offset, in, len))
        emit(g, &(struct dev_gpu){
                    .what = DEV_GPU_WRITTEN, .number = number, .ranges = &range, .count = 1});
}

/* ---- commands ---- */

/* What the host has of memory is nobody's business: always the same. */
static void answer_inside(struct virtio_gpu *g, const struct gpu_command *c, u64 number)
{
    static const u32 kib[6] = {1u << 20, 1u << 20, 1u << 20, 1u << 20, 0, 0};
    struct virgl_walk w;
    struct virgl_command v;
    virgl_walk_start(&w, c->payload, c->payload_size);
    while (virgl_next(&w, &v))
        if (v.id == VIRGL_CCMD_GET_MEMORY_INFO)
            write_backing(g, number, virgl_word(&v, 1), 0, (const u8 *)kib, sizeof(kib));
}

/* Is it the renderer that knows how the command went? */
static bool renderers(const struct virtio_gpu *g, const struct gpu_command *c, u32 response)
{
    const struct gpu_state *s = g->v.dev->state;
    if (!g->config.capset_size || s->lost || response != VIRTIO_GPU_RESP_OK_NODATA)
        return false;
    if (c->type == VIRTIO_GPU_CMD_SUBMIT_3D || c->type == VIRTIO_GPU_CMD_TRANSFER_FROM_HOST_3D)
        return true;
    return c->desc->feature == GPU_FEATURE_virgl && c->flags & VIRTIO_GPU_FLAG_FENCE;
}

static vns_t duration(const struct virtio_gpu *g, const struct gpu_command *c, u32 response)
{
    bool draws = c->type == VIRTIO_GPU_CMD_SUBMIT_3D && response == VIRTIO_GPU_RESP_OK_NODATA;
    return draws ? 1000000000u / g->config.hz : TRANSFER_NS;
}

static void under_way(struct virtio_gpu *g, const struct gpu_command *c, u16 head, u64 number,
                      u32 response, bool awaited)
{
    struct gpu_state *s = g->v.dev->state;
    unsigned i = (s->first + s->count) % UNDER_WAY;
    vns_t due = dev_late(g->v.dev, dev_now(g->v.dev) + duration(g, c, response));
    if (s->count)
        due = MAX(due, s->due[(i + UNDER_WAY - 1) % UNDER_WAY]);
    s->head[i] = head;
    s->response[i] = response;
    s->awaited[i] = awaited;
    s->number[i] = number;
    s->due[i] = due;
    s->count++;
}

/* g->v.chain is a command. false: it is none, or without room for an answer (5.7.6.7): the driver
 * broke a rule. */
static bool take(struct virtio_gpu *g)
{
    struct device *dev = g->v.dev;
    struct gpu_state *s = dev->state;
    struct gpu_command c;
    u16 head = g->v.chain.head;
    u64 len = g->v.chain.read_len;
    if (!g->v.chain.write_len || len < GPU_HEADER || len > GPU_REQUEST_MAX ||
        virtio_read(&g->v, 0, g->request, len) != len)
        return false;
    u64 number = s->commands++;
    gpu_command_decode(GPU_QUEUE_control, g->request, (u32)len, &c);
    u32 response = gpu_execute(g, &c);
    if (g->store.failed) /* nobody hears of what was done in part */
        return true;
    bool refused = response >= VIRTIO_GPU_RESP_ERR_UNSPEC;
    bool awaited = renderers(g, &c, response);
    /* Without a renderer nothing is drawn, and the guest is told. */
    if (!refused && s->lost && c.desc->feature == GPU_FEATURE_virgl &&
        (c.type == VIRTIO_GPU_CMD_SUBMIT_3D || c.type == VIRTIO_GPU_CMD_TRANSFER_FROM_HOST_3D))
        response = VIRTIO_GPU_RESP_ERR_UNSPEC;
    emit(g, &(struct dev_gpu){.what = DEV_GPU_TAKEN,
                              .number = number,
                              .queue = GPU_QUEUE_control,
                              .command = &c,
                              .awaited = awaited,
                              .ranges = g->ranges,
                              .count = refused ? 0 : g->nranges,
                              .response = refused ? response : 0});
    if (!refused && c.type == VIRTIO_GPU_CMD_SUBMIT_3D)
        answer_inside(g, &c, number);
    if (g->shown) {
        s->frames++;
        dev->env->emit(dev->env->machine, EMIT_FRAME, 0, &s->frames, sizeof(s->frames));
    }
    if (awaited || c.flags & VIRTIO_GPU_FLAG_FENCE)
        under_way(g, &c, head, number, response, awaited);
    else
        respond(g, head, number, response);
    return true;
}

static void control(struct virtio_gpu *g)
{
    struct device *dev = g->v.dev;
    struct gpu_state *s = dev->state;
    while (!g->store.failed && s->count < UNDER_WAY && virtio_pop(&g->v, CONTROL))
        if (!take(g)) {
            virtio_broken(&g->v);
            return;
        }
    virtio_signal(&g->v, CONTROL);
    dev_changed(dev);
}

static void cursor(struct virtio_gpu *g)
{
    struct gpu_state *s = g->v.dev->state;
    while (virtio_pop(&g->v, CURSOR)) {
        struct virtio_gpu_update_cursor u = {0};
        struct gpu_command c;
        u16 head = g->v.chain.head;
        u32 len = (u32)virtio_read(&g->v, 0, &u, sizeof(u));
        u32 refused = gpu_command_decode(GPU_QUEUE_cursor, &u, len, &c);
        if (!refused && u.pos.scanout_id)
            refused = VIRTIO_GPU_RESP_ERR_INVALID_SCANOUT_ID;
        emit(g, &(struct dev_gpu){.what = DEV_GPU_TAKEN,
                                  .number = s->commands++,
                                  .queue = GPU_QUEUE_cursor,
                                  .command = &c,
                                  .response = refused});
        s->digest = XXH3_64bits_withSeed(&u, len, s->digest);
        if (!refused && c.type == VIRTIO_GPU_CMD_UPDATE_CURSOR) {
            s->cursor = u.resource_id;
            s->hot_x = u.hot_x;
            s->hot_y = u.hot_y;
        }
        if (!refused) {
            s->cursor_x = u.pos.x;
            s->cursor_y = u.pos.y;
        }
        virtio_push(&g->v, CURSOR, head, 0);
    }
    virtio_signal(&g->v, CURSOR);
}

static void gpu_notify(struct device *dev, unsigned queue)
{
    if (queue == CONTROL)
        control(gpu_self(dev));
    else
        cursor(gpu_self(dev));
    look_for_failure(gpu_self(dev));
}

/* ---- what is under way ---- */

static vns_t gpu_deadline(const struct device *dev)
{
    const struct gpu_state *s = dev->state;
    return s->count && !s->waiting ? s->due[s->first] : NEVER;
}

/* The first command under way is done. */
static void complete(struct virtio_gpu *g, u32 response)
{
    struct gpu_state *s = g->v.dev->state;
    unsigned i = s->first;
    s->first = (u16)((s->first + 1) % UNDER_WAY);
    s->count--;
    s->waiting = 0;
    if (virtio_again(&g->v, CONTROL, s->head[i]))
        respond(g, s->head[i], s->number[i], response);
}

/* Completes what is due up to the first one that the renderer has a say in. */
static void advance(struct virtio_gpu *g, vns_t now)
{
    struct gpu_state *s = g->v.dev->state;
    while (s->count && s->due[s->first] <= now && !s->waiting) {
        if (s->awaited[s->first] && !s->lost)
            s->waiting = 1;
        else
            complete(g, s->awaited[s->first] ? VIRTIO_GPU_RESP_ERR_UNSPEC : s->response[s->first]);
    }
    virtio_signal(&g->v, CONTROL);
    if (virtio_ready(&g->v))
        control(g); /* what had to wait for room */
}

static void gpu_expire(struct device *dev, vns_t now)
{
    advance(gpu_self(dev), now);
    look_for_failure(gpu_self(dev));
}

bool virtio_gpu_waiting(const struct device *dev, u64 *number)
{
    const struct gpu_state *s = dev->state;
    *number = s->waiting ? s->number[s->first] : 0;
    return s->waiting;
}

u64 virtio_gpu_pieces(const struct device *dev)
{
    const struct gpu_state *s = dev->state;
    return s->pieces;
}

static void op_write(struct virtio_gpu *g, struct cursor *c, u64 number, bool same)
{
    struct gpu_state *s = g->v.dev->state;
    u64 resource = cursor_get_varint(c), offset = cursor_get_varint(c), len = GPU_KEPT_PIECE;
    u8 piece[GPU_KEPT_PIECE];
    const u8 *bytes = piece;
    if (same) {
        gpu_kept_read(&g->store, cursor_get_varint(c), piece);
    } else {
        len = cursor_get_varint(c);
        bytes = len <= GPU_KEPT_PIECE ? cursor_get(c, len) : NULL;
        if (!bytes || c->bad)
            return;
        if (len == GPU_KEPT_PIECE)
            gpu_kept_write(&g->store, s->pieces++, bytes);
        if (g->store.failed)
            return;
    }
    write_backing(g, number, (u32)resource, offset, bytes, len);
}

static void op_text(struct virtio_gpu *g, struct cursor *c, enum dev_gpu_what what)
{
    struct gpu_state *s = g->v.dev->state;
    u64 context = what == DEV_GPU_FAULT ? cursor_get_varint(c) : 0;
    u64 len = cursor_get_varint(c);
    const u8 *text = cursor_get(c, len);
    char why[512];
    if (!text || c->bad)
        return;
    snprintf(why, sizeof(why), "%.*s", (int)MIN(len, sizeof(why) - 1), (const char *)text);
    if (what == DEV_GPU_LOST)
        s->lost = 1;
    emit(g,
         &(struct dev_gpu){.what = what, .number = context, .body = why, .size = (u32)strlen(why)});
}

void virtio_gpu_reply(struct device *dev, const u8 *data, u32 len)
{
    struct virtio_gpu *g = gpu_self(dev);
    struct gpu_state *s = dev->state;
    struct cursor c = {.in = data, .end = len};
    u64 number = s->number[s->first];
    while (s->waiting && c.at < c.end && !c.bad && !g->store.failed) {
        u64 response;
        switch (cursor_get_varint(&c)) {
        case GPU_OP_WRITE: op_write(g, &c, number, false); break;
        case GPU_OP_SAME: op_write(g, &c, number, true); break;
        case GPU_OP_FAULT: op_text(g, &c, DEV_GPU_FAULT); break;
        case GPU_OP_LOST: op_text(g, &c, DEV_GPU_LOST); break;
        case GPU_OP_DONE:
            response = cursor_get_varint(&c);
            complete(g, c.bad ? VIRTIO_GPU_RESP_ERR_UNSPEC : (u32)response);
            break;
        default: c.bad = true; break; /* only a forged recording has that */
        }
    }
    advance(g, dev_now(dev));
    look_for_failure(g);
}

/* ---- life ---- */

/* 5.7.6.1: everything is forgotten. */
static void gpu_driver_reset(struct device *dev)
{
    struct gpu_state *s = dev->state;
    s->first = s->count = s->waiting = s->lost = 0;
    s->scanout = s->x = s->y = s->width = s->height = 0;
    s->cursor = s->cursor_x = s->cursor_y = s->hot_x = s->hot_y = 0;
    s->pieces = 0;
    gpu_store_clear(&gpu_self(dev)->store);
    emit(gpu_self(dev), &(struct dev_gpu){.what = DEV_GPU_RESET});
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
    if (s->first >= UNDER_WAY || s->count > UNDER_WAY || s->waiting > 1 || s->lost > 1 ||
        (s->waiting && !s->count))
        return dev_bad_state(dev, err, "commands");
    if (s->width > GPU_EDGE_MAX || s->height > GPU_EDGE_MAX || s->x > GPU_EDGE_MAX ||
        s->y > GPU_EDGE_MAX)
        return dev_bad_state(dev, err, "scanout");
    gpu_self(dev)->store.stale = true;
    return virtio_loaded(dev, err);
}

static const struct virtio_class class_2d = {
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

static const struct virtio_class class_3d = {
    .type = 16,
    .pci_class = {0x00, 0x80, 0x03}, /* display controller, not VGA */
    .features = F_EDID | F_VIRGL,
    .queues = 2,
    .queue_max = VIRTIO_QUEUE_MAX,
    .config_size = sizeof(struct virtio_gpu_config),
    .config_read = gpu_config_read,
    .config_write = gpu_config_write,
    .notify = gpu_notify,
    .reset = gpu_driver_reset,
};

static u32 gpu_room(const struct device *dev, enum input_kind kind, u32 unit)
{
    u64 number;
    return virtio_gpu_waiting(dev, &number) && !unit ? INPUT_MAX : 0;
}

static void gpu_input(struct device *dev, const struct input *in)
{
    virtio_gpu_reply(dev, in->data, in->len);
}

static void gpu_destroy(struct device *dev)
{
    struct virtio_gpu *g = gpu_self(dev);
    gpu_store_fini(&g->store);
    free(g->request);
    free(g->row);
    free(g->entries);
    free(g->ranges);
    if (g->upload)
        munmap(g->upload, GPU_UPLOAD_BYTES);
}

static const struct device_ops gpu_ops = {
    .name = "gpu",
    .state = &gpu_desc,
    .reset = gpu_reset,
    .deadline = gpu_deadline,
    .expire = gpu_expire,
    .loaded = gpu_loaded,
    .room = gpu_room,
    .input = gpu_input,
    .destroy = gpu_destroy,
};

static int allocate(struct virtio_gpu *g, struct err *err)
{
    int r = gpu_store_init(&g->store, err);
    if (r)
        return r;
    g->request = malloc(GPU_REQUEST_MAX);
    g->row = malloc(GPU_EDGE_MAX * 4);
    g->entries = malloc(GPU_ENTRIES * sizeof(*g->entries));
    g->ranges = malloc(GPU_UPLOADS * sizeof(*g->ranges));
    /* Pages that no command ever needs are never there. */
    g->upload = mmap(NULL, GPU_UPLOAD_BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (g->upload == MAP_FAILED)
        g->upload = NULL;
    if (!g->request || !g->row || !g->entries || !g->ranges || !g->upload)
        return err_set(err, -ENOMEM, "no memory for the GPU");
    return 0;
}

int virtio_gpu_create(struct device *dev, const struct dev_env *env, struct device *pci,
                      unsigned slot, const struct description_gpu *config, struct err *err)
{
    int r =
        virtio_alloc(dev, &gpu_ops, env, sizeof(struct gpu_state), sizeof(struct virtio_gpu), err);
    if (r)
        return r;
    struct virtio_gpu *g = dev->host;
    g->config = *config;
    r = allocate(g, err);
    if (r)
        return r;
    virtio_connect(dev, config->capset_size ? &class_3d : &class_2d, pci, slot);
    return 0;
}

int make_gpu(struct device *dev, const struct making *w, struct err *err)
{
    return virtio_gpu_create(dev, w->env, w->pci, w->slot, &w->is->gpu, err);
}
