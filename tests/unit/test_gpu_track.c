/* virtio-gpu-log/play/track.c: which commands still count, and who relies on what. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gpu_stream.h"
#include "virtio-gpu-log/play/track.h"

enum { TARGET = 1, DEPTH, BUFFER };
enum { SURFACE = 10, DEPTH_SURFACE, VIEW, DSA, DSA_DEPTH, QUERY };
enum { DRAW_WORDS = 12 };

static struct gpu_track *t;
static struct words w;

static void forget(struct keyframe_contents *c)
{
}

static void command(u32 type, u32 ctx, const void *body, u32 size)
{
    static u8 bytes[sizeof(struct words) + 64];
    struct virtio_gpu_ctrl_hdr h = {.type = type, .ctx_id = ctx};
    struct gpu_command c;
    struct err err;
    memcpy(bytes, &h, sizeof(h));
    memcpy(bytes + sizeof(h), body, size);
    assert_int_equal(gpu_command_decode(GPU_QUEUE_control, bytes, GPU_HEADER + size, &c), 0);
    assert_int_equal(gpu_track_command(t, &c, 0, UINT32_MAX, &err), 0);
}
#define COMMAND(type, ctx, ...)                                                                    \
    command(VIRTIO_GPU_CMD_##type, ctx, (u32[]){__VA_ARGS__}, sizeof((u32[]){__VA_ARGS__}))

/* What was put into `w` is submitted. */
static void submit(void)
{
    static u32 body[2 + ARRAY_SIZE(w.at)];
    body[0] = w.n * 4;
    memcpy(body + 2, w.at, (size_t)w.n * 4);
    command(VIRTIO_GPU_CMD_SUBMIT_3D, 1, body, 8 + w.n * 4);
    w.n = 0;
}

static struct track_sub *sub(void)
{
    return gpu_track_context(t, 1)->current;
}

/* Live commands that set something. */
static u32 bound(u32 id)
{
    u32 n = 0;
    for (const struct track_live *l = sub()->bound; l; l = l->next)
        n += l->id == id;
    return n;
}

static void draw(bool indexed)
{
    put_command(&w, VIRGL_CCMD_DRAW_VBO, 0, DRAW_WORDS, 0, 3, 4, (u32)indexed, 1, 0, 0, 0, 0, 0, 2,
                0);
    submit();
}

static void clear(u32 buffers)
{
    put_command(&w, VIRGL_CCMD_CLEAR, 0, 8, buffers, 0, 0, 0, 0, 0, 0, 0);
    submit();
}

static int set_up(void **state)
{
    t = gpu_track_create(forget);
    w.n = 0;
    COMMAND(RESOURCE_CREATE_3D, 0, TARGET, 2, 1, 2, 64, 64, 1, 1, 0, 4, 0, 0);
    COMMAND(RESOURCE_CREATE_3D, 0, DEPTH, 2, 20, 1, 64, 64, 1, 1, 0, 4, 0, 0);
    COMMAND(RESOURCE_CREATE_3D, 0, BUFFER, 0, 64, 16, 64, 1, 1, 1, 0, 0, 0, 0);
    COMMAND(CTX_CREATE, 1, 0, 0, [17] = 0);
    for (u32 id = TARGET; id <= BUFFER; id++)
        COMMAND(CTX_ATTACH_RESOURCE, 1, id, 0);
    put_command(&w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_SURFACE, 5, SURFACE, TARGET, 1, 0, 0);
    put_command(&w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_SURFACE, 5, DEPTH_SURFACE, DEPTH, 20, 0,
                0);
    put_command(&w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_DSA, 5, DSA, 0, 0, 0, 0);
    put_command(&w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_DSA, 5, DSA_DEPTH, 3, 0, 0, 0);
    put_command(&w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_QUERY, 4, QUERY, 0, 0, BUFFER);
    put_command(&w, VIRGL_CCMD_BIND_OBJECT, VIRGL_OBJECT_DSA, 1, DSA);
    put_command(&w, VIRGL_CCMD_SET_FRAMEBUFFER_STATE, 0, 3, 1, DEPTH_SURFACE, SURFACE);
    submit();
    return 0;
}
static int tear_down(void **state)
{
    gpu_track_destroy(t);
    return 0;
}

static void test_bound(void **state)
{
    /* The last one counts; of slots, all that somebody still has. */
    for (int i = 0; i < 5; i++)
        put_command(&w, VIRGL_CCMD_SET_FRAMEBUFFER_STATE, 0, 3, 1, 0, SURFACE);
    put_command(&w, VIRGL_CCMD_BIND_SAMPLER_STATES, 0, 6, 1, 0, 0, 0, 0, 0);
    put_command(&w, VIRGL_CCMD_BIND_SAMPLER_STATES, 0, 3, 1, 1, 0);
    put_command(&w, VIRGL_CCMD_BIND_SAMPLER_STATES, 0, 3, 0, 1, 0); /* another stage */
    submit();
    assert_int_equal(bound(VIRGL_CCMD_SET_FRAMEBUFFER_STATE), 1);
    assert_int_equal(bound(VIRGL_CCMD_BIND_SAMPLER_STATES), 3);
    put_command(&w, VIRGL_CCMD_BIND_SAMPLER_STATES, 0, 4, 1, 2, 0, 0);
    put_command(&w, VIRGL_CCMD_BIND_SAMPLER_STATES, 0, 3, 1, 0, 0);
    submit(); /* the first is covered by three others: only slots 0, 1 and 2, 3 of the stage count
               */
    assert_int_equal(bound(VIRGL_CCMD_BIND_SAMPLER_STATES), 4);
    for (u32 i = 0; i < 100; i++) /* nothing at all sets slots too, but does not pile up */
        put_command(&w, VIRGL_CCMD_BIND_SAMPLER_STATES, 0, 2, 1, 0);
    submit();
    assert_int_equal(bound(VIRGL_CCMD_BIND_SAMPLER_STATES), 5);
}

/* What covers what is virglrenderer's to say. */
static void test_covered(void **state)
{
    /* Views after the last that is named are gone. */
    put_command(&w, VIRGL_CCMD_SET_SAMPLER_VIEWS, 0, 6, 1, 0, 0, 0, 0, 0);
    put_command(&w, VIRGL_CCMD_SET_SAMPLER_VIEWS, 0, 3, 0, 0, 0); /* another stage */
    put_command(&w, VIRGL_CCMD_SET_SAMPLER_VIEWS, 0, 3, 1, 2, 0);
    submit();
    assert_int_equal(bound(VIRGL_CCMD_SET_SAMPLER_VIEWS), 3);
    put_command(&w, VIRGL_CCMD_SET_SAMPLER_VIEWS, 0, 3, 1, 0, 0);
    submit();
    assert_int_equal(bound(VIRGL_CCMD_SET_SAMPLER_VIEWS), 2);
    for (u32 i = 0; i < 4; i++) {
        /* A stage has one set of constants, whatever their index says; but many uniform buffers. */
        put_command(&w, VIRGL_CCMD_SET_CONSTANT_BUFFER, 0, 6, 0, i % 2, i, i, i, i);
        put_command(&w, VIRGL_CCMD_SET_UNIFORM_BUFFER, 0, 5, 0, i % 2, 0, 16, BUFFER);
        put_command(&w, VIRGL_CCMD_SET_TWEAKS, 0, 2, i % 2, i);
    }
    submit();
    assert_int_equal(bound(VIRGL_CCMD_SET_CONSTANT_BUFFER), 1);
    assert_int_equal(bound(VIRGL_CCMD_SET_UNIFORM_BUFFER), 2);
    assert_int_equal(bound(VIRGL_CCMD_SET_TWEAKS), 2);
}

static void test_objects(void **state)
{
    /* Destroyed while it is bound: kept, and what destroyed it, until nothing is bound to it. */
    u64 bytes = t->bytes;
    put_command(&w, VIRGL_CCMD_DESTROY_OBJECT, 0, 1, SURFACE);
    submit();
    assert_non_null(sub()->destroyed);
    assert_int_equal(sub()->destroyed->handle, SURFACE);
    assert_true(sub()->destroyed->destroy->order > sub()->destroyed->parts->order);
    put_command(&w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_SURFACE, 5, SURFACE, TARGET, 1, 0, 0);
    put_command(&w, VIRGL_CCMD_SET_FRAMEBUFFER_STATE, 0, 3, 1, DEPTH_SURFACE, SURFACE);
    submit();
    assert_null(sub()->destroyed);
    assert_int_equal(t->bytes, bytes);
    /* A handle that is used again. */
    put_command(&w, VIRGL_CCMD_CREATE_OBJECT, VIRGL_OBJECT_DSA, 5, SURFACE, 0, 0, 0, 0);
    submit();
    assert_non_null(sub()->destroyed);
    COMMAND(CTX_DESTROY, 1, 0);
    assert_null(gpu_track_context(t, 1));
}

static void test_resources(void **state)
{
    u64 birth = gpu_track_resource(t, BUFFER)->birth;
    assert_true(gpu_track_lives(t, BUFFER, birth));
    assert_true(gpu_track_attached(gpu_track_context(t, 1), BUFFER));
    COMMAND(RESOURCE_UNREF, 0, BUFFER, 0);
    COMMAND(RESOURCE_CREATE_3D, 0, BUFFER, 0, 64, 16, 64, 1, 1, 1, 0, 0, 0, 0);
    assert_false(gpu_track_lives(t, BUFFER, birth)); /* another one of its number */
    assert_false(gpu_track_attached(gpu_track_context(t, 1), BUFFER));
    u64 changes = gpu_track_resource(t, TARGET)->changes;
    draw(false);
    assert_true(gpu_track_resource(t, TARGET)->changes > changes);
    assert_int_equal(gpu_track_resource(t, BUFFER)->changes, 0);
    COMMAND(TRANSFER_TO_HOST_3D, 1, 0, 0, 0, 4, 1, 1, 0, 0, BUFFER, 0, 0, 0);
    assert_int_equal(gpu_track_resource(t, BUFFER)->changes, 1);
}

static struct track_reliance reliance;
static struct track_pending pending;

static struct track_pending *rely_on(u32 id)
{
    const struct track_resource *r = gpu_track_resource(t, id);
    gpu_track_drop(t, &pending);
    reliance =
        (struct track_reliance){.id = id, .birth = r->birth, .aspects = gpu_track_aspects(r)};
    pending = (struct track_pending){.list = &reliance, .count = 1};
    gpu_track_watch(t, &pending);
    return &pending;
}

static void test_reliance(void **state)
{
    /* Cleared whole before it is drawn to: never looked at. */
    struct track_pending *p = rely_on(TARGET);
    clear(1 << 2);
    draw(false);
    assert_false(p->broken);
    p = rely_on(TARGET);
    draw(false);
    assert_true(p->broken);
    p = rely_on(TARGET);
    clear(1 << 3); /* another one */
    draw(false);
    assert_true(p->broken);
    /* Depth and stencil: both are to be cleared, if both tests are on. */
    p = rely_on(DEPTH);
    draw(false); /* neither is */
    assert_false(p->broken);
    put_command(&w, VIRGL_CCMD_BIND_OBJECT, VIRGL_OBJECT_DSA, 1, DSA_DEPTH);
    submit();
    p = rely_on(DEPTH);
    clear(1);
    draw(false);
    assert_false(p->broken);
    assert_int_equal(p->count, 1); /* stencil still is as it was */
    p = rely_on(DEPTH);
    clear(2);
    draw(false);
    assert_true(p->broken);
    p = rely_on(DEPTH);
    clear(3);
    draw(false);
    assert_false(p->broken || p->count);
    /* Named by a command; a clear that may do nothing. */
    p = rely_on(TARGET);
    put_command(&w, VIRGL_CCMD_RESOURCE_COPY_REGION, 0, 13, BUFFER, 0, 0, 0, 0, TARGET, 0, 0, 0, 0,
                1, 1, 1);
    submit();
    assert_true(p->broken);
    p = rely_on(TARGET);
    put_command(&w, VIRGL_CCMD_SET_RENDER_CONDITION, 0, 3, QUERY, 0, 0);
    submit();
    clear(1 << 2);
    assert_true(p->broken);
    gpu_track_drop(t, p);
}

static void test_dead_binding(void **state)
{
    put_command(&w, VIRGL_CCMD_SET_INDEX_BUFFER, 0, 3, BUFFER, 2, 0);
    submit();
    struct track_live *l = gpu_track_bound(sub(), VIRGL_CCMD_SET_INDEX_BUFFER, 0);
    assert_int_equal(l->named_count, 1);
    assert_int_equal(l->named[0].dword, 1);
    COMMAND(RESOURCE_UNREF, 0, BUFFER, 0);
    assert_false(gpu_track_lives(t, BUFFER, l->named[0].birth));
    reliance = (struct track_reliance){.live = l};
    pending = (struct track_pending){.list = &reliance, .count = 1};
    gpu_track_watch(t, &pending);
    draw(false);
    assert_false(pending.broken);
    put_command(&w, VIRGL_CCMD_SET_INDEX_BUFFER, 0, 1, 0);
    submit();
    assert_int_equal(pending.count, 0);
    draw(true);
    assert_false(pending.broken);
    gpu_track_drop(t, &pending);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_bound, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_covered, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_objects, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_resources, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_reliance, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_dead_binding, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
