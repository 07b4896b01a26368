/* The player of GPU logs, its tracker and keyframes, and the GPU's host side when memory is short:
 * each allocation fails once, over a small stream. All end with an error that says so, nothing is
 * lost or given back twice (mk/test.mk wraps the allocator; the address sanitizer looks too). */
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "gpu_stream.h"
#include "live/gpu.h"
#include "virtio-gpu-log/play/who.h"

/* --- The allocator --- */

static long fail_in; /* the next but so many fails; <0: none */
static long held;    /* pieces of memory */

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
char *__real_strdup(const char *s);
void __real_free(void *p);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
char *__wrap_strdup(const char *s);
void __wrap_free(void *p);

static bool fails(void)
{
    return fail_in >= 0 && !fail_in--;
}
void *__wrap_malloc(size_t size)
{
    void *p = fails() ? NULL : __real_malloc(size);
    held += p != NULL;
    return p;
}
void *__wrap_calloc(size_t n, size_t size)
{
    void *p = fails() ? NULL : __real_calloc(n, size);
    held += p != NULL;
    return p;
}
void *__wrap_realloc(void *p, size_t size)
{
    bool had = p;
    void *moved = fails() ? NULL : __real_realloc(p, size);
    held += moved && !had;
    return moved;
}
char *__wrap_strdup(const char *s)
{
    char *p = fails() ? NULL : __real_strdup(s);
    held += p != NULL;
    return p;
}
void __wrap_free(void *p)
{
    held -= p != NULL;
    __real_free(p);
}

/* --- A renderer that does all it is asked; its own memory never fails --- */

struct renderer {
    u64 seq;
    struct asked {
        u64 seq;
        u32 type, w, h;
    } owed[256];
    u32 count;
    struct renderer_about about;
};
static struct renderer the_renderer;

int renderer_create(struct renderer **out, const struct renderer_config *c, struct err *err)
{
    *out = &the_renderer;
    memset(*out, 0, sizeof(**out));
    return 0;
}
void renderer_destroy(struct renderer *r)
{
}
const struct renderer_about *renderer_about(const struct renderer *r)
{
    return &r->about;
}
const char *renderer_death(const struct renderer *r)
{
    return NULL;
}
void renderer_poll(struct renderer *r)
{
}
static u64 ask(struct renderer *r, u32 type, u32 w, u32 h)
{
    r->seq++;
    if (type) {
        assert_true(r->count < ARRAY_SIZE(r->owed));
        r->owed[r->count++] = (struct asked){r->seq, type, w, h};
    }
    return r->seq;
}
u64 renderer_context_create(struct renderer *r, u32 context, const char *name, size_t length)
{
    return ask(r, 0, 0, 0);
}
u64 renderer_context_destroy(struct renderer *r, u32 context)
{
    return ask(r, 0, 0, 0);
}
u64 renderer_context_attach(struct renderer *r, u32 context, u32 resource)
{
    return ask(r, 0, 0, 0);
}
u64 renderer_context_detach(struct renderer *r, u32 context, u32 resource)
{
    return ask(r, 0, 0, 0);
}
u64 renderer_resource_create(struct renderer *r, const struct wire_resource_create *args)
{
    return ask(r, 0, 0, 0);
}
u64 renderer_resource_unref(struct renderer *r, u32 resource)
{
    return ask(r, 0, 0, 0);
}
u64 renderer_attach_backing(struct renderer *r, u32 resource, u64 size)
{
    return ask(r, 0, 0, 0);
}
u64 renderer_detach_backing(struct renderer *r, u32 resource)
{
    return ask(r, 0, 0, 0);
}
u64 renderer_write_backing(struct renderer *r, u32 resource, u64 offset, const void *bytes,
                           size_t size)
{
    return ask(r, 0, 0, 0);
}
u64 renderer_transfer_to_host(struct renderer *r, const struct wire_transfer *t)
{
    return ask(r, 0, 0, 0);
}
u64 renderer_transfer_from_host(struct renderer *r, const struct wire_transfer *t)
{
    return ask(r, WIRE_TRANSFER_FROM_HOST, 0, 0);
}
u64 renderer_submit(struct renderer *r, u32 context, const u32 *words, size_t count)
{
    return ask(r, 0, 0, 0);
}
u64 renderer_fence(struct renderer *r)
{
    return ask(r, WIRE_FENCE, 0, 0);
}
u64 renderer_read(struct renderer *r, u32 resource, u32 level, const struct wire_box *box,
                  enum wire_layout layout)
{
    return ask(r, WIRE_READ, box ? box->w : 8, box ? box->h : 8);
}
u64 renderer_reset(struct renderer *r)
{
    return ask(r, 0, 0, 0);
}
struct renderer_reply *renderer_next(struct renderer *r)
{
    r->count = 0;
    return NULL;
}
void renderer_forget(struct renderer *r, u64 seq)
{
}
u32 renderer_result(const struct renderer_reply *fence, u64 seq)
{
    return fence->result;
}
struct renderer_reply *renderer_wait(struct renderer *r, u64 seq, u32 milliseconds)
{
    struct parts {
        struct renderer_reply reply;
        struct wire_range range;
        u8 data[];
    };
    for (u32 i = 0; i < r->count; i++) {
        struct asked a = r->owed[i];
        if (a.seq != seq)
            continue;
        memmove(r->owed + i, r->owed + i + 1, (--r->count - i) * sizeof(a));
        u64 size = a.type == WIRE_READ ? (u64)a.w * a.h * 4 : a.type == WIRE_FENCE ? 0 : 16;
        struct parts *p = __real_calloc(1, sizeof(*p) + size);
        held++;
        memset(p->data, (int)seq, size);
        p->range = (struct wire_range){.resource = SAMPLE_VERTICES, .size = (u32)size};
        p->reply = (struct renderer_reply){.seq = seq,
                                           .type = a.type,
                                           .ranges = &p->range,
                                           .range_count = a.type == WIRE_TRANSFER_FROM_HOST,
                                           .width = a.w,
                                           .height = a.h,
                                           .depth = 1,
                                           .row_bytes = a.w * 4,
                                           .data = p->data,
                                           .data_size = size};
        return &p->reply;
    }
    return NULL;
}

/* --- Streams --- */

static struct gpu_log_reader *open_log(int fd)
{
    struct gpu_log_reader *log;
    struct err err;
    assert_int_equal(gpu_log_open(&log, fd, &err), 0);
    return log;
}

static int sample(void)
{
    struct err err;
    int fd = memfd_create("gpu.log", 0);
    assert_int_equal(sample_gpu_log(dup(fd), 4, true, NULL, &err), 0);
    return fd;
}

#define ADD(s, type, ctx, ...)                                                                     \
    stream_add(s, VIRTIO_GPU_CMD_##type, ctx, (u32[]){__VA_ARGS__}, sizeof((u32[]){__VA_ARGS__}),  \
               NULL, 0, VIRTIO_GPU_RESP_OK_NODATA)

/* What the sample has not: a cursor, sub-contexts, what is destroyed while it is bound, queries,
 * contexts that end. */
static int more(void)
{
    static struct words w;
    struct gpu_rec_start start = {.virgl = 1, .scanouts = 1};
    struct stream s = {0};
    struct err err;
    int fd = memfd_create("gpu.log", 0);
    assert_int_equal(gpu_log_create(&s.log, dup(fd), &start, &err), 0);
    for (u32 id = 1; id <= 3; id++)
        ADD(&s, RESOURCE_CREATE_2D, 0, id, 1, 8, 8);
    ADD(&s, SET_SCANOUT, 0, 0, 0, 8, 8, 0, 1);
    ADD(&s, UPDATE_CURSOR, 0, 0, 2, 2, 0, 2, 0, 0, 0);
    ADD(&s, MOVE_CURSOR, 0, 0, 3, 3, 0, 2, 0, 0, 0);
    for (u32 ctx = 1; ctx <= 2; ctx++) {
        ADD(&s, CTX_CREATE, ctx, 0, 0, [17] = 0);
        for (u32 id = 1; id <= 3; id++)
            ADD(&s, CTX_ATTACH_RESOURCE, ctx, id, 0);
        w.n = 0;
        put_command(&w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_SURFACE, 5, 10, 1, 1, 0, 0);
        put_command(&w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_QUERY, 4, 11, 0, 0, 3);
        put_command(&w, VIRGL_CCMD_SET_FRAMEBUFFER_STATE, 0, 3, 1, 0, 10);
        put_command(&w, VIRGL_CCMD_SET_UNIFORM_BUFFER, 0, 5, 0, 1, 0, 16, 3);
        put_command(&w, VIRGL_CCMD_BEGIN_QUERY, 0, 1, 11);
        put_command(&w, VIRGL_CCMD_CLEAR, 0, 8, 4, 0, 0, 0, 0, 0, 0, 0);
        put_command(&w, VIRGL_CCMD_END_QUERY, 0, 1, 11);
        put_command(&w, VIRGL_CCMD_DESTROY_OBJECT, 0, 1, 10);
        put_command(&w, VIRGL_CCMD_CREATE_SUB_CTX, 0, 1, 1);
        put_command(&w, VIRGL_CCMD_SET_SUB_CTX, 0, 1, 1);
        put_command(&w, VIRGL_CCMD_SET_BLEND_COLOR, 0, 4, 0, 0, 0, 0);
        stream_submit(&s, ctx, &w, NULL, 0, VIRTIO_GPU_RESP_OK_NODATA);
        ADD(&s, RESOURCE_FLUSH, 0, 0, 0, 8, 8, 1, 0);
    }
    ADD(&s, RESOURCE_UNREF, 0, 3, 0);
    ADD(&s, CTX_DESTROY, 2, [0] = 0);
    ADD(&s, RESOURCE_FLUSH, 0, 0, 0, 8, 8, 1, 0);
    assert_int_equal(gpu_log_end(s.log, s.position + 1000, s.position + 1000, &err), 0);
    assert_int_equal(gpu_log_close(s.log, &err), 0);
    return fd;
}

/* --- Playing --- */

static int play(struct gpu_log_reader *log, struct gpu_player *p, bool back, struct err *err)
{
    struct gpu_shot shot;
    struct gpu_who who;
    int code, looked = 0;
    while ((code = gpu_player_step(p, err)) == 1) {
        code = gpu_player_shot(p, 0, &shot, err);
        gpu_shot_free(&shot);
        looked = looked ? looked : code; /* a picture that fails does no more harm */
    }
    if (code || looked)
        return code ? code : looked;
    u64 end = gpu_player_place(p)->commands;
    if (strstr(gpu_log_damage(log)->text, "memory"))
        return 0; /* the log ends where its reader had none */
    if (!back)
        return gpu_who_drew(p, 0, 3, 3, &who, err);
    const u64 to[] = {end / 2, end - 1, 1, end};
    for (size_t i = 0; !code && i < ARRAY_SIZE(to); i++) {
        code = gpu_player_seek_command(p, to[i], err);
        const struct gpu_command *c = code ? NULL : gpu_player_peek(p, err);
        if (c && c->type == VIRTIO_GPU_CMD_SUBMIT_3D && !c->response)
            code = gpu_player_part(p, c->payload_size / 8, err);
    }
    return code;
}

/* Creates a player, plays, and ends it, while allocation `n` fails; true: there are fewer. */
static bool once(int fd, bool back, long n)
{
    struct gpu_player_config config = {.renderer = {.program = "none", .driver = "none"},
                                       .keyframes = back ? 1 << 20 : 0,
                                       .keyframe_spacing = 1,
                                       .compare = true};
    long before = held;
    struct gpu_log_reader *log = open_log(dup(fd));
    struct gpu_player *p;
    struct err err = {0};
    fail_in = n;
    int code = gpu_player_create(&p, log, &config, &err);
    if (!code)
        code = play(log, p, back, &err);
    bool all = fail_in >= 0;
    fail_in = -1;
    struct gpu_player_keyframes kept = {0};
    if (all)
        gpu_player_keyframes(p, &kept);
    assert_true(!all || !back || (kept.count && kept.used));
    /* Without memory for a keyframe it goes on without. */
    assert_true(!code || (code == -ENOMEM && strstr(err.text, "memory")));
    assert_true(!all || !code);
    if (code && p) { /* it stays an error, or all goes on */
        struct err again = {0};
        code = gpu_player_step(p, &again);
        assert_true(code >= 0 || strstr(again.text, "memory"));
    }
    gpu_player_destroy(p);
    gpu_log_reader_destroy(log);
    assert_int_equal(held, before);
    return all;
}

static void test_player(void **state)
{
    int fd[] = {sample(), more()};
    for (size_t i = 0; i < ARRAY_SIZE(fd); i++) {
        long n[2] = {0};
        for (int back = 0; back < 2; back++)
            while (!once(fd[i], back, n[back]))
                n[back]++;
        print_message("%ld and %ld allocations\n", n[0], n[1]);
        assert_true(n[0] > 100 && n[1] > 100);
        close(fd[i]);
    }
}

/* --- While it is recorded --- */

static void emit(struct gpu_host *h, struct gpu_log_reader *log, u64 *sent, u64 *lost)
{
    struct gpu_record rec;
    struct gpu_command c;
    while (gpu_log_next(log, &rec)) {
        if (rec.type != GPU_REC_COMMAND || gpu_record_command(&rec, &c))
            continue;
        struct gpu_range ranges[8], *r = ranges;
        static const u8 zeros[65536];
        for (u32 i = 0; r < ranges + 8 && gpu_ranges_next(&rec.command.uploads, &i, r); r++)
            r->bytes.data = r->bytes.size <= sizeof(zeros) ? zeros : NULL;
        gpu_host_emit(h, &(struct dev_gpu){.what = DEV_GPU_TAKEN,
                                           .number = *sent,
                                           .command = &c,
                                           .awaited = true,
                                           .ranges = ranges,
                                           .count = (u32)(r - ranges)});
        struct input in;
        bool dead = gpu_host_death(h);
        assert_true(gpu_host_reply(h, (*sent)++, 0, &in));
        /* The machine is told why, once, and of no command after it that it was done. */
        *lost += in.len > 20 && memmem(in.data, in.len, "no memory", 9);
        assert_true(!dead || *lost);
    }
}

static void test_host(void **state)
{
    int fd = sample();
    struct renderer_config config = {.program = "none"};
    bool all = false;
    for (long n = 0; !all; n++) {
        long before = held;
        struct gpu_log_reader *log = open_log(dup(fd));
        struct gpu_host *h = NULL;
        struct err err = {0};
        u64 sent = 0, lost = 0;
        fail_in = n;
        int code = gpu_host_create(&h, &config, &err);
        if (!code)
            emit(h, log, &sent, &lost);
        all = fail_in >= 0;
        fail_in = -1;
        assert_true(!code || (code == -ENOMEM && strstr(err.text, "memory")));
        if (!code && gpu_host_death(h)) {
            assert_non_null(strstr(gpu_host_death(h), "no memory"));
            assert_int_equal(lost, 1);
            u8 pixel[4];
            assert_int_equal(gpu_host_read(h, 1, 0, 0, 1, 1, pixel, &err), -ENOMEM);
            /* The driver resets the device: all is well again. */
            gpu_host_emit(h, &(struct dev_gpu){.what = DEV_GPU_RESET});
            assert_null(gpu_host_death(h));
            assert_int_equal(gpu_host_read(h, 1, 0, 0, 1, 1, pixel, &err), 0);
        } else {
            assert_int_equal(lost, 0);
        }
        gpu_host_destroy(h);
        gpu_log_reader_destroy(log);
        assert_int_equal(held, before);
    }
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_player),
        cmocka_unit_test(test_host),
    };
    fail_in = -1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
