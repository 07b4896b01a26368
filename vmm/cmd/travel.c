/* See travel.h: going to points, with the user in sight. */
#define _GNU_SOURCE /* pipe2 */
#include "cmd/travel.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd/interrupt.h"
#include "cmd/replay_screen.h"
#include "host/clock.h"
#include "inspect/guest_linux.h"

#define DRAW_FIRST_NS 1000000000u
#define DRAW_NS       200000000u

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
    return interrupted() || (tr->also && tr->also(tr->opaque));
}

static enum timeline_verdict holds(void *opaque, unsigned point, enum timeline_side side)
{
    struct travel *tr = opaque;
    return tr->holds ? tr->holds(tr->opaque, point, side) : TIMELINE_COUNTS;
}

int travel_open(struct travel *tr, const char *dir, const struct travel_with *with, struct err *err)
{
    memset(tr, 0, sizeof(*tr));
    tr->progress = isatty(STDERR_FILENO);
    tr->next = host_ns() + DRAW_FIRST_NS;
    struct timeline_config config = {.engine = with->engine,
                                     .code_cache = with->code_cache,
                                     .named = with->named,
                                     .memory = with->memory,
                                     .trust = with->trust,
                                     .told = with->told,
                                     .ignore_files = with->from_start,
                                     .make_files = with->make_files,
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

int travel_open_at(struct travel *tr, const char *dir, const struct travel_with *with,
                   const struct point *p)
{
    struct err err = {0};
    enum timeline_stop stop;
    if (travel_open(tr, dir, with, &err) || travel_to(tr, p, &stop, &err))
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

void travel_process(struct travel *tr, struct process *out)
{
    struct machine *m = timeline_machine(tr->t);
    const struct symbols *s;
    if (process_due(&tr->layout, timeline_now(tr->t).position) && (s = travel_symbols(tr)))
        process_learn(&tr->layout, m, s);
    process_read(&tr->layout, m, out);
}

void option_point(struct argp_state *state, const char *arg, const char *what, struct point *out)
{
    struct err err = {0};
    if (point_parse(arg, out, &err))
        argp_error(state, "%s: %s", what, err.text);
}

struct found {
    int code;
    struct instant at;
    struct err err;
};

/* In a child, which locks itself in, with the machine's disks open if it takes one, and is gone
 * with them. */
static _Noreturn void find_apart(const char *dir, const struct travel_with *with,
                                 const struct point *p, int to)
{
    struct found f = {0};
    struct travel tr;
    enum timeline_stop stop;
    if (point_is_found(p)) {
        sandbox_plan(SANDBOX_READ | SANDBOX_CODE);
        f.code = travel_open(&tr, dir, with, &f.err);
        if (!f.code)
            f.code = travel_to(&tr, p, &stop, &f.err);
        if (!f.code)
            f.at = timeline_now(tr.t);
    } else {
        sandbox_plan(SANDBOX_READ);
        sandbox_read(dir);
        f.code = sandbox_enter(&f.err);
        if (!f.code)
            f.code = point_in_log(p, dir, &f.at, &f.err);
    }
    bool told = write(to, &f, sizeof(f)) == sizeof(f);
    outside_end();
    _exit(told ? 0 : 1);
}

/* A time is between events: where that is only a replay knows. */
bool point_is_found(const struct point *p)
{
    return p->kind == POINT_CONSOLE || p->kind == POINT_TIME || p->kind == POINT_FRAME;
}

int point_instant(const char *dir, const struct travel_with *with, const struct point *p,
                  struct instant *out, struct err *err)
{
    struct found f = {0};
    int pair[2];
    fflush(NULL);
    pid_t child = pipe2(pair, O_CLOEXEC) ? -1 : fork();
    if (!child)
        find_apart(dir, with, p, pair[1]);
    if (child < 0)
        return err_errno(err, "cannot start a process");
    close(pair[1]);
    ssize_t n;
    while ((n = read(pair[0], &f, sizeof(f))) < 0 && errno == EINTR)
        ;
    close(pair[0]);
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
    if (n != sizeof(f))
        return err_set(err, -EIO, "the search for that point ended too early");
    *out = f.at;
    *err = f.err;
    return f.code;
}

int point_position(const char *dir, const struct travel_with *with, const struct point *p,
                   pos_t *out, struct err *err)
{
    struct instant at = {p->n, 0};
    int code = 0;
    if (p->kind != POINT_INSN) /* one after the end is fine for a filter */
        code = point_instant(dir, with, p, &at, err);
    *out = at.position;
    return code;
}
