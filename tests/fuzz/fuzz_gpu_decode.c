/*
 * Fuzz target: the decoder of GPU commands on any bytes. The first byte says which queue they are
 * from; they are also taken as the buffer of a SUBMIT_3D. What is accepted must be made of whole
 * commands, and stay so when it is made ready for the renderer.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/gpu_stream.h"
#include "mutate.h"
#include "virtio-gpu-log/print.h"

static void transfer(const struct gpu_transfer *t, const u8 *data, size_t size)
{
    struct gpu_shape shape = {.target = 2, .format = 1, .width = 64, .height = 64, .array_size = 1};
    struct gpu_extent e;
    if (size >= sizeof(shape))
        memcpy(&shape, data, sizeof(shape));
    if (gpu_transfer_extent(t, &shape, &e) || !e.size)
        return;
    /* All rows lie inside. */
    u64 last = (u64)(e.layers - 1) * e.layer_stride + (u64)(e.rows - 1) * e.stride + e.row;
    if (last != e.size || e.offset + e.size < e.offset)
        abort();
}

static void buffer(const u8 *data, u32 size, FILE *out)
{
    struct virgl_walk w;
    struct virgl_command c;
    struct gpu_transfer t;
    struct virgl_query_info q;
    struct virgl_shader_info s;
    struct virgl_problem p = {0};
    struct gpu_fields it;
    u32 resources[GPU_RESOURCES_MAX], at = 0;
    char title[64];
    bool bad = false, ok = virgl_check(data, size, &p);
    virgl_walk_start(&w, data, size);
    while (virgl_next(&w, &c)) {
        if (c.at != at || (u64)c.at * 4 + 4 + (u64)c.length * 4 > (u64)size + 3)
            abort();
        at = c.at + c.length + 1;
        bad = bad || c.problem || c.desc->treatment == GPU_REFUSE;
        if (virgl_resources(&c, resources) > GPU_RESOURCES_MAX)
            abort();
        virgl_query(&c, &q);
        virgl_shader(&c, &s);
        if (virgl_transfer(&c, &t))
            transfer(&t, data, size);
        fputs(virgl_title(&c, title, sizeof(title)), out);
        virgl_fields(&c, &it);
        gpu_print_fields(out, &it, &gpu_print_whole);
        virgl_fields(&c, &it);
        gpu_print_long(out, &it, 2, 64);
        virgl_fields(&c, &it);
        gpu_json_fields(out, &it);
    }
    if (ok == bad || (ok && at != size / 4))
        abort();
    u8 *copy = malloc((size_t)size + 1);
    memcpy(copy, data, size);
    virgl_for_renderer(copy, size);
    if (virgl_check(copy, size, NULL) != ok)
        abort();
    virgl_walk_start(&w, copy, size);
    while (ok && virgl_next(&w, &c))
        if (c.desc->treatment != GPU_PASS)
            abort();
    free(copy);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    if (!size || size > 1u << 20)
        return 0;
    char *text;
    size_t text_size;
    FILE *out = open_memstream(&text, &text_size);
    /* A copy of exact size, so that the sanitizer sees a byte too many. */
    u32 n = (u32)size - 1;
    u8 *bytes = malloc(n ? n : 1);
    memcpy(bytes, data + 1, n);
    struct gpu_command c;
    struct gpu_transfer t;
    struct gpu_shape shape;
    struct gpu_fields it;
    struct gpu_frames frames = {0};
    u32 resource;
    gpu_command_decode(data[0] & 1, bytes, n, &c);
    if (!c.response && (!c.desc || c.problem))
        abort();
    gpu_frames_step(&frames, &c);
    gpu_command_fields(&c, &it);
    gpu_print_fields(out, &it, &gpu_print_line);
    gpu_command_fields(&c, &it);
    gpu_json_fields(out, &it);
    gpu_command_shape(&c, &resource, &shape);
    if (gpu_command_transfer(&c, &t))
        transfer(&t, bytes, n);
    if (c.payload && c.type == VIRTIO_GPU_CMD_SUBMIT_3D)
        buffer(c.payload, c.payload_size, out);
    buffer(bytes, n, out);
    free(bytes);
    fclose(out);
    free(text);
    return 0;
}

u8 *fuzz_sample(size_t *size)
{
    struct words *w = calloc(1, sizeof(*w));
    u32 at;
    sample_setup(w);
    sample_draw(w, 1, &at);
    put_command(w, VIRGL_CCMD_COPY_TRANSFER3D, 0, 14, 3, 0, 0, 0, 0, 0, 0, 0, 8, 8, 1, 2, 64, 1);
    put_command(w, VIRGL_CCMD_SET_DEBUG_FLAGS, 0, 1, 0x6161);
    put_command(w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_QUERY, 4, 30, 0, 0, 2);
    u32 header[8] = {VIRTIO_GPU_CMD_SUBMIT_3D, 1, 7, 0, 1, 0, w->n * 4};
    *size = 1 + sizeof(header) + w->n * 4;
    u8 *data = calloc(1, *size);
    memcpy(data + 1, header, sizeof(header));
    memcpy(data + 1 + sizeof(header), w->at, w->n * 4);
    free(w);
    return data;
}
