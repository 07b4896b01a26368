/*
 * A renderer (virtio-gpu-log/play/renderer.h) without a process, for fuzz targets: its replies are
 * well-formed and otherwise lies, drawn from a seed: wrong ids and offsets, results of all kinds,
 * context errors, death, lateness.
 */
#ifndef REPRISE_FAKE_RENDERER_H
#define REPRISE_FAKE_RENDERER_H

#include "base/types.h"

/* How it goes on: `seed` for what it says; one in so many replies is late, or is its death (0:
 * never). */
void fake_renderer_mood(u64 seed, u32 late, u32 death);
/* Numbers for others who need some. */
u32 fake_random(u32 below);

#endif
