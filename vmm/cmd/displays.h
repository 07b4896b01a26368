/* `--display` of record and replay: several, each of live/display.h. */
#ifndef REPRISE_CMD_DISPLAYS_H
#define REPRISE_CMD_DISPLAYS_H

#include "cmd/cmd.h"
#include "live/display.h"
#include "live/pace.h"

/* Through parts_help(&vnc_parts). */
#define DISPLAY_HELP                                                                               \
    "vnc=ADDRESS: HOST:PORT (PORT 0: any free one, which is printed) or unix:PATH; "               \
    "its options: %; sdl: a window; "                                                              \
    "png-every=SECONDS[,DIR]: a picture each so many seconds of virtual time if something new "    \
    "was shown, in DIR (default: screens in the recording)"

struct display_options {
    struct display_spec spec[DISPLAYS];
    unsigned n;
};

/* argp: one more, or 'none' of those before. */
void option_display(struct argp_state *state, const char *arg, struct display_options *o);
/* Does one of them have a keyboard and a pointer? */
bool display_options_input(const struct display_options *o);

struct displays {
    struct display *display[DISPLAYS];
    struct feed *feed[DISPLAYS];
    unsigned n;
};

/* All of them, or none. */
int displays_open(struct displays *d, const struct display_options *o,
                  const struct display_config *c, struct err *err);
/* On stderr: where they are. */
void displays_notice(const struct displays *d);
/* At the end. EX_FINE; EX_ERROR, and said, when pictures are missing. */
int displays_finish(struct displays *d);
void displays_close(struct displays *d); /* safe on zeros, and twice */

/*
 * Those who only look at a replay: an input source around its own, which hands everything through,
 * stops the machine where a display wants to look exactly, and serves the displays. With
 * `realtime` an idle machine waits in host time, as it did when it was recorded with somebody
 * there.
 */
struct spectator {
    struct input_source src;
    struct input_source *inner;
    const struct displays *displays;
    bool realtime;
    struct pace pace;
    u64 next; /* host time: the displays are served again */
};

void spectator_init(struct spectator *s, struct input_source *inner, const struct displays *d,
                    bool realtime);

#endif
