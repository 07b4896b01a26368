/* See gpu_stream.h. */
#include "gpu_stream.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void put(struct words *w, u32 value)
{
    if (w->n < ARRAY_SIZE(w->at))
        w->at[w->n++] = value;
}

void put_float(struct words *w, float value)
{
    u32 word;
    memcpy(&word, &value, 4);
    put(w, word);
}

void put_header(struct words *w, u32 id, u32 object, u32 length)
{
    put(w, id | object << 8 | length << 16);
}

void put_command(struct words *w, u32 id, u32 object, u32 length, ...)
{
    va_list ap;
    put_header(w, id, object, length);
    va_start(ap, length);
    for (u32 i = 0; i < length; i++)
        put(w, va_arg(ap, u32));
    va_end(ap);
}

void put_shader(struct words *w, u32 handle, u32 stage, const char *text)
{
    u32 size = (u32)strlen(text) + 1, dwords = (size + 3) / 4;
    put_header(w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_SHADER, 5 + dwords);
    put(w, handle);
    put(w, stage);
    put(w, size);
    put(w, 300);
    put(w, 0);
    memset(w->at + w->n, 0, (size_t)dwords * 4);
    memcpy(w->at + w->n, text, size);
    w->n += dwords;
    put_command(w, VIRGL_CCMD_BIND_SHADER, 0, 2, handle, stage);
}

u64 stream_add(struct stream *s, u32 type, u32 ctx, const void *body, u32 size,
               const struct gpu_range *uploads, u32 count, u32 response)
{
    static u8 bytes[GPU_HEADER + sizeof(struct words)];
    struct virtio_gpu_ctrl_hdr h = {.type = type, .ctx_id = ctx};
    struct err err;
    if (type == VIRTIO_GPU_CMD_SUBMIT_3D || type == VIRTIO_GPU_CMD_RESOURCE_FLUSH) {
        h.flags = VIRTIO_GPU_FLAG_FENCE;
        h.fence_id = ++s->fence;
    }
    memcpy(bytes, &h, sizeof(h));
    if (size)
        memcpy(bytes + sizeof(h), body, size);
    s->position += 1000;
    u32 queue = type >= VIRTIO_GPU_CMD_UPDATE_CURSOR ? GPU_QUEUE_cursor : GPU_QUEUE_control;
    if (s->log) {
        if (gpu_log_command(s->log, s->position, s->position, queue, bytes, GPU_HEADER + size,
                            uploads, count, 0, &err) ||
            gpu_log_reply(s->log, s->position + 500, s->position + 500, s->number, response, NULL,
                          0, NULL, 0, &err))
            abort();
    }
    return s->number++;
}

u64 stream_submit(struct stream *s, u32 ctx, const struct words *w, const struct gpu_range *uploads,
                  u32 count, u32 response)
{
    static u32 body[2 + ARRAY_SIZE(w->at)];
    body[0] = w->n * 4;
    body[1] = 0;
    memcpy(body + 2, w->at, (size_t)w->n * 4);
    s->words += (u64)w->n * 4;
    return stream_add(s, VIRTIO_GPU_CMD_SUBMIT_3D, ctx, body, 8 + w->n * 4, uploads, count,
                      response);
}

void sample_texture(u8 out[256])
{
    for (u32 i = 0; i < 64; i++) {
        out[i * 4] = (u8)(i % 8 * 36);
        out[i * 4 + 1] = (u8)(i / 8 * 36);
        out[i * 4 + 2] = 128;
        out[i * 4 + 3] = (u8)(i * 4);
    }
}

#define ADD(type, ctx, ...)                                                                        \
    stream_add(s, VIRTIO_GPU_CMD_##type, ctx, (u32[]){__VA_ARGS__}, sizeof((u32[]){__VA_ARGS__}),  \
               NULL, 0, VIRTIO_GPU_RESP_OK_NODATA)

static const char vertex_shader[] = "VERT\nDCL IN[0]\nDCL IN[1]\nDCL OUT[0], POSITION\n"
                                    "DCL OUT[1], GENERIC[0]\n  0: MOV OUT[1], IN[1]\n"
                                    "  1: MOV OUT[0], IN[0]\n  2: END\n";
static const char fragment_shader[] = "FRAG\nDCL IN[0], GENERIC[0], LINEAR\nDCL OUT[0], COLOR\n"
                                      "DCL SAMP[0]\nDCL SVIEW[0], 2D, FLOAT\n"
                                      "  0: TEX OUT[0], IN[0], SAMP[0], 2D\n  1: END\n";

static void resources(struct stream *s)
{
    u8 texture[256];
    sample_texture(texture);
    ADD(RESOURCE_CREATE_3D, 0, SAMPLE_TARGET, 2, VIRGL_FORMAT_B8G8R8X8_UNORM, 2 | 8 | 1 << 18,
        SAMPLE_WIDTH, SAMPLE_HEIGHT, 1, 1, 0, 0, 0, 0);
    ADD(RESOURCE_ATTACH_BACKING, 0, SAMPLE_TARGET, 2, 0x100000, 0, 4096, 0, 0x200000, 0,
        SAMPLE_WIDTH * SAMPLE_HEIGHT * 4 - 4096, 0);
    ADD(RESOURCE_CREATE_3D, 0, SAMPLE_VERTICES, 0, VIRGL_FORMAT_R8_UNORM, 16, 4096, 1, 1, 1, 0, 0,
        0, 0);
    ADD(RESOURCE_ATTACH_BACKING, 0, SAMPLE_VERTICES, 1, 0x300000, 0, 4096, 0);
    ADD(RESOURCE_CREATE_3D, 0, SAMPLE_TEXTURE, 2, VIRGL_FORMAT_R8G8B8A8_UNORM, 8, 8, 8, 1, 1, 0, 0,
        0, 0);
    ADD(RESOURCE_ATTACH_BACKING, 0, SAMPLE_TEXTURE, 1, 0x301000, 0, 4096, 0);
    ADD(CTX_ATTACH_RESOURCE, 1, SAMPLE_TARGET, 0);
    ADD(CTX_ATTACH_RESOURCE, 1, SAMPLE_VERTICES, 0);
    ADD(CTX_ATTACH_RESOURCE, 1, SAMPLE_TEXTURE, 0);
    u32 to_host[] = {0, 0, 0, 8, 8, 1, 0, 0, SAMPLE_TEXTURE, 0, 0, 0};
    struct gpu_range range = {.resource = SAMPLE_TEXTURE, .bytes = {.size = 256, .data = texture}};
    stream_add(s, VIRTIO_GPU_CMD_TRANSFER_TO_HOST_3D, 1, to_host, sizeof(to_host), &range, 1,
               VIRTIO_GPU_RESP_OK_NODATA);
}

/* The console's picture: a grey ramp, the lower half changed later. */
static void two_d(struct stream *s)
{
    static u8 pixels[SAMPLE_WIDTH * SAMPLE_HEIGHT * 4];
    for (u32 i = 0; i < sizeof(pixels); i++)
        pixels[i] = (u8)(i / 4 % SAMPLE_WIDTH * 4);
    ADD(RESOURCE_CREATE_2D, 0, SAMPLE_2D, VIRGL_FORMAT_B8G8R8X8_UNORM, SAMPLE_WIDTH, SAMPLE_HEIGHT);
    ADD(RESOURCE_ATTACH_BACKING, 0, SAMPLE_2D, 1, 0x400000, 0, sizeof(pixels), 0);
    for (u32 half = 0; half < 2; half++) {
        u32 y = half * SAMPLE_HEIGHT / 2, offset = y * SAMPLE_WIDTH * 4;
        u32 body[] = {0, y, SAMPLE_WIDTH, SAMPLE_HEIGHT / 2, offset, 0, SAMPLE_2D, 0};
        struct gpu_range range = {.resource = SAMPLE_2D,
                                  .offset = offset,
                                  .bytes = {.size = sizeof(pixels) / 2, .data = pixels + offset}};
        stream_add(s, VIRTIO_GPU_CMD_TRANSFER_TO_HOST_2D, 0, body, sizeof(body), &range, 1,
                   VIRTIO_GPU_RESP_OK_NODATA);
    }
    ADD(SET_SCANOUT, 0, 0, 0, SAMPLE_WIDTH, SAMPLE_HEIGHT, 0, SAMPLE_2D);
    ADD(RESOURCE_FLUSH, 0, 0, 0, SAMPLE_WIDTH, SAMPLE_HEIGHT, SAMPLE_2D, 0);
}

void sample_setup(struct words *w)
{
    put_command(w, VIRGL_CCMD_CREATE_SUB_CTX, 0, 1, 1);
    put_command(w, VIRGL_CCMD_SET_SUB_CTX, 0, 1, 1);
    put_command(w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_SURFACE, 5, 10, SAMPLE_TARGET,
                VIRGL_FORMAT_B8G8R8X8_UNORM, 0, 0);
    put_command(w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_VERTEX_ELEMENTS, 9, 20, 0, 0, 0,
                VIRGL_FORMAT_R32G32B32A32_FLOAT, 16, 0, 0, VIRGL_FORMAT_R32G32B32A32_FLOAT);
    put_command(w, VIRGL_CCMD_BIND_OBJECT, VIRGL_OBJECT_VERTEX_ELEMENTS, 1, 20);
    put_shader(w, 21, 0, vertex_shader);
    put_shader(w, 22, 1, fragment_shader);
    put_command(w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_BLEND, 11, 23, 0, 0, 0xfu << 27, 0, 0, 0,
                0, 0, 0, 0);
    put_command(w, VIRGL_CCMD_BIND_OBJECT, VIRGL_OBJECT_BLEND, 1, 23);
    put_command(w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_DSA, 5, 24, 0, 0, 0, 0);
    put_command(w, VIRGL_CCMD_BIND_OBJECT, VIRGL_OBJECT_DSA, 1, 24);
    put_command(w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_RASTERIZER, 9, 25,
                1u << 1 | 1u << 29 | 1u << 30, 0x3f800000, 0, 0, 0x3f800000, 0, 0, 0);
    put_command(w, VIRGL_CCMD_BIND_OBJECT, VIRGL_OBJECT_RASTERIZER, 1, 25);
    put_command(w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_SAMPLER_VIEW, 6, 26, SAMPLE_TEXTURE,
                VIRGL_FORMAT_R8G8B8A8_UNORM, 0, 0, 0 | 1 << 3 | 2 << 6 | 3 << 9);
    put_command(w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_SAMPLER_STATE, 9, 27, 2 | 2 << 3, 0, 0, 0,
                0, 0, 0, 0);
}

void sample_draw(struct words *w, unsigned frame, u32 *transfer_at)
{
    put_command(w, VIRGL_CCMD_SET_SUB_CTX, 0, 1, 1);
    *transfer_at = w->n;
    put_command(w, VIRGL_CCMD_TRANSFER3D, 0, 13, SAMPLE_VERTICES, 0, 0, 0, 0, 0, 0, 0, 96, 1, 1, 0,
                1);
    put_command(w, VIRGL_CCMD_SET_FRAMEBUFFER_STATE, 0, 3, 1, 0, 10);
    put_header(w, VIRGL_CCMD_SET_VIEWPORT_STATE, 0, 7);
    put(w, 0);
    for (u32 i = 0; i < 2; i++) {
        put_float(w, SAMPLE_WIDTH / 2);
        put_float(w, SAMPLE_HEIGHT / 2);
        put_float(w, .5f);
    }
    put_header(w, VIRGL_CCMD_CLEAR, 0, 8);
    put(w, 4);
    put_float(w, (float)frame * .25f);
    put_float(w, .5f);
    put_float(w, .25f);
    put_float(w, 1);
    put(w, 0);
    put(w, 0);
    put(w, 0);
    put_command(w, VIRGL_CCMD_SET_VERTEX_BUFFERS, 0, 3, 32, 0, SAMPLE_VERTICES);
    put_command(w, VIRGL_CCMD_SET_SAMPLER_VIEWS, 0, 3, 1, 0, 26);
    put_command(w, VIRGL_CCMD_BIND_SAMPLER_STATES, 0, 3, 1, 0, 27);
    for (u32 part = 0; part < 4; part++) {
        put_header(w, VIRGL_CCMD_SET_CONSTANT_BUFFER, 0, 18);
        put(w, 0);
        put(w, 0);
        for (u32 i = 0; i < 16; i++)
            put_float(w, i % 5 ? (float)part : 1);
        put_command(w, VIRGL_CCMD_DRAW_VBO, 0, 12, 0, 3, 4, 0, 1, 0, 0, 0, 0, 0, 2, 0);
    }
    put_command(w, VIRGL_CCMD_END_TRANSFERS, 0, 0);
}

static void read_back(struct stream *s, struct err *err)
{
    static u8 pixels[SAMPLE_WIDTH * SAMPLE_HEIGHT * 4];
    for (u32 i = 0; i < sizeof(pixels); i += 4)
        memcpy(pixels + i, "\x40\x80\xff\xff", 4);
    u32 body[6 + GPU_HEADER / 4 + 6] = {VIRTIO_GPU_CMD_TRANSFER_FROM_HOST_3D, 1, 0, 0, 1, 0};
    u32 rest[] = {0, 0, 0, SAMPLE_WIDTH, SAMPLE_HEIGHT, 1, 0, 0, SAMPLE_TARGET, 0, 0, 0};
    memcpy(body + 6, rest, sizeof(rest));
    struct gpu_range range = {.resource = SAMPLE_TARGET,
                              .bytes = {.size = sizeof(pixels), .data = pixels}};
    s->position += 1000;
    if (gpu_log_command(s->log, s->position, s->position, 0, body, sizeof(body), NULL, 0, 0, err) ||
        gpu_log_reply(s->log, s->position + 700, s->position + 700, s->number++,
                      VIRTIO_GPU_RESP_OK_NODATA, NULL, 0, &range, 1, err))
        abort();
}

int sample_gpu_log(int fd, unsigned frames, bool whole, struct gpu_log_sizes *sizes,
                   struct err *err)
{
    static const u8 capset[308] = {1};
    struct gpu_rec_start start = {.virgl = 1,
                                  .scanouts = 1,
                                  .width = SAMPLE_WIDTH,
                                  .height = SAMPLE_HEIGHT,
                                  .hz = 60,
                                  .capset_id = 1,
                                  .capset_version = 1,
                                  .capset = {sizeof(capset), capset}};
    struct stream stream = {.position = 1000000}, *s = &stream;
    struct words *w = calloc(1, sizeof(*w));
    if (gpu_log_create(&s->log, fd, &start, err)) {
        free(w);
        return err->code;
    }
    u32 name[18] = {8};
    memcpy(name + 2, "triangle", 8);
    stream_add(s, VIRTIO_GPU_CMD_GET_DISPLAY_INFO, 0, NULL, 0, NULL, 0,
               VIRTIO_GPU_RESP_OK_DISPLAY_INFO);
    stream_add(s, VIRTIO_GPU_CMD_CTX_CREATE, 1, name, sizeof(name), NULL, 0,
               VIRTIO_GPU_RESP_OK_NODATA);
    two_d(s);
    resources(s);
    sample_setup(w);
    stream_submit(s, 1, w, NULL, 0, VIRTIO_GPU_RESP_OK_NODATA);
    ADD(SET_SCANOUT, 0, 0, 0, SAMPLE_WIDTH, SAMPLE_HEIGHT, 0, SAMPLE_TARGET);
    for (unsigned f = 0; f < frames; f++) {
        float v[24] = {-.9f, -.9f, 0, 1, 0, 0, 0, 1, .9f, -.8f, 0, 1,
                       1,    0,    0, 1, 0, 0, 0, 1, 0,   1,    0, 1};
        v[16] = (float)(f % 2) * .1f; /* two contents in all */
        w->n = 0;
        struct gpu_range range = {.resource = SAMPLE_VERTICES,
                                  .bytes = {.size = sizeof(v), .data = (const u8 *)v}};
        sample_draw(w, f, &range.at);
        stream_submit(s, 1, w, &range, 1, VIRTIO_GPU_RESP_OK_NODATA);
        ADD(RESOURCE_FLUSH, 0, 0, 0, SAMPLE_WIDTH, SAMPLE_HEIGHT, SAMPLE_TARGET, 0);
    }
    ADD(MOVE_CURSOR, 0, 0, 10, 20, 0, 0, 0, 0, 0);
    w->n = 0;
    put_command(w, VIRGL_CCMD_SET_SUB_CTX, 0, 1, 1);
    put_command(w, 200, 0, 1, 5);
    stream_submit(s, 1, w, NULL, 0, VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER);
    stream_add(s, VIRTIO_GPU_CMD_RESOURCE_UNREF, 0, (u32[]){7}, 4, NULL, 0,
               VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER); /* too short */
    read_back(s, err);
    if (gpu_log_lost(s->log, s->position + 800, s->position + 800, "killed by signal 9", err) ||
        (whole && gpu_log_end(s->log, s->position + 1000, s->position + 1000, err)))
        abort();
    if (sizes)
        gpu_log_writer_sizes(s->log, sizes);
    free(w);
    return gpu_log_close(s->log, err);
}
