/* Command buffers put together by hand, for tests of the renderer: the few commands they need. */
#ifndef REPRISE_VIRGL_WORDS_H
#define REPRISE_VIRGL_WORDS_H

#include <string.h>

#include "base/types.h"

enum {
    VC_CREATE = 1,
    VC_BIND = 2,
    VC_VIEWPORT = 4,
    VC_FRAMEBUFFER = 5,
    VC_VERTEX_BUFFERS = 6,
    VC_CLEAR = 7,
    VC_DRAW = 8,
    VC_BEGIN_QUERY = 19,
    VC_END_QUERY = 20,
    VC_GET_QUERY = 21,
    VC_SET_SUB_CONTEXT = 28,
    VC_CREATE_SUB_CONTEXT = 29,
    VC_BIND_SHADER = 31,
    VC_TRANSFER3D = 43,
};

enum { VO_BLEND = 1, VO_RASTERIZER, VO_DSA, VO_SHADER, VO_VERTEX, VO_SURFACE = 8, VO_QUERY };
enum { VF_BGRA8 = 1, VF_RGBA32F = 31, VF_R8 = 64, VF_RGBA8 = 67 };
enum { VT_BUFFER, VT_1D, VT_2D, VT_3D };
enum {
    VB_TARGET = 1 << 1,
    VB_SAMPLER = 1 << 3,
    VB_VERTEX = 1 << 4,
    VB_CUSTOM = 1 << 17,
    VB_SCANOUT = 1 << 18
};

struct words {
    u32 w[16384];
    unsigned n;
};

static inline void word(struct words *b, u32 v)
{
    b->w[b->n++] = v;
}

static inline void word_float(struct words *b, float f)
{
    u32 v;
    memcpy(&v, &f, sizeof(v));
    word(b, v);
}

static inline void command(struct words *b, u32 type, u32 object, u32 length)
{
    word(b, type | object << 8 | length << 16);
}

static inline void bind_object(struct words *b, u32 object, u32 handle)
{
    command(b, VC_BIND, object, 1);
    word(b, handle);
}

/* stage 0: vertex, 1: fragment. */
static inline void shader(struct words *b, u32 handle, u32 stage, const char *text)
{
    u32 length = (u32)strlen(text) + 1, n = (length + 3) / 4;
    command(b, VC_CREATE, VO_SHADER, 5 + n);
    word(b, handle);
    word(b, stage);
    word(b, length);
    word(b, 300); /* tokens at most */
    word(b, 0);
    memset(b->w + b->n, 0, (size_t)n * 4);
    memcpy(b->w + b->n, text, length);
    b->n += n;
    command(b, VC_BIND_SHADER, 0, 2);
    word(b, handle);
    word(b, stage);
}

/* The state that draws triangles of 8 floats a vertex (position, colour) from buffer `vertices` to
 * the 2D resource `target`; in sub-context 1. */
static inline void drawing_state(struct words *b, u32 target, u32 vertices, u32 width, u32 height)
{
    command(b, VC_CREATE_SUB_CONTEXT, 0, 1);
    word(b, 1);
    command(b, VC_SET_SUB_CONTEXT, 0, 1);
    word(b, 1);
    command(b, VC_CREATE, VO_SURFACE, 5);
    word(b, 10);
    word(b, target);
    word(b, VF_BGRA8);
    word(b, 0);
    word(b, 0);
    command(b, VC_FRAMEBUFFER, 0, 3);
    word(b, 1);
    word(b, 0);
    word(b, 10);
    command(b, VC_CREATE, VO_VERTEX, 9);
    word(b, 20);
    for (u32 i = 0; i < 2; i++) {
        word(b, i * 16);
        word(b, 0);
        word(b, 0);
        word(b, VF_RGBA32F);
    }
    bind_object(b, VO_VERTEX, 20);
    command(b, VC_VERTEX_BUFFERS, 0, 3);
    word(b, 32);
    word(b, 0);
    word(b, vertices);
    shader(b, 21, 0,
           "VERT\nDCL IN[0]\nDCL IN[1]\nDCL OUT[0], POSITION\nDCL OUT[1], COLOR\n"
           "  0: MOV OUT[1], IN[1]\n  1: MOV OUT[0], IN[0]\n  2: END\n");
    shader(b, 22, 1,
           "FRAG\nDCL IN[0], COLOR, LINEAR\nDCL OUT[0], COLOR\n"
           "  0: MOV OUT[0], IN[0]\n  1: END\n");
    command(b, VC_CREATE, VO_BLEND, 11);
    word(b, 23);
    word(b, 0);
    word(b, 0);
    word(b, 0xfu << 27); /* write all channels */
    for (int i = 1; i < 8; i++)
        word(b, 0);
    bind_object(b, VO_BLEND, 23);
    command(b, VC_CREATE, VO_DSA, 5);
    word(b, 24);
    for (int i = 0; i < 4; i++)
        word(b, 0);
    bind_object(b, VO_DSA, 24);
    command(b, VC_CREATE, VO_RASTERIZER, 9);
    word(b, 25);
    word(b, 1u << 1 | 1u << 29 | 1u << 30); /* depth clip, half pixel centres, bottom edge rule */
    word_float(b, 1);
    word(b, 0);
    word(b, 0);
    word_float(b, 1);
    for (int i = 0; i < 3; i++)
        word(b, 0);
    bind_object(b, VO_RASTERIZER, 25);
    command(b, VC_VIEWPORT, 0, 7);
    word(b, 0);
    word_float(b, (float)width / 2);
    word_float(b, (float)height / 2);
    word_float(b, 0.5f);
    word_float(b, (float)width / 2);
    word_float(b, (float)height / 2);
    word_float(b, 0.5f);
}

static inline void clear_colour(struct words *b, float red, float green, float blue)
{
    command(b, VC_CLEAR, 0, 8);
    word(b, 1 << 2);
    word_float(b, red);
    word_float(b, green);
    word_float(b, blue);
    word_float(b, 1);
    for (int i = 0; i < 3; i++)
        word(b, 0);
}

static inline void draw(struct words *b, u32 first, u32 count)
{
    const u32 w[12] = {first, count, 4, 0, 1, 0, 0, 0, 0, 0, first + count - 1, 0};
    command(b, VC_DRAW, 0, 12);
    for (int i = 0; i < 12; i++)
        word(b, w[i]);
}

static inline void query_command(struct words *b, u32 type, u32 handle)
{
    command(b, type, 0, type == VC_GET_QUERY ? 2 : 1);
    word(b, handle);
    if (type == VC_GET_QUERY)
        word(b, 1);
}

#endif
