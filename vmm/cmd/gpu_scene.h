/* What the GPU of a recording has at a place: `monitor gpu`, `core --gpu`. */
#ifndef REPRISE_CMD_GPU_SCENE_H
#define REPRISE_CMD_GPU_SCENE_H

#include <stdio.h>

#include "base/err.h"
#include "virtio-gpu-log/stream.h"

struct machine;

#define GPU_SCENE_COMMANDS 10u

struct gpu_scene_command {
    u64 number, frame;
    pos_t position;
    u32 type, ctx, size;
    u32 inner, draws; /* of a SUBMIT_3D: commands in it, and how many of them draw */
};

struct gpu_scene {
    struct gpu_stream *state;
    u64 commands, frames;
    struct gpu_scene_command last[GPU_SCENE_COMMANDS]; /* command N at N % GPU_SCENE_COMMANDS */
};

/* Of a machine that stands somewhere in the recording `dir`, from the gpu.log there. Without one
 * the error says how to make it. */
int gpu_scene_find(struct gpu_scene *out, const char *dir, struct machine *m, struct err *err);
void gpu_scene_free(struct gpu_scene *p); /* safe on zeros */
/* Contexts, resources, what is shown, the last commands. */
void gpu_scene_print(FILE *out, const struct gpu_scene *p);
/* The same and what is bound in each context, as one JSON object and a newline. */
void gpu_scene_json(FILE *out, const struct gpu_scene *p);

#endif
