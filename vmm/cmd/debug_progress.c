/* See debug_progress.h. */
#include "cmd/debug_progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "cmd/interrupt.h"
#include "host/clock.h"

#define PROGRESS_FIRST_NS  2000000000u
#define PROGRESS_REDRAW_NS 500000000u
#define PROGRESS_LINE_NS   10000000000u

static void progress_text(struct debug_session *s, const char *text)
{
    if (s->progress.out) {
        fputs(text, s->progress.out);
        fflush(s->progress.out);
    } else {
        gdb_server_print(s->server, text);
    }
}

void progress_begin(struct debug_session *s, FILE *out)
{
    s->progress.out = out;
    s->progress.began = host_ns();
    s->progress.next = s->progress.began + PROGRESS_FIRST_NS;
    s->progress.drawn = false;
}

void progress_end(struct debug_session *s)
{
    if (s->progress.drawn)
        progress_text(s, "\r\033[K");
    s->progress.drawn = false;
    s->progress.out = NULL;
}

/* Of the gdb that we started we know its terminal; another one gets a line now and then. */
static void progress_show(struct debug_session *s)
{
    char text[128];
    pos_t from, done, end = timeline_end(s->tr->t).position;
    u64 now = host_ns();
    bool redraw = s->child && isatty(STDOUT_FILENO);
    if (now < s->progress.next)
        return;
    bool back = timeline_searching(s->tr->t, &from, &done);
    if (!back) {
        from = end;
        done = machine_position(timeline_machine(s->tr->t));
    }
    double share = from ? 100.0 * (double)MIN(done, from) / (double)from : 100.0;
    snprintf(text, sizeof(text), redraw ? "\r\033[K[%s: %.0f%%]" : "%s: %.0f%%\n",
             back              ? "searching backwards"
             : s->progress.out ? "replaying"
                               : "running",
             share);
    progress_text(s, text);
    s->progress.drawn = redraw;
    s->progress.next = now + (redraw ? PROGRESS_REDRAW_NS : PROGRESS_LINE_NS);
}

bool progress_poll(void *opaque)
{
    struct debug_session *s = opaque;
    progress_show(s);
    return session_ended_by() || gdb_server_poll(s->server);
}

/* gdb waits for the answer to a command and sends nothing. */
bool progress_poll_signals(void *opaque)
{
    progress_show(opaque);
    return session_ended_by();
}
