/*
 * The picture (picture.h) drawn with virgl: the coloured square between the two ends of an
 * occlusion query; of the texture the upper half uploaded by the kernel's ioctl, the lower half by
 * a command in the stream.
 */
#ifndef GPU_RAW_SCENE_H
#define GPU_RAW_SCENE_H

#include "card.h"
#include "picture.h"

struct scene {
    const struct card *card;
    struct picture picture;
    struct buffer screen[2]; /* shown in turn */
    struct buffer vertices, texture, query;
};

/* Makes the resources and the state of a context. */
int scene_init(struct scene *s, const struct card *c);
void scene_fini(struct scene *s);

/* Fills w with the commands that draw a frame, after uploading what they use. planted: the triangle
 * is drawn by a shader that mixes up red and blue. */
int scene_commands(struct scene *s, u32 frame, bool planted, struct words *w);

/* Draws a frame into its half of the pair of screens, and waits until that is done. */
int scene_draw(struct scene *s, u32 frame, bool planted);

/* Reads the frame back and compares; samples: of the query, which must be SQUARE * SQUARE. */
int scene_check(struct scene *s, u32 frame, struct check *result, u32 *samples);

#endif
