/*
 * Drives the real renderer with commands as a device takes them (virtio-gpu-log/play/drive.h), and
 * checks the pixels: gpu_drive PROGRAM. Prints what was seen; status 1 and a line on stderr when
 * something is wrong.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tools/virgl_words.h"
#include "virtio-gpu-log/play/drive.h"

#define EDGE 64u

static struct gpu_drive *d;
static struct gpu_driven driven;

static _Noreturn void PRINTF(1, 2) fail(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    gpu_drive_destroy(d);
    exit(1);
}

#define EXPECT(cond, ...)                                                                          \
    do {                                                                                           \
        if (!(cond))                                                                               \
            fail(__VA_ARGS__);                                                                     \
    } while (0)

static void drive(u32 type, u32 ctx, const void *body, u32 size, const struct gpu_range *uploads,
                  u32 count)
{
    static u8 bytes[sizeof(struct words) + 64];
    struct virtio_gpu_ctrl_hdr h = {.type = type, .ctx_id = ctx};
    struct gpu_command c;
    memcpy(bytes, &h, sizeof(h));
    memcpy(bytes + sizeof(h), body, size);
    EXPECT(!gpu_command_decode(GPU_QUEUE_control, bytes, GPU_HEADER + size, &c), "%s", c.problem);
    struct err err;
    EXPECT(!gpu_drive_command(d, &c, uploads, count, &driven, &err), "%s", err.text);
}
#define DRIVE(type, ctx, ...)                                                                      \
    drive(VIRTIO_GPU_CMD_##type, ctx, (u32[]){__VA_ARGS__}, sizeof((u32[]){__VA_ARGS__}), NULL, 0)

static struct renderer_reply *wait_for(u64 seq)
{
    struct renderer_reply *reply = renderer_wait(gpu_drive_renderer(d), seq, 0);
    EXPECT(reply, "no reply");
    return reply;
}

/* Everything went well so far. */
static void fence_ok(const char *what)
{
    struct renderer_reply *f = wait_for(renderer_fence(gpu_drive_renderer(d)));
    for (u32 i = 0; i < f->run_count; i++)
        EXPECT(!f->runs[i].result, "%s: request %llu: %s", what, (unsigned long long)f->runs[i].seq,
               wire_result_text(f->runs[i].result));
    EXPECT(!f->result && !f->fault_count, "%s: fault", what);
    free(f);
}

/* Every format that virtio-gpu has: rows come back as they went up, the first one first. */
static void two_d(u32 format)
{
    static u8 up[EDGE * EDGE * 4];
    for (u32 i = 0; i < sizeof(up); i++)
        up[i] = (u8)(i * 7 + (i >> 8) * 13 + format);
    struct gpu_range range = {.resource = 9, .bytes = {.size = sizeof(up), .data = up}};
    DRIVE(RESOURCE_CREATE_2D, 0, 9, format, EDGE, EDGE);
    DRIVE(RESOURCE_ATTACH_BACKING, 0, 9, 1, 0, 0, sizeof(up), 0);
    /* The lower part, of which 8 texels in the middle: rows are as long as the resource's. */
    u32 body[] = {8, 16, 8, EDGE - 16, 16 * EDGE * 4 + 8 * 4, 0, 9, 0};
    drive(VIRTIO_GPU_CMD_TRANSFER_TO_HOST_2D, 0, body, sizeof(body), &range, 1);
    struct renderer_reply *p = wait_for(renderer_read(gpu_drive_renderer(d), 9, 0, NULL, WIRE_RAW));
    EXPECT(!p->result && p->data_size == sizeof(up), "format %u: %s", format,
           wire_result_text(p->result));
    for (u32 y = 16; y < EDGE; y++)
        EXPECT(!memcmp(p->data + (y * EDGE + 8) * 4, up + (y * EDGE + 8) * 4, 32),
               "format %u: row %u is another", format, y);
    free(p);
    DRIVE(RESOURCE_UNREF, 0, 9, 0);
    fence_ok("2D");
}

/* A context draws to a 2D resource: the lowest y is the first row. */
static void draw_to_2d(void)
{
    static const float v[3][8] = {
        {-1, -1, 0, 1, 1, 0, 0, 1}, {1, -1, 0, 1, 1, 0, 0, 1}, {-1, 1, 0, 1, 1, 0, 0, 1}};
    static struct words b;
    static u32 body[sizeof(b.w) / 4 + 2];
    u32 name[18] = {4, 0, 0x77617264};
    b.n = 0;
    DRIVE(RESOURCE_CREATE_2D, 0, 1, VF_BGRA8, EDGE, EDGE);
    DRIVE(RESOURCE_ATTACH_BACKING, 0, 1, 1, 0, 0, EDGE * EDGE * 4, 0);
    DRIVE(RESOURCE_CREATE_3D, 0, 2, VT_BUFFER, VF_R8, VB_VERTEX, 4096, 1, 1, 1, 0, 0, 0, 0);
    DRIVE(RESOURCE_ATTACH_BACKING, 0, 2, 1, 0, 0, 4096, 0);
    drive(VIRTIO_GPU_CMD_CTX_CREATE, 3, name, sizeof(name), NULL, 0);
    DRIVE(CTX_ATTACH_RESOURCE, 3, 1, 0);
    DRIVE(CTX_ATTACH_RESOURCE, 3, 2, 0);
    drawing_state(&b, 1, 2, EDGE, EDGE);
    command(&b, VC_TRANSFER3D, 0, 13);
    const u32 t[13] = {2, 0, 0, 0, 0, 0, 0, 0, sizeof(v), 1, 1, 0, 1 /* to host */};
    for (size_t i = 0; i < ARRAY_SIZE(t); i++)
        word(&b, t[i]);
    clear_colour(&b, 0, 0, 1);
    draw(&b, 0, 3);
    body[0] = b.n * 4;
    memcpy(body + 2, b.w, b.n * 4);
    struct gpu_range range = {.resource = 2, .bytes = {.size = sizeof(v), .data = (const u8 *)v}};
    drive(VIRTIO_GPU_CMD_SUBMIT_3D, 3, body, 8 + b.n * 4, &range, 1);
    u32 box[] = {0, 0, 0, EDGE, EDGE, 1, 0, 0, 1, 0, 0, 0};
    drive(VIRTIO_GPU_CMD_TRANSFER_FROM_HOST_3D, 3, box, sizeof(box), NULL, 0);
    EXPECT(driven.reply && driven.main, "no reply is promised");
    struct renderer_reply *p = wait_for(driven.main);
    EXPECT(!p->result && p->range_count == 1 && p->ranges[0].size == EDGE * EDGE * 4 &&
               gpu_drive_backing(d, p->ranges[0].resource, p->ranges[0].offset, p->ranges[0].size),
           "reading: %s", wire_result_text(p->result));
    EXPECT(!memcmp(p->data + 4 * (EDGE - 2), "\0\0\xff\xff", 4), "the first row is not drawn to");
    EXPECT(!memcmp(p->data + (EDGE - 1) * EDGE * 4 + 4 * (EDGE - 2), "\xff\0\0\xff", 4),
           "the last row is drawn to");
    free(p);
    fence_ok("drawing");
}

int main(int argc, char **argv)
{
    static const u32 formats[] = {1, 2, 3, 4, 67, 68, 121, 134};
    struct renderer_config config = {.program = argc > 1 ? argv[1] : NULL};
    struct err err;
    if (gpu_drive_create(&d, &config, &err))
        fail("gpu_drive: %s", err.text);
    for (size_t i = 0; i < ARRAY_SIZE(formats); i++)
        two_d(formats[i]);
    for (int i = 0; i < 2; i++) {
        draw_to_2d();
        EXPECT(!gpu_drive_reset(d, &err), "%s", err.text);
    }
    puts("2D resources come back as they went up; a context draws to one");
    gpu_drive_destroy(d);
    return 0;
}
