/* What the GPU of a recording has at a position: `monitor gpu`, `core --gpu`. */
#ifndef REPRISE_CMD_GPU_PLACE_H
#define REPRISE_CMD_GPU_PLACE_H

#include <stdio.h>

#include "base/err.h"
#include "virtio-gpu-log/state.h"

#define GPU_PLACE_COMMANDS 10u

struct gpu_place_command {
    u64 number, frame;
    pos_t position;
    u32 type, ctx, size;
    u32 inner, draws; /* of a SUBMIT_3D: commands in it, and how many of them draw */
};

struct gpu_place {
    struct gpu_state *state;
    u64 commands, frames;
    struct gpu_place_command last[GPU_PLACE_COMMANDS]; /* command N at N % GPU_PLACE_COMMANDS */
};

/* From the gpu.log in directory `dir`, all that was taken up to `position`. Without one the error
 * says how to make it. */
int gpu_place_find(struct gpu_place *out, const char *dir, pos_t position, struct err *err);
void gpu_place_free(struct gpu_place *p); /* safe on zeros */
/* Contexts, resources, what is shown, the last commands. */
void gpu_place_print(FILE *out, const struct gpu_place *p);
/* The same and what is bound in each context, as one JSON object and a newline. */
void gpu_place_json(FILE *out, const struct gpu_place *p);

#endif
