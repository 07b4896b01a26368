/*
 * What a hostile guest's command buffers do behind the device:
 * gpu_hostile -p PROGRAM [-d DRIVER] [-t HANG_TIMEOUT] SEED COUNT.
 *
 * Buffers that draw, mutated, and buffers made from the tables go the way of a SUBMIT_3D: the check
 * that the device makes, the host's part (live/gpu.c), a real renderer. The renderer may die of
 * them; then it must be said so, and after a reset a new one must draw the same picture as ever.
 * Prints what became of them, and of what renderers died.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/cursor.h"
#include "dev/virtio/gpu_reply.h"
#include "live/gpu.h"
#include "tests/fuzz/gpu_commands.h"
#include "tests/tools/virgl_fuzz.h"
#include "virtio-gpu-log/log.h"

/* One after the other, each for a few buffers: an error ends what one does. */
#define CONTEXTS 32u
#define BUFFERS  4u
#define AT_ONCE  64u /* under way, when there is no waiting for each */
#define EDGE     64u
#define CAUSES   16u

static struct renderer_config config = {.hang_timeout = 20000};
static u32 context = 1;
static struct gpu_host *host;
static u64 sent, answered; /* commands that are awaited */
static u64 number;         /* of the buffer, for messages */
static u64 refused, latched, wrong, deaths, restarts;
static bool lost, fault;
static struct {
    char why[120];
    u64 count;
} causes[CAUSES];

static _Noreturn void PRINTF(1, 2) fail(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "gpu_hostile: buffer %llu: ", (unsigned long long)number);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    gpu_host_destroy(host);
    exit(1);
}

/* ---- as the device does it ---- */

static bool emit(u32 type, u32 ctx, const void *body, u32 size, bool awaited,
                 const struct gpu_range *ranges, u32 count)
{
    static u8 bytes[1u << 20];
    struct virtio_gpu_ctrl_hdr h = {.type = type, .ctx_id = ctx};
    struct gpu_command c;
    memcpy(bytes, &h, sizeof(h));
    memcpy(bytes + sizeof(h), body, size);
    u32 response = gpu_command_decode(GPU_QUEUE_control, bytes, (u32)sizeof(h) + size, &c);
    if (!response && type == VIRTIO_GPU_CMD_SUBMIT_3D &&
        !virgl_check(c.payload, c.payload_size, NULL))
        return false;
    if (response)
        fail("the device refuses command 0x%x", type);
    gpu_host_emit(host, &(struct dev_gpu){.what = DEV_GPU_TAKEN,
                                          .number = sent,
                                          .command = &c,
                                          .awaited = awaited,
                                          .ranges = ranges,
                                          .count = count});
    sent += awaited;
    return true;
}

static void note_cause(const u8 *text, u64 len)
{
    char why[sizeof(causes->why)];
    snprintf(why, sizeof(why), "%.*s", (int)MIN(len, sizeof(why) - 1), (const char *)text);
    unsigned i = 0;
    while (i + 1 < CAUSES && causes[i].count && strcmp(causes[i].why, why))
        i++;
    memcpy(causes[i].why, why, sizeof(why));
    causes[i].count++;
}

/* Takes a reply apart; returns whether it is the last part. Every byte of it is looked at. */
static bool take_part(const struct input *in)
{
    struct cursor c = {.in = in->data, .end = in->len};
    u64 sum = 0, len;
    const u8 *text;
    while (c.at < c.end && !c.bad)
        switch (cursor_get_varint(&c)) {
        case GPU_OP_WRITE:
            sum += cursor_get_varint(&c);
            sum += cursor_get_varint(&c);
            len = cursor_get_varint(&c);
            text = cursor_get(&c, len);
            if (text)
                sum += XXH3_64bits(text, len);
            break;
        case GPU_OP_SAME:
            for (unsigned i = 0; i < 3; i++)
                sum += cursor_get_varint(&c);
            break;
        case GPU_OP_FAULT:
            cursor_get_varint(&c);
            len = cursor_get_varint(&c);
            cursor_get(&c, len);
            fault = true;
            latched++;
            break;
        case GPU_OP_LOST:
            len = cursor_get_varint(&c);
            text = cursor_get(&c, len);
            if (text && !c.bad)
                note_cause(text, len);
            lost = true;
            deaths++;
            break;
        case GPU_OP_DONE:
            wrong += cursor_get_varint(&c) != VIRTIO_GPU_RESP_OK_NODATA;
            if (c.at != c.end || c.bad)
                fail("a reply goes on after its end");
            return true;
        default: c.bad = true;
        }
    if (c.bad || sum == 1)
        fail("a reply that the device does not understand");
    return false;
}

static void answer_one(void)
{
    struct input in;
    do
        if (!gpu_host_reply(host, answered, 60000, &in))
            fail("no reply");
    while (!take_part(&in));
    answered++;
}

static void resource(u32 id, u32 target, u32 format, u32 bind, u32 width, u32 height, u32 backing)
{
    const u32 create[] = {id, target, format, bind, width, height, 1, 1, 0, 0, 0, 0};
    const struct {
        u32 id, n;
        struct virtio_gpu_mem_entry e;
    } attach = {id, 1, {.addr = 0, .length = backing}};
    emit(VIRTIO_GPU_CMD_RESOURCE_CREATE_3D, 0, create, sizeof(create), false, NULL, 0);
    emit(VIRTIO_GPU_CMD_RESOURCE_ATTACH_BACKING, 0, &attach, sizeof(attach), false, NULL, 0);
}

static void new_context(void)
{
    const struct {
        u32 length, init;
        char name[64];
    } create = {7, 0, "hostile"};
    context = 1 + context % CONTEXTS;
    emit(VIRTIO_GPU_CMD_CTX_DESTROY, context, NULL, 0, false, NULL, 0);
    emit(VIRTIO_GPU_CMD_CTX_CREATE, context, &create, sizeof(create), false, NULL, 0);
    for (u32 id = 1; id <= 3; id++) {
        const u32 pair[] = {id, 0};
        emit(VIRTIO_GPU_CMD_CTX_ATTACH_RESOURCE, context, pair, sizeof(pair), false, NULL, 0);
    }
}

static void set_up(void)
{
    static const float v[3][8] = {
        {-1, -1, 0, 1, 0, 1, 1, 1}, {1, -1, 0, 1, 0, 1, 1, 1}, {-1, 1, 0, 1, 0, 1, 1, 1}};
    const struct gpu_range vertices = {.resource = 2,
                                       .bytes = {.size = sizeof(v), .data = (const u8 *)v}};
    struct {
        struct virtio_gpu_box box;
        u64 offset;
        u32 resource, level, stride, layer_stride;
    } upload = {.box = {.w = sizeof(v), .h = 1, .d = 1}, .resource = 2};
    if (gpu_host_death(host))
        restarts++;
    gpu_host_emit(host, &(struct dev_gpu){.what = DEV_GPU_RESET});
    if (gpu_host_death(host))
        fail("no new renderer: %s", gpu_host_death(host));
    answered = sent; /* nothing is under way any more */
    lost = fault = false;
    resource(1, VT_2D, VF_BGRA8, VB_TARGET | VB_SAMPLER, EDGE, EDGE, EDGE * EDGE * 4);
    resource(2, VT_BUFFER, VF_R8, VB_VERTEX, 4096, 1, 4096);
    resource(3, VT_BUFFER, VF_R8, VB_CUSTOM, 16, 1, 16);
    emit(VIRTIO_GPU_CMD_TRANSFER_TO_HOST_3D, 0, &upload, sizeof(upload), false, &vertices, 1);
    new_context();
}

/* What transfers and queries inside read is uploaded before: here all of each backing, once. */
static bool submit(const struct words *b)
{
    static u8 zeros[EDGE * EDGE * 4];
    static const u32 sizes[] = {sizeof(zeros), 4096, 16};
    static u32 body[2 + ARRAY_SIZE(b->w)];
    struct gpu_range ranges[3];
    for (u32 i = 0; i < 3; i++)
        ranges[i] =
            (struct gpu_range){.resource = i + 1, .bytes = {.size = sizes[i], .data = zeros}};
    body[0] = b->n * 4;
    memcpy(body + 2, b->w, b->n * 4);
    return emit(VIRTIO_GPU_CMD_SUBMIT_3D, context, body, 8 + b->n * 4, true, ranges + below(3),
                below(2));
}

/* ---- the campaign ---- */

static void make_buffer(struct words *b)
{
    u8 bytes[400];
    struct program p = {bytes, sizeof(bytes)};
    full_buffer(b);
    if (below(4)) {
        mutate(b);
        return;
    }
    /* After what sets up the drawing, commands of the tables. */
    for (u32 i = 0; i < sizeof(bytes); i++)
        bytes[i] = (u8)(below(3) ? below(0xd0) : bits());
    b->n += make_virgl(b->w + b->n, 1000, &p);
}

/* Whatever the renderer was told before: afterwards the same picture as ever. */
static void check_picture(void)
{
    static u8 pixels[EDGE * EDGE * 4];
    static struct words b;
    static u64 expect;
    struct err err;
    set_up();
    full_buffer(&b);
    submit(&b);
    answer_one();
    if (lost || fault || gpu_host_read(host, 1, 0, 0, EDGE, EDGE, pixels, &err))
        fail("drawing afterwards: %s", lost ? "lost" : fault ? "a context error" : err.text);
    u64 h = XXH3_64bits(pixels, sizeof(pixels));
    expect = expect ? expect : h;
    if (h != expect)
        fail("the picture is not the same any more");
}

int main(int argc, char **argv)
{
    static struct words b;
    struct err err;
    int o;
    while ((o = getopt(argc, argv, "p:d:t:")) > 0)
        switch (o) {
        case 'p': config.program = optarg; break;
        case 'd': config.driver = optarg; break;
        case 't': config.hang_timeout = (u32)atoi(optarg); break;
        default: return 2;
        }
    if (argc - optind != 2)
        return 2;
    fuzz_state = strtoull(argv[optind], NULL, 0);
    u64 count = strtoull(argv[optind + 1], NULL, 0);
    config.lenient = true;
    printf("seed %s\n", argv[optind]);
    if (gpu_host_create(&host, &config, &err))
        fail("%s", err.text);
    check_picture();
    for (number = 0; number < count; number++) {
        make_buffer(&b);
        if (!submit(&b)) {
            refused++;
            continue;
        }
        while (!lost && sent - answered > (number % 1000 < 50 ? 0 : AT_ONCE))
            answer_one();
        if (lost)
            set_up();
        else if (sent % BUFFERS == 0)
            new_context();
        if (sent % 5000 == 0) {
            while (!lost && sent != answered)
                answer_one();
            check_picture();
        }
    }
    check_picture();
    printf("%llu buffers: %llu refused by the device, %llu context errors, %llu wrong, %llu "
           "renderers died, %llu started anew\n",
           (unsigned long long)count, (unsigned long long)refused, (unsigned long long)latched,
           (unsigned long long)wrong, (unsigned long long)deaths, (unsigned long long)restarts);
    for (unsigned i = 0; i < CAUSES && causes[i].count; i++)
        printf("%llu %s\n", (unsigned long long)causes[i].count, causes[i].why);
    gpu_host_destroy(host);
    return 0;
}
