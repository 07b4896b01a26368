/*
 * Writes a gpu.log of a small scene, as a device would: gpu_scene [-p PROGRAM] [-b FRAME] [-c] [-d]
 * [-m]
 * [-s EDGE] FILE FRAMES. Two contexts, two scanout buffers that take turns, depth, textures that
 * are uploaded between and inside submits, a target that is drawn to without ever being cleared, a
 * query, a cursor; at first a 2D console.
 *
 *   -p PROGRAM  the renderer that gives what guests read back (default: nothing is read back)
 *   -b FRAME    in that frame, one draw has a wrong fragment shader
 *   -c          depth is cleared in every fourth frame only
 *   -d          depth of a format that cannot be read back
 *   -u          not compressed
 *   -m          drawn with 4 samples and resolved
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fuzz/gpu_repair.h"
#include "tests/unit/gpu_stream.h"
#include "virtio-gpu-log/play/drive.h"

enum {
    BUFFER0 = 1,
    BUFFER1,
    VERTICES,
    TEXTURE,
    TRAIL,
    DEPTH,
    MS_COLOUR,
    MS_DEPTH,
    RESULT,
    CONSOLE
};
enum { CURSOR = 11, SHARED, INDICES };
enum { BGRX = 2, RGBA = 67, R8 = 64, RGBA32F = 31, Z24S8 = 20, Z24X8 = 21 };
enum { T_BUFFER = 0, T_2D = 2 };
enum { B_DEPTH = 1, B_TARGET = 2, B_VIEW = 8, B_VERTEX = 16, B_INDEX = 32, B_CUSTOM = 1 << 17 };
/* Objects of context 1. */
enum { O_BUFFER0 = 10, O_BUFFER1, O_TRAIL, O_DEPTH, O_MS_COLOUR, O_MS_DEPTH };
enum { O_ELEMENTS = 20, O_VS, O_FS, O_FS_TEXTURE, O_FS_WRONG, O_BLEND, O_ADD, O_DSA, O_LESS, O_RS };
enum { O_VIEW_TRAIL = 30, O_VIEW_SHARED, O_SAMPLER, O_QUERY, O_VIEW_TEXTURE = 40 };

static struct {
    const char *program;
    unsigned bad;
    bool unreadable, samples, rarely, unpacked;
} options;
static u32 edge = 128;
static struct stream stream;
static struct gpu_drive *drive;
static struct words w;
static struct gpu_range uploads[8];
static u32 upload_count;

/* What the guest reads back of a command. */
static void run(u64 number, u32 type, u32 ctx, const void *body, u32 size)
{
    static u8 bytes[sizeof(struct words) + 64];
    struct virtio_gpu_ctrl_hdr h = {.type = type, .ctx_id = ctx};
    struct gpu_command c;
    struct gpu_driven driven;
    struct gpu_range ranges[256];
    struct err err;
    u32 count = 0;
    memcpy(bytes, &h, sizeof(h));
    if (size)
        memcpy(bytes + sizeof(h), body, size);
    u32 queue = type >= VIRTIO_GPU_CMD_UPDATE_CURSOR ? GPU_QUEUE_cursor : GPU_QUEUE_control;
    gpu_command_decode(queue, bytes, GPU_HEADER + size, &c);
    struct renderer_reply *reply = NULL;
    if (drive) {
        if (gpu_drive_command(drive, &c, uploads, upload_count, &driven, &err)) {
            fprintf(stderr, "gpu_scene: %s\n", err.text);
            exit(1);
        }
        struct renderer *r = gpu_drive_renderer(drive);
        if (driven.reply)
            reply = renderer_wait(r, driven.main, 0);
        else if (type == VIRTIO_GPU_CMD_SUBMIT_3D)
            reply = renderer_wait(r, renderer_fence(r), 0);
        const u8 *at = reply ? reply->data : NULL;
        for (u32 i = 0; reply && i < reply->range_count && i < ARRAY_SIZE(ranges); i++) {
            const struct wire_range *g = &reply->ranges[i];
            ranges[count++] = (struct gpu_range){.resource = g->resource,
                                                 .offset = g->offset,
                                                 .bytes = {.size = g->size, .data = at}};
            at += g->size;
        }
        for (u32 i = 0; reply && i < reply->run_count; i++)
            if (reply->runs[i].result) {
                fprintf(stderr, "gpu_scene: command %llu: %s\n", (unsigned long long)number,
                        wire_result_text(reply->runs[i].result));
                for (u32 k = 0; k < reply->fault_count; k++)
                    fprintf(stderr, "gpu_scene: %s\n", reply->faults[k].text);
                exit(1);
            }
    }
    if (gpu_log_command(stream.log, stream.position, stream.position, queue, bytes,
                        GPU_HEADER + size, uploads, upload_count, 0, &err) ||
        gpu_log_reply(stream.log, stream.position + 500, stream.position + 500, number,
                      c.desc->response, NULL, 0, ranges, count, &err)) {
        fprintf(stderr, "gpu_scene: %s\n", err.text);
        exit(1);
    }
    free(reply);
    upload_count = 0;
}

static void add_bytes(u32 type, u32 ctx, const void *body, u32 size)
{
    stream.position += 1000;
    run(stream.number++, type, ctx, body, size);
}
#define ADD(type, ctx, ...)                                                                        \
    add_bytes(VIRTIO_GPU_CMD_##type, ctx, (u32[]){__VA_ARGS__}, sizeof((u32[]){__VA_ARGS__}))

static void uploading(u32 at, u32 resource, u64 offset, const void *data, u64 size)
{
    uploads[upload_count++] = (struct gpu_range){
        .at = at, .resource = resource, .offset = offset, .bytes = {.size = size, .data = data}};
}

static void submit(u32 ctx)
{
    static u32 body[2 + ARRAY_SIZE(w.at)];
    body[0] = w.n * 4;
    memcpy(body + 2, w.at, (size_t)w.n * 4);
    add_bytes(VIRTIO_GPU_CMD_SUBMIT_3D, ctx, body, 8 + w.n * 4);
    w.n = 0;
}

static void resource(u32 id, u32 target, u32 format, u32 bind, u32 width, u32 height, u32 samples,
                     u64 backing)
{
    ADD(RESOURCE_CREATE_3D, 0, id, target, format, bind, width, height, 1, 1, 0, samples, 0, 0);
    if (backing)
        ADD(RESOURCE_ATTACH_BACKING, 0, id, 1, id << 24, 0, (u32)backing, 0);
}

static void context(u32 ctx, const char *name)
{
    u32 body[18] = {(u32)strlen(name)};
    memcpy(body + 2, name, strlen(name));
    add_bytes(VIRTIO_GPU_CMD_CTX_CREATE, ctx, body, sizeof(body));
}

/* --- The scene --- */

/* Vertices: position, then colour or texture coordinates. */
enum { V_NEAR = 0, V_FAR = 3, V_QUAD_TEXTURE = 6, V_QUAD_SHARED = 12, V_TRAIL = 18, V_SHOW = 24 };
static float vertices[30][8];

static void vertex(u32 i, float x, float y, float z, float r, float g, float b)
{
    const float v[8] = {x, y, z, 1, r, g, b, 1};
    memcpy(vertices[i], v, sizeof(v));
}

static void quad(u32 first, float x, float y, float size, float z)
{
    static const float corner[6][2] = {{0, 0}, {1, 0}, {0, 1}, {1, 0}, {1, 1}, {0, 1}};
    for (u32 i = 0; i < 6; i++)
        vertex(first + i, x + corner[i][0] * size, y + corner[i][1] * size, z, corner[i][0],
               corner[i][1], .25f);
}

static void move(unsigned frame)
{
    float t = (float)(frame % 16) / 16;
    vertex(V_NEAR, -.9f, -.9f, 0, 1, 0, t);
    vertex(V_NEAR + 1, .9f, -.8f + t / 4, 0, 0, 1, 0);
    vertex(V_NEAR + 2, -.2f + t, .93f, 0, 0, 0, 1);
    vertex(V_FAR, -1, -.5f, .5f, .5f, .5f, 0);
    vertex(V_FAR + 1, 1, .5f - t, .5f, .5f, 0, .5f);
    vertex(V_FAR + 2, -.5f, 1, .5f, 1, 1, 1);
    quad(V_TRAIL, -1 + 2 * t, -1 + (float)(frame % 7) / 4, .4f, 0);
}

static void objects(u32 ctx)
{
    static const char vs[] = "VERT\nDCL IN[0]\nDCL IN[1]\nDCL OUT[0], POSITION\n"
                             "DCL OUT[1], GENERIC[0]\n  0: MOV OUT[1], IN[1]\n"
                             "  1: MOV OUT[0], IN[0]\n  2: END\n";
    static const char fs[] = "FRAG\nDCL IN[0], GENERIC[0], LINEAR\nDCL OUT[0], COLOR\n"
                             "  0: MOV OUT[0], IN[0]\n  1: END\n";
    static const char texture[] = "FRAG\nDCL IN[0], GENERIC[0], LINEAR\nDCL OUT[0], COLOR\n"
                                  "DCL SAMP[0]\nDCL SVIEW[0], 2D, FLOAT\n"
                                  "  0: TEX OUT[0], IN[0], SAMP[0], 2D\n  1: END\n";
    static const char wrong[] = "FRAG\nDCL IN[0], GENERIC[0], LINEAR\nDCL OUT[0], COLOR\n"
                                "IMM[0] FLT32 {0.0, 1.0, 0.5, 1.0}\n"
                                "  0: MOV OUT[0], IMM[0]\n  1: END\n";
    put_command(&w, VIRGL_CCMD_CREATE_SUB_CTX, 0, 1, 1);
    put_command(&w, VIRGL_CCMD_SET_SUB_CTX, 0, 1, 1);
    put_command(&w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_VERTEX_ELEMENTS, 9, O_ELEMENTS, 0, 0, 0,
                RGBA32F, 16, 0, 0, RGBA32F);
    put_command(&w, VIRGL_CCMD_BIND_OBJECT, VIRGL_OBJECT_VERTEX_ELEMENTS, 1, O_ELEMENTS);
    put_shader(&w, O_FS_WRONG, 1, wrong);
    put_shader(&w, O_FS_TEXTURE, 1, texture);
    put_shader(&w, O_VS, 0, vs);
    put_shader(&w, O_FS, 1, fs);
    put_command(&w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_BLEND, 11, O_BLEND, 0, 0, 0xfu << 27, 0,
                0, 0, 0, 0, 0, 0);
    /* Source and destination added. */
    put_command(&w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_BLEND, 11, O_ADD, 0, 0,
                1 | 1 << 4 | 1 << 9 | 1 << 17 | 1 << 22 | 0xfu << 27, 0, 0, 0, 0, 0, 0, 0);
    put_command(&w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_DSA, 5, O_DSA, 0, 0, 0, 0);
    put_command(&w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_DSA, 5, O_LESS, 1 | 2 | 1 << 2, 0, 0, 0);
    put_command(&w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_RASTERIZER, 9, O_RS,
                1u << 1 | 1u << 29 | 1u << 30 | (options.samples ? 1u << 25 : 0), 0x3f800000, 0, 0,
                0x3f800000, 0, 0, 0);
    put_command(&w, VIRGL_CCMD_BIND_OBJECT, VIRGL_OBJECT_RASTERIZER, 1, O_RS);
    put_command(&w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_SAMPLER_STATE, 9, O_SAMPLER, 2 | 2 << 3,
                0, 0, 0, 0, 0, 0, 0);
    if (ctx != 1)
        return;
    put_command(&w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_QUERY, 4, O_QUERY, 0, 0, RESULT);
    put_command(&w, VIRGL_CCMD_BIND_SAMPLER_STATES, 0, 3, 1, 0, O_SAMPLER);
}

static void surface(u32 handle, u32 resource_id, u32 format)
{
    put_command(&w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_SURFACE, 5, handle, resource_id, format,
                0, 0);
}

static void view(u32 handle, u32 resource_id)
{
    put_command(&w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_SAMPLER_VIEW, 6, handle, resource_id,
                RGBA | 2 << 24, 0, 0, 0 | 1 << 3 | 2 << 6 | 3 << 9);
}

static void target(u32 colour, u32 depth, u32 size)
{
    put_command(&w, VIRGL_CCMD_SET_FRAMEBUFFER_STATE, 0, 3, 1, depth, colour);
    put_header(&w, VIRGL_CCMD_SET_VIEWPORT_STATE, 0, 7);
    put(&w, 0);
    for (u32 i = 0; i < 2; i++) {
        put_float(&w, (float)size / 2);
        put_float(&w, (float)size / 2);
        put_float(&w, .5f);
    }
}

static void clear(u32 buffers, float r, float g, float b)
{
    put_header(&w, VIRGL_CCMD_CLEAR, 0, 8);
    put(&w, buffers);
    put_float(&w, r);
    put_float(&w, g);
    put_float(&w, b);
    put_float(&w, 1);
    put(&w, 0); /* depth: 1.0 */
    put(&w, 0x3ff00000);
    put(&w, 0);
}

static void draw(u32 shader, u32 blend, u32 dsa, u32 first, u32 count)
{
    put_command(&w, VIRGL_CCMD_BIND_SHADER, 0, 2, shader, 1);
    put_command(&w, VIRGL_CCMD_BIND_OBJECT, VIRGL_OBJECT_BLEND, 1, blend);
    put_command(&w, VIRGL_CCMD_BIND_OBJECT, VIRGL_OBJECT_DSA, 1, dsa);
    put_command(&w, VIRGL_CCMD_DRAW_VBO, 0, 12, first, count, 4, 0, 1, 0, 0, 0, 0, 0,
                first + count - 1, 0);
}

static void sample(u32 view_handle, u32 first)
{
    put_command(&w, VIRGL_CCMD_SET_SAMPLER_VIEWS, 0, 3, 1, 0, view_handle);
    draw(O_FS_TEXTURE, O_BLEND, O_DSA, first, 6);
}

/* Vertices first..first + count go up inside the submit. */
static void move_up(u32 first, u32 count)
{
    u32 at = w.n, offset = first * 32, size = count * 32;
    put_command(&w, VIRGL_CCMD_TRANSFER3D, 0, 13, VERTICES, 0, 0, 0, 0, offset, 0, 0, size, 1, 1,
                offset, 1);
    uploading(at, VERTICES, offset, vertices[first], size);
}

static void set_up(void)
{
    static u8 console[1 << 22];
    static u8 arrow[16 * 16 * 4];
    u32 bytes = edge * edge * 4;
    for (u32 i = 0; i < bytes; i++)
        console[i] = (u8)(i / 4 % edge * 2 + (i / 4 / edge));
    ADD(GET_DISPLAY_INFO, 0, 0);
    ADD(RESOURCE_CREATE_2D, 0, CONSOLE, BGRX, edge, edge);
    ADD(RESOURCE_ATTACH_BACKING, 0, CONSOLE, 2, 0x1000, 0, 4096, 0, 0x9000, 0, bytes - 4096, 0);
    uploading(0, CONSOLE, 0, console, bytes);
    ADD(TRANSFER_TO_HOST_2D, 0, 0, 0, edge, edge, 0, 0, CONSOLE, 0);
    ADD(SET_SCANOUT, 0, 0, 0, edge, edge, 0, CONSOLE);
    ADD(RESOURCE_FLUSH, 0, 0, 0, edge, edge, CONSOLE, 0);
    /* Premultiplied white of half transparency, a solid corner. */
    for (u32 i = 0; i < sizeof(arrow); i++)
        arrow[i] = i < 32 ? 255 : 128;
    ADD(RESOURCE_CREATE_2D, 0, CURSOR, 1, 16, 16);
    ADD(RESOURCE_ATTACH_BACKING, 0, CURSOR, 1, 0x1000, 0, sizeof(arrow), 0);
    uploading(0, CURSOR, 0, arrow, sizeof(arrow));
    ADD(TRANSFER_TO_HOST_2D, 0, 0, 0, 16, 16, 0, 0, CURSOR, 0);

    u32 depth = options.unreadable ? Z24X8 : Z24S8, samples = options.samples ? 4 : 0;
    resource(BUFFER0, T_2D, BGRX, B_TARGET | B_VIEW | 1 << 18, edge, edge, 0, bytes);
    resource(BUFFER1, T_2D, BGRX, B_TARGET | B_VIEW | 1 << 18, edge, edge, 0, bytes);
    resource(VERTICES, T_BUFFER, R8, B_VERTEX, 4096, 1, 0, 4096);
    resource(TEXTURE, T_2D, RGBA, B_VIEW, 8, 8, 0, 4096);
    resource(TRAIL, T_2D, RGBA, B_VIEW | B_TARGET, edge / 2, edge / 2, 0, 0);
    resource(DEPTH, T_2D, depth, B_DEPTH, edge, edge, 0, 0);
    resource(RESULT, T_BUFFER, R8, B_CUSTOM, 16, 1, 0, 16);
    resource(SHARED, T_2D, RGBA, B_VIEW | B_TARGET, 32, 32, 0, 0);
    if (samples) {
        resource(MS_COLOUR, T_2D, BGRX, B_TARGET, edge, edge, samples, 0);
        resource(MS_DEPTH, T_2D, depth, B_DEPTH, edge, edge, samples, 0);
    }
    context(1, "scene");
    context(2, "helper");
    for (u32 id = BUFFER0; id <= RESULT; id++)
        if (id < MS_COLOUR || id > MS_DEPTH || samples)
            ADD(CTX_ATTACH_RESOURCE, 1, id, 0);
    ADD(CTX_ATTACH_RESOURCE, 1, SHARED, 0);
    ADD(CTX_ATTACH_RESOURCE, 2, SHARED, 0);
    ADD(CTX_ATTACH_RESOURCE, 2, VERTICES, 0);

    quad(V_QUAD_TEXTURE, -.95f, .45f, .5f, 0);
    quad(V_QUAD_SHARED, .45f, .45f, .5f, 0);
    quad(V_SHOW, .35f, -.95f, .6f, 0);
    uploading(0, VERTICES, 0, vertices, sizeof(vertices));
    ADD(TRANSFER_TO_HOST_3D, 1, 0, 0, 0, sizeof(vertices), 1, 1, 0, 0, VERTICES, 0, 0, 0);

    objects(1);
    surface(O_BUFFER0, BUFFER0, BGRX);
    surface(O_BUFFER1, BUFFER1, BGRX);
    surface(O_TRAIL, TRAIL, RGBA);
    surface(O_DEPTH, DEPTH, depth);
    if (samples) {
        surface(O_MS_COLOUR, MS_COLOUR, BGRX);
        surface(O_MS_DEPTH, MS_DEPTH, depth);
    }
    view(O_VIEW_TRAIL, TRAIL);
    view(O_VIEW_SHARED, SHARED);
    put_command(&w, VIRGL_CCMD_SET_VERTEX_BUFFERS, 0, 3, 32, 0, VERTICES);
    target(O_TRAIL, 0, edge / 2);
    clear(4, 0, 0, 0);
    submit(1);
    objects(2);
    surface(O_BUFFER0, SHARED, RGBA);
    put_command(&w, VIRGL_CCMD_SET_VERTEX_BUFFERS, 0, 3, 32, 0, VERTICES);
    target(O_BUFFER0, 0, 32);
    submit(2);
}

/* Two triangles of the trail's square once more, by indices that are gone afterwards. */
static void by_index(void)
{
    static const u16 index[6] = {V_SHOW,     V_SHOW + 1, V_SHOW + 2,
                                 V_SHOW + 4, V_SHOW + 3, V_SHOW + 5};
    resource(INDICES, T_BUFFER, R8, B_INDEX, 64, 1, 0, 64);
    ADD(CTX_ATTACH_RESOURCE, 1, INDICES, 0);
    uploading(0, INDICES, 0, index, sizeof(index));
    ADD(TRANSFER_TO_HOST_3D, 1, 0, 0, 0, sizeof(index), 1, 1, 0, 0, INDICES, 0, 0, 0);
    put_command(&w, VIRGL_CCMD_SET_SUB_CTX, 0, 1, 1);
    put_command(&w, VIRGL_CCMD_SET_INDEX_BUFFER, 0, 3, INDICES, 2, 0);
    put_command(&w, VIRGL_CCMD_BIND_SHADER, 0, 2, O_FS, 1);
    put_command(&w, VIRGL_CCMD_DRAW_VBO, 0, 12, 0, 6, 4, 1, 1, 0, 0, 0, 0, V_SHOW, V_SHOW + 5, 0);
    submit(1);
    ADD(CTX_DETACH_RESOURCE, 1, INDICES, 0);
    ADD(RESOURCE_UNREF, 0, INDICES, 0);
}

/* The texture changes every third frame, and with it its view. */
static void new_texture(unsigned frame)
{
    u8 texels[256];
    for (u32 i = 0; i < sizeof(texels); i++)
        texels[i] = (u8)(i * 5 + frame * 31);
    uploading(0, TEXTURE, 0, texels, sizeof(texels));
    ADD(TRANSFER_TO_HOST_3D, 1, 0, 0, 0, 8, 8, 1, 0, 0, TEXTURE, 0, 0, 0);
    put_command(&w, VIRGL_CCMD_SET_SUB_CTX, 0, 1, 1);
    view(O_VIEW_TEXTURE + frame / 3 % 2, TEXTURE);
    if (frame)
        put_command(&w, VIRGL_CCMD_DESTROY_OBJECT, 0, 1, O_VIEW_TEXTURE + (frame / 3 + 1) % 2);
    submit(1);
}

static void frame_of(unsigned frame)
{
    u32 buffer = BUFFER0 + frame % 2, surface_handle = O_BUFFER0 + frame % 2;
    u32 colour = options.samples ? O_MS_COLOUR : surface_handle;
    const u32 waiting[4] = {2, 0, 0, 0};
    bool bad = options.bad && frame == options.bad;
    move(frame);
    if (frame % 3 == 0)
        new_texture(frame);
    /* The helper's picture. */
    put_command(&w, VIRGL_CCMD_SET_SUB_CTX, 0, 1, 1);
    clear(4, (float)(frame % 5) / 5, .5f, 0);
    draw(O_FS, O_BLEND, O_DSA, V_NEAR, 3);
    submit(2);

    put_command(&w, VIRGL_CCMD_SET_SUB_CTX, 0, 1, 1);
    move_up(V_NEAR, 6);
    move_up(V_TRAIL, 6);
    target(O_TRAIL, 0, edge / 2);
    draw(O_FS, O_ADD, O_DSA, V_TRAIL, 6);
    target(colour, options.samples ? O_MS_DEPTH : O_DEPTH, edge);
    clear(options.rarely && frame % 4 ? 4 : 7, .25f, (float)(frame % 4) / 4, .5f);
    put_command(&w, VIRGL_CCMD_BEGIN_QUERY, 0, 1, O_QUERY);
    draw(bad ? O_FS_WRONG : O_FS, O_BLEND, O_LESS, V_NEAR, 3);
    put_command(&w, VIRGL_CCMD_END_QUERY, 0, 1, O_QUERY);
    draw(O_FS, O_BLEND, O_LESS, V_FAR, 3);
    if (options.samples) {
        put_command(&w, VIRGL_CCMD_BLIT, 0, 21, 0xf, 0, 0, buffer, 0, BGRX, 0, 0, 0, edge, edge, 1,
                    MS_COLOUR, 0, BGRX, 0, 0, 0, edge, edge, 1);
        target(surface_handle, 0, edge);
    }
    sample(O_VIEW_TEXTURE + frame / 3 % 2, V_QUAD_TEXTURE);
    sample(O_VIEW_SHARED, V_QUAD_SHARED);
    sample(O_VIEW_TRAIL, V_SHOW);
    uploading(w.n, RESULT, 0, waiting, sizeof(waiting));
    put_command(&w, VIRGL_CCMD_GET_QUERY_RESULT, 0, 2, O_QUERY, 1);
    submit(1);
    if (frame % 5 == 2)
        by_index();
    if (frame % 4 == 1)
        ADD(TRANSFER_FROM_HOST_3D, 1, 8, 8, 0, 16, 16, 1, 0, 0, buffer, 0, 0, 0);
    if (!frame)
        ADD(UPDATE_CURSOR, 0, 0, 5, 7, 0, CURSOR, 1, 1, 0);
    else
        ADD(MOVE_CURSOR, 0, 0, frame % 40 - 8, 7 + frame % 13, 0, CURSOR, 1, 1, 0);
    ADD(SET_SCANOUT, 0, 0, 0, edge, edge, 0, buffer);
    ADD(RESOURCE_FLUSH, 0, 0, 0, edge, edge, buffer, 0);
}

static void unpack(const char *path)
{
    FILE *f = fopen(path, "r+b");
    size_t size = 1u << 24;
    u8 *data = malloc(size);
    size = f ? fread(data, 1, size, f) : 0;
    data = gpu_log_unpacked(data, &size);
    if (!f || fseek(f, 0, SEEK_SET) || fwrite(data, 1, size, f) != size || fclose(f)) {
        perror(path);
        exit(1);
    }
    free(data);
}

int main(int argc, char **argv)
{
    struct gpu_rec_start start = {
        .virgl = 1, .scanouts = 1, .hz = 60, .capset_id = 1, .capset_version = 1};
    struct renderer_config config = {0};
    struct err err;
    int o;
    while ((o = getopt(argc, argv, "p:b:cdms:u")) > 0)
        switch (o) {
        case 'p': options.program = optarg; break;
        case 'b': options.bad = (unsigned)atoi(optarg); break;
        case 'c': options.rarely = true; break;
        case 'd': options.unreadable = true; break;
        case 'm': options.samples = true; break;
        case 'u': options.unpacked = true; break;
        case 's': edge = (u32)atoi(optarg); break;
        default: return 2;
        }
    if (argc - optind != 2 || edge < 32 || edge > 1024) {
        fprintf(
            stderr,
            "usage: gpu_scene [-p PROGRAM] [-b FRAME] [-c] [-d] [-m] [-u] [-s EDGE] FILE FRAMES\n");
        return 2;
    }
    start.width = start.height = edge;
    config.program = options.program;
    if (options.program && gpu_drive_create(&drive, &config, &err)) {
        fprintf(stderr, "gpu_scene: %s\n", err.text);
        return 1;
    }
    int fd = open(argv[optind], O_RDWR | O_CREAT | O_TRUNC, 0666);
    stream.position = 1000000;
    if (fd < 0 || gpu_log_create(&stream.log, fd, &start, &err)) {
        perror(argv[optind]);
        return 1;
    }
    set_up();
    for (unsigned f = 0; f < (unsigned)atoi(argv[optind + 1]); f++)
        frame_of(f);
    if (gpu_log_end(stream.log, stream.position + 1000, stream.position + 1000, &err) ||
        gpu_log_close(stream.log, &err)) {
        fprintf(stderr, "gpu_scene: %s\n", err.text);
        return 1;
    }
    gpu_drive_destroy(drive);
    if (options.unpacked)
        unpack(argv[optind]);
    return 0;
}
