/*
 * Where a display has its picture from: the machine's own pixels (2D), or what draws them. Called
 * only while the machine stands (from take() and idle()), never from another thread.
 */
#ifndef REPRISE_LIVE_SCREEN_H
#define REPRISE_LIVE_SCREEN_H

#include "machine/machine.h"

enum screen_answer {
    SCREEN_READY,
    SCREEN_LATER, /* not yet; it is on its way: ask again in a while */
    SCREEN_GONE,  /* never again */
};

struct screen_source {
    void *opaque;
    /* Size and number of frames shown so far; width 0: the screen is off. false: there is no
     * screen. Quick: asked at every look. */
    bool (*show)(void *opaque, struct dev_screen *out);
    /*
     * The picture as it is now, or, after SCREEN_LATER, as it was at some moment since the first
     * asking. READY: *out says of what size, and row() gives its rows (R, G, B bytes) until the
     * machine runs on.
     */
    enum screen_answer (*fetch)(void *opaque, struct dev_screen *out);
    void (*row)(void *opaque, u32 y, u8 *rgb);
};

/* Is there nothing to be seen that was not there before: no frame, no motion of the pointer? */
bool screen_same(const struct dev_screen *a, const struct dev_screen *b);

/* Of a machine with a 2D GPU. */
struct screen_source screen_of_machine(struct machine *m);

/* Of a machine that is recorded with a renderer; both outlive it. */
struct gpu_host;
int screen_gpu_create(struct screen_source *out, struct machine *m, struct gpu_host *gpu,
                      struct err *err);
void screen_gpu_destroy(struct screen_source *source); /* safe on zeros */

#endif
