/* See way.h. */
#include "cmd/way.h"

#include <stdio.h>
#include <unistd.h>

#include "cmd/cmd.h"
#include "host/clock.h"

#define DRAW_FIRST_NS 1000000000u
#define DRAW_NS       200000000u

void way_begin(struct way *w)
{
    w->shown = isatty(STDERR_FILENO);
    w->drawn = false;
    way_again(w);
}

void way_again(struct way *w)
{
    w->next = host_ns() + DRAW_FIRST_NS;
}

void way_look(struct way *w, const struct machine *m, pos_t position, pos_t end)
{
    u64 now = host_ns();
    char at[32], all[32];
    if (!w->shown || now < w->next)
        return;
    fprintf(stderr, "\r\033[K[replaying: %s of %s %s, %.0f%%]", text_count(position, at),
            text_count(end, all), machine_positions_name(m),
            end ? 100.0 * (double)MIN(position, end) / (double)end : 100.0);
    fflush(stderr);
    w->drawn = true;
    w->next = now + DRAW_NS;
}

void way_quiet(struct way *w)
{
    if (w->drawn)
        fputs("\r\033[K", stderr);
    w->drawn = false;
}
