/* The state rebuilt from a stream: objects, bindings, slots, sub-contexts, contents; pictures. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "gpu_stream.h"
#include "virtio-gpu-log/picture.h"
#include "virtio-gpu-log/print.h"

/* A log that is written by a test, then read with a state that follows it. */
struct fixture {
    struct stream s;
    int fd;
    struct words *w;
    struct gpu_log_reader *log;
    struct gpu_stream *state;
};

static void begin(struct fixture *f)
{
    struct gpu_rec_start start = {.virgl = 1, .scanouts = 1};
    struct err err;
    memset(f, 0, sizeof(*f));
    f->w = calloc(1, sizeof(*f->w));
    f->fd = memfd_create("gpu.log", 0);
    assert_int_equal(gpu_log_create(&f->s.log, dup(f->fd), &start, &err), 0);
    stream_add(&f->s, VIRTIO_GPU_CMD_CTX_CREATE, 1, (u32[18]){4, 0, 0x74736574}, 72, NULL, 0,
               VIRTIO_GPU_RESP_OK_NODATA);
}

static void submit(struct fixture *f)
{
    stream_submit(&f->s, 1, f->w, NULL, 0, VIRTIO_GPU_RESP_OK_NODATA);
    f->w->n = 0;
}

/* Reads all of it. */
static void follow(struct fixture *f)
{
    struct gpu_record rec;
    struct err err;
    assert_int_equal(gpu_log_close(f->s.log, &err), 0);
    assert_int_equal(gpu_log_open(&f->log, f->fd, &err), 0);
    f->state = gpu_stream_create();
    while (gpu_log_next(f->log, &rec))
        assert_int_equal(gpu_stream_step(f->state, f->log, &rec, GPU_NO_DWORD, &err), 0);
}

static void end(struct fixture *f)
{
    gpu_stream_destroy(f->state);
    gpu_log_reader_destroy(f->log);
    free(f->w);
}

static void objects_and_slots(void **state)
{
    struct fixture f;
    begin(&f);
    put_command(f.w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_DSA, 5, 7, 1, 0, 0, 0);
    put_command(f.w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_DSA, 5, 8, 2, 0, 0, 0);
    put_command(f.w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_DSA, 5, 7, 3, 0, 0, 0); /* anew */
    put_command(f.w, VIRGL_CCMD_DESTROY_OBJECT, VIRGL_OBJECT_DSA, 1, 8);
    put_command(f.w, VIRGL_CCMD_BIND_OBJECT, VIRGL_OBJECT_DSA, 1, 8);
    put_command(f.w, VIRGL_CCMD_BIND_OBJECT, VIRGL_OBJECT_DSA, 1, 7);
    put_command(f.w, VIRGL_CCMD_SET_SAMPLER_VIEWS, 0, 5, 1, 2, 50, 51, 52);
    put_command(f.w, VIRGL_CCMD_SET_SAMPLER_VIEWS, 0, 3, 1, 3, 60);
    put_command(f.w, VIRGL_CCMD_SET_SAMPLER_VIEWS, 0, 3, 0, 3, 70);
    put_command(f.w, VIRGL_CCMD_SET_VERTEX_BUFFERS, 0, 6, 16, 0, 1, 32, 4, 2);
    submit(&f);
    put_command(f.w, VIRGL_CCMD_SET_VERTEX_BUFFERS, 0, 3, 24, 8, 3);
    put_command(f.w, VIRGL_CCMD_CREATE_SUB_CTX, 0, 1, 5);
    put_command(f.w, VIRGL_CCMD_SET_SUB_CTX, 0, 1, 5);
    put_command(f.w, VIRGL_CCMD_SET_VERTEX_BUFFERS, 0, 3, 24, 8, 3); /* where nothing was set */
    put_command(f.w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_DSA, 5, 9, 0, 0, 0, 0);
    put_command(f.w, VIRGL_CCMD_SET_STENCIL_REF, 0, 1, 0x1234);
    submit(&f);
    /* A refused buffer does nothing. */
    put_command(f.w, VIRGL_CCMD_SET_STENCIL_REF, 0, 1, 0x5678);
    put_command(f.w, 200, 0, 0);
    submit(&f);
    follow(&f);

    const struct gpu_stream_context *c = gpu_stream_context(f.state, 1);
    assert_non_null(c);
    assert_string_equal(c->name, "test");
    assert_null(gpu_stream_context(f.state, 2));
    assert_int_equal(c->current->id, 5);
    assert_non_null(gpu_stream_object(c->current, 9));
    assert_null(gpu_stream_object(c->current, 7));
    const struct gpu_bound *b = gpu_stream_bound(c->current, VIRGL_CCMD_SET_STENCIL_REF, 0, 0);
    assert_int_equal(virgl_word(&b->command, 1), 0x1234);

    const struct gpu_sub *zero = c->subs;
    while (zero->id)
        zero = zero->next;
    const struct gpu_object *o = gpu_stream_object(zero, 7);
    assert_int_equal(virgl_word(&o->command, 2), 3);
    assert_int_equal(o->created.number, 1);
    assert_int_equal(o->created.at, 12);
    assert_null(gpu_stream_object(zero, 8));
    b = gpu_stream_bound(zero, VIRGL_CCMD_BIND_OBJECT, VIRGL_OBJECT_DSA, 0);
    assert_int_equal(virgl_word(&b->command, 1), 7);
    static const u32 views[][3] = {{1, 2, 50}, {1, 3, 60}, {0, 3, 70}};
    for (size_t i = 0; i < ARRAY_SIZE(views); i++) {
        b = gpu_stream_bound(zero, VIRGL_CCMD_SET_SAMPLER_VIEWS, views[i][0], views[i][1]);
        assert_non_null(b);
        assert_int_equal(virgl_word(&b->command, 2), views[i][1]);
        assert_int_equal(virgl_word(&b->command, 3), views[i][2]);
    }
    /* The renderer unbinds the views after the last that a command names. */
    assert_null(gpu_stream_bound(zero, VIRGL_CCMD_SET_SAMPLER_VIEWS, 1, 4));
    /* One list replaces the other. */
    b = gpu_stream_bound(zero, VIRGL_CCMD_SET_VERTEX_BUFFERS, 0, 0);
    assert_int_equal(virgl_word(&b->command, 1), 24);
    assert_int_equal(b->origin.number, 2);
    assert_null(gpu_stream_bound(zero, VIRGL_CCMD_SET_VERTEX_BUFFERS, 0, 1));
    end(&f);
}

/* What is one thing and what several is virglrenderer's to say. */
static void keys(void **state)
{
    struct fixture f;
    begin(&f);
    for (u32 i = 0; i < 4; i++) {
        put_command(f.w, VIRGL_CCMD_SET_CONSTANT_BUFFER, 0, 6, 1, i, i, i, i, i);
        put_command(f.w, VIRGL_CCMD_SET_UNIFORM_BUFFER, 0, 5, 1, i, 0, 16, 7);
        put_command(f.w, VIRGL_CCMD_SET_TWEAKS, 0, 2, i, 10 + i);
        put_command(f.w, VIRGL_CCMD_BIND_SAMPLER_STATES, 0, 4, 1, 2 * i, 20, 21);
    }
    put_command(f.w, VIRGL_CCMD_BIND_SAMPLER_STATES, 0, 3, 1, 0, 30); /* others stay */
    put_command(f.w, VIRGL_CCMD_BIND_SHADER, 0, 2, 40, 1);
    put_command(f.w, VIRGL_CCMD_SET_FRAMEBUFFER_STATE, 0, 4, 2, 0, 50, 51);
    submit(&f);
    follow(&f);
    const struct gpu_sub *sub = gpu_stream_context(f.state, 1)->current;
    const struct gpu_bound *b = gpu_stream_bound(sub, VIRGL_CCMD_SET_CONSTANT_BUFFER, 1, 0);
    assert_int_equal(virgl_word(&b->command, 3), 3);
    assert_null(gpu_stream_bound(sub, VIRGL_CCMD_SET_CONSTANT_BUFFER, 1, 1));
    for (u32 i = 0; i < 4; i++) {
        assert_non_null(gpu_stream_bound(sub, VIRGL_CCMD_SET_UNIFORM_BUFFER, 1, i));
        b = gpu_stream_bound(sub, VIRGL_CCMD_SET_TWEAKS, 0, i);
        assert_int_equal(virgl_word(&b->command, 2), 10 + i);
        b = gpu_stream_bound(sub, VIRGL_CCMD_BIND_SAMPLER_STATES, 1, 2 * i);
        assert_int_equal(virgl_word(&b->command, 3), i ? 20 : 30);
    }
    assert_non_null(gpu_stream_bound(sub, VIRGL_CCMD_BIND_SHADER, 1, 0));
    assert_null(gpu_stream_bound(sub, VIRGL_CCMD_BIND_SHADER, 0, 0));
    b = gpu_stream_bound(sub, VIRGL_CCMD_SET_FRAMEBUFFER_STATE, 0, 0);
    assert_int_equal(b->command.length, 4);
    assert_int_equal(virgl_word(&b->command, 4), 51);
    assert_null(gpu_stream_bound(sub, VIRGL_CCMD_SET_FRAMEBUFFER_STATE, 0, 1));
    end(&f);
}

/* A shader in three parts. */
static void long_shader(void **state)
{
    struct fixture f;
    begin(&f);
    put_command(f.w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_SHADER, 6, 9, 0, 11, 300, 0,
                0x44434241);
    put_command(f.w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_SHADER, 6, 9, 0, 4 | 1u << 31, 300, 0,
                0x48474645);
    put_command(f.w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_SHADER, 6, 9, 0, 8 | 1u << 31, 300, 0,
                0x00004a49);
    /* Parts that lie nowhere, or belong to nothing. */
    put_command(f.w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_SHADER, 6, 9, 0, 99 | 1u << 31, 300, 0,
                0x5a5a5a5a);
    put_command(f.w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_SHADER, 6, 10, 0, 0 | 1u << 31, 300, 0,
                0x5a5a5a5a);
    submit(&f);
    follow(&f);
    const struct gpu_sub *sub = gpu_stream_context(f.state, 1)->current;
    assert_string_equal(gpu_stream_object(sub, 9)->text, "ABCDEFGHIJ");
    assert_int_equal(gpu_stream_object(sub, 9)->text_size, 10);
    assert_null(gpu_stream_object(sub, 10));
    end(&f);
}

/* Uploads of all kinds end up in the contents. */
static void contents(void **state)
{
    struct fixture f;
    u8 bytes[64];
    for (u32 i = 0; i < sizeof(bytes); i++)
        bytes[i] = (u8)(i + 1);
    begin(&f);
    u32 create[12] = {5, 2, VIRGL_FORMAT_R8G8B8A8_UNORM, 8, 4, 4, 1, 1, 0, 0, 0, 0};
    stream_add(&f.s, VIRTIO_GPU_CMD_RESOURCE_CREATE_3D, 0, create, sizeof(create), NULL, 0,
               VIRTIO_GPU_RESP_OK_NODATA);
    /* Two texels of two rows, packed. */
    u32 to_host[12] = {1, 1, 0, 2, 2, 1, 0, 0, 5, 0, 8, 0};
    struct gpu_range range = {.resource = 5, .bytes = {.size = 16, .data = bytes}};
    stream_add(&f.s, VIRTIO_GPU_CMD_TRANSFER_TO_HOST_3D, 1, to_host, sizeof(to_host), &range, 1,
               VIRTIO_GPU_RESP_OK_NODATA);
    u32 write[] = {5, 0, 0, 0, 0, 3, 3, 0, 1, 1, 1, 0xdeadbeef};
    put_header(f.w, VIRGL_CCMD_RESOURCE_INLINE_WRITE, 0, ARRAY_SIZE(write));
    for (u32 i = 0; i < ARRAY_SIZE(write); i++)
        put(f.w, write[i]);
    /* Outside of it: nothing happens. */
    put_command(f.w, VIRGL_CCMD_RESOURCE_INLINE_WRITE, 0, 12, 5, 0, 0, 0, 0, 4, 0, 0, 1, 1, 1, 0);
    submit(&f);
    follow(&f);
    const struct gpu_stream_resource *r = gpu_stream_resource(f.state, 5);
    u8 want[64] = {0};
    memcpy(want + 20, bytes, 8);
    memcpy(want + 36, bytes + 8, 8);
    memcpy(want + 60, "\xef\xbe\xad\xde", 4);
    assert_non_null(r->contents);
    assert_int_equal(r->contents_size, 64);
    assert_memory_equal(r->contents, want, 64);
    assert_int_equal(r->written.number, 3);
    assert_null(gpu_stream_resource(f.state, 6));
    end(&f);
}

/* The sample's last draw: its vertices and shaders are printed. */
static void printed(void **state)
{
    struct err err;
    struct gpu_log_reader *r;
    struct gpu_record rec;
    struct virgl_command draw = {0};
    u8 *kept = NULL;
    int fd = memfd_create("gpu.log", 0);
    assert_int_equal(sample_gpu_log(dup(fd), 3, true, NULL, &err), 0);
    assert_int_equal(gpu_log_open(&r, fd, &err), 0);
    struct gpu_stream *s = gpu_stream_create();
    while (gpu_log_next(r, &rec)) {
        struct gpu_command c;
        struct virgl_walk w;
        struct virgl_command v;
        assert_int_equal(gpu_stream_step(s, r, &rec, GPU_NO_DWORD, &err), 0);
        if (rec.type != GPU_REC_COMMAND)
            continue;
        gpu_command_decode(0, rec.command.words.data, rec.command.words.len, &c);
        virgl_walk_start(&w, c.payload, c.payload_size);
        while (virgl_next(&w, &v))
            if (v.id == VIRGL_CCMD_DRAW_VBO) {
                free(kept);
                kept = malloc((v.length + 1) * 4);
                memcpy(kept, v.words, (v.length + 1) * 4);
                draw = v;
                draw.words = kept;
            }
    }
    assert_non_null(kept);
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    gpu_print_vertices(out, s, 1, &draw, 2);
    gpu_print_bound(out, s, 1);
    gpu_print_bound(out, s, 2);
    fclose(out);
    static const char *const there[] = {
        "0:  IN[0]=-0.9,-0.9,0,1  IN[1]=0,0,0,1\n",
        "... 1 more\n",
        "context 1 \"triangle\", sub-context 1\n",
        "1: MOV OUT[0], IN[0]\n",
        "TEX OUT[0], IN[0], SAMP[0], 2D\n",
        "resource 3: TEXTURE_2D R8G8B8A8_UNORM 8x8",
        "SET_FRAMEBUFFER_STATE",
        "BLEND 23",
        "context 2: there is none\n",
    };
    for (size_t i = 0; i < ARRAY_SIZE(there); i++)
        if (!strstr(text, there[i]))
            fail_msg("\"%s\" is not in: %s", there[i], text);
    free(text);
    free(kept);
    gpu_stream_destroy(s);
    gpu_log_reader_destroy(r);
}

static void texels(void **state)
{
    u8 out[8];
    gpu_picture_row(VIRGL_FORMAT_B8G8R8A8_UNORM, (const u8 *)"\1\2\3\4\5\6\7\10", 2, out);
    assert_memory_equal(out, "\3\2\1\4\7\6\5\10", 8);
    gpu_picture_row(VIRGL_FORMAT_X8R8G8B8_UNORM, (const u8 *)"\1\2\3\4", 1, out);
    assert_memory_equal(out, "\2\3\4\377", 4);
    gpu_picture_row(VIRGL_FORMAT_R8_UNORM, (const u8 *)"\7", 1, out);
    assert_memory_equal(out, "\7\7\7\377", 4);
    gpu_picture_row(VIRGL_FORMAT_B5G6R5_UNORM, (const u8 *)"\x1f\0\0\xf8", 2, out);
    assert_memory_equal(out, "\0\0\377\377\377\0\0\377", 8);
    gpu_picture_row(VIRGL_FORMAT_B5G5R5A1_UNORM, (const u8 *)"\0\x80\0\x7c", 2, out);
    assert_memory_equal(out, "\0\0\0\377\377\0\0\0", 8);
    assert_true(gpu_picture_format(VIRGL_FORMAT_R8G8B8_UNORM));
    assert_false(gpu_picture_format(VIRGL_FORMAT_R32_FLOAT));
    assert_false(gpu_picture_format(9999));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(objects_and_slots), cmocka_unit_test(keys),
        cmocka_unit_test(long_shader),       cmocka_unit_test(contents),
        cmocka_unit_test(printed),           cmocka_unit_test(texels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
