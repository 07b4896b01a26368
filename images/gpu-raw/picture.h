/*
 * What gpu-raw and gpu-mesa's triangle draw: every pixel of every frame is known, as a function of
 * the frame's number, from 0, and of the size.
 *
 * On a background: a triangle with two sides along the axes, which moves; a square of SQUARE pixels
 * whose colour changes; a square of the same size with a texture that is new in each frame.
 */
#ifndef GPU_RAW_PICTURE_H
#define GPU_RAW_PICTURE_H

#include "base/types.h"

enum { SQUARE = 64, PICTURE_MIN = 256 /* the least width and height */ };
enum { BACKGROUND = 0x102040, TRIANGLE_COLOUR = 0xff8000 };

/* Vertices of a frame, as triangles: the triangle, the coloured square, the textured one. */
enum { TRIANGLE = 0, COLOURED = 3, TEXTURED = 9, VERTICES = 15 };

struct vertex {
    float position[4]; /* -1 to 1, from the left and from the top */
    float value[4];    /* a colour, or a place in the texture */
};

struct picture {
    u32 width, height;
};

/* How a frame compares with what it should be. */
struct check {
    u32 crc;        /* CRC-32 (ISO 3309) of its rows from the top, R, G, B for each pixel */
    u32 wrong;      /* pixels that are not as they must be */
    u32 x, y;       /* the first of them */
    u32 is, should; /* 0xRRGGBB, there */
    u32 triangle, square, texel, background; /* as they are, at a place in each */
};

void picture_vertices(const struct picture *p, u32 frame, struct vertex v[VERTICES]);

/* SQUARE rows of R, G, B, A. */
void picture_texture(u32 frame, u8 *rgba);

/* pixels: rows from the top, 0xXXRRGGBB. */
void picture_check(const struct picture *p, u32 frame, const u32 *pixels, struct check *result);

/* The line of a frame that was checked, without its end; n counts from 1. */
void picture_print(u32 n, const struct check *c);

#endif
