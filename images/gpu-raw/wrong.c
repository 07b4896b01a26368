/* See wrong.h. The kernel looks into no command buffer: what is wrong there only the device sees.
 */
#include "wrong.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { NOBODY = 0x7ffffff0, FRAMES_A_CONTEXT = 16, MANY_CONTEXTS = 400, MANY_TEXTURES = 4000 };

struct wrong {
    struct scene scene;
    struct words w;
};

static void raw(struct wrong *x, const u32 *words, u32 count)
{
    for (u32 i = 0; i < count; i++)
        word(&x->w, words[i]);
}

#define RAW(x, ...)                  raw(x, (const u32[]){__VA_ARGS__}, sizeof((u32[]){__VA_ARGS__}) / sizeof(u32))
#define HEADER(type, object, length) ((u32)(type) | (u32)(object) << 8 | (u32)(length) << 16)

static int submit(struct wrong *x)
{
    return card_submit(x->scene.card, &x->w, &x->scene.vertices.bo, 1);
}

static int unknown_command(struct wrong *x)
{
    RAW(x, HEADER(200, 0, 1), 0);
    return submit(x);
}

static int unknown_object_type(struct wrong *x)
{
    RAW(x, HEADER(VC_CREATE, 77, 1), 90);
    return submit(x);
}

static int too_long(struct wrong *x)
{
    RAW(x, HEADER(VC_CLEAR, 0, 0xffff), 4);
    return submit(x);
}

static int too_short(struct wrong *x)
{
    RAW(x, HEADER(VC_CLEAR, 0, 2), 4, 0);
    return submit(x);
}

static int cut_in_the_middle(struct wrong *x)
{
    int error = scene_commands(&x->scene, 0, false, &x->w);
    x->w.n -= x->w.n / 3 + 1;
    return error ? error : submit(x);
}

static int empty(struct wrong *x)
{
    return submit(x);
}

static int object_that_is_none(struct wrong *x)
{
    bind_object(&x->w, VO_BLEND, NOBODY);
    return submit(x);
}

static int resource_that_is_none(struct wrong *x)
{
    RAW(x, HEADER(VC_CREATE, VO_SURFACE, 5), 91, NOBODY, VF_BGRA8, 0, 0);
    return submit(x);
}

static int resource_of_another_context(struct wrong *x)
{
    struct card other = {.quiet = true};
    struct buffer b;
    struct shape shape = {VT_2D, VF_RGBA8, VB_SAMPLER, 64, 64};
    int error = card_open(&other);
    if (error)
        return error;
    error = card_buffer(&other, &shape, &b);
    RAW(x, HEADER(VC_CREATE, VO_SURFACE, 5), 92, b.resource, VF_RGBA8, 0, 0);
    error = error ? error : submit(x);
    card_close(&other);
    return error;
}

static int shader_that_is_none(struct wrong *x)
{
    shader(&x->w, 93, 1, "FRAG\nthis is no program\n");
    return submit(x);
}

static int shader_without_end(struct wrong *x)
{
    RAW(x, HEADER(VC_CREATE, VO_SHADER, 6), 94, 1, 0x7fffffff, 300, 0, 0x47415246);
    return submit(x);
}

static int draw_without_end(struct wrong *x)
{
    RAW(x, HEADER(VC_SET_SUB_CONTEXT, 0, 1), 1);
    draw(&x->w, 0xfffffff0, 0x1000);
    return submit(x);
}

static int draw_without_state(struct wrong *x)
{
    RAW(x, HEADER(VC_CREATE_SUB_CONTEXT, 0, 1), 7, HEADER(VC_SET_SUB_CONTEXT, 0, 1), 7);
    draw(&x->w, 0, 3);
    return submit(x);
}

static int framebuffer_of_many(struct wrong *x)
{
    command(&x->w, VC_FRAMEBUFFER, 0, 42);
    word(&x->w, 40);
    for (u32 i = 0; i < 41; i++)
        word(&x->w, 10);
    return submit(x);
}

static int transfer_outside(struct wrong *x)
{
    RAW(x, HEADER(VC_TRANSFER3D, 0, 13), x->scene.texture.resource, 0, 0, 256, 0, 0, 0x7fffffff, 0,
        64, 64, 1, 0, 1);
    return submit(x);
}

static int transfer_behind_the_memory(struct wrong *x)
{
    RAW(x, HEADER(VC_TRANSFER3D, 0, 13), x->scene.texture.resource, 0, 0, 256, 0, 0, 0, 0, 64, 64,
        1, 0xfffff000, 1);
    return submit(x);
}

static int transfer_sideways(struct wrong *x)
{
    RAW(x, HEADER(VC_TRANSFER3D, 0, 13), x->scene.texture.resource, 0, 0, 256, 0, 0, 0, 0, 1, 1, 1,
        0, 3);
    return submit(x);
}

static int query_of_none(struct wrong *x)
{
    query_command(&x->w, VC_GET_QUERY, NOBODY);
    return submit(x);
}

static int upload_outside(struct wrong *x)
{
    return card_to_host(x->scene.card, &x->scene.texture,
                        (struct drm_virtgpu_3d_box){60, 60, 0, 1000, 1000, 1}, 0);
}

static int upload_that_overflows(struct wrong *x)
{
    return card_to_host(x->scene.card, &x->scene.texture,
                        (struct drm_virtgpu_3d_box){0xffffffff, 0, 0, 2, 0xffffffff, 1},
                        0xffffffff);
}

static int download_outside(struct wrong *x)
{
    return card_from_host(x->scene.card, &x->scene.texture,
                          (struct drm_virtgpu_3d_box){0, 65, 0, 64, 64, 3});
}

static int make(struct wrong *x, struct shape shape)
{
    struct buffer b;
    int error = card_buffer(x->scene.card, &shape, &b);
    if (!error)
        card_release(x->scene.card, &b);
    return error;
}

static int texture_too_wide(struct wrong *x)
{
    return make(x, (struct shape){VT_2D, VF_RGBA8, VB_SAMPLER, 0x100000, 4});
}

static int texture_of_no_format(struct wrong *x)
{
    return make(x, (struct shape){VT_2D, 9999, VB_SAMPLER, 64, 64});
}

static int texture_of_no_kind(struct wrong *x)
{
    return make(x, (struct shape){55, VF_RGBA8, VB_SAMPLER, 64, 64});
}

static int memory_of_no_buffer(struct wrong *x)
{
    struct buffer b = {.bo = NOBODY};
    return card_wait(x->scene.card, &b);
}

static int submit_with_no_buffer(struct wrong *x)
{
    const u32 bo = NOBODY;
    RAW(x, HEADER(0, 0, 0));
    return card_submit(x->scene.card, &x->w, &bo, 1);
}

#define WRONG(name)                                                                                \
    {                                                                                              \
#name, name                                                                                \
    }
static const struct {
    const char *name;
    int (*make)(struct wrong *x);
} all[] = {WRONG(unknown_command),
           WRONG(unknown_object_type),
           WRONG(too_long),
           WRONG(too_short),
           WRONG(cut_in_the_middle),
           WRONG(empty),
           WRONG(object_that_is_none),
           WRONG(resource_that_is_none),
           WRONG(resource_of_another_context),
           WRONG(shader_that_is_none),
           WRONG(shader_without_end),
           WRONG(draw_without_end),
           WRONG(draw_without_state),
           WRONG(framebuffer_of_many),
           WRONG(transfer_outside),
           WRONG(transfer_behind_the_memory),
           WRONG(transfer_sideways),
           WRONG(query_of_none),
           WRONG(upload_outside),
           WRONG(upload_that_overflows),
           WRONG(download_outside),
           WRONG(texture_too_wide),
           WRONG(texture_of_no_format),
           WRONG(texture_of_no_kind),
           WRONG(memory_of_no_buffer),
           WRONG(submit_with_no_buffer)};

/* A context of its own, with a scene in it. */
static int begin(struct wrong *x, struct card *c, const struct card *screen)
{
    *c = *screen;
    c->quiet = true;
    int error = card_open(c);
    return error ? error : scene_init(&x->scene, c);
}

static void say(const char *name, const char *what, int error)
{
    printf("gpu-raw: %s: %s: errno %d (%s)\n", name, what, -error,
           error ? strerror(-error) : "taken");
}

void wrong_requests(const struct card *screen)
{
    static struct wrong x;
    for (u32 i = 0; i < ARRAY_SIZE(all); i++) {
        struct card c;
        int error = begin(&x, &c, screen);
        x.w.n = 0;
        if (error) {
            say(all[i].name, "set-up", error);
        } else {
            say(all[i].name, "request", all[i].make(&x));
            error = card_wait(&c, &x.scene.vertices);
            if (error)
                say(all[i].name, "wait", error);
        }
        card_close(&c);
    }
}

void wrong_flood(void)
{
    static struct card many[MANY_CONTEXTS];
    struct shape shape = {VT_2D, VF_RGBA8, VB_SAMPLER, SQUARE, SQUARE};
    struct buffer b;
    u32 contexts = 0, textures = 0;
    for (; contexts < MANY_CONTEXTS; contexts++) {
        many[contexts] = (struct card){.quiet = true};
        if (card_open(&many[contexts]))
            break;
        if (card_buffer(&many[contexts], &shape, &b) || card_wait(&many[contexts], &b)) {
            card_close(&many[contexts]);
            break;
        }
    }
    while (contexts && textures < MANY_TEXTURES && !card_buffer(&many[0], &shape, &b))
        textures++;
    for (u32 i = 0; i < contexts; i++)
        card_close(&many[i]);
    printf("gpu-raw: flood: %u contexts, %u textures\n", contexts, textures);
}

static u32 random_bits(u64 *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (u32)(*state >> 32);
}

static void mutate(struct words *w, u64 *state)
{
    u32 changes = 1 + random_bits(state) % 6;
    for (u32 i = 0; i < changes; i++) {
        u32 *at = &w->w[random_bits(state) % w->n];
        switch (random_bits(state) % 6) {
        case 0: *at ^= 1u << random_bits(state) % 32; break;
        case 1: *at = random_bits(state); break;
        case 2: *at = random_bits(state) % 64; break;
        case 3:
            *at = HEADER(random_bits(state) % 64, random_bits(state) % 16, random_bits(state) % 40);
            break;
        case 4: *at += random_bits(state) % 2 ? 1 : ~0u; break;
        default: w->n = 1 + random_bits(state) % w->n;
        }
    }
}

void wrong_random(const struct card *screen, u64 seed, u32 count)
{
    static struct wrong x;
    struct card c = {.fd = -1};
    u64 state = 0x9e3779b97f4a7c15ull * (seed + 1);
    u32 taken = 0, refused = 0;
    for (u32 i = 0; i < count; i++) {
        if (i % FRAMES_A_CONTEXT == 0) {
            if (c.fd >= 0)
                card_close(&c);
            int error = begin(&x, &c, screen);
            if (error)
                say("random", "set-up", error);
        }
        if (scene_commands(&x.scene, i, false, &x.w))
            refused++;
        mutate(&x.w, &state);
        if (submit(&x) || card_wait(&c, &x.scene.vertices))
            refused++;
        else
            taken++;
    }
    if (c.fd >= 0)
        card_close(&c);
    printf("gpu-raw: random, seed %llu: %u taken, %u refused\n", (unsigned long long)seed, taken,
           refused);
}
