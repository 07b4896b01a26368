/* See travel.h: going to points, with the user in sight. */
#include "cmd/travel.h"

#include "cmd/replay_screen.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/clock.h"
#include "replay/guest_linux.h"

#define DRAW_FIRST_NS 1000000000u
#define DRAW_NS       200000000u

static volatile bool *interrupt_flag;

static void on_interrupt(int sig)
{
    if (*interrupt_flag) {
        signal(sig, SIG_DFL);
        raise(sig);
    }
    *interrupt_flag = true;
}

void travel_catch_interrupt(volatile bool *flag)
{
    struct sigaction sa = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
    interrupt_flag = flag;
    sigemptyset(&sa.sa_mask);
    sigaction(SIGINT, &sa, NULL);
}

void travel_quiet(struct travel *tr)
{
    if (tr->drawn)
        fputs("\r\033[K", stderr);
    tr->drawn = false;
}

static void warn(void *opaque, const char *text)
{
    travel_quiet(opaque);
    fprintf(stderr, "reprise: %s\n", text);
}

static bool look(void *opaque, pos_t position)
{
    struct travel *tr = opaque;
    u64 now = host_ns();
    if (tr->progress && now >= tr->next) {
        char at[32], all[32];
        pos_t end = timeline_end(tr->t).position;
        fprintf(stderr, "\r\033[K[replaying: %s of %s %s, %.0f%%]", text_count(position, at),
                text_count(end, all), machine_positions_name(timeline_machine(tr->t)),
                end ? 100.0 * (double)MIN(position, end) / (double)end : 100.0);
        fflush(stderr);
        tr->drawn = true;
        tr->next = now + DRAW_NS;
    }
    return (tr->interrupted && *tr->interrupted) || (tr->also && tr->also(tr->opaque));
}

static bool holds(void *opaque, unsigned point)
{
    struct travel *tr = opaque;
    return !tr->holds || tr->holds(tr->opaque, point);
}

int travel_open(struct travel *tr, const char *dir, u64 memory, struct err *err)
{
    return travel_open_on(tr, dir, ENGINE_DBT, memory, err);
}

int travel_open_on(struct travel *tr, const char *dir, enum engine_kind engine, u64 memory,
                   struct err *err)
{
    memset(tr, 0, sizeof(*tr));
    tr->progress = isatty(STDERR_FILENO);
    tr->next = host_ns() + DRAW_FIRST_NS;
    struct timeline_config config = {.engine = engine,
                                     .memory = memory,
                                     .warn = warn,
                                     .poll = look,
                                     .holds = holds,
                                     .opaque = tr};
    return timeline_open(&tr->t, dir, &config, err);
}

void travel_close(struct travel *tr)
{
    travel_quiet(tr);
    if (tr->have_symbols)
        symbols_free(&tr->symbols);
    tr->have_symbols = false;
    replay_screen_destroy(tr->screen);
    tr->screen = NULL;
    timeline_close(tr->t);
    tr->t = NULL;
}

int travel_to(struct travel *tr, const struct point *p, enum timeline_stop *stop, struct err *err)
{
    tr->next = host_ns() + DRAW_FIRST_NS;
    int code = point_seek(tr->t, p, stop, err);
    travel_quiet(tr);
    if (!code && *stop == TIMELINE_INTERRUPTED)
        code = err_set(err, -EINTR, "interrupted");
    return code;
}

int travel_open_at(struct travel *tr, const char *dir, const struct point *p)
{
    struct err err = {0};
    enum timeline_stop stop;
    if (travel_open(tr, dir, 0, &err) || travel_to(tr, p, &stop, &err))
        return cmd_fail(&err);
    int code = travel_end_code(tr);
    if (code)
        fprintf(stderr, "reprise: %s\n", timeline_end_text(tr->t));
    return code;
}

int travel_end_code(const struct travel *tr)
{
    struct run_end end;
    if (!timeline_at_end(tr->t, &end) || timeline_result(tr->t) == PLAYER_SAME)
        return EX_FINE;
    return timeline_result(tr->t) == PLAYER_DAMAGE     ? EX_DAMAGE
           : timeline_result(tr->t) == PLAYER_DIVERGED ? EX_DIVERGED
                                                       : EX_ERROR;
}

const struct symbols *travel_symbols(struct travel *tr)
{
    struct err ignored;
    if (!tr->have_symbols &&
        guest_symbols_read(&tr->symbols, timeline_machine(tr->t), &ignored) == 0)
        tr->have_symbols = true;
    return tr->have_symbols ? &tr->symbols : NULL;
}

void option_point(struct argp_state *state, const char *arg, const char *what, struct point *out)
{
    struct err err = {0};
    if (point_parse(arg, out, &err))
        argp_error(state, "%s: %s", what, err.text);
}

int point_position(const char *dir, const struct point *p, pos_t *out, struct err *err)
{
    struct instant at;
    struct travel tr;
    enum timeline_stop stop;
    if (p->kind == POINT_INSN) { /* one behind the end is fine for a filter */
        *out = p->n;
        return 0;
    }
    /* A time is between events: where that is only a replay knows. */
    if (p->kind != POINT_CONSOLE && p->kind != POINT_TIME && p->kind != POINT_FRAME) {
        int code = point_in_log(p, dir, &at, err);
        *out = at.position;
        return code;
    }
    int code = travel_open(&tr, dir, 0, err);
    if (!code)
        code = travel_to(&tr, p, &stop, err);
    if (!code)
        *out = timeline_now(tr.t).position;
    travel_close(&tr);
    return code;
}
