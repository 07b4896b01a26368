/* virtio-gpu-log/play/drive.c over a renderer that only writes down what it is asked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gpu_stream.h"
#include "virtio-gpu-log/play/drive.h"

struct renderer {
    u64 seq;
    char text[4096];
    bool dead;
};
static struct renderer the_renderer;
static unsigned created;

static u64 PRINTF(2, 3) asked(struct renderer *r, const char *fmt, ...)
{
    size_t n = strlen(r->text);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(r->text + n, sizeof(r->text) - n, fmt, ap);
    va_end(ap);
    strncat(r->text, "\n", sizeof(r->text) - strlen(r->text) - 1);
    return ++r->seq;
}

int renderer_create(struct renderer **out, const struct renderer_config *c, struct err *err)
{
    *out = &the_renderer;
    the_renderer.dead = false;
    created++;
    return 0;
}
void renderer_destroy(struct renderer *r)
{
}
const char *renderer_death(const struct renderer *r)
{
    return r->dead ? "killed" : NULL;
}
u64 renderer_reset(struct renderer *r)
{
    return asked(r, "reset");
}
u64 renderer_context_create(struct renderer *r, u32 context, const char *name, size_t length)
{
    return asked(r, "context %u %.*s", context, (int)length, name);
}
u64 renderer_context_destroy(struct renderer *r, u32 context)
{
    return asked(r, "context_destroy %u", context);
}
u64 renderer_context_attach(struct renderer *r, u32 context, u32 resource)
{
    return asked(r, "context_attach %u %u", context, resource);
}
u64 renderer_context_detach(struct renderer *r, u32 context, u32 resource)
{
    return asked(r, "context_detach %u %u", context, resource);
}
u64 renderer_resource_create(struct renderer *r, const struct wire_resource_create *a)
{
    return asked(r, "create %u target %u format %u bind 0x%x %ux%ux%u flags %u", a->resource,
                 a->target, a->format, a->bind, a->width, a->height, a->depth, a->flags);
}
u64 renderer_resource_unref(struct renderer *r, u32 resource)
{
    return asked(r, "unref %u", resource);
}
u64 renderer_attach_backing(struct renderer *r, u32 resource, u64 size)
{
    return asked(r, "attach %u %llu", resource, (unsigned long long)size);
}
u64 renderer_detach_backing(struct renderer *r, u32 resource)
{
    return asked(r, "detach %u", resource);
}
u64 renderer_write_backing(struct renderer *r, u32 resource, u64 offset, const void *bytes,
                           size_t size)
{
    return asked(r, "write %u %llu+%zu", resource, (unsigned long long)offset, size);
}
static u64 transfer(struct renderer *r, const char *what, const struct wire_transfer *t)
{
    return asked(r, "%s %u level %u %u,%u,%u %ux%ux%u offset %llu stride %u", what, t->resource,
                 t->level, t->box.x, t->box.y, t->box.z, t->box.w, t->box.h, t->box.d,
                 (unsigned long long)t->offset, t->stride);
}
u64 renderer_transfer_to_host(struct renderer *r, const struct wire_transfer *t)
{
    return transfer(r, "up", t);
}
u64 renderer_transfer_from_host(struct renderer *r, const struct wire_transfer *t)
{
    return transfer(r, "down", t);
}
u64 renderer_submit(struct renderer *r, u32 context, const u32 *words, size_t count)
{
    return asked(r, "submit %u %zu first 0x%x", context, count, count ? words[0] : 0);
}

static struct gpu_drive *d;
static struct gpu_driven driven;

/* Drives one command, whose body is given in dwords; `want`: what the renderer is asked. */
static void drive(u32 type, u32 ctx, const u32 *body, u32 dwords, const struct gpu_range *uploads,
                  u32 count, const char *want)
{
    static u8 bytes[65536];
    struct virtio_gpu_ctrl_hdr h = {.type = type, .ctx_id = ctx};
    struct gpu_command c;
    memcpy(bytes, &h, sizeof(h));
    memcpy(bytes + sizeof(h), body, (size_t)dwords * 4);
    u32 queue = type >= VIRTIO_GPU_CMD_UPDATE_CURSOR ? GPU_QUEUE_cursor : GPU_QUEUE_control;
    gpu_command_decode(queue, bytes, GPU_HEADER + dwords * 4, &c);
    the_renderer.text[0] = 0;
    u64 before = the_renderer.seq;
    struct err err;
    assert_int_equal(gpu_drive_command(d, &c, uploads, count, &driven, &err), 0);
    assert_string_equal(the_renderer.text, want);
    assert_int_equal(driven.first, the_renderer.seq == before ? 0 : before + 1);
    assert_int_equal(driven.last, the_renderer.seq == before ? 0 : the_renderer.seq);
    assert_true(!driven.main || driven.main == driven.last);
}
#define DRIVE(type, ctx, want, ...)                                                                \
    drive(VIRTIO_GPU_CMD_##type, ctx, (u32[]){__VA_ARGS__}, ARRAY_SIZE(((u32[]){__VA_ARGS__})),    \
          NULL, 0, want)

static int set_up(void **state)
{
    struct renderer_config config = {.driver = "softpipe"};
    struct err err;
    memset(&the_renderer, 0, sizeof(the_renderer));
    created = 0;
    return gpu_drive_create(&d, &config, &err);
}
static int tear_down(void **state)
{
    gpu_drive_destroy(d);
    return 0;
}

static void test_resources(void **state)
{
    struct gpu_shape shape;
    DRIVE(RESOURCE_CREATE_2D, 0, "create 5 target 2 format 2 bind 0xa 64x48x1 flags 0\n", 5, 2, 64,
          48);
    assert_true(driven.main == 1 && !driven.reply);
    assert_true(gpu_drive_shape(d, 5, &shape) && shape.width == 64 && shape.height == 48);
    assert_false(gpu_drive_shape(d, 6, &shape));
    DRIVE(RESOURCE_CREATE_2D, 0, "", 5, 2, 64, 48); /* the device refused it */
    DRIVE(RESOURCE_CREATE_2D, 0, "", 0, 2, 64, 48);
    DRIVE(RESOURCE_CREATE_3D, 0, "create 1029 target 3 format 67 bind 0x8 4x5x6 flags 1\n", 1029, 3,
          67, 8, 4, 5, 6, 1, 2, 0, 1, 0);
    /* Entries: address in two dwords, length, padding. Their lengths need 64 bits. */
    DRIVE(RESOURCE_ATTACH_BACKING, 0, "attach 5 12288\n", 5, 2, 0x1000, 0, 4096, 0, 0x9000, 0, 8192,
          0);
    DRIVE(RESOURCE_ATTACH_BACKING, 0, "", 5, 1, 0x1000, 0, 4096, 0);
    DRIVE(RESOURCE_ATTACH_BACKING, 0, "attach 1029 8589934590\n", 1029, 2, 0, 0, UINT32_MAX, 0, 0,
          0, UINT32_MAX, 0);
    DRIVE(RESOURCE_ATTACH_BACKING, 0, "", 77, 1, 0, 0, 4096, 0);
    assert_true(gpu_drive_backing(d, 5, 0, 12288) && gpu_drive_backing(d, 5, 12288, 0));
    assert_false(gpu_drive_backing(d, 5, 1, 12288));
    assert_false(gpu_drive_backing(d, 5, UINT64_MAX, 2));
    assert_false(gpu_drive_backing(d, 6, 0, 0));
    DRIVE(RESOURCE_DETACH_BACKING, 0, "detach 5\n", 5, 0);
    assert_false(gpu_drive_backing(d, 5, 0, 0));
    DRIVE(RESOURCE_DETACH_BACKING, 0, "", 5, 0);
    DRIVE(RESOURCE_UNREF, 0, "unref 1029\n", 1029, 0);
    DRIVE(RESOURCE_UNREF, 0, "", 1029, 0);
    DRIVE(SET_SCANOUT, 0, "", 0, 0, 64, 48, 0, 5);
    DRIVE(RESOURCE_FLUSH, 0, "", 0, 0, 64, 48, 5, 0);
    DRIVE(UPDATE_CURSOR, 0, "", 0, 1, 2, 0, 5, 0, 0, 0);
    DRIVE(RESOURCE_CREATE_2D, 0, "", 9, 2, 64); /* too short */
}

static void test_transfers(void **state)
{
    static u8 data[3 << 20];
    struct gpu_range range = {.resource = 5, .offset = 256, .bytes = {.size = 512, .data = data}};
    const u32 body[] = {0, 1, 64, 2, 256, 0, 5, 0};
    DRIVE(RESOURCE_CREATE_2D, 0, "create 5 target 2 format 2 bind 0xa 64x48x1 flags 0\n", 5, 2, 64,
          48);
    drive(VIRTIO_GPU_CMD_TRANSFER_TO_HOST_2D, 0, body, 8, &range, 1,
          "up 5 level 0 0,1,0 64x2x1 offset 256 stride 0\n"); /* no backing: nothing is written */
    DRIVE(RESOURCE_ATTACH_BACKING, 0, "attach 5 4194304\n", 5, 1, 0x1000, 0, 4 << 20, 0);
    drive(VIRTIO_GPU_CMD_TRANSFER_TO_HOST_2D, 0, body, 8, &range, 1,
          "write 5 256+512\nup 5 level 0 0,1,0 64x2x1 offset 256 stride 0\n");
    /* Each request has its number. */
    range.bytes.size = sizeof(data) - 1;
    drive(VIRTIO_GPU_CMD_TRANSFER_TO_HOST_2D, 0, body, 8, &range, 1,
          "write 5 256+1048576\nwrite 5 1048832+1048576\nwrite 5 2097408+1048575\n"
          "up 5 level 0 0,1,0 64x2x1 offset 256 stride 0\n");
    range.offset = 2 << 20; /* beyond the end */
    drive(VIRTIO_GPU_CMD_TRANSFER_TO_HOST_2D, 0, body, 8, &range, 1,
          "up 5 level 0 0,1,0 64x2x1 offset 256 stride 0\n");
    DRIVE(TRANSFER_FROM_HOST_3D, 1, "down 5 level 3 1,2,3 4x5x6 offset 7 stride 8\n", 1, 2, 3, 4, 5,
          6, 7, 0, 5, 3, 8, 9);
    assert_true(driven.reply);
    DRIVE(TRANSFER_FROM_HOST_3D, 1, "", 1, 2, 3, 4, 5, 6, 7, 0, 99, 3, 8, 9);
    assert_false(driven.reply);
}

static void test_submits(void **state)
{
    static struct words w;
    struct gpu_range range = {.at = 2, .resource = 5, .bytes = {.size = 4, .data = (u8 *)"abcd"}};
    u32 name[18] = {3};
    memcpy(name + 2, "abcdef", 6);
    DRIVE(RESOURCE_CREATE_2D, 0, "create 5 target 2 format 2 bind 0xa 64x48x1 flags 0\n", 5, 2, 64,
          48);
    DRIVE(RESOURCE_ATTACH_BACKING, 0, "attach 5 4096\n", 5, 1, 0x1000, 0, 4096, 0);
    drive(VIRTIO_GPU_CMD_CTX_CREATE, 7, name, 18, NULL, 0, "context 7 abc\n");
    DRIVE(CTX_ATTACH_RESOURCE, 7, "context_attach 7 5\n", 5, 0);
    DRIVE(CTX_DETACH_RESOURCE, 7, "context_detach 7 5\n", 5, 0);
    /* A command that the device answers or ignores does not reach the renderer. */
    w.n = 0;
    put(&w, 0);
    put(&w, 0);
    put_command(&w, VIRGL_CCMD_SEND_STRING_MARKER, 0, 2, 4, 0x41414141);
    w.at[0] = w.n * 4 - 8;
    drive(VIRTIO_GPU_CMD_SUBMIT_3D, 7, w.at, w.n, &range, 1,
          "write 5 0+4\nsubmit 7 3 first 0x20000\n");
    assert_int_equal(driven.main, driven.last);
    /* What is refused is not submitted; its uploads are guest memory all the same. */
    w.at[2] = 200;
    drive(VIRTIO_GPU_CMD_SUBMIT_3D, 7, w.at, w.n, &range, 1, "write 5 0+4\n");
    assert_int_equal(driven.main, 0);
    DRIVE(SUBMIT_3D, 7, "submit 7 0 first 0x0\n", 0, 0);
    DRIVE(CTX_DESTROY, 7, "context_destroy 7\n");
}

static void test_reset(void **state)
{
    struct gpu_shape shape;
    struct err err;
    DRIVE(RESOURCE_CREATE_2D, 0, "create 5 target 2 format 2 bind 0xa 64x48x1 flags 0\n", 5, 2, 64,
          48);
    assert_int_equal(gpu_drive_reset(d, &err), 0);
    assert_int_equal(created, 1);
    assert_false(gpu_drive_shape(d, 5, &shape));
    the_renderer.dead = true;
    assert_int_equal(gpu_drive_reset(d, &err), 0);
    assert_int_equal(created, 2);
    DRIVE(RESOURCE_CREATE_2D, 0, "create 5 target 2 format 2 bind 0xa 64x48x1 flags 0\n", 5, 2, 64,
          48);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_resources, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_transfers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_submits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_reset, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
