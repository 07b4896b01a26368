/* The screen of a machine that is recorded with a renderer: see screen.h. */
#include <errno.h>
#include <stdlib.h>

#include "live/gpu.h"
#include "live/screen.h"

struct screen_gpu {
    struct machine *m;
    struct gpu_host *gpu;
    struct dev_screen shot; /* of the last picture */
    bool drawn;             /* it is in `pixels`, B, G, R, A */
    u8 *pixels;
    size_t room;
};

static bool show(void *opaque, struct dev_screen *out)
{
    struct screen_gpu *s = opaque;
    return machine_screen(s->m, out);
}

/* The renderer is waited for: the machine stands. One that is gone, or cannot read that, leaves
 * what 2D commands made. */
static enum screen_answer fetch(void *opaque, struct dev_screen *out)
{
    struct screen_gpu *s = opaque;
    struct err ignored;
    if (!machine_screen(s->m, &s->shot))
        return SCREEN_GONE;
    size_t size = (size_t)s->shot.width * s->shot.height * 4;
    if (size > s->room) {
        free(s->pixels);
        s->pixels = malloc(size);
        s->room = s->pixels ? size : 0;
    }
    s->drawn = s->shot.drawn && size && size <= s->room && !gpu_host_death(s->gpu) &&
               !gpu_host_read(s->gpu, s->shot.resource, s->shot.x, s->shot.y, s->shot.width,
                              s->shot.height, s->pixels, &ignored);
    *out = s->shot;
    return SCREEN_READY;
}

static void row(void *opaque, u32 y, u8 *rgb)
{
    struct screen_gpu *s = opaque;
    if (!s->drawn) {
        machine_screen_row(s->m, y, rgb);
        return;
    }
    const u8 *from = s->pixels + (size_t)y * s->shot.width * 4;
    for (u32 x = 0; x < s->shot.width; x++)
        for (unsigned k = 0; k < 3; k++)
            rgb[3 * x + k] = from[4 * x + 2 - k];
    machine_screen_cursor(s->m, y, rgb);
}

int screen_gpu_create(struct screen_source *out, struct machine *m, struct gpu_host *gpu,
                      struct err *err)
{
    struct screen_gpu *s = calloc(1, sizeof(*s));
    if (!s)
        return err_set(err, -ENOMEM, "no memory for the screen");
    s->m = m;
    s->gpu = gpu;
    out->opaque = s;
    out->show = show;
    out->fetch = fetch;
    out->row = row;
    return 0;
}

void screen_gpu_destroy(struct screen_source *source)
{
    struct screen_gpu *s = source->opaque;
    if (!s)
        return;
    free(s->pixels);
    free(s);
    source->opaque = NULL;
}
