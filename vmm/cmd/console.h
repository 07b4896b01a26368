/*
 * Where a run shows itself: the guest's console on stdout, a progress line on stderr when that is
 * a terminal, and the watch for the text of a kernel panic. An input source of its own, wrapped
 * around another, because take() is where time passes.
 */
#ifndef REPRISE_CMD_CONSOLE_H
#define REPRISE_CMD_CONSOLE_H

#include "base/room.h"
#include "machine/source.h"
#include "machine/machine.h"

struct console {
    struct input_source src;
    struct input_source *inner;
    int out;          /* where console output goes; -1: nowhere (or the reader has gone) */
    struct room room; /* ... if that is a file */
    u64 written;
    int error;   /* errno that ended it; 0 also when the reader has gone */
    int stop_fd; /* readable: do not wait for a reader that does not read; -1: none */
    bool progress;
    bool answers;   /* somebody types to the guest at the terminal */
    bool mute;      /* terminal, and its answers reach nobody */
    char query[32]; /* an escape sequence begun, held back while muted */
    size_t query_len;
    bool drawn;      /* the progress line is on the screen */
    bool line_start; /* the console's cursor is at the start of a line */
    u64 start, next; /* host time */
    pos_t total;     /* last position of the log, for a percentage; 0: unknown */
    pos_t last_position;
    u64 last_time;
    u64 (*log_bytes)(void *opaque); /* NULL: none */
    void *opaque;
    bool panicked;
    unsigned panic_at;
    char panic_line[160]; /* from the text on */
    unsigned panic_len;
    bool panic_open; /* still gathering the line */
};

/* `out` is a file descriptor. */
/* `answers`: what the terminal answers to the guest's questions reaches the guest. Otherwise the
 * questions are left out, or the answers would be typed into the user's shell. */
void console_init(struct console *c, struct input_source *inner, int out, bool answers);
/* Called with the guest's console output. */
void console_output(struct console *c, const void *data, size_t len);
/* Removes the progress line. false, and said on stderr, if output was lost (not to a reader that
 * has gone). */
bool console_done(struct console *c);

#endif
