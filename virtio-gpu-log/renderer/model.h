/*
 * Capability models: what the guest is told that the GPU can do. A model is a constant of ours that
 * a recording names and holds, never what the host happens to offer: the same guest draws the same
 * commands on every host. At start the renderer checks that the host has all of it.
 *
 * Capability set 1 (virgl), 308 bytes; it holds no name of a renderer.
 */
#ifndef REPRISE_GPU_MODEL_H
#define REPRISE_GPU_MODEL_H

#include "base/types.h"

#define MODEL_CAPSET_ID      1u
#define MODEL_CAPSET_VERSION 1u

/* Formats are bit masks: format n is bit n % 32 of word n / 32. */
struct virgl_caps {
    u32 max_version;
    u32 sampler[16], render[16], depth_stencil[16], vertex[16];
    u32 features; /* MODEL_FEATURES */
    u32 glsl_level, texture_array_layers, streamout_buffers, dual_source_targets, render_targets,
        samples, primitives, texture_buffer_bytes, uniform_blocks, viewports, gather_components;
};

/* NULL: there is no such model. */
const struct virgl_caps *model_caps(u32 model);

/* How many things of the model the host does not have; names them in text, as far as they fit. */
unsigned model_missing(u32 model, const struct virgl_caps *host, char *text, size_t size);

#endif
