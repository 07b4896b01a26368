/*
 * Writes gpu.log (virtio-gpu-log/log.h) from what a machine emits, while it is recorded or while it
 * is replayed: both give the same bytes.
 */
#ifndef REPRISE_GPU_RECORDER_H
#define REPRISE_GPU_RECORDER_H

#include "base/err.h"
#include "base/room.h"
#include "board/description.h"
#include "dev/device.h"

struct gpu_recorder;
struct machine;

/* `fd` is an empty file, the recorder's from now on, also on error. The machine is at power-on. */
int gpu_recorder_create(struct gpu_recorder **out, int fd, const struct machine_description *d,
                        struct err *err);
/* What gpu.log may take of the host. */
void gpu_recorder_room(struct gpu_recorder *r, const struct room *room);
/* Why gpu.log has ended although the machine goes on; NULL: it has not. */
const char *gpu_recorder_failure(const struct gpu_recorder *r);
/* What the machine emits as EMIT_GPU. An error is kept until the end; the machine need not know. */
void gpu_recorder_emit(struct gpu_recorder *r, struct machine *m, const struct dev_gpu *what);
/* Closes the file. `m` NULL: the recording was cut off, so is the log. *commands: how many it has;
 * may be NULL. Frees; NULL is safe. */
int gpu_recorder_finish(struct gpu_recorder *r, struct machine *m, u64 *commands, struct err *err);

#endif
