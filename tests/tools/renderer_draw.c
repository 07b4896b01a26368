/*
 * Draws through the renderer's client and protocol, with command words put together by hand, and
 * checks what comes back (a dozen tests in one file: they share the drawing): renderer_draw [-p
 * PROGRAM] [-d DRIVER] TEST [ARGUMENT]. Prints facts for tests/suite/renderer.py; status 1 and a
 * line on stderr when something is wrong.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include "host/clock.h"
#include "virtio-gpu-log/play/renderer.h"
#include "tests/tools/virgl_words.h"
#include "virtio-gpu-log/renderer/format.h"
#include "virtio-gpu-log/renderer/model.h"

#define TARGET   1u
#define VERTICES 2u
#define CONTEXT  7u

static struct renderer_config config;
static struct renderer *r;
static u32 width = 256, height = 256;

static _Noreturn void PRINTF(1, 2) fail(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    if (r && renderer_death(r))
        fprintf(stderr, " (the renderer is dead: %s)", renderer_death(r));
    fputc('\n', stderr);
    renderer_destroy(r);
    exit(1);
}

#define EXPECT(cond, ...)                                                                          \
    do {                                                                                           \
        if (!(cond))                                                                               \
            fail(__VA_ARGS__);                                                                     \
    } while (0)

static void start(void)
{
    struct err err;
    if (renderer_create(&r, &config, &err))
        fail("renderer_draw: %s", err.text);
}

static struct renderer_reply *wait_for(u64 seq)
{
    struct renderer_reply *reply = renderer_wait(r, seq, 0);
    EXPECT(reply, "no reply to %llu", (unsigned long long)seq);
    return reply;
}

/* A fence; everything since the last one must have gone well. */
static void fence_ok(const char *what)
{
    struct renderer_reply *f = wait_for(renderer_fence(r));
    EXPECT(f->result == WIRE_R_OK, "%s: fence: %s", what, wire_result_text(f->result));
    for (u32 i = 0; i < f->run_count; i++)
        EXPECT(f->runs[i].result == WIRE_R_OK, "%s: request %llu: %s", what,
               (unsigned long long)f->runs[i].seq, wire_result_text(f->runs[i].result));
    EXPECT(!f->fault_count, "%s: %s", what, f->faults[0].text);
    free(f);
}

/* The result of a request. */
static u32 result_of(u64 seq)
{
    struct renderer_reply *f = wait_for(renderer_fence(r));
    u32 result = renderer_result(f, seq);
    free(f);
    return result;
}

static void create(u32 id, u32 target, u32 format, u32 bind, u32 w, u32 h)
{
    struct wire_resource_create c = {.resource = id,
                                     .target = target,
                                     .format = format,
                                     .bind = bind,
                                     .width = w,
                                     .height = h,
                                     .depth = 1,
                                     .array_size = 1};
    renderer_resource_create(r, &c);
}

/* A target, three triangles (a gradient; two that are the lower left quarter), their state. */
static void set_up(void)
{
    static const float v[9][8] = {
        {-0.9f, -0.9f, 0, 1, 1, 0, 0, 1}, {0.9f, -0.8f, 0, 1, 0, 1, 0, 1},
        {0.1f, 0.93f, 0, 1, 0, 0, 1, 1},  {-1, -1, 0, 1, 0, 1, 1, 1},
        {0, -1, 0, 1, 0, 1, 1, 1},        {-1, 0, 0, 1, 0, 1, 1, 1},
        {0, -1, 0, 1, 0, 1, 1, 1},        {0, 0, 0, 1, 0, 1, 1, 1},
        {-1, 0, 0, 1, 0, 1, 1, 1},
    };
    struct wire_transfer t = {.resource = VERTICES, .box = {0, 0, 0, sizeof(v), 1, 1}};
    static struct words b;
    b.n = 0;
    create(TARGET, VT_2D, VF_BGRA8, VB_TARGET | VB_SAMPLER | VB_SCANOUT, width, height);
    create(VERTICES, VT_BUFFER, VF_R8, VB_VERTEX, 4096, 1);
    renderer_attach_backing(r, TARGET, (u64)width * height * 4);
    renderer_attach_backing(r, VERTICES, 4096);
    renderer_context_create(r, CONTEXT, "draw", 4);
    renderer_context_attach(r, CONTEXT, TARGET);
    renderer_context_attach(r, CONTEXT, VERTICES);
    renderer_write_backing(r, VERTICES, 0, v, sizeof(v));
    renderer_transfer_to_host(r, &t);
    drawing_state(&b, TARGET, VERTICES, width, height);
    renderer_submit(r, CONTEXT, b.w, b.n);
}

static void draw_frame(unsigned frame)
{
    static struct words b;
    b.n = 0;
    clear_colour(&b, (float)(frame % 5) * 0.25f, 0.5f, 0.25f);
    draw(&b, 0, 3);
    renderer_submit(r, CONTEXT, b.w, b.n);
}

static u64 hash_reply(const struct renderer_reply *p)
{
    return XXH3_64bits(p->data, p->data_size);
}

static void expect_pixel(const struct renderer_reply *p, u32 x, u32 y, const u8 want[4],
                         int tolerance)
{
    const u8 *is = p->data + (size_t)y * p->row_bytes + x * 4;
    for (int c = 0; c < 4; c++)
        EXPECT(abs(is[c] - want[c]) <= tolerance,
               "pixel %u,%u is %02x%02x%02x%02x, should be %02x%02x%02x%02x", x, y, is[0], is[1],
               is[2], is[3], want[0], want[1], want[2], want[3]);
}

static void test_triangle(const char *argument)
{
    unsigned frames = argument ? (unsigned)atoi(argument) : 3;
    static const u8 background[4] = {0x40, 0x80, 0x00, 0xff}, quarter[4] = {0xff, 0xff, 0, 0xff};
    set_up();
    for (unsigned f = 0; f < frames; f++) {
        draw_frame(f);
        struct renderer_reply *p = wait_for(renderer_read(r, TARGET, 0, NULL, WIRE_RAW));
        EXPECT(!p->result && p->width == width && p->height == height &&
                   p->data_size == (u64)width * height * 4,
               "read: %s, %u x %u", wire_result_text(p->result), p->width, p->height);
        printf("frame %u %016llx\n", f, (unsigned long long)hash_reply(p));
        if (!f) {
            /* What is drawn first is the last row; the middle lies inside the triangle. */
            expect_pixel(p, 0, 0, background, 0);
            expect_pixel(p, width - 1, height - 1, background, 0);
            expect_pixel(p, 0, height - 1, background, 0);
            const u8 middle[4] = {0x7b, 0x3c, 0x48, 0xff};
            expect_pixel(p, width / 2, height / 2, middle, 1);
        }
        /* The same through the backing. */
        struct wire_transfer t = {.resource = TARGET, .box = {0, 0, 0, width, height, 1}};
        struct renderer_reply *q = wait_for(renderer_transfer_from_host(r, &t));
        EXPECT(!q->result && q->range_count == 1 && q->ranges[0].size == p->data_size &&
                   !q->ranges[0].offset && !memcmp(p->data, q->data, p->data_size),
               "transfer and read differ");
        free(q);
        /* ... and with the channels the other way round. */
        q = wait_for(renderer_read(r, TARGET, 0, NULL, WIRE_RGBA));
        EXPECT(!q->result && q->data_size == p->data_size, "read: %s", wire_result_text(q->result));
        for (u64 i = 0; i < p->data_size; i++)
            EXPECT(q->data[i] == p->data[(i & ~3ull) + (i % 4 == 3 ? 3 : 2 - i % 4)],
                   "RGBA and BGRA differ at byte %llu", (unsigned long long)i);
        free(q);
        free(p);
    }
    static struct words b;
    b.n = 0;
    draw(&b, 3, 6);
    renderer_submit(r, CONTEXT, b.w, b.n);
    struct wire_box box = {0, 0, 0, width, height, 1};
    struct renderer_reply *p = wait_for(renderer_read(r, TARGET, 0, &box, WIRE_RAW));
    u64 inside = 0;
    for (u64 i = 0; i < p->data_size; i += 4)
        inside += !memcmp(p->data + i, quarter, 4);
    EXPECT(inside == (u64)width * height / 4, "the quarter has %llu pixels",
           (unsigned long long)inside);
    expect_pixel(p, 0, 0, quarter, 0);
    expect_pixel(p, width / 2 - 1, height / 2 - 1, quarter, 0);
    free(p);
    fence_ok("triangle");
}

/* The bytes of a box go up, and exactly the same come down, where they belong. */
static void upload(u32 target, u32 format, u32 layers, u32 w, u32 h, const struct wire_box *box,
                   u32 stride, u32 layer_stride, u64 offset)
{
    static u8 up[1 << 20], written[1 << 20];
    struct wire_resource_create c = {.resource = 50,
                                     .target = target,
                                     .format = format,
                                     .bind = VB_SAMPLER,
                                     .width = w,
                                     .height = h,
                                     .depth = target == VT_3D ? layers : 1,
                                     .array_size = target == VT_3D ? 1 : layers};
    struct wire_transfer t = {.resource = 50,
                              .stride = stride,
                              .layer_stride = layer_stride,
                              .box = *box,
                              .offset = offset};
    struct format_block fb;
    EXPECT(format_block(format, &fb), "format %u is not known", format);
    for (size_t i = 0; i < sizeof(up); i++)
        up[i] = (u8)(i * 7 + (i >> 8) * 13 + 1);
    memset(written, 0, sizeof(written));
    renderer_resource_create(r, &c);
    renderer_attach_backing(r, 50, sizeof(up));
    renderer_write_backing(r, 50, 0, up, sizeof(up));
    renderer_transfer_to_host(r, &t);
    struct renderer_reply *p = wait_for(renderer_transfer_from_host(r, &t));
    EXPECT(!p->result, "target %u format %u: %s", target, format, wire_result_text(p->result));
    const u8 *at = p->data;
    for (u32 i = 0; i < p->range_count; i++) {
        const struct wire_range *g = &p->ranges[i];
        EXPECT(g->resource == 50 && g->offset + g->size <= sizeof(up), "range %u is outside", i);
        EXPECT(!memcmp(at, up + g->offset, g->size), "target %u format %u: bytes %llu..+%u differ",
               target, format, (unsigned long long)g->offset, g->size);
        memset(written + g->offset, 1, g->size);
        at += g->size;
    }
    /* Every byte of the box, no other. */
    u64 whole = (u64)(w + fb.w - 1) / fb.w * fb.bytes;
    u64 s = stride ? stride : whole, ls = layer_stride ? layer_stride : s * ((h + fb.h - 1) / fb.h);
    for (u32 z = 0; z < box->d; z++)
        for (u32 y = 0; y < (box->h + fb.h - 1) / fb.h; y++)
            for (u32 x = 0; x < (box->w + fb.w - 1) / fb.w * fb.bytes; x++) {
                u64 byte = offset + z * ls + y * s + x;
                EXPECT(written[byte] == 1, "target %u: byte %llu did not come", target,
                       (unsigned long long)byte);
                written[byte] = 2;
            }
    EXPECT(!memchr(written, 1, sizeof(written)), "target %u: bytes outside of the box", target);
    free(p);
    renderer_resource_unref(r, 50);
    fence_ok("upload");
}

static void test_upload(const char *argument)
{
    upload(VT_2D, VF_RGBA8, 1, 16, 16, &(struct wire_box){0, 0, 0, 16, 16, 1}, 0, 0, 0);
    upload(VT_2D, VF_RGBA8, 1, 16, 16, &(struct wire_box){4, 4, 0, 8, 8, 1}, 0, 0, 1000);
    upload(VT_2D, VF_RGBA8, 1, 16, 16, &(struct wire_box){4, 4, 0, 8, 8, 1}, 256, 0, 1000);
    upload(VT_2D, VF_BGRA8, 1, 200, 100, &(struct wire_box){1, 2, 0, 33, 7, 1}, 0, 0, 12);
    upload(VT_3D, VF_RGBA8, 4, 16, 16, &(struct wire_box){0, 0, 0, 16, 16, 4}, 0, 0, 0);
    upload(VT_3D, VF_RGBA8, 4, 16, 16, &(struct wire_box){3, 1, 1, 5, 9, 3}, 128, 4096, 64);
    upload(7, VF_RGBA8, 3, 16, 16, &(struct wire_box){0, 0, 0, 16, 16, 3}, 0, 0, 0);
    upload(4, VF_RGBA8, 6, 16, 16, &(struct wire_box){0, 0, 0, 16, 16, 6}, 0, 0, 0);
    upload(4, VF_RGBA8, 6, 16, 16, &(struct wire_box){0, 0, 5, 16, 16, 1}, 0, 0, 0);
    upload(6, VF_RGBA8, 3, 16, 1, &(struct wire_box){2, 0, 0, 9, 1, 3}, 0, 0, 0);
    upload(2, 105, 1, 20, 20, &(struct wire_box){0, 0, 0, 20, 20, 1}, 0, 0, 0); /* DXT1 */
    upload(2, 105, 1, 20, 20, &(struct wire_box){4, 8, 0, 8, 12, 1}, 0, 0, 0);
    upload(VT_BUFFER, VF_R8, 1, 4096, 1, &(struct wire_box){5, 0, 0, 1000, 1, 1}, 0, 0, 3);
    printf("uploads came back\n");
}

/* Bytes that mean nothing in a format read as they like. */
static bool matters(u32 format, size_t byte)
{
    return !((format == 126 && byte % 8 > 4) || (format == 136 && byte % 4 < 3));
}

/* A level of 16 x 24 and 3 layers: whole, and a part of it, as the guest reads it and as we do. */
static bool format_comes_back(u32 format, const struct format_block *b)
{
    static u8 up[16 * 24 * 16 * 3];
    const struct wire_box boxes[] = {{0, 0, 0, 16, 24, 3}, {4, 8, 1, 8, 12, 2}};
    bool depth = (format >= 16 && format <= 21) || format == 126, same = true;
    size_t row = 16u / b->w * b->bytes, layer = row * (24u / b->h), size = layer * 3;
    struct wire_resource_create c = {.resource = 60,
                                     .target = 7, /* 2D array */
                                     .format = format,
                                     .bind = depth ? 1 : VB_SAMPLER,
                                     .width = 16,
                                     .height = 24,
                                     .depth = 1,
                                     .array_size = 3};
    for (size_t i = 0; i < size; i++)
        up[i] = (u8)(i * 7 + (i >> 8) * 5 + 1) & 0x3f; /* floats: no NaN, nothing denormal */
    renderer_resource_create(r, &c);
    renderer_attach_backing(r, 60, size);
    renderer_write_backing(r, 60, 0, up, size);
    struct wire_transfer t = {.resource = 60, .box = boxes[0]};
    renderer_transfer_to_host(r, &t);
    for (size_t i = 0; i < ARRAY_SIZE(boxes); i++) {
        const struct wire_box *box = &boxes[i];
        t.box = *box;
        /* The box's bytes belong where the whole level's are. */
        t.offset = box->z * layer + box->y / b->h * row + (size_t)(box->x / b->w) * b->bytes;
        struct renderer_reply *p = wait_for(renderer_transfer_from_host(r, &t));
        struct renderer_reply *q = wait_for(renderer_read(r, 60, 0, box, WIRE_RAW));
        size_t want = (size_t)box->w / b->w * (box->h / b->h) * box->d * b->bytes;
        EXPECT(!p->result && p->data_size == want, "format %u: %s, %llu bytes", format,
               wire_result_text(p->result), (unsigned long long)p->data_size);
        const u8 *at = p->data;
        for (u32 k = 0; k < p->range_count; k++)
            for (u32 j = 0; j < p->ranges[k].size; j++, at++) {
                size_t byte = p->ranges[k].offset + j;
                EXPECT(byte < size, "format %u: outside", format);
                same = same && (*at == up[byte] || !matters(format, byte));
            }
        if (format_reads_back(format))
            EXPECT(!q->result && q->data_size == want && !memcmp(q->data, p->data, want),
                   "format %u: read and transfer differ", format);
        else
            EXPECT(q->result == WIRE_R_UNREADABLE, "format %u: read: %s", format,
                   wire_result_text(q->result));
        free(p);
        free(q);
        if (!same && format_reads_back(format)) {
            fprintf(stderr, "format %u, box %zu\n", format, i);
            break;
        }
    }
    renderer_resource_unref(r, 60);
    free(wait_for(renderer_fence(r)));
    return same;
}

static void test_formats(const char *argument)
{
    const struct virgl_caps *m = model_caps(WIRE_MODEL_NEWEST);
    unsigned good = 0, bad = 0;
    for (u32 f = 1; f < 512; f++) {
        struct format_block b;
        if (!(m->sampler[f / 32] >> f % 32 & 1))
            continue;
        EXPECT(format_block(f, &b), "format %u of the model has no known size", f);
        if (format_comes_back(f, &b))
            good++;
        else if (format_reads_back(f))
            bad++;
    }
    EXPECT(!bad, "%u formats do not come back as they were", bad);
    printf("%u formats come back\n", good);
}

static void run_query(u32 expect)
{
    static struct words b;
    const u32 waiting[4] = {2, 0, 0, 0};
    b.n = 0;
    renderer_write_backing(r, 3, 0, waiting, sizeof(waiting));
    query_command(&b, VC_BEGIN_QUERY, 50);
    draw(&b, 3, 6);
    query_command(&b, VC_END_QUERY, 50);
    query_command(&b, VC_GET_QUERY, 50);
    renderer_submit(r, CONTEXT, b.w, b.n);
    struct renderer_reply *f = wait_for(renderer_fence(r));
    EXPECT(!f->result && f->range_count, "no result of the query");
    u32 state[4] = {2, 0, 0, 0};
    const u8 *at = f->data;
    for (u32 i = 0; i < f->range_count; i++) {
        const struct wire_range *g = &f->ranges[i];
        EXPECT(g->resource == 3 && g->offset + g->size <= sizeof(state), "range outside");
        memcpy((u8 *)state + g->offset, at, g->size);
        at += g->size;
    }
    EXPECT(state[0] == 1 && state[2] == expect && !state[3],
           "the query says: state %u, %u samples; should be 1, %u", state[0], state[2], expect);
    free(f);
}

static void test_query(const char *argument)
{
    static struct words b;
    set_up();
    create(3, VT_BUFFER, VF_R8, VB_CUSTOM, 16, 1);
    renderer_attach_backing(r, 3, 16);
    renderer_context_attach(r, CONTEXT, 3);
    b.n = 0;
    command(&b, VC_CREATE, VO_QUERY, 4);
    word(&b, 50);
    word(&b, 0); /* samples that passed */
    word(&b, 0);
    word(&b, 3);
    clear_colour(&b, 0, 0, 0);
    renderer_submit(r, CONTEXT, b.w, b.n);
    fence_ok("query");
    /* The same result twice is reported twice: the guest has reset its memory in between. */
    for (int i = 0; i < 20; i++)
        run_query(width * height / 4);
    fence_ok("after the queries");
    printf("queries: %u samples\n", width * height / 4);
}

/* A transfer inside a command buffer writes the backing: the fence reports what it changed. */
static void test_pushed(const char *argument)
{
    static struct words b;
    size_t size = (size_t)width * height * 4, seen = 0;
    set_up();
    draw_frame(0);
    b.n = 0;
    command(&b, VC_TRANSFER3D, 0, 13);
    const u32 w[13] = {TARGET, 0, 0, width * 4, 0, 0, 0, 0, width, height, 1, 0, 2 /* from host */};
    for (size_t i = 0; i < ARRAY_SIZE(w); i++)
        word(&b, w[i]);
    u64 seq = renderer_submit(r, CONTEXT, b.w, b.n);
    struct renderer_reply *f = wait_for(renderer_fence(r));
    struct renderer_reply *p = wait_for(renderer_read(r, TARGET, 0, NULL, WIRE_RAW));
    EXPECT(renderer_result(f, seq) == WIRE_R_OK, "submit: %s",
           wire_result_text(renderer_result(f, seq)));
    /* The backing was zeros: every byte that is not zero was reported, and no other. */
    const u8 *at = f->data;
    for (u32 i = 0; i < f->range_count; i++) {
        const struct wire_range *g = &f->ranges[i];
        EXPECT(g->resource == TARGET && g->offset + g->size <= size &&
                   !memcmp(at, p->data + g->offset, g->size) && !memchr(at, 0, g->size),
               "range %u", i);
        at += g->size;
        seen += g->size;
    }
    for (size_t i = 0; i < size; i++)
        seen -= p->data[i] != 0;
    EXPECT(f->range_count && !seen, "%zu bytes too many or too few", seen);
    free(f);
    free(p);
    /* Once more: nothing new. */
    renderer_submit(r, CONTEXT, b.w, b.n);
    f = wait_for(renderer_fence(r));
    EXPECT(!f->range_count, "%u ranges are reported again", f->range_count);
    free(f);
    /* The client writes: what comes then differs again. */
    renderer_write_backing(r, TARGET, 8, "\1\2\3\4", 4);
    renderer_submit(r, CONTEXT, b.w, b.n);
    f = wait_for(renderer_fence(r));
    EXPECT(f->range_count == 1 && f->ranges[0].offset == 8 && f->ranges[0].size == 4,
           "%u ranges after a write", f->range_count);
    free(f);
    printf("pushed %zu bytes\n", size);
}

static void test_fences(const char *argument)
{
    u64 fences[64], bad[64], last = 0;
    set_up();
    for (int i = 0; i < 64; i++) {
        draw_frame((unsigned)i);
        bad[i] = renderer_resource_unref(r, 1000 + (u32)i);
        fences[i] = renderer_fence(r);
    }
    EXPECT(renderer_owed(r) == 64, "%u replies are owed", renderer_owed(r));
    for (int i = 0; i < 64; i++) {
        struct renderer_reply *f;
        while (!(f = renderer_next(r)) && !renderer_death(r)) {
            usleep(1000);
            renderer_poll(r);
        }
        EXPECT(f && f->seq == fences[i] && f->seq > last, "fence %d came out of order", i);
        last = f->seq;
        EXPECT(renderer_result(f, bad[i]) == WIRE_R_NO_RESOURCE, "request %d: %s", i,
               wire_result_text(renderer_result(f, bad[i])));
        EXPECT(renderer_result(f, bad[i] - 1) == WIRE_R_OK, "submit %d", i);
        free(f);
    }
    /* Results are run-length coded. */
    u64 first = 0;
    for (int i = 0; i < 10000; i++) {
        u64 seq = renderer_context_attach(r, CONTEXT, TARGET);
        first = first ? first : seq;
    }
    struct renderer_reply *f = wait_for(renderer_fence(r));
    EXPECT(f->run_count == 1 && f->runs[0].count == 10000 && f->runs[0].seq == first,
           "10000 results take %u runs", f->run_count);
    free(f);
    printf("fences in order\n");
}

static void bad_words(struct words *b, int which)
{
    b->n = 0;
    command(b, VC_CREATE_SUB_CONTEXT, 0, 1);
    word(b, 1);
    command(b, VC_SET_SUB_CONTEXT, 0, 1);
    word(b, 1);
    switch (which) {
    case 0: word(b, VC_CLEAR | 0x7fffu << 16); break; /* longer than the buffer */
    case 1:                                           /* no such resource */
        command(b, VC_CREATE, VO_SURFACE, 5);
        word(b, 11);
        word(b, 999);
        word(b, 1);
        word(b, 0);
        word(b, 0);
        break;
    case 2: /* no shader */
        command(b, VC_CREATE, VO_SHADER, 7);
        word(b, 30);
        word(b, 1);
        word(b, 8);
        word(b, 300);
        word(b, 0);
        word(b, 0x41414141);
        word(b, 0x00414141);
        break;
    case 3: /* no such surface */
        command(b, VC_FRAMEBUFFER, 0, 3);
        word(b, 1);
        word(b, 0);
        word(b, 777);
        break;
    case 4: /* too short */
        command(b, VC_CLEAR, 0, 3);
        word(b, 4);
        word(b, 0);
        word(b, 0);
        break;
    default: /* unknown: refused, but not latched */ command(b, 200, 0, 1); word(b, 0);
    }
}

static void test_latch(const char *argument)
{
    static struct words b;
    set_up();
    fence_ok("set-up");
    for (int i = 0; i < 6; i++) {
        u32 context = 20 + (u32)i;
        bool latches = i < 5;
        renderer_context_create(r, context, "bad \"7\"", 7);
        bad_words(&b, i);
        u64 seq = renderer_submit(r, context, b.w, b.n);
        b.n = 0;
        clear_colour(&b, 0, 0, 0);
        u64 after = latches ? renderer_submit(r, context, b.w, b.n) : 0;
        struct renderer_reply *f = wait_for(renderer_fence(r));
        u32 result = renderer_result(f, seq);
        EXPECT(result == (latches ? WIRE_R_CONTEXT_ERROR : WIRE_R_REFUSED), "bad %d: %s", i,
               wire_result_text(result));
        EXPECT(f->fault_count == (latches ? 1 : 0), "bad %d: %u faults", i, f->fault_count);
        if (latches) {
            EXPECT(f->faults[0].context == context, "bad %d: context %u", i, f->faults[0].context);
            EXPECT(renderer_result(f, after) == WIRE_R_LATCHED, "bad %d: then %s", i,
                   wire_result_text(renderer_result(f, after)));
            printf("%s\n", f->faults[0].text);
        }
        free(f);
        /* A context with the same id is a new one. */
        renderer_context_destroy(r, context);
        renderer_context_create(r, context, "good", 4);
        word(&b, 0);
        seq = renderer_submit(r, context, b.w + b.n - 1, 1);
        EXPECT(result_of(seq) == WIRE_R_OK, "context %u stays bad", context);
    }
    /* The others draw on. */
    draw_frame(0);
    fence_ok("the good context");
    struct renderer_reply *p = wait_for(renderer_read(r, TARGET, 0, NULL, WIRE_RAW));
    printf("frame 0 %016llx\n", (unsigned long long)hash_reply(p));
    free(p);
}

static u32 create_result(u32 id, u32 target, u32 format, u32 w, u32 h, u32 layers, u32 samples)
{
    struct wire_resource_create c = {.resource = id,
                                     .target = target,
                                     .format = format,
                                     .bind = VB_SAMPLER | VB_TARGET,
                                     .width = w,
                                     .height = h,
                                     .depth = 1,
                                     .array_size = layers,
                                     .nr_samples = samples};
    return result_of(renderer_resource_create(r, &c));
}

static void expect_result(u32 is, u32 should, const char *what)
{
    EXPECT(is == should, "%s: %s, should be: %s", what, wire_result_text(is),
           wire_result_text(should));
}

static void test_wrong(const char *argument)
{
    struct wire_transfer t = {.resource = TARGET, .box = {0, 0, 0, 1, 1, 1}};
    set_up();
    fence_ok("set-up");
    expect_result(create_result(TARGET, VT_2D, 1, 16, 16, 1, 0), WIRE_R_EXISTS, "twice");
    expect_result(create_result(0, VT_2D, 1, 16, 16, 1, 0), WIRE_R_INVALID, "id 0");
    expect_result(create_result(90, 77, 1, 16, 16, 1, 0), WIRE_R_INVALID, "target 77");
    expect_result(create_result(90, VT_2D, 9999, 16, 16, 1, 0), WIRE_R_INVALID, "format 9999");
    expect_result(create_result(90, VT_2D, 1, 0, 16, 1, 0), WIRE_R_INVALID, "width 0");
    expect_result(create_result(90, VT_2D, 1, 1u << 31, 1u << 31, 1, 0), WIRE_R_INVALID, "huge");
    expect_result(create_result(90, VT_2D, 1, 16384, 16384, 64, 0), WIRE_R_BUDGET, "64 GiB");
    expect_result(create_result(90, VT_2D, 1, 16, 16, 1, 4), WIRE_R_OK, "4 samples");
    expect_result(result_of(renderer_attach_backing(r, TARGET, 4096)), WIRE_R_EXISTS, "backing");
    expect_result(result_of(renderer_attach_backing(r, 91, 4096)), WIRE_R_NO_RESOURCE, "backing");
    expect_result(result_of(renderer_attach_backing(r, 90, 1ull << 40)), WIRE_R_BUDGET, "backing");
    expect_result(result_of(renderer_attach_backing(r, 90, 0)), WIRE_R_INVALID, "backing of 0");
    expect_result(result_of(renderer_detach_backing(r, 90)), WIRE_R_NO_BACKING, "detach");
    expect_result(result_of(renderer_write_backing(r, VERTICES, 4090, "12345678", 8)),
                  WIRE_R_INVALID, "write past the end");
    expect_result(result_of(renderer_write_backing(r, VERTICES, ~0ull, "12345678", 8)),
                  WIRE_R_INVALID, "write far past the end");
    expect_result(result_of(renderer_context_create(r, CONTEXT, "", 0)), WIRE_R_EXISTS, "context");
    expect_result(result_of(renderer_context_create(r, 0, "", 0)), WIRE_R_INVALID, "context 0");
    expect_result(result_of(renderer_context_destroy(r, 99)), WIRE_R_NO_CONTEXT, "context 99");
    expect_result(result_of(renderer_context_attach(r, 99, 1)), WIRE_R_NO_CONTEXT, "attach");
    expect_result(result_of(renderer_context_attach(r, CONTEXT, 99)), WIRE_R_NO_RESOURCE, "attach");
    expect_result(result_of(renderer_submit(r, 99, (const u32[]){0}, 1)), WIRE_R_NO_CONTEXT,
                  "submit");
    static u32 many[5 << 20];
    expect_result(result_of(renderer_submit(r, CONTEXT, many, ARRAY_SIZE(many))), WIRE_R_MALFORMED,
                  "a submit of 20 MiB");
    t.box.x = width;
    expect_result(result_of(renderer_transfer_to_host(r, &t)), WIRE_R_INVALID, "box");
    t.box = (struct wire_box){0, 0, 0, UINT32_MAX, 1, 1};
    expect_result(result_of(renderer_transfer_to_host(r, &t)), WIRE_R_INVALID, "box");
    t.box = (struct wire_box){0, 0, 0, 1, 1, 1};
    t.level = 1;
    expect_result(result_of(renderer_transfer_to_host(r, &t)), WIRE_R_INVALID, "level");
    t.level = 0;
    t.offset = (u64)width * height * 4 - 3;
    expect_result(result_of(renderer_transfer_to_host(r, &t)), WIRE_R_INVALID, "offset");
    struct renderer_reply *p = wait_for(renderer_read(r, 90, 0, NULL, WIRE_RAW));
    expect_result(p->result, WIRE_R_UNREADABLE, "reading 4 samples");
    free(p);
    p = wait_for(renderer_read(r, VERTICES, 0, NULL, WIRE_BGRA));
    expect_result(p->result, WIRE_R_UNREADABLE, "reading a buffer as pixels");
    free(p);
    unsigned made = 0;
    for (u32 i = 0; i < 400; i++)
        made += result_of(renderer_context_create(r, 1000 + i, "many", 4)) == WIRE_R_OK;
    EXPECT(made == 255, "%u contexts beside one", made);
    renderer_reset(r);
    fence_ok("reset");
    set_up();
    draw_frame(0);
    fence_ok("drawing after a reset");
    p = wait_for(renderer_read(r, TARGET, 0, NULL, WIRE_RAW));
    printf("frame 0 %016llx\n", (unsigned long long)hash_reply(p));
    free(p);
}

/* Killed at random moments, with work under way: noticed, named, everything owed is answered. */
static void test_kill(const char *argument)
{
    unsigned times = argument ? (unsigned)atoi(argument) : 5;
    unsigned seed = (unsigned)getpid(), pending = 0;
    const char *given = getenv("SEED");
    seed = given ? (unsigned)atoi(given) : seed;
    printf("SEED=%u\n", seed);
    srand(seed);
    for (unsigned k = 0; k < times; k++) {
        u64 fence = 0;
        int pid = renderer_pid(r);
        u64 until = host_ns() + (u64)(rand() % 60) * 1000000;
        set_up();
        for (unsigned i = 0; host_ns() < until; i++) {
            struct renderer_reply *p;
            draw_frame(i);
            renderer_read(r, TARGET, 0, NULL, WIRE_RAW);
            fence = renderer_fence(r);
            while (renderer_owed(r) > 8 && (p = renderer_wait(r, fence, 0)))
                free(p);
            while ((p = renderer_next(r)))
                free(p);
        }
        fence = renderer_fence(r);
        pending += renderer_owed(r);
        kill(pid, SIGKILL);
        struct renderer_reply *p = renderer_wait(r, fence, 0);
        EXPECT(p, "kill %u: no reply", k);
        EXPECT(p->result == WIRE_R_LOST || p->result == WIRE_R_OK, "kill %u: %s", k,
               wire_result_text(p->result));
        free(p);
        u64 last = renderer_fence(r);
        p = renderer_wait(r, last, 0);
        EXPECT(p && p->result == WIRE_R_LOST, "kill %u: it lives", k);
        EXPECT(renderer_result(p, last - 1) == WIRE_R_LOST, "kill %u: results", k);
        free(p);
        EXPECT(renderer_death(r) && strstr(renderer_death(r), "killed by signal 9"),
               "kill %u: it died of: %s", k, renderer_death(r));
        EXPECT(!renderer_owed(r) && renderer_fd(r) == -1 && !renderer_pid(r), "kill %u: rest", k);
        EXPECT(kill(pid, 0) && errno == ESRCH, "kill %u: a zombie is left", k);
        renderer_destroy(r);
        r = NULL;
        start();
    }
    printf("%u kills, %u replies were owed\n", times, pending);
}

static void test_hang(const char *argument)
{
    set_up();
    fence_ok("set-up");
    kill(renderer_pid(r), SIGSTOP);
    u64 began = host_ns();
    struct renderer_reply *p = renderer_wait(r, renderer_fence(r), 0);
    EXPECT(p && p->result == WIRE_R_LOST, "a stopped renderer answered");
    free(p);
    EXPECT(strstr(renderer_death(r), "hangs"), "it died of: %s", renderer_death(r));
    EXPECT(host_ns() - began < config.hang_timeout * 5000000ull, "noticed late");
    printf("%s\n", renderer_death(r));
}

/* The machine's process dies: its renderer does too. */
static void test_orphan(const char *argument)
{
    set_up();
    fence_ok("set-up");
    printf("%d\n", renderer_pid(r));
    fflush(stdout);
    raise(SIGKILL);
}

/* Much more than a socket holds, in both directions. */
static void test_pipeline(const char *argument)
{
    enum { EDGE = 1024 };
    static u8 up[EDGE * EDGE * 4];
    create(80, VT_2D, VF_BGRA8, VB_SAMPLER | VB_TARGET, EDGE, EDGE);
    renderer_attach_backing(r, 80, sizeof(up));
    struct wire_transfer t = {.resource = 80, .box = {0, 0, 0, EDGE, EDGE, 1}};
    u64 seq[40];
    for (unsigned i = 0; i < ARRAY_SIZE(seq); i++) {
        memset(up, (int)i, sizeof(up));
        renderer_write_backing(r, 80, 0, up, sizeof(up));
        renderer_transfer_to_host(r, &t);
        seq[i] = renderer_read(r, 80, 0, NULL, WIRE_RAW);
    }
    for (unsigned i = 0; i < ARRAY_SIZE(seq); i++) {
        struct renderer_reply *p = wait_for(seq[i]);
        EXPECT(!p->result && p->data_size == sizeof(up) && p->data[0] == i &&
                   p->data[sizeof(up) - 1] == i,
               "read %u is that of another moment", i);
        free(p);
    }
    fence_ok("pipeline");
    printf("%zu reads of 4 MiB\n", ARRAY_SIZE(seq));
}

static long resident(int pid)
{
    char path[64];
    long pages = 0, total;
    snprintf(path, sizeof(path), "/proc/%d/statm", pid);
    FILE *f = fopen(path, "r");
    if (f && fscanf(f, "%ld %ld", &total, &pages) != 2)
        pages = 0;
    if (f)
        fclose(f);
    return pages * 4;
}

static void test_bench(const char *argument)
{
    unsigned frames = argument ? (unsigned)atoi(argument) : 200;
    width = 1280;
    height = 800;
    renderer_destroy(r);
    u64 t = host_ns();
    start();
    printf("start: %.1f ms, %ld KiB resident\n", (double)(host_ns() - t) / 1e6,
           resident(renderer_pid(r)));
    set_up();
    draw_frame(0);
    fence_ok("first frame");
    printf("first frame after start: %.1f ms\n", (double)(host_ns() - t) / 1e6);
    for (int readback = 0; readback < 2; readback++) {
        t = host_ns();
        for (unsigned f = 0; f < frames; f++) {
            draw_frame(f);
            u64 fence = renderer_fence(r);
            u64 pixels =
                readback ? renderer_read(r, TARGET, 0, NULL, getenv("RAW") ? WIRE_RAW : WIRE_BGRA)
                         : 0;
            free(wait_for(fence));
            if (readback)
                free(wait_for(pixels));
        }
        double s = (double)(host_ns() - t) / 1e9;
        printf("%u x %u, clear, triangle, fence%s: %.1f frames/s\n", width, height,
               readback ? ", read" : "", frames / s);
    }
    printf("%ld KiB resident\n", resident(renderer_pid(r)));
}

static void test_about(const char *argument)
{
    const struct renderer_about *a = renderer_about(r);
    printf("driver: %s\ncapset %u version %u: %u bytes %016llx\nmissing: %u %s\n", a->driver,
           a->capset_id, a->capset_version, a->capset_size,
           (unsigned long long)XXH3_64bits(a->capset, a->capset_size), a->missing, a->lacks);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(const char *argument);
    } tests[] = {
        {"about", test_about},       {"triangle", test_triangle}, {"upload", test_upload},
        {"formats", test_formats},   {"query", test_query},       {"pushed", test_pushed},
        {"fences", test_fences},     {"latch", test_latch},       {"wrong", test_wrong},
        {"kill", test_kill},         {"hang", test_hang},         {"orphan", test_orphan},
        {"pipeline", test_pipeline}, {"bench", test_bench},
    };
    int o;
    setvbuf(stdout, NULL, _IOLBF, 0);
    while ((o = getopt(argc, argv, "p:d:lh:s:")) > 0)
        switch (o) {
        case 'p': config.program = optarg; break;
        case 'd': config.driver = optarg; break;
        case 'l': config.lenient = true; break;
        case 'h': config.hang_timeout = (u32)atoi(optarg); break;
        case 's': width = height = (u32)atoi(optarg); break;
        default: return 2;
        }
    for (size_t i = 0; optind < argc && i < ARRAY_SIZE(tests); i++)
        if (!strcmp(argv[optind], tests[i].name)) {
            start();
            tests[i].run(argv[optind + 1]);
            renderer_destroy(r);
            return 0;
        }
    fprintf(stderr, "renderer_draw: no such test\n");
    return 2;
}
