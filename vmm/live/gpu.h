/*
 * The GPU of a machine that is recorded: hands what its virtio-gpu takes to a renderer, and makes
 * the replies of that into inputs (INPUT_GPU, dev/virtio/gpu_reply.h). Drawing goes on beside the
 * machine; the machine waits only where a command must be done.
 */
#ifndef REPRISE_LIVE_GPU_H
#define REPRISE_LIVE_GPU_H

#include "base/err.h"
#include "dev/device.h"
#include "virtio-gpu-log/play/renderer.h"
#include "machine/source.h"

struct gpu_host;

/* Starts a renderer. Errors say what to install. */
int gpu_host_create(struct gpu_host **out, const struct renderer_config *config, struct err *err);
void gpu_host_destroy(struct gpu_host *h); /* NULL is safe */
const struct renderer_about *gpu_host_about(const struct gpu_host *h);

/* What the machine emits as EMIT_GPU. */
void gpu_host_emit(struct gpu_host *h, const struct dev_gpu *what);

/*
 * Of a machine that begins in a recording: up to gpu_host_live() it is the log that answers. The
 * renderer is given all the same and comes to where it was; what it replies is dropped. `pieces`:
 * machine_gpu_pieces() there.
 */
void gpu_host_follow(struct gpu_host *h);
void gpu_host_live(struct gpu_host *h, u64 pieces);

/*
 * The reply to command `number`, for which the machine waits; its next part if it comes in several.
 * false: not there after so many milliseconds. in->data is valid until the next call.
 */
bool gpu_host_reply(struct gpu_host *h, u64 number, u32 milliseconds, struct input *in);

/* Why there is no renderer any more; NULL: there is one. */
const char *gpu_host_death(const struct gpu_host *h);

/* Reads a rectangle of level 0 of a resource, 4 bytes a pixel, B, G, R, A; the renderer is waited
 * for. <0: it cannot be read, with a text. */
int gpu_host_read(struct gpu_host *h, u32 resource, u32 x, u32 y, u32 width, u32 height, u8 *out,
                  struct err *err);

#endif
