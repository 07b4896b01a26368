/*
 * What the screen shows in a replay. Pixels that 2D commands made are in the machine; what a
 * renderer drew is drawn again from the recording's gpu.log, up to where the machine stands.
 */
#ifndef REPRISE_CMD_REPLAY_SCREEN_H
#define REPRISE_CMD_REPLAY_SCREEN_H

#include "base/err.h"
#include "live/screen.h"

struct replay_screen;

/* `dir` is the recording, which outlives it. Starts no renderer before one is needed. NULL: no
 * memory. */
struct replay_screen *replay_screen_create(const char *dir);
void replay_screen_destroy(struct replay_screen *s); /* NULL is safe */

/*
 * Takes the picture of the machine, which stands; *out says its size. <0: it cannot be shown, with
 * a text. Where there is no renderer, what 2D commands made is shown instead, and
 * replay_screen_note says so.
 */
int replay_screen_take(struct replay_screen *s, struct machine *m, struct dev_screen *out,
                       struct err *err);
/* A row of it, until the machine runs on. */
void replay_screen_row(struct replay_screen *s, u32 y, u8 *rgb);
/* What should be known about the picture that was taken last; "" for nothing. */
const char *replay_screen_note(const struct replay_screen *s);

/* The same for displays: it shows nothing before replay_screen_on(). */
struct screen_source screen_of_replay(struct replay_screen *s);
void replay_screen_on(struct replay_screen *s, struct machine *m);

#endif
