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
enum { TRIANGLE = 0, COLOURED = 3, TEXTURED = 9, VERTICES = 15 };
enum { BACKGROUND = 0x102040, TRIANGLE_COLOUR = 0xff8000 };
enum { QUERY_DONE = 1, QUERY_WAITED_FOR = 2, QUERY_TRIES = 1000 };

struct vertex {
    float position[4], value[4]; /* a colour, or a place in the texture */
};

/* What GET_QUERY_RESULT writes. */
struct query_memory {
    u32 state, size;
    u64 result;
};

/* The geometry of a frame, in pixels; sides of triangle and squares are on pixels' edges. */
struct places {
    u32 triangle_x, triangle_y, side;
    u32 square_x, texture_x, squares_y;
    u32 square_colour;
};

static struct places places_of(const struct scene *s, u32 frame)
{
    struct places p = {.triangle_x = s->width / 16 + frame * 8 % (s->width / 2),
                       .triangle_y = s->height / 8,
                       .side = s->width / 4 < s->height / 3 ? s->width / 4 : s->height / 3,
                       .square_x = s->width / 16,
                       .texture_x = s->width / 2,
                       .squares_y = s->height * 5 / 8};
    p.square_colour = (frame * 3 & 255) << 16 | 200u << 8 | (255 - (frame * 5 & 255));
    return p;
}

static u32 texel(u32 frame, u32 x, u32 y)
{
    return ((x * 4 + frame) & 255) << 16 | (y * 4) << 8 | (frame * 7 & 255);
}

static u32 expected(const struct places *p, u32 frame, u32 x, u32 y)
{
    u32 row = y - p->squares_y, column = x - p->triangle_x;
    if (row < SQUARE && x - p->square_x < SQUARE)
        return p->square_colour;
    if (row < SQUARE && x - p->texture_x < SQUARE)
        return texel(frame, x - p->texture_x, row);
    row = y - p->triangle_y;
    if (row < p->side && column < p->side && row + column < p->side)
        return TRIANGLE_COLOUR;
    return BACKGROUND;
}

static struct vertex vertex(const struct scene *s, float x, float y)
{
    return (struct vertex){
        .position = {2 * x / (float)s->width - 1, 2 * y / (float)s->height - 1, 0, 1}};
}

static void colour(struct vertex *v, u32 count, u32 rgb)
{
    for (u32 i = 0; i < count; i++) {
        for (u32 k = 0; k < 3; k++)
            v[i].value[k] = (float)(rgb >> (16 - 8 * k) & 255) / 255;
        v[i].value[3] = 1;
    }
}

static void square(const struct scene *s, struct vertex *v, u32 x, u32 y)
{
    static const u8 corner[6][2] = {{0, 0}, {1, 0}, {0, 1}, {0, 1}, {1, 0}, {1, 1}};
    for (u32 i = 0; i < 6; i++) {
        v[i] = vertex(s, (float)(x + corner[i][0] * SQUARE), (float)(y + corner[i][1] * SQUARE));
        v[i].value[0] = corner[i][0];
        v[i].value[1] = corner[i][1];
    }
}

/* The long side lies half a pixel further out, so that it goes through no pixel's centre. */
static void place_vertices(const struct scene *s, const struct places *p)
{
    struct vertex *v = s->vertices.memory;
    float x = (float)p->triangle_x, y = (float)p->triangle_y, side = (float)p->side + 0.5f;
    v[TRIANGLE] = vertex(s, x, y);
    v[TRIANGLE + 1] = vertex(s, x + side, y);
    v[TRIANGLE + 2] = vertex(s, x, y + side);
    colour(v + TRIANGLE, 3, TRIANGLE_COLOUR);
    square(s, v + COLOURED, p->square_x, p->squares_y);
    colour(v + COLOURED, 6, p->square_colour);
    square(s, v + TEXTURED, p->texture_x, p->squares_y);
}

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
    drawing_state(&w, s->screen[0].resource, s->vertices.resource, s->width, s->height);
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
    *s = (struct scene){.card = c, .width = width, .height = height};
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
static int upload(struct scene *s, u32 frame, const struct places *p)
{
    u8 *t = s->texture.memory;
    place_vertices(s, p);
    for (u32 y = 0; y < SQUARE; y++)
        for (u32 x = 0; x < SQUARE; x++, t += 4) {
            u32 rgb = texel(frame, x, y);
            t[0] = (u8)(rgb >> 16);
            t[1] = (u8)(rgb >> 8);
            t[2] = (u8)rgb;
            t[3] = 255;
        }
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
    struct places p = places_of(s, frame);
    const u32 half = SQUARE / 2;
    const u32 transfer[13] = {s->texture.resource, 0, 0, SQUARE * 4, 0, 0, half, 0, SQUARE, half, 1,
                              half * SQUARE * 4,   1 /* to the host */};
    int error = upload(s, frame, &p);
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

static u32 crc_byte(u32 crc, u32 byte)
{
    static u32 table[256];
    for (u32 i = 0; !table[255] && i < 256; i++) {
        u32 r = i;
        for (int k = 0; k < 8; k++)
            r = r >> 1 ^ (r & 1 ? 0xedb88320u : 0);
        table[i] = r;
    }
    return table[(crc ^ byte) & 255] ^ crc >> 8;
}

static void compare(const struct scene *s, u32 frame, const u32 *pixels, struct check *r)
{
    struct places p = places_of(s, frame);
    r->crc = ~0u;
    for (u32 y = 0; y < s->height; y++)
        for (u32 x = 0; x < s->width; x++) {
            u32 is = *pixels++ & 0xffffff, should = expected(&p, frame, x, y);
            for (int shift = 16; shift >= 0; shift -= 8)
                r->crc = crc_byte(r->crc, is >> shift & 255);
            if (is != should && !r->wrong++) {
                r->x = x;
                r->y = y;
                r->is = is;
                r->should = should;
            }
        }
    r->crc = ~r->crc;
    pixels -= s->width * s->height;
    r->triangle = pixels[(p.triangle_y + 10) * s->width + p.triangle_x + 10] & 0xffffff;
    r->square = pixels[(p.squares_y + 10) * s->width + p.square_x + 10] & 0xffffff;
    r->texel = pixels[(p.squares_y + 40) * s->width + p.texture_x + 10] & 0xffffff;
    r->background = pixels[10 * s->width + 10] & 0xffffff;
}

int scene_check(struct scene *s, u32 frame, struct check *result)
{
    const struct buffer *screen = &s->screen[frame & 1];
    *result = (struct check){0};
    memset(screen->memory, 0, screen->size);
    int error = query_result(s, &result->samples);
    if (!error)
        error = card_from_host(s->card, screen,
                               (struct drm_virtgpu_3d_box){0, 0, 0, s->width, s->height, 1});
    if (error || (error = card_wait(s->card, screen)))
        return error;
    compare(s, frame, screen->memory, result);
    return 0;
}
