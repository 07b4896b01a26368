/* See screen.h. */
#include "live/screen.h"

static bool show(void *opaque, struct dev_screen *out)
{
    return machine_screen(opaque, out);
}

static enum screen_answer fetch(void *opaque, struct dev_screen *out)
{
    return machine_screen(opaque, out) ? SCREEN_READY : SCREEN_GONE;
}

static void row(void *opaque, u32 y, u8 *rgb)
{
    machine_screen_row(opaque, y, rgb);
}

bool screen_same(const struct dev_screen *a, const struct dev_screen *b)
{
    return a->frames == b->frames && a->width == b->width && a->height == b->height &&
           a->cursor == b->cursor && a->cursor_x == b->cursor_x && a->cursor_y == b->cursor_y;
}

struct screen_source screen_of_machine(struct machine *m)
{
    return (struct screen_source){m, show, fetch, row};
}
