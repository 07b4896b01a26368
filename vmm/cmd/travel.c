/* See travel.h: going to points, with the user in sight. */
#define _GNU_SOURCE /* pipe2 */
#include "cmd/travel.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/apart.h"
#include "cmd/history.h"
#include "cmd/interrupt.h"
#include "cmd/replay_screen.h"
#include "inspect/guest_linux.h"

void travel_quiet(struct travel *tr)
{
    way_quiet(&tr->way);
}

static void warn(void *opaque, const char *text)
{
    travel_quiet(opaque);
    fprintf(stderr, "reprise: %s\n", text);
}

static bool look(void *opaque, pos_t position)
{
    struct travel *tr = opaque;
    way_look(&tr->way, timeline_machine(tr->t), position, timeline_end(tr->t).position);
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
    way_begin(&tr->way);
    struct timeline_config config = {.engine = with->engine,
                                     .code_cache = with->code_cache,
                                     .named = with->named,
                                     .memory = with->memory,
                                     .trust = with->trust,
                                     .told = with->told,
                                     .ignore_files = with->from_start,
                                     .make_files = with->make_files,
                                     .once = with->once,
                                     .warn = warn,
                                     .poll = look,
                                     .holds = holds,
                                     .opaque = tr};
    if (with->history && !(tr->history = history_open(dir, with->trust)))
        return err_set(err, -ENOMEM, "no memory");
    int code = timeline_open(&tr->t, dir, &config, err);
    if (code) {
        history_close(tr->history);
        tr->history = NULL;
    }
    return code;
}

void travel_close(struct travel *tr)
{
    travel_quiet(tr);
    if (tr->have_symbols)
        symbols_free(&tr->symbols);
    tr->have_symbols = false;
    replay_screen_destroy(tr->screen);
    tr->screen = NULL;
    history_close(tr->history);
    tr->history = NULL;
    timeline_close(tr->t);
    tr->t = NULL;
}

int travel_to(struct travel *tr, const struct point *p, enum timeline_stop *stop, struct err *err)
{
    way_again(&tr->way);
    struct err none = {0};
    int code;
    if (point_is_life(p) && !tr->history)
        code = err_set(err, -ENOTSUP, "no point of processes goes here");
    else if (p->kind == POINT_MARK && tr->history) {
        code = point_seek(tr->t, p, stop, &none);
        if (code == -ENOENT)
            code = history_seek(tr, p, stop, err);
        else if (code)
            *err = none;
    } else {
        code = point_is_life(p) ? history_seek(tr, p, stop, err) : point_seek(tr->t, p, stop, err);
    }
    travel_quiet(tr);
    if (!code && *stop == TIMELINE_INTERRUPTED)
        code = err_set(err, -EINTR, "interrupted");
    return code;
}

int travel_put_aside(struct travel *tr, struct travel_aside *a, struct err *err)
{
    const struct debug_point *points = timeline_points(tr->t, &a->n);
    a->points = malloc((a->n + 1) * sizeof(*points));
    if (!a->points)
        return err_set(err, -ENOMEM, "no memory for breakpoints");
    if (a->n)
        memcpy(a->points, points, a->n * sizeof(*points));
    a->holds = tr->holds;
    tr->holds = NULL;
    return 0;
}

int travel_put_back(struct travel *tr, struct travel_aside *a, int code, struct err *err)
{
    struct err own = {0};
    tr->holds = a->holds;
    int set = timeline_set_points(tr->t, a->points, a->n, &own);
    free(a->points);
    if (!code && set)
        *err = own;
    return code ? code : set;
}

int travel_open_at(struct travel *tr, const char *dir, const struct travel_with *with,
                   const struct point *p)
{
    struct err err = {0};
    enum timeline_stop stop;
    struct travel_with more = *with;
    more.history = more.history || point_takes_lives(p);
    if (travel_open(tr, dir, &more, &err) || travel_to(tr, p, &stop, &err))
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

const struct symbols *travel_symbols_here(struct travel *tr)
{
    struct err ignored;
    struct symbols s;
    struct instant now = timeline_now(tr->t);
    if ((!tr->have_symbols || !instant_equal(tr->symbols_at, now)) &&
        guest_symbols_read(&s, timeline_machine(tr->t), &ignored) == 0) {
        if (tr->have_symbols)
            symbols_free(&tr->symbols);
        tr->symbols = s;
        tr->have_symbols = true;
    }
    tr->symbols_at = now; /* where there are none, no others are looked for either */
    return tr->have_symbols ? &tr->symbols : NULL;
}

const struct symbols *travel_symbols(struct travel *tr)
{
    return tr->have_symbols ? &tr->symbols : travel_symbols_here(tr);
}

const struct symbols *travel_symbols_at(struct travel *tr, u64 address)
{
    const struct symbols *s = travel_symbols(tr);
    bool module = s && symbols_in_kernel(s, address) && !symbols_find(s, address, NULL);
    /* All ranges are modules', one of which may lie where another one did. */
    for (u32 i = 0; s && !module && i < s->nranges; i++)
        module = address >= s->ranges[i].start && address < s->ranges[i].end;
    return module ? travel_symbols_here(tr) : s;
}

unsigned travel_backtrace(struct travel *tr, struct backtrace_frame frame[BACKTRACE_MAX])
{
    struct machine *m = timeline_machine(tr->t);
    const struct symbols *s = travel_symbols(tr);
    unsigned n = backtrace_read(m, s, frame);
    struct instant before = tr->symbols_at;
    for (unsigned i = 0; i < n && !frame[i].user; i++) {
        travel_symbols_at(tr, frame[i].address);
        if (!instant_equal(tr->symbols_at, before))
            return backtrace_read(m, travel_symbols(tr), frame);
    }
    return n;
}

void travel_process(struct travel *tr, struct process *out)
{
    struct machine *m = timeline_machine(tr->t);
    const struct symbols *s;
    if (process_due(&tr->layout, timeline_now(tr->t).position) && (s = travel_symbols(tr)))
        process_learn(&tr->layout, m, s);
    process_read(&tr->layout, m, out);
}

static u64 kept(void *opaque, const struct page_cache_file *file, u64 offset)
{
    return kept_there(opaque, file->inode, file->size, offset);
}

static size_t read_kept(void *opaque, const struct page_cache_file *file, u64 offset, void *out,
                        size_t len)
{
    return kept_read(opaque, file->inode, file->size, offset, out, len);
}

struct guest_file_more travel_files(struct travel *tr)
{
    return (struct guest_file_more){timeline_kept(tr->t), kept, read_kept};
}

void option_point(struct argp_state *state, const char *arg, const char *what, struct point *out)
{
    struct err err = {0};
    if (point_parse(arg, out, &err))
        argp_error(state, "%s: %s", what, err.text);
}

struct found {
    struct apart_answer said;
    struct instant at;
};

struct search {
    const char *dir;
    const struct travel_with *with;
    const struct point *p;
};

/* In a child, which locks itself in, with the machine's disks open if it takes one, and is gone
 * with them. */
static void find_point(const void *question, void *answer)
{
    const struct search *s = question;
    struct found *f = answer;
    struct travel tr;
    enum timeline_stop stop;
    struct travel_with more = *s->with;
    more.history = point_takes_lives(s->p);
    more.once = false;
    if (point_is_found(s->p)) {
        sandbox_plan(SANDBOX_READ | SANDBOX_CODE);
        f->said.code = travel_open(&tr, s->dir, &more, &f->said.err);
        if (!f->said.code)
            f->said.code = travel_to(&tr, s->p, &stop, &f->said.err);
        if (!f->said.code)
            f->at = timeline_now(tr.t);
    } else {
        sandbox_plan(SANDBOX_READ);
        sandbox_read(s->dir);
        f->said.code = sandbox_enter(&f->said.err);
        if (!f->said.code)
            f->said.code = point_in_log(s->p, s->dir, &f->at, &f->said.err);
    }
}

/* A time is between events: where that is only a replay knows. */
bool point_is_found(const struct point *p)
{
    return p->kind == POINT_CONSOLE || p->kind == POINT_TIME || p->kind == POINT_FRAME ||
           point_takes_lives(p);
}

int point_instant(const char *dir, const struct travel_with *with, const struct point *p,
                  struct instant *out, struct err *err)
{
    const struct search search = {dir, with, p};
    struct found f;
    int code = apart_ask(find_point, &search, &f, sizeof(f), "the search for that point", err);
    if (!code)
        *out = f.at;
    return code;
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
