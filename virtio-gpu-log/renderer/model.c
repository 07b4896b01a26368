/* See model.h. */
#include "virtio-gpu-log/renderer/model.h"

#include <stdarg.h>
#include <stdio.h>

#include "virtio-gpu-log/renderer/protocol.h"

/* The feature bits, by number. */
#define FEATURES(X)                                                                                \
    X(0, "independent blend enable")                                                               \
    X(1, "independent blend functions")                                                            \
    X(2, "cube map arrays")                                                                        \
    X(3, "stencil export")                                                                         \
    X(4, "conditional rendering")                                                                  \
    X(5, "start instance")                                                                         \
    X(6, "primitive restart")                                                                      \
    X(8, "instance id")                                                                            \
    X(10, "seamless cube maps")                                                                    \
    X(11, "occlusion queries")                                                                     \
    X(12, "timer queries")                                                                         \
    X(13, "pausing of transform feedback")                                                         \
    X(14, "multisample textures")                                                                  \
    X(15, "fragment coordinate conventions")                                                       \
    X(16, "depth clip disable")                                                                    \
    X(21, "mirror clamp")

/*
 * OpenGL ES 3.0, and what desktop OpenGL 3.3 has on every driver. Left out on purpose: timer
 * queries (their results are the host's clock), fp64, tessellation and the rest of OpenGL 4,
 * formats of OpenGL 4 (BPTC, stencil as a texture). .vertex: R11G11B10_FLOAT is the one that guests
 * ask about; .primitives: all but quads and patches; .uniform_blocks: OpenGL ES 3.0 asks for 12,
 * and the default block.
 */
#define OPENGL_3_3(formats_128)                                                                    \
    {                                                                                              \
        .max_version = 1, .sampler = {0xf03727fe, 0x0b0b0000, 0xd8002c0b, 0x761fff30, formats_128, \
                                      0x77760001, 0xaaaaabff, 0x20007fe2, 0x00000000, 0x00900000}, \
        .render = {0xf00027fe, 0x0b0b0000, 0x58002c0b, 0x16000130, formats_128,                    \
                   0x77760001, 0xaaaaabff, 0x20007fe2, 0x00000000, 0x00900000},                    \
        .vertex = {[3] = 1u << 28},                                                                \
        .features = 1u << 0 | 1u << 1 | 1u << 4 | 1u << 5 | 1u << 6 | 1u << 8 | 1u << 10 |         \
                    1u << 11 | 1u << 13 | 1u << 14 | 1u << 15 | 1u << 16 | 1u << 21,               \
        .glsl_level = 330, .texture_array_layers = 256, .streamout_buffers = 4,                    \
        .dual_source_targets = 1, .render_targets = 8, .samples = 4, .primitives = 0x3c7f,         \
        .texture_buffer_bytes = 65536, .uniform_blocks = 13, .viewports = 16,                      \
        .gather_components = 4,                                                                    \
    }

static const struct virgl_caps models[] = {
    [1] = OPENGL_3_3(0x991028c8),
    /* Without A16_FLOAT and A32_FLOAT, which libvirglrenderer 1.1 does not have in OpenGL's core
     * profile (Debian 13). */
    [2] = OPENGL_3_3(0x111028c8),
};

_Static_assert(ARRAY_SIZE(models) == WIRE_MODEL_NEWEST + 1, "the newest model");
_Static_assert(sizeof(struct virgl_caps) == 308, "capability set 1 has 308 bytes");

const struct virgl_caps *model_caps(u32 model)
{
    return model >= 1 && model < ARRAY_SIZE(models) ? &models[model] : NULL;
}

struct list {
    char *text;
    size_t size, used;
    unsigned count;
};

static void PRINTF(2, 3) add(struct list *l, const char *fmt, ...)
{
    va_list ap;
    l->count++;
    if (l->used + 1 >= l->size)
        return;
    if (l->used)
        l->used += (size_t)snprintf(l->text + l->used, l->size - l->used, ", ");
    if (l->used >= l->size)
        return;
    va_start(ap, fmt);
    int n = vsnprintf(l->text + l->used, l->size - l->used, fmt, ap);
    va_end(ap);
    l->used += n > 0 ? (size_t)n : 0;
}

static void formats(struct list *l, const char *what, const u32 *want, const u32 *have)
{
    for (u32 f = 0; f < 16 * 32; f++)
        if ((want[f / 32] & ~have[f / 32]) >> f % 32 & 1)
            add(l, "format %u to %s", f, what);
}

unsigned model_missing(u32 model, const struct virgl_caps *host, char *text, size_t size)
{
    const struct virgl_caps *m = model_caps(model);
    struct list l = {text, size, 0, 0};
    if (size)
        text[0] = 0;

    formats(&l, "sample", m->sampler, host->sampler);
    formats(&l, "render to", m->render, host->render);
    formats(&l, "use for depth", m->depth_stencil, host->depth_stencil);
    formats(&l, "use in vertices", m->vertex, host->vertex);
#define X(bit, name)                                                                               \
    if ((m->features & ~host->features) >> bit & 1)                                                \
        add(&l, "%s", name);
    FEATURES(X)
#undef X
    const struct {
        const char *name;
        u32 want, have;
    } counts[] = {
        {"GLSL level", m->glsl_level, host->glsl_level},
        {"layers of an array texture", m->texture_array_layers, host->texture_array_layers},
        {"transform feedback buffers", m->streamout_buffers, host->streamout_buffers},
        {"dual source targets", m->dual_source_targets, host->dual_source_targets},
        {"render targets", m->render_targets, host->render_targets},
        {"samples", m->samples, host->samples},
        {"bytes of a texture buffer", m->texture_buffer_bytes, host->texture_buffer_bytes},
        {"uniform blocks", m->uniform_blocks, host->uniform_blocks},
        {"viewports", m->viewports, host->viewports},
        {"components to gather", m->gather_components, host->gather_components},
    };
    for (size_t i = 0; i < ARRAY_SIZE(counts); i++)
        if (counts[i].have < counts[i].want)
            add(&l, "%s: %u, has %u", counts[i].name, counts[i].want, counts[i].have);
    if (m->primitives & ~host->primitives)
        add(&l, "primitive types 0x%x", m->primitives & ~host->primitives);
    return l.count;
}
