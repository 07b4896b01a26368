/* See scene.h. */
#include "scene.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>

enum { VC_SAMPLER_VIEWS = 10, VC_BIND_SAMPLERS = 18, VO_VIEW = 6, VO_SAMPLER = 7 };
/* Handles of a context; those below 30 are drawing_state's. */
enum {
    SURFACE_0 = 10,
    SHADER_COLOUR = 22,
    SURFACE_1 = 30,
    SHADER_TEXTURE,
    SHADER_WRONG,
    VIEW,
    SAMPLER,
    QUERY,
};
enum { QUERY_DONE = 1, QUERY_WAITED_FOR = 2, QUERY_TRIES = 50 };

/* What GET_QUERY_RESULT writes. */
struct query_memory {
    u32 state, size;
    u64 result;
};

static void surface(struct words *w, u32 handle, u32 resource)
{
    command(w, VC_CREATE, VO_SURFACE, 5);
    word(w, handle);
    word(w, resource);
    word(w, VF_BGRA8);
    word(w, 0);
    word(w, 0);
}

static void bind_shader(struct words *w, u32 handle)
{
    command(w, VC_BIND_SHADER, 0, 2);
    word(w, handle);
    word(w, 1);
}

static void texture_state(struct scene *s, struct words *w)
{
    const u32 view[6] = {VIEW, s->texture.resource, VF_RGBA8, 0, 0, 0 | 1 << 3 | 2 << 6 | 3 << 9};
    /* Wrapping clamped to the edge; nearest texel; no levels. */
    const u32 sampler[9] = {SAMPLER, 2 | 2 << 3 | 2 << 6 | 2 << 11};
    command(w, VC_CREATE, VO_VIEW, 6);
    for (int i = 0; i < 6; i++)
        word(w, view[i]);
    command(w, VC_CREATE, VO_SAMPLER, 9);
    for (int i = 0; i < 9; i++)
        word(w, sampler[i]);
    command(w, VC_SAMPLER_VIEWS, 0, 3);
    word(w, 1);
    word(w, 0);
    word(w, VIEW);
    command(w, VC_BIND_SAMPLERS, 0, 3);
    word(w, 1);
    word(w, 0);
    word(w, SAMPLER);
}

static int create_state(struct scene *s)
{
    static struct words w;
    w.n = 0;
    drawing_state(&w, s->screen[0].resource, s->vertices.resource, s->picture.width,
                  s->picture.height);
    surface(&w, SURFACE_1, s->screen[1].resource);
    shader(&w, SHADER_TEXTURE, 1,
           "FRAG\nDCL IN[0], COLOR, LINEAR\nDCL OUT[0], COLOR\nDCL SAMP[0]\n"
           "DCL SVIEW[0], 2D, FLOAT\n  0: TEX OUT[0], IN[0], SAMP[0], 2D\n  1: END\n");
    shader(&w, SHADER_WRONG, 1,
           "FRAG\nDCL IN[0], COLOR, LINEAR\nDCL OUT[0], COLOR\n"
           "  0: MOV OUT[0], IN[0].zyxw\n  1: END\n");
    texture_state(s, &w);
    command(&w, VC_CREATE, VO_QUERY, 4);
    word(&w, QUERY);
    word(&w, 0); /* samples that passed */
    word(&w, 0);
    word(&w, s->query.resource);
    return card_submit(s->card, &w, &s->query.bo, 1);
}

int scene_init(struct scene *s, const struct card *c)
{
    u32 width = c->mode.hdisplay, height = c->mode.vdisplay;
    struct shape screen = {VT_2D, VF_BGRA8, VB_TARGET | VB_SAMPLER | VB_SCANOUT, width, height};
    struct shape vertices = {VT_BUFFER, VF_R8, VB_VERTEX, 4096, 1};
    struct shape texture = {VT_2D, VF_RGBA8, VB_SAMPLER, SQUARE, SQUARE};
    struct shape query = {VT_BUFFER, VF_R8, VB_CUSTOM, 4096, 1};
    int error;
    *s = (struct scene){.card = c, .picture = {width, height}};
    if ((error = card_buffer(c, &screen, &s->screen[0])) ||
        (error = card_buffer(c, &screen, &s->screen[1])) ||
        (error = card_buffer(c, &vertices, &s->vertices)) ||
        (error = card_buffer(c, &texture, &s->texture)) ||
        (error = card_buffer(c, &query, &s->query)))
        return error;
    return create_state(s);
}

void scene_fini(struct scene *s)
{
    struct buffer *all[] = {&s->screen[0], &s->screen[1], &s->vertices, &s->texture, &s->query};
    for (u32 i = 0; i < ARRAY_SIZE(all); i++)
        card_release(s->card, all[i]);
}

/* What the frame uses, into shared memory; by the kernel's ioctl except for the texture's lower
 * half, for which the stream has a command. */
static int upload(struct scene *s, u32 frame)
{
    picture_vertices(&s->picture, frame, s->vertices.memory);
    picture_texture(frame, s->texture.memory);
    *(struct query_memory *)s->query.memory = (struct query_memory){.state = QUERY_WAITED_FOR};
    int error = card_to_host(
        s->card, &s->vertices,
        (struct drm_virtgpu_3d_box){0, 0, 0, VERTICES * sizeof(struct vertex), 1, 1}, 0);
    return error ? error
                 : card_to_host(s->card, &s->texture,
                                (struct drm_virtgpu_3d_box){0, 0, 0, SQUARE, SQUARE / 2, 1}, 0);
}

int scene_commands(struct scene *s, u32 frame, bool planted, struct words *w)
{
    const u32 half = SQUARE / 2;
    const u32 transfer[13] = {s->texture.resource, 0, 0, SQUARE * 4, 0, 0, half, 0, SQUARE, half, 1,
                              half * SQUARE * 4,   1 /* to the host */};
    int error = upload(s, frame);
    if (error)
        return error;
    w->n = 0;
    command(w, VC_SET_SUB_CONTEXT, 0, 1);
    word(w, 1);
    command(w, VC_TRANSFER3D, 0, 13);
    for (int i = 0; i < 13; i++)
        word(w, transfer[i]);
    command(w, VC_FRAMEBUFFER, 0, 3);
    word(w, 1);
    word(w, 0);
    word(w, frame & 1 ? SURFACE_1 : SURFACE_0);
    clear_colour(w, (BACKGROUND >> 16) / 255.f, (BACKGROUND >> 8 & 255) / 255.f,
                 (BACKGROUND & 255) / 255.f);
    bind_shader(w, planted ? SHADER_WRONG : SHADER_COLOUR);
    draw(w, TRIANGLE, 3);
    bind_shader(w, SHADER_COLOUR);
    query_command(w, VC_BEGIN_QUERY, QUERY);
    draw(w, COLOURED, 6);
    query_command(w, VC_END_QUERY, QUERY);
    bind_shader(w, SHADER_TEXTURE);
    draw(w, TEXTURED, 6);
    query_command(w, VC_GET_QUERY, QUERY);
    return 0;
}

int scene_draw(struct scene *s, u32 frame, bool planted)
{
    static struct words w;
    const u32 bos[] = {s->screen[frame & 1].bo, s->vertices.bo, s->texture.bo, s->query.bo};
    int error = scene_commands(s, frame, planted, &w);
    if (!error)
        error = card_submit(s->card, &w, bos, ARRAY_SIZE(bos));
    return error ? error : card_wait(s->card, &s->screen[frame & 1]);
}

/* A result may come after the draw it counts: each turn asks the device for something. */
static int query_result(struct scene *s, u32 *samples)
{
    static const struct words nop = {.w = {0}, .n = 1};
    const volatile struct query_memory *q = s->query.memory;
    for (int i = 0; i < QUERY_TRIES && q->state != QUERY_DONE; i++) {
        int error = card_submit(s->card, &nop, &s->query.bo, 1);
        if (error || (error = card_wait(s->card, &s->query)))
            return error;
    }
    *samples = q->state == QUERY_DONE ? (u32)q->result : 0;
    return 0;
}

int scene_check(struct scene *s, u32 frame, struct check *result, u32 *samples)
{
    const struct buffer *screen = &s->screen[frame & 1];
    memset(screen->memory, 0, screen->size);
    int error = query_result(s, samples);
    if (!error)
        error = card_from_host(
            s->card, screen,
            (struct drm_virtgpu_3d_box){0, 0, 0, s->picture.width, s->picture.height, 1});
    if (error || (error = card_wait(s->card, screen)))
        return error;
    picture_check(&s->picture, frame, screen->memory, result);
    return 0;
}
