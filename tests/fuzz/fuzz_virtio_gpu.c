/*
 * virtio-gpu: see fuzz_virtio.h. By the program's length it is a 2D device, one with 3D behind
 * which is the host's part (live/gpu.c) with a renderer that lies, or one with 3D whose replies are
 * forged. gpu.log is written along, and read; in the second run the device is saved and restored
 * where the program says so, and both runs must write the same log.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/cursor.h"
#include "board/description.h"
#include "dev/virtio/gpu.h"
#include "dev/virtio/gpu_reply.h"
#include "fake_renderer.h"
#include "fuzz_virtio.h"
#include "gpu_commands.h"
#include "live/gpu.h"
#include "machine/machine.h"
#include "replay/gpu_recorder.h"
#include "walk_gpu_log.h"

#define SLOT 1u
/* Where the driver has things, after the rings: requests of 8 heads, answers, what backings name.
 */
#define HEADS         8u
#define REQUEST(head) (0x3000u + 0x800u * (head))
#define ANSWER(head)  (0x7000u + 0x200u * (head))
#define MEMORY        0x8000u

/* Replies of the renderer, as the first run had them. */
struct recorded {
    u32 step, len;
    size_t at;
};

static struct virtio_gpu *gpu;            /* the one of this program */
static struct gpu_host *kept_host, *host; /* NULL: none, or forged */
static bool forged;
static struct gpu_recorder *recorder;
static int file = -1; /* gpu.log */
static u64 taken, answered, awaited[VIRTIO_QUEUE_MAX];
static u32 nawaited;
static bool lost;
static struct recorded replies[4096];
static u32 nreplies, replayed;
static u8 *bytes; /* of them */
static size_t nbytes;
static unsigned next_head[2];

pos_t machine_position(const struct machine *m)
{
    return ((const struct world *)m)->step;
}

vns_t machine_now(const struct machine *m)
{
    return ((const struct world *)m)->now;
}

static struct device *device(struct world *w)
{
    return &w->dev[SLOT - 1];
}

/* ---- life ---- */

/* Both devices are made once, and then as at power-on: making one takes longer than a program. */
static struct device *make_device(struct world *w, const struct description_gpu *c)
{
    static struct device kept[2];
    struct device *d = &kept[c->capset_size != 0];
    struct err err;
    unsigned slot;
    *add(w, &slot) = *d;
    if (!d->state && virtio_gpu_create(device(w), &w->env, &w->pci, slot, c, &err))
        abort();
    if (d->state) {
        memset(d->state, 0, d->ops->state->size);
        gpu = device(w)->host;
        virtio_connect(device(w), gpu->v.class, &w->pci, slot);
        d->ops->reset(device(w));
    }
    *d = *device(w);
    gpu = d->host;
    return d;
}

static void gpu_create(struct world *w)
{
    static struct machine_description d;
    struct description_gpu c = {.width = 640, .height = 480, .hz = 60};
    struct err err;
    if (w->size % 8) {
        c.capset_id = c.capset_version = 1;
        c.capset_size = 308;
        for (unsigned i = 0; i < c.capset_size; i++)
            c.capset[i] = (u8)(i * 7);
    }
    forged = c.capset_size && w->size % 4 == 3;
    taken = answered = nawaited = replayed = 0;
    lost = false;
    memset(next_head, 0, sizeof(next_head));
    if (!w->replay) {
        nreplies = 0;
        nbytes = 0;
        fake_renderer_mood(w->size, 0, 0);
    }
    if (!kept_host && gpu_host_create(&kept_host, &(struct renderer_config){0}, &err))
        abort();
    host = NULL;
    make_device(w, &c);
    if (c.capset_size && !forged && !w->replay)
        host = kept_host;
    if (host)
        gpu_host_emit(host, &(struct dev_gpu){.what = DEV_GPU_RESET});
    d.gpu = c;
    if (file < 0)
        file = memfd_create("gpu.log", 0);
    if (ftruncate(file, 0) || lseek(file, 0, SEEK_SET) ||
        gpu_recorder_create(&recorder, dup(file), &d, &err))
        abort();
}

/* Nothing: see make_device. */
static void gpu_destroy(struct world *w)
{
}

/* ---- what leaves the device ---- */

static void look_at_ranges(struct world *w, const struct dev_gpu *e)
{
    for (u32 i = 0; i < e->count; i++) {
        const struct gpu_range *r = &e->ranges[i];
        w->messages += XXH3_64bits_withSeed(r->bytes.data, r->bytes.size,
                                            r->offset ^ (u64)r->resource << 32 ^ r->at);
    }
}

/* As the host keeps account of what it owes, in the order in which it was asked. */
static void keep_account(const struct dev_gpu *e)
{
    if (e->what == DEV_GPU_TAKEN && e->number != taken)
        abort();
    taken += e->what == DEV_GPU_TAKEN;
    answered += e->what == DEV_GPU_ANSWERED;
    lost = e->what == DEV_GPU_LOST || (lost && e->what != DEV_GPU_RESET);
    if (e->what == DEV_GPU_RESET)
        nawaited = 0;
    if (e->what == DEV_GPU_TAKEN && e->awaited) {
        if (nawaited == VIRTIO_QUEUE_MAX || lost)
            abort();
        awaited[nawaited++] = e->number;
    }
}

static void gpu_emit(struct world *w, enum dev_emit kind, unsigned unit, const void *data,
                     size_t len)
{
    const struct dev_gpu *e = data;
    if (kind == EMIT_FRAME && len == 8)
        return;
    if (kind != EMIT_GPU || unit || len != sizeof(*e))
        abort();
    const u64 what[] = {e->what, e->number, e->queue, e->awaited, e->count, e->response, e->size};
    if (!recorder)
        return; /* the reset at power-on */
    w->messages = w->messages * 31 + XXH3_64bits(what, sizeof(what));
    if (e->what == DEV_GPU_TAKEN)
        w->messages += XXH3_64bits(e->command->bytes, e->command->size);
    if (e->body)
        w->messages += XXH3_64bits(e->body, e->size);
    look_at_ranges(w, e);
    keep_account(e);
    gpu_recorder_emit(recorder, (struct machine *)w, e);
    if (host)
        gpu_host_emit(host, e);
}

/* ---- what the renderer says ---- */

static void record_reply(struct world *w, const struct input *in)
{
    if (nreplies == ARRAY_SIZE(replies))
        abort();
    bytes = realloc(bytes, nbytes + in->len + 1);
    memcpy(bytes + nbytes, in->data, in->len);
    replies[nreplies++] = (struct recorded){w->step, in->len, nbytes};
    nbytes += in->len;
}

/* Operations of all kinds, some of them cut, some of none. */
static void forge(u8 *out, struct input *in)
{
    static const u8 text[] = "an error\n\x1b[1m";
    struct cursor c = {.out = out, .end = INPUT_MAX};
    for (u32 n = fake_random(6); n; n--) {
        u32 op = 1 + fake_random(4);
        cursor_put_varint(&c, fake_random(60) ? op : fake_random(~0u));
        cursor_put_varint(&c, fake_random(20) ? fake_random(12) : fake_random(~0u));
        if (op == GPU_OP_LOST && fake_random(8))
            c.at = 0;
        if (op == GPU_OP_WRITE || op == GPU_OP_SAME)
            cursor_put_varint(&c,
                              fake_random(40) ? fake_random(9000) : UINT64_MAX - fake_random(5000));
        if (op == GPU_OP_SAME)
            cursor_put_varint(&c, fake_random(4) ? fake_random(4) : UINT64_MAX);
        u32 len = op == GPU_OP_WRITE ? fake_random(3) ? 4096 : fake_random(4200) : fake_random(13);
        if (op != GPU_OP_SAME)
            cursor_put_varint(&c, fake_random(60) ? len : ~0ull);
        for (u32 i = 0; op == GPU_OP_WRITE && i < len; i++)
            out[c.at++] = (u8)(n + i / 100);
        if (op == GPU_OP_FAULT || op == GPU_OP_LOST)
            cursor_put(&c, text, MIN(len, sizeof(text)));
    }
    if (fake_random(4)) {
        static const u32 responses[] = {VIRTIO_GPU_RESP_OK_NODATA,
                                        VIRTIO_GPU_RESP_ERR_UNSPEC,
                                        VIRTIO_GPU_RESP_OK_CAPSET,
                                        VIRTIO_GPU_RESP_OK_EDID,
                                        VIRTIO_GPU_RESP_OK_DISPLAY_INFO,
                                        ~0u,
                                        0};
        cursor_put_varint(&c, GPU_OP_DONE);
        cursor_put_varint(&c, responses[fake_random(ARRAY_SIZE(responses))]);
    }
    if (!c.at)
        cursor_put_varint(&c, GPU_OP_DONE);
    in->len = (u32)(fake_random(10) ? c.at : 1 + fake_random((u32)c.at));
    in->data = out;
}

static void gpu_inputs(struct world *w)
{
    static u8 out[INPUT_MAX + 16];
    struct device *d = device(w);
    u64 number, after;
    for (unsigned i = 0; virtio_gpu_waiting(d, &number); i++) {
        struct input in = {.data = out};
        const struct recorded *r = &replies[replayed];
        if (!nawaited || (!lost && awaited[0] != number))
            abort();
        if (w->replay && (replayed == nreplies || r->step != w->step))
            return;
        if (w->replay) {
            in = (struct input){.data = bytes + r->at, .len = r->len};
            replayed++;
        } else if (host ? !gpu_host_reply(host, number, 1, &in) : i > 3) {
            return;
        } else {
            if (!host)
                forge(out, &in);
            record_reply(w, &in);
        }
        /* Of exactly that size, so that a read beyond it is seen. */
        u8 *copy = malloc(in.len);
        memcpy(copy, in.data, in.len);
        virtio_gpu_reply(d, copy, in.len);
        free(copy);
        if (!virtio_gpu_waiting(d, &after) || after != number)
            memmove(awaited, awaited + 1, --nawaited * sizeof(*awaited));
    }
}

/* ---- the driver ---- */

/* Offers a command as a chain: what is readable in one or two parts and `more` times all of memory
 * from its start, then room for an answer. */
static void offer_command(struct world *w, unsigned q, const u8 *command, u32 size, unsigned more,
                          u32 room)
{
    struct {
        u64 addr;
        u32 len;
        u16 flags, next;
    } d[12];
    unsigned head = next_head[q]++ % HEADS, n = 0;
    u32 first = size > 100 && head & 1 ? 24 : size;
    size = MIN(size, 0x800u);
    memcpy(w->ram + REQUEST(head), command, size);
    for (u32 at = 0; at < size; at += first, first = size)
        d[n++].addr = REQUEST(head) + at, d[n - 1].len = MIN(first, size - at), d[n - 1].flags = 1;
    for (; more && n < 10; more--)
        d[n++].addr = MEMORY, d[n - 1].len = RAM_SIZE - MEMORY, d[n - 1].flags = 1;
    if (room)
        d[n++].addr = ANSWER(head), d[n - 1].len = room, d[n - 1].flags = 2;
    if (!n)
        return;
    d[n - 1].flags &= 2;
    for (unsigned i = 0; i < n; i++)
        d[i].next = (u16)(12 * head + i + 1);
    memcpy(w->ram + desc_of(q) + 16 * 12 * head, d, 16 * n);

    u16 idx, index = (u16)(12 * head);
    store(w, SLOT, 0x16, 2, q);
    u64 queue_size = w->pci.ops->mmio_read(&w->pci, bar(SLOT) + 0x18, 2);
    u8 *avail = w->ram + avail_of(q);
    memcpy(&idx, avail + 2, 2);
    if (queue_size)
        memcpy(avail + 4 + 2 * (idx % queue_size), &index, 2);
    idx++;
    memcpy(avail + 2, &idx, 2);
}

static void notify(struct world *w, unsigned q)
{
    store(w, SLOT, 0x3000 + 4 * q, 2, 0);
}

/* Saved and restored, as a checkpoint does it. */
static void restore(struct world *w)
{
    struct device *d = device(w);
    struct err err;
    size_t size = state_size(d->ops->state);
    u8 *saved = malloc(size);
    struct page_image *image = page_image_copy(gpu->store.image);
    state_save(d->ops->state, d->state, saved);
    memset(d->state, 0xee, d->ops->state->size);
    gpu_store_clear(&gpu->store);
    if (state_load(d->ops->state, d->state, saved, size, &err) ||
        gpu_store_restore(&gpu->store, image, &err) || d->ops->loaded(d, &err))
        abort();
    page_image_destroy(image);
    free(saved);
}

static void look(struct world *w)
{
    static u8 row[DESCRIPTION_GPU_MAX * 4 * 3];
    static u8 picture[16 * 16 * 4];
    struct dev_screen s;
    struct err err;
    virtio_gpu_screen(device(w), &s);
    if (s.width > sizeof(row) / 3)
        return;
    for (u32 y = 0; y < s.height; y += 1 + s.height / 4) {
        virtio_gpu_screen_row(device(w), y, row);
        w->messages += XXH3_64bits(row, s.width * 3);
    }
    if (host)
        gpu_host_read(host, 1, 0, 0, 16, 16, picture, &err);
}

/* So many resources or contexts, one after the other, until there is no room for more. */
static void flood(struct world *w, struct program *s)
{
    u8 command[GPU_COMMAND_BYTES];
    u32 first = (u32)take(s, 1), n = 2 * (u32)take(s, 1), kind = (u32)take(s, 1);
    if (n == 510 && kind > 0xf0)
        n = GPU_RESOURCES + 10;
    for (u32 i = 0; i < n; i++) {
        offer_command(w, 0, command, flood_command(command, kind % 3, 100 * first + i), 0, 0x40);
        notify(w, 0);
    }
}

static void gpu_special(struct world *w, unsigned slot, struct program *s)
{
    u8 command[GPU_COMMAND_BYTES];
    unsigned what = (unsigned)take(s, 1), kind = what & 15, q = kind == 8;
    u64 how;
    u32 late, size = 0, room = what & 0x20 ? (u32)take(s, 1) * 2 : 0x200;
    unsigned more = what & 0x40 && kind == 4 ? (unsigned)take(s, 1) % 9 : 0;
    if (kind < 10)
        size = make_command(command, kind, s);
    switch (kind) {
    case 10:
        how = take(s, 2);
        set_up(w, SLOT, how, (u32)take(s, 1) & 3);
        break;
    case 11:
        how = take(s, 2);
        late = (u32)take(s, 1);
        fake_renderer_mood(how, late, (u32)take(s, 1));
        break;
    case 12:
        if (w->replay)
            restore(w);
        break;
    case 13: look(w); break;
    case 14: flood(w, s); break;
    case 15: store(w, SLOT, 0x14, 1, 0); break;
    default: offer_command(w, q, command, size, more, room);
    }
    if (kind < 10 && !(what & 0x10))
        notify(w, q);
}

/* ---- the end ---- */

static u64 digest_of_log(void)
{
    off_t size = lseek(file, 0, SEEK_END);
    u8 *log = malloc((size_t)size);
    if (!log || pread(file, log, (size_t)size, 0) != size)
        abort();
    u64 h = XXH3_64bits(log, (size_t)size);
    free(log);
    return h;
}

static u64 gpu_outcome(struct world *w)
{
    struct gpu_log_reader *r;
    struct err err;
    u64 commands, h = 0;
    if (gpu_recorder_finish(recorder, (struct machine *)w, &commands, &err) || commands != taken)
        abort();
    recorder = NULL;
    for (u64 i = 0; (i = page_image_next(gpu->store.image, i)) != UINT64_MAX; i++)
        h = h * 31 + XXH3_64bits_withSeed(page_image_page(gpu->store.image, i), PAGE_SIZE, i);
    if (w->replay && replayed != nreplies)
        abort();
    if (!w->replay) {
        char *text;
        size_t text_size;
        FILE *out = open_memstream(&text, &text_size);
        lseek(file, 0, SEEK_SET);
        if (gpu_log_open(&r, dup(file), &err))
            abort();
        struct gpu_log_count n = walk_gpu_log(r, out);
        if (gpu_log_damage(r)->state != CHUNKS_COMPLETE || n.commands != taken ||
            n.replies != answered)
            abort();
        gpu_log_reader_destroy(r);
        fclose(out);
        free(text);
    }
    return h ^ digest_of_log();
}

/* The corpus has more. */
static const u8 sample[] = {
    0x0a, 10, 0x3b, 0, 3,                /* set up, both features */
    0x0a, 7,  0,    1, 0, 0,             /* a context */
    0x0a, 1,  0,    1, 0, 0, 0x80, 0, 0, /* a submit of a NOP, with a fence */
    3,    0,  0,    2,
};

const struct target target = {.create = gpu_create,
                              .destroy = gpu_destroy,
                              .special = gpu_special,
                              .inputs = gpu_inputs,
                              .emit = gpu_emit,
                              .outcome = gpu_outcome,
                              SAMPLE(sample),
                              .queues = 2,
                              .features = 2};
