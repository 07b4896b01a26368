/* Requests that no driver would send. */
#ifndef GPU_RAW_WRONG_H
#define GPU_RAW_WRONG_H

#include "scene.h"

/* Makes each kind of wrong request in a context of its own, and prints what the kernel said. */
void wrong_requests(const struct card *screen);

/* Makes contexts and textures in great numbers, and lets go of all of them. */
void wrong_flood(void);

/* Submits count command buffers that are a frame's with some words changed; the same for a seed. */
void wrong_random(const struct card *screen, u64 seed, u32 count);

#endif
