/*
 * Drives a renderer with virtio-gpu commands, one after the other: those that a device takes while
 * it is recorded, or those of a gpu.log. All resources go to the renderer, 2D ones too, as contexts
 * may draw into them.
 *
 * Given are only commands that are whole and that the device accepted, with the guest memory that
 * they read. Still nothing of a stream is trusted: a file may be forged. What cannot be done is
 * left out; the renderer's results say so.
 */
#ifndef REPRISE_GPU_DRIVE_H
#define REPRISE_GPU_DRIVE_H

#include "base/err.h"
#include "virtio-gpu-log/play/renderer.h"
#include "virtio-gpu-log/decode.h"
#include "virtio-gpu-log/log.h"

struct gpu_drive;

/* Starts a renderer (renderer_create). */
int gpu_drive_create(struct gpu_drive **out, const struct renderer_config *config, struct err *err);
void gpu_drive_destroy(struct gpu_drive *d); /* NULL is safe */
struct renderer *gpu_drive_renderer(struct gpu_drive *d);

/* Everything that commands have set up is gone; a renderer that is dead is started anew. */
int gpu_drive_reset(struct gpu_drive *d, struct err *err);

/* What became of a command. */
struct gpu_driven {
    u64 first, last; /* requests that were made for it; 0: none */
    u64 main;        /* the one whose result is the command's; 0: none */
    bool reply;      /* `main` has a reply of its own: a transfer from the host */
};
/*
 * Requests what a command asks for: its uploads (ranges with `data`) are written to the renderer's
 * shadows first, those inside a submit too. Nothing is waited for. Commands that are no renderer's
 * business (displays, cursor positions, flushes) request nothing. -ENOMEM: it was not requested,
 * and what comes after it may not be as it was meant, until a reset.
 */
int gpu_drive_command(struct gpu_drive *d, const struct gpu_command *c,
                      const struct gpu_range *uploads, u32 count, struct gpu_driven *out,
                      struct err *err);

/* Is the range inside a backing that is attached now? (What a renderer replies is not trusted.) */
bool gpu_drive_backing(const struct gpu_drive *d, u32 resource, u64 offset, u64 size);
/* The shape a resource was created with; false: there is none of that id. */
bool gpu_drive_shape(const struct gpu_drive *d, u32 resource, struct gpu_shape *out);

#endif
