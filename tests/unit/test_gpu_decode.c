/* Commands of virtio-gpu and virgl: right ones are read, wrong ones named, nothing is read beyond
 * the end (the address sanitizer and the fuzzer look at that too). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "gpu_stream.h"
#include "virtio-gpu-log/decode_internal.h"

/* The rows of virtio_gpu.def against the structs of linux/virtio_gpu.h. */
static void lengths_of_structs(void **state)
{
    static const struct {
        u32 type;
        size_t size;
    } rows[] = {
        {VIRTIO_GPU_CMD_GET_DISPLAY_INFO, sizeof(struct virtio_gpu_ctrl_hdr)},
        {VIRTIO_GPU_CMD_RESOURCE_CREATE_2D, sizeof(struct virtio_gpu_resource_create_2d)},
        {VIRTIO_GPU_CMD_RESOURCE_UNREF, sizeof(struct virtio_gpu_resource_unref)},
        {VIRTIO_GPU_CMD_SET_SCANOUT, sizeof(struct virtio_gpu_set_scanout)},
        {VIRTIO_GPU_CMD_RESOURCE_FLUSH, sizeof(struct virtio_gpu_resource_flush)},
        {VIRTIO_GPU_CMD_TRANSFER_TO_HOST_2D, sizeof(struct virtio_gpu_transfer_to_host_2d)},
        {VIRTIO_GPU_CMD_RESOURCE_ATTACH_BACKING, sizeof(struct virtio_gpu_resource_attach_backing)},
        {VIRTIO_GPU_CMD_RESOURCE_DETACH_BACKING, sizeof(struct virtio_gpu_resource_detach_backing)},
        {VIRTIO_GPU_CMD_GET_CAPSET_INFO, sizeof(struct virtio_gpu_get_capset_info)},
        {VIRTIO_GPU_CMD_GET_CAPSET, sizeof(struct virtio_gpu_get_capset)},
        {VIRTIO_GPU_CMD_GET_EDID, sizeof(struct virtio_gpu_cmd_get_edid)},
        {VIRTIO_GPU_CMD_RESOURCE_ASSIGN_UUID, sizeof(struct virtio_gpu_resource_assign_uuid)},
        {VIRTIO_GPU_CMD_RESOURCE_CREATE_BLOB, sizeof(struct virtio_gpu_resource_create_blob)},
        {VIRTIO_GPU_CMD_SET_SCANOUT_BLOB, sizeof(struct virtio_gpu_set_scanout_blob)},
        {VIRTIO_GPU_CMD_CTX_CREATE, sizeof(struct virtio_gpu_ctx_create)},
        {VIRTIO_GPU_CMD_CTX_DESTROY, sizeof(struct virtio_gpu_ctx_destroy)},
        {VIRTIO_GPU_CMD_CTX_ATTACH_RESOURCE, sizeof(struct virtio_gpu_ctx_resource)},
        {VIRTIO_GPU_CMD_CTX_DETACH_RESOURCE, sizeof(struct virtio_gpu_ctx_resource)},
        {VIRTIO_GPU_CMD_RESOURCE_CREATE_3D, sizeof(struct virtio_gpu_resource_create_3d)},
        {VIRTIO_GPU_CMD_TRANSFER_TO_HOST_3D, sizeof(struct virtio_gpu_transfer_host_3d)},
        {VIRTIO_GPU_CMD_TRANSFER_FROM_HOST_3D, sizeof(struct virtio_gpu_transfer_host_3d)},
        {VIRTIO_GPU_CMD_SUBMIT_3D, sizeof(struct virtio_gpu_cmd_submit)},
        {VIRTIO_GPU_CMD_RESOURCE_MAP_BLOB, sizeof(struct virtio_gpu_resource_map_blob)},
        {VIRTIO_GPU_CMD_RESOURCE_UNMAP_BLOB, sizeof(struct virtio_gpu_resource_unmap_blob)},
        {VIRTIO_GPU_CMD_UPDATE_CURSOR, sizeof(struct virtio_gpu_update_cursor)},
        {VIRTIO_GPU_CMD_MOVE_CURSOR, sizeof(struct virtio_gpu_update_cursor)},
    };
    assert_int_equal(ARRAY_SIZE(rows), gpu_command_table_size);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const struct gpu_desc *d = gpu_command_desc(rows[i].type);
        u8 bytes[256] = {0};
        struct gpu_command c;
        u32 least;
        assert_non_null(d);
        gpu_length_fits(d, 0, &least);
        assert_int_equal(GPU_HEADER + least * 4, rows[i].size);
        memcpy(bytes, &rows[i].type, 4);
        /* Whole, and longer; never shorter. */
        for (u32 n = 0; n < rows[i].size; n++)
            assert_int_not_equal(gpu_command_decode(d->queue, bytes, n, &c), 0);
        assert_int_equal(gpu_command_decode(d->queue, bytes, (u32)rows[i].size, &c), 0);
        assert_null(c.problem);
        assert_int_equal(gpu_command_decode(d->queue, bytes, sizeof(bytes), &c), 0);
        assert_int_equal(gpu_command_decode(!d->queue, bytes, sizeof(bytes), &c),
                         VIRTIO_GPU_RESP_ERR_UNSPEC);
    }
}

static void payloads(void **state)
{
    u32 bytes[32] = {VIRTIO_GPU_CMD_SUBMIT_3D, 1, 77, 0, 5, 2};
    struct gpu_command c;
    bytes[6] = 12;
    assert_int_equal(gpu_command_decode(0, bytes, 32 + 12, &c), 0);
    assert_int_equal(c.payload_size, 12);
    assert_ptr_equal(c.payload, (u8 *)bytes + 32);
    assert_int_equal(c.fence, 77);
    assert_int_equal(c.ctx, 5);
    assert_int_equal(c.ring, 2);
    assert_int_equal(gpu_command_decode(0, bytes, 32 + 11, &c),
                     VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER);
    assert_int_equal(c.payload_size, 11);
    bytes[6] = UINT32_MAX;
    assert_int_equal(gpu_command_decode(0, bytes, sizeof(bytes), &c),
                     VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER);
    bytes[0] = VIRTIO_GPU_CMD_RESOURCE_ATTACH_BACKING;
    bytes[6] = 9;
    bytes[7] = 2;
    assert_int_equal(gpu_command_decode(0, bytes, 32 + 32, &c), 0);
    assert_int_equal(c.payload_size, 32);
    assert_int_equal(gpu_command_decode(0, bytes, 32 + 31, &c),
                     VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER);
    bytes[7] = 0x10000000; /* times 16 is 0 in 32 bits */
    assert_int_equal(gpu_command_decode(0, bytes, sizeof(bytes), &c),
                     VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER);
    bytes[0] = 0x0123;
    assert_int_equal(gpu_command_decode(0, bytes, sizeof(bytes), &c), VIRTIO_GPU_RESP_ERR_UNSPEC);
    assert_null(c.desc);
}

static struct virgl_command first(const struct words *w)
{
    struct virgl_walk walk;
    struct virgl_command c;
    virgl_walk_start(&walk, w->at, w->n * 4);
    assert_true(virgl_next(&walk, &c));
    return c;
}

/* Of a command with `length` dwords of `fill`: accepted? */
static bool accepted(u32 id, u32 object, u32 length, u32 fill)
{
    struct words *w = calloc(1, sizeof(*w));
    put_header(w, id, object, length);
    for (u32 i = 0; i < length; i++)
        put(w, fill);
    bool ok = virgl_check(w->at, w->n * 4, NULL);
    free(w);
    return ok;
}

/* The columns of a command agree with its rows and its name. */
static void virgl_effects(void **state)
{
    for (u32 i = 0; i < virgl_table_size; i++) {
        const struct gpu_desc *d = &virgl_table[i];
        bool each = false, slot = false, written = false, key = false, draws;
        for (u32 k = 0; k < d->nrows; k++) {
            each = each || d->rows[k].kind == GPU_EACH;
            slot = slot || d->rows[k].kind == GPU_SLOT;
            written = written || d->rows[k].written;
            key = key || d->rows[k].key;
            /* The check does not look for these in what repeats. */
            assert_true(!each || (!d->rows[k].key && d->rows[k].names != GPU_ENUM_shader &&
                                  d->rows[k].names != GPU_ENUM_direction));
        }
        bool named = !strncmp(d->name, "SET_", 4) || !strncmp(d->name, "BIND_", 5);
        bool sets = d->effect >= GPU_SETS && d->effect <= GPU_LIST;
        draws = d->effect >= GPU_DRAWS;
        named = named && d->treatment == GPU_PASS && d->number != VIRGL_CCMD_SET_SUB_CTX;
        assert_int_equal(named, sets);
        assert_true(!slot || d->effect == GPU_SLOTS || d->effect == GPU_LIST);
        assert_true(d->effect != GPU_SLOTS || (slot && each));
        assert_true(d->effect != GPU_LIST || each);
        assert_true(!key || d->effect == GPU_SETS);
        assert_true(d->effect != GPU_WRITES || written);
        assert_true(!written || sets || d->effect == GPU_WRITES);
        assert_true(!draws || d->treatment == GPU_PASS);
    }
}

static void set(u32 id, u32 object, u32 length, const struct virgl_set *want)
{
    struct words *w = calloc(1, sizeof(*w));
    struct virgl_command c;
    struct virgl_set is;
    put_header(w, id, object, length);
    for (u32 i = 1; i <= length; i++)
        put(w, i);
    c = first(w);
    assert_true(virgl_sets(&c, &is));
    assert_memory_equal(&is, want, sizeof(is));
    free(w);
}
#define SETS(id, object, length, ...)                                                              \
    set(VIRGL_CCMD_##id, object, length, &(struct virgl_set){__VA_ARGS__})

static void virgl_places(void **state)
{
    /* Dword N holds N. stage, slot, count, head, group */
    SETS(BIND_OBJECT, VIRGL_OBJECT_DSA, 1, VIRGL_OBJECT_DSA, 0, 1, 1, 0);
    SETS(BIND_SHADER, 0, 2, 2, 0, 1, 2, 0);
    SETS(SET_VIEWPORT_STATE, 0, 13, 0, 1, 2, 1, 6);
    SETS(SET_SAMPLER_VIEWS, 0, 5, 1, 2, 3, 2, 1);
    SETS(SET_SAMPLER_VIEWS, 0, 2, 1, 2, 0, 2, 1);
    SETS(SET_VERTEX_BUFFERS, 0, 6, 0, 0, 2, 0, 3);
    SETS(SET_SHADER_IMAGES, 0, 12, 1, 2, 2, 2, 5);
    SETS(SET_UNIFORM_BUFFER, 0, 5, 1, 2, 1, 5, 0);
    SETS(SET_CONSTANT_BUFFER, 0, 6, 1, 0, 1, 6, 0);
    SETS(SET_TWEAKS, 0, 2, 0, 1, 1, 2, 0);
    SETS(SET_FRAMEBUFFER_STATE, 0, 4, 0, 0, 1, 4, 0);
    SETS(SET_STREAMOUT_TARGETS, 0, 3, 0, 0, 1, 3, 0);
    SETS(SET_CLIP_STATE, 0, 32, 0, 0, 1, 32, 0);
    SETS(SET_INDEX_BUFFER, 0, 3, 0, 0, 1, 3, 0);
    SETS(SET_SCISSOR_STATE, 0, 5, 0, 1, 2, 1, 2);
    struct words *w = calloc(1, sizeof(*w));
    struct virgl_set is;
    put_command(w, VIRGL_CCMD_SET_SUB_CTX, 0, 1, 1);
    struct virgl_command c = first(w);
    assert_false(virgl_sets(&c, &is));
    c.desc = NULL; /* one that is not known */
    assert_false(virgl_sets(&c, &is) || virgl_changes(&c) || virgl_draws(&c));
    free(w);
}

/* Lengths as the renderer's decoder has them. */
static void virgl_lengths(void **state)
{
    static const struct {
        u32 id, object;
        u32 good[8]; /* 0 ends, after the first */
    } rows[] = {
        {VIRGL_CCMD_CLEAR, 0, {8}},
        {VIRGL_CCMD_DRAW_VBO, 0, {12, 14, 20}},
        {VIRGL_CCMD_SET_VERTEX_BUFFERS, 0, {0, 3, 6, 9, 12, 15, 18, 96}},
        {VIRGL_CCMD_SET_INDEX_BUFFER, 0, {1, 3}},
        {VIRGL_CCMD_SET_BLEND_COLOR, 0, {4}},
        {VIRGL_CCMD_BLIT, 0, {21}},
        {VIRGL_CCMD_RESOURCE_COPY_REGION, 0, {13}},
        {VIRGL_CCMD_SET_POLYGON_STIPPLE, 0, {32}},
        {VIRGL_CCMD_SET_CLIP_STATE, 0, {32}},
        {VIRGL_CCMD_LAUNCH_GRID, 0, {8}},
        {VIRGL_CCMD_TRANSFER3D, 0, {13}},
        {VIRGL_CCMD_COPY_TRANSFER3D, 0, {14}},
        {VIRGL_CCMD_GET_QUERY_RESULT_QBO, 0, {6}},
        {VIRGL_CCMD_CLEAR_TEXTURE, 0, {12}},
        {VIRGL_CCMD_LINK_SHADER, 0, {6}},
        {VIRGL_CCMD_SET_TESS_STATE, 0, {6}},
        {VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_BLEND, {11}},
        {VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_RASTERIZER, {9}},
        {VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_DSA, {5}},
        {VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_VERTEX_ELEMENTS, {1, 5, 9, 13, 17, 21, 25, 129}},
        {VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_SAMPLER_VIEW, {6}},
        {VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_SAMPLER_STATE, {9}},
        {VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_SURFACE, {5}},
        {VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_MSAA_SURFACE, {6}},
        {VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_QUERY, {4}},
        {VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_STREAMOUT_TARGET, {4}},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        u32 k = 0;
        /* All lengths up to 20; longer good ones below. */
        for (u32 n = 0; n < 21; n++) {
            bool good = rows[i].good[k] == n && (k == 0 || n);
            if (accepted(rows[i].id, rows[i].object, n, 1) != good)
                fail_msg("command %u object %u length %u", rows[i].id, rows[i].object, n);
            k += good && k < 6;
        }
        for (k = 0; k < 8; k++)
            if (k == 0 || rows[i].good[k])
                assert_true(accepted(rows[i].id, rows[i].object, rows[i].good[k], 1));
    }
    assert_false(accepted(VIRGL_CCMD_SET_VERTEX_BUFFERS, 0, 99, 1));
    assert_false(accepted(VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_VERTEX_ELEMENTS, 133, 1));
    /* Slots: 1 and the rest of 32. */
    assert_true(accepted(VIRGL_CCMD_SET_SAMPLER_VIEWS, 0, 2 + 31, 1));
    assert_false(accepted(VIRGL_CCMD_SET_SAMPLER_VIEWS, 0, 2 + 32, 1));
    assert_false(accepted(VIRGL_CCMD_SET_VIEWPORT_STATE, 0, 1 + 16 * 6, 1));
    assert_true(accepted(VIRGL_CCMD_SET_VIEWPORT_STATE, 0, 1 + 16 * 6, 0));
}

static void refused(const struct words *w, u32 at, const char *text)
{
    struct virgl_problem p;
    assert_false(virgl_check(w->at, w->n * 4, &p));
    assert_int_equal(p.at, at);
    assert_string_equal(p.text, text);
}

static void virgl_problems(void **state)
{
    struct words *w = calloc(1, sizeof(*w));
    put_command(w, VIRGL_CCMD_SET_SUB_CTX, 0, 1, 0);
    assert_true(virgl_check(w->at, w->n * 4, NULL));
    assert_true(virgl_check(w->at, 0, NULL));
    put_header(w, 200, 0, 0);
    refused(w, 2, "unknown command");
    w->at[2] = VIRGL_CCMD_CREATE_OBJECT | 77 << 8;
    refused(w, 2, "unknown object type");
    w->at[2] = VIRGL_CCMD_CLEAR | 0x7fffu << 16;
    refused(w, 2, "longer than the buffer");
    w->at[2] = VIRGL_CCMD_CLEAR;
    refused(w, 2, "shorter than its fields");
    w->at[2] = VIRGL_CCMD_DECODE_MACROBLOCK;
    refused(w, 2, "part of a feature that is not offered");
    struct virgl_problem p;
    w->n = 2;
    assert_false(virgl_check(w->at, 9, &p));
    assert_string_equal(p.text, "bytes after the last dword");
    assert_int_equal(p.at, 2);

    w->n = 0;
    put_command(w, VIRGL_CCMD_SET_FRAMEBUFFER_STATE, 0, 3, 2, 0, 10);
    refused(w, 0, "a number of surfaces that does not fit its length");
    w->n = 0;
    put_command(w, VIRGL_CCMD_BIND_SHADER, 0, 2, 21, 6);
    refused(w, 0, "a shader stage that does not exist");
    w->n = 0;
    put_command(w, VIRGL_CCMD_BIND_OBJECT, VIRGL_OBJECT_SHADER, 1, 21);
    refused(w, 0, "an object that cannot be bound");
    w->n = 0;
    put_command(w, VIRGL_CCMD_TRANSFER3D, 0, 13, 1, 0, 0, 0, 0, 0, 0, 0, 4, 1, 1, 0, 3);
    refused(w, 0, "a direction that does not exist");
    w->n = 0;
    put_command(w, VIRGL_CCMD_SET_UNIFORM_BUFFER, 0, 5, 0, 32, 0, 16, 1);
    refused(w, 0, "a slot that does not exist");
    w->n = 0;
    put_command(w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_DSA, 5, 0, 0, 0, 0, 0);
    refused(w, 0, "handle 0");
    w->n = 0;
    put_command(w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_SHADER, 7, 1, 0, 4, 300, 1, 0, 0);
    refused(w, 0, "more stream outputs than its length has");
    w->n = 0;
    put_command(w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_SHADER, 5, 1, 0, 4, 300, 0x80000001);
    refused(w, 0, "more stream outputs than its length has");
    w->n = 0;
    put_command(w, VIRGL_CCMD_SEND_STRING_MARKER, 0, 2, 5, 0);
    refused(w, 0, "a text longer than the command");
    free(w);
}

/* What the renderer gets: ignored and answered commands become NOPs, nothing else changes. */
static void for_renderer(void **state)
{
    struct words *w = calloc(1, sizeof(*w)), *copy = malloc(sizeof(*w));
    put_command(w, VIRGL_CCMD_SET_SUB_CTX, 0, 1, 0);
    put_command(w, VIRGL_CCMD_GET_MEMORY_INFO, 0, 1, 9);
    put_command(w, VIRGL_CCMD_SET_DEBUG_FLAGS, 0, 2, 0x61616161, 0);
    put_command(w, VIRGL_CCMD_END_QUERY, 0, 1, 4);
    assert_true(virgl_check(w->at, w->n * 4, NULL));
    *copy = *w;
    virgl_for_renderer(copy->at, copy->n * 4);
    assert_int_equal(copy->at[2], VIRGL_CCMD_NOP | 1 << 16);
    assert_int_equal(copy->at[4], VIRGL_CCMD_NOP | 2 << 16);
    copy->at[2] = w->at[2];
    copy->at[4] = w->at[4];
    assert_memory_equal(copy, w, sizeof(*w));
    free(w);
    free(copy);
}

static void fields(void **state)
{
    struct words *w = calloc(1, sizeof(*w));
    struct gpu_fields it;
    struct gpu_field f;
    put_command(w, VIRGL_CCMD_SET_SCISSOR_STATE, 0, 5, 3, 1 | 2 << 16, 3 | 4 << 16, 5 | 6 << 16,
                7 | 8 << 16);
    struct virgl_command c = first(w);
    static const char *const names[] = {"start_slot", "min_x", "min_y", "max_x", "max_y",
                                        "min_x",      "min_y", "max_x", "max_y"};
    virgl_fields(&c, &it);
    for (u32 i = 0; i < ARRAY_SIZE(names); i++) {
        assert_true(gpu_field_next(&it, &f));
        assert_string_equal(f.name, names[i]);
        assert_int_equal(f.value, i ? i : 3);
        assert_int_equal(f.index, i == 0 ? GPU_NOT_REPEATED : (i - 1) / 4);
    }
    assert_false(gpu_field_next(&it, &f));

    w->n = 0;
    put_command(w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_QUERY, 4, 5, 3 | 7 << 16, 64, 9);
    c = first(w);
    struct virgl_query_info q;
    assert_true(virgl_query(&c, &q));
    assert_int_equal(q.handle, 5);
    assert_int_equal(q.type, 3);
    assert_int_equal(q.index, 7);
    assert_int_equal(q.offset, 64);
    assert_int_equal(q.resource, 9);
    u32 resources[GPU_RESOURCES_MAX];
    assert_int_equal(virgl_resources(&c, resources), 1);
    assert_int_equal(resources[0], 9);

    w->n = 0;
    put_header(w, VIRGL_CCMD_SET_VERTEX_BUFFERS, 0, 96);
    for (u32 i = 0; i < 96; i++)
        put(w, i % 3 == 2 ? 100 + i / 3 : 0);
    c = first(w);
    assert_int_equal(virgl_resources(&c, resources), 32);
    assert_int_equal(resources[31], 131);

    w->n = 0;
    put_shader(w, 21, 1, "FRAG\nEND\n");
    c = first(w);
    struct virgl_shader_info s;
    assert_true(virgl_shader(&c, &s));
    assert_int_equal(s.size, 9);
    assert_int_equal(s.total, 10);
    assert_memory_equal(s.text, "FRAG\nEND\n", 9);

    w->n = 0;
    put_command(w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_SHADER, 5 + 6 + 1, 1, 0, 3, 300, 1, 16, 0,
                0, 0, 2 | 1 << 8 | 3 << 10 | 1 << 13 | 8 << 16, 0, 0x4241);
    c = first(w);
    assert_null(c.problem);
    assert_true(virgl_shader(&c, &s));
    assert_int_equal(s.outputs, 1);
    assert_int_equal(s.size, 2);
    assert_memory_equal(s.text, "AB", 2);
    free(w);
}

static const struct gpu_shape texture = {.target = 2,
                                         .format = VIRGL_FORMAT_B8G8R8A8_UNORM,
                                         .width = 64,
                                         .height = 32,
                                         .depth = 1,
                                         .array_size = 1,
                                         .last_level = 2};

static void extents(void **state)
{
    struct gpu_shape shape = texture;
    struct gpu_transfer t = {.box = {0, 0, 0, 64, 32, 1}, .offset = 4096};
    struct gpu_extent e;
    assert_null(gpu_transfer_extent(&t, &shape, &e));
    assert_int_equal(e.offset, 4096);
    assert_int_equal(e.size, 64 * 32 * 4);
    t.box = (struct gpu_box){8, 4, 0, 10, 3, 1};
    assert_null(gpu_transfer_extent(&t, &shape, &e));
    assert_int_equal(e.row, 40);
    assert_int_equal(e.rows, 3);
    assert_int_equal(e.size, 2 * 256 + 40);
    t.stride = 40;
    assert_null(gpu_transfer_extent(&t, &shape, &e));
    assert_int_equal(e.size, 120);
    t.stride = 39;
    assert_non_null(gpu_transfer_extent(&t, &shape, &e));
    t.box.h = 1;
    assert_null(gpu_transfer_extent(&t, &shape, &e));
    assert_int_equal(e.size, 40);
    t = (struct gpu_transfer){.box = {0, 0, 0, 16, 8, 1}, .level = 2};
    assert_null(gpu_transfer_extent(&t, &shape, &e));
    assert_int_equal(e.size, 16 * 8 * 4);
    t.box.w = 17;
    assert_non_null(gpu_transfer_extent(&t, &shape, &e));
    t.box.w = 1;
    t.level = 3;
    assert_non_null(gpu_transfer_extent(&t, &shape, &e));
    t = (struct gpu_transfer){.box = {UINT32_MAX, 0, 0, 2, 1, 1}};
    assert_non_null(gpu_transfer_extent(&t, &shape, &e));
    t = (struct gpu_transfer){.box = {0, 0, 0, 0, 1, 1}, .offset = 5};
    assert_null(gpu_transfer_extent(&t, &shape, &e));
    assert_int_equal(e.size, 0);
    t = (struct gpu_transfer){.box = {0, 0, 0, 64, 32, 1}, .offset = UINT64_MAX - 100};
    assert_non_null(gpu_transfer_extent(&t, &shape, &e));

    /* Layers; blocks; a buffer, whose elements are bytes. */
    shape.target = 7;
    shape.array_size = 4;
    t = (struct gpu_transfer){.box = {0, 0, 1, 64, 32, 3}};
    assert_null(gpu_transfer_extent(&t, &shape, &e));
    assert_int_equal(e.size, 3 * 64 * 32 * 4);
    t.layer_stride = 10000;
    assert_null(gpu_transfer_extent(&t, &shape, &e));
    assert_int_equal(e.size, 2 * 10000 + 64 * 32 * 4);
    t.layer_stride = 100;
    assert_non_null(gpu_transfer_extent(&t, &shape, &e));
    t.box.z = 2;
    assert_non_null(gpu_transfer_extent(&t, &shape, &e));
    shape = texture;
    shape.format = VIRGL_FORMAT_DXT5_RGBA;
    t = (struct gpu_transfer){.box = {0, 0, 0, 61, 30, 1}};
    assert_null(gpu_transfer_extent(&t, &shape, &e));
    assert_int_equal(e.row, 16 * 16);
    assert_int_equal(e.size, 16 * 16 * 8);
    shape.format = VIRGL_FORMAT_NV12;
    assert_non_null(gpu_transfer_extent(&t, &shape, &e));
    shape = (struct gpu_shape){.target = 0, .format = VIRGL_FORMAT_R8_UNORM, .width = 4096};
    t = (struct gpu_transfer){.box = {96, 0, 0, 4000, 1, 1}, .offset = 96};
    assert_null(gpu_transfer_extent(&t, &shape, &e));
    assert_int_equal(e.size, 4000);
    t.box.h = 2;
    assert_non_null(gpu_transfer_extent(&t, &shape, &e));
    /* Strides of 4 GiB times 4 GiB of layers do not fit 64 bits. */
    shape = (struct gpu_shape){.target = 7,
                               .format = VIRGL_FORMAT_R8_UNORM,
                               .width = 1,
                               .height = UINT32_MAX,
                               .array_size = UINT32_MAX};
    t = (struct gpu_transfer){.box = {0, 0, 0, 1, UINT32_MAX, UINT32_MAX}, .stride = UINT32_MAX};
    assert_non_null(gpu_transfer_extent(&t, &shape, &e));
}

static void transfers(void **state)
{
    struct words *w = calloc(1, sizeof(*w));
    struct gpu_transfer t;
    put_command(w, VIRGL_CCMD_TRANSFER3D, 0, 13, 7, 1, 0, 256, 512, 1, 2, 3, 4, 5, 6, 4096, 2);
    struct virgl_command c = first(w);
    assert_true(virgl_transfer(&c, &t));
    assert_int_equal(t.resource, 7);
    assert_int_equal(t.backing, 7);
    assert_int_equal(t.level, 1);
    assert_int_equal(t.stride, 256);
    assert_int_equal(t.layer_stride, 512);
    assert_int_equal(t.box.x, 1);
    assert_int_equal(t.box.d, 6);
    assert_int_equal(t.offset, 4096);
    assert_false(t.to_host);
    w->n = 0;
    put_command(w, VIRGL_CCMD_COPY_TRANSFER3D, 0, 14, 7, 0, 0, 0, 0, 0, 0, 0, 4, 1, 1, 8, 64, 1);
    c = first(w);
    assert_true(virgl_transfer(&c, &t));
    assert_int_equal(t.resource, 7);
    assert_int_equal(t.backing, 8);
    assert_int_equal(t.offset, 64);
    assert_true(t.to_host);
    w->at[14] = 2;
    c = first(w);
    assert_true(virgl_transfer(&c, &t) && !t.to_host);
    w->n = 0;
    put_command(w, VIRGL_CCMD_END_TRANSFERS, 0, 0);
    c = first(w);
    assert_false(virgl_transfer(&c, &t));
    free(w);
}

/* Buffers that Mesa 22.3 made (corpus of the fuzzer): all is known and right. */
static void from_mesa(void **state)
{
    static const char *const names[] = {"start", "frame", "streamout"};
    static u8 bytes[1 << 16];
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        char path[128];
        struct gpu_command c;
        struct virgl_problem p;
        snprintf(path, sizeof(path), "tests/fuzz/corpus/gpu_decode/mesa-%s", names[i]);
        FILE *f = fopen(path, "rb");
        if (!f)
            skip(); /* not started in the repository */
        size_t size = fread(bytes, 1, sizeof(bytes), f);
        fclose(f);
        assert_true(size > 32);
        assert_int_equal(gpu_command_decode(0, bytes + 1, (u32)size - 1, &c), 0);
        if (!virgl_check(c.payload, c.payload_size, &p))
            fail_msg("%s, dword %u: %s", names[i], p.at, p.text);
    }
}

static void names(void **state)
{
    char text[128];
    assert_string_equal(gpu_value_text(GPU_ENUM_bind, 2 | 8 | 1 << 18, text, sizeof(text)),
                        "RENDER_TARGET|SAMPLER_VIEW|SCANOUT");
    assert_string_equal(gpu_value_text(GPU_ENUM_bind, 2 | 1u << 31, text, sizeof(text)),
                        "RENDER_TARGET|0x80000000");
    assert_string_equal(gpu_value_text(GPU_ENUM_prim, 4, text, sizeof(text)), "TRIANGLES");
    assert_string_equal(gpu_value_text(GPU_ENUM_prim, 99, text, sizeof(text)), "99");
    assert_string_equal(gpu_value_text(GPU_ENUM_bind, 0, text, sizeof(text)), "0");
    gpu_value_text(GPU_ENUM_bind, UINT32_MAX, text, 10);
    assert_true(strlen(text) < 10);
    /* The formats of 2D resources have the numbers that the uapi header gives them. */
    assert_string_equal(gpu_format(VIRTIO_GPU_FORMAT_B8G8R8X8_UNORM)->name, "B8G8R8X8_UNORM");
    assert_string_equal(gpu_format(VIRTIO_GPU_FORMAT_A8B8G8R8_UNORM)->name, "A8B8G8R8_UNORM");
    assert_string_equal(gpu_format(VIRTIO_GPU_FORMAT_R8G8B8X8_UNORM)->name, "R8G8B8X8_UNORM");
    assert_string_equal(gpu_format(VIRTIO_GPU_FORMAT_X8B8G8R8_UNORM)->name, "X8B8G8R8_UNORM");
    assert_int_equal(gpu_format(VIRGL_FORMAT_R16G16B16_FLOAT)->bytes, 6);
    assert_null(gpu_format(73));
    assert_null(gpu_format(5000));
    u32 last = 0;
    for (u32 i = 0, n = 0; i < 400; i++) {
        const struct gpu_format *f = gpu_format(i);
        assert_true(!f || f->number == i);
        assert_true(!f || !n++ || i > last);
        last = f ? i : last;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_of_structs),
        cmocka_unit_test(payloads),
        cmocka_unit_test(virgl_effects),
        cmocka_unit_test(virgl_places),
        cmocka_unit_test(virgl_lengths),
        cmocka_unit_test(virgl_problems),
        cmocka_unit_test(for_renderer),
        cmocka_unit_test(fields),
        cmocka_unit_test(extents),
        cmocka_unit_test(transfers),
        cmocka_unit_test(from_mesa),
        cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
