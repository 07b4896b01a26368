/* See screen.h. */
#include "host/screen.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "host/gpu.h"
#include "machine.h"

/* 4 bytes a pixel, as the renderer gives them, become 3 in the same place. */
static void pack(u8 *pixels, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        u8 b = pixels[4 * i], g = pixels[4 * i + 1], r = pixels[4 * i + 2];
        pixels[3 * i] = r;
        pixels[3 * i + 1] = g;
        pixels[3 * i + 2] = b;
    }
}

int screen_take(struct screen *s, struct machine *m, struct gpu_host *gpu, struct err *err)
{
    struct dev_screen now = {0};
    machine_screen(m, &now);
    s->width = now.width;
    s->height = now.height;
    s->frames = now.frames;
    size_t pixels = (size_t)now.width * now.height;
    if (pixels * 4 > s->room) {
        u8 *more = realloc(s->rgb, pixels * 4);
        if (!more)
            return err_set(err, -ENOMEM, "no memory for a picture of the screen");
        s->rgb = more;
        s->room = pixels * 4;
    }
    bool drawn = now.drawn && gpu && !gpu_host_death(gpu);
    if (drawn) {
        int code =
            gpu_host_read(gpu, now.resource, now.x, now.y, now.width, now.height, s->rgb, err);
        if (code)
            return code;
        pack(s->rgb, pixels);
    }
    for (u32 y = 0; y < now.height; y++) {
        u8 *row = s->rgb + (size_t)y * now.width * 3;
        if (drawn)
            machine_screen_cursor(m, y, row);
        else
            machine_screen_row(m, y, row);
    }
    return 0;
}

void screen_free(struct screen *s)
{
    free(s->rgb);
    memset(s, 0, sizeof(*s));
}
