/*
 * What gpu-raw draws, and what it must look like: every pixel of a frame is known. All of it is a
 * function of the frame's number, from 0, and of the size.
 *
 * On a background: a triangle with two sides along the axes, which moves; a square of SQUARE pixels
 * whose colour changes, drawn between the two ends of an occlusion query; a square of the same size
 * with a texture that is new in each frame: the upper half uploaded by the kernel's ioctl, the
 * lower half by a command in the stream.
 */
#ifndef GPU_RAW_SCENE_H
#define GPU_RAW_SCENE_H

#include "card.h"

enum { SQUARE = 64, SCENE_MIN = 256 /* the least width and height */ };

struct scene {
    const struct card *card;
    u32 width, height;
    struct buffer screen[2]; /* shown in turn */
    struct buffer vertices, texture, query;
};

struct check {
    u32 crc;        /* CRC-32 (ISO 3309) of the frame's rows from the top, R, G, B for each pixel */
    u32 wrong;      /* pixels that are not as they must be */
    u32 x, y;       /* the first of them */
    u32 is, should; /* 0xRRGGBB, there */
    u32 triangle, square, texel, background; /* as they are, at a place in each */
    u32 samples;                             /* of the query; must be SQUARE * SQUARE */
};

/* Makes the resources and the state of a context. */
int scene_init(struct scene *s, const struct card *c);
void scene_fini(struct scene *s);

/* Fills w with the commands that draw a frame, after uploading what they use. planted: the triangle
 * is drawn by a shader that mixes up red and blue. */
int scene_commands(struct scene *s, u32 frame, bool planted, struct words *w);

/* Draws a frame into its half of the pair of screens, and waits until that is done. */
int scene_draw(struct scene *s, u32 frame, bool planted);

/* Reads the frame back and compares. */
int scene_check(struct scene *s, u32 frame, struct check *result);

#endif
