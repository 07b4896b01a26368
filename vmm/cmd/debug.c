/*
 * gdb on a recording: the remote stub's requests turned into moves along the timeline. See visit.h.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd/attach.h"
#include "cmd/debug_monitor.h"
#include "cmd/debug_step.h"
#include "cmd/interrupt.h"
#include "cmd/visit.h"
#include "cpu/vcpu.h"
#include "host/clock.h"
#include "host/outside.h"
#include "replay/gdb/gdb.h"

#define GDB_END_MOMENTS    300u /* of 10 ms */
#define PROGRESS_FIRST_NS  2000000000u
#define PROGRESS_REDRAW_NS 500000000u
#define PROGRESS_LINE_NS   10000000000u

static struct machine *target_machine(void *opaque)
{
    struct debug_session *s = opaque;
    return timeline_machine(s->tr->t);
}

struct debug_point debug_point_of(const struct gdb_point *p)
{
    static const enum debug_kind kinds[] = {[GDB_BREAK_SOFT] = DEBUG_EXEC,
                                            [GDB_BREAK_HARD] = DEBUG_EXEC,
                                            [GDB_WATCH_WRITE] = DEBUG_WRITE,
                                            [GDB_WATCH_READ] = DEBUG_READ,
                                            [GDB_WATCH_ACCESS] = DEBUG_ACCESS};
    struct debug_point d;
    memset(&d, 0, sizeof(d)); /* compared as bytes */
    d.kind = kinds[p->kind];
    d.physical = p->physical;
    d.address = p->address;
    d.length = p->length;
    return d;
}

void gdb_stop_of(const struct gdb_point *p, u64 address, struct gdb_stop *stop)
{
    stop->reason = p->kind == GDB_BREAK_SOFT   ? GDB_STOP_BREAK_SOFT
                   : p->kind == GDB_BREAK_HARD ? GDB_STOP_BREAK_HARD
                                               : GDB_STOP_WATCH;
    stop->watch = p->kind;
    stop->address = MAX(address, p->address);
}

static int target_set_points(void *opaque, const struct gdb_point *points, size_t n,
                             struct err *err)
{
    struct debug_session *s = opaque;
    struct debug_point *d = calloc(n + STEP_POINTS, sizeof(*d));
    if (!d)
        return err_set(err, -ENOMEM, "no memory for breakpoints");
    for (size_t i = 0; i < n; i++)
        d[i] = debug_point_of(&points[i]);
    int code = timeline_set_points(s->tr->t, d, (unsigned)n, err);
    if (code) {
        free(d);
        return code;
    }
    free(s->engine_points);
    s->engine_points = d;
    s->step_armed = false;
    s->points = points;
    s->npoints = (unsigned)n;
    return 0;
}

static void target_process(void *opaque, struct gdb_process *out)
{
    struct debug_session *s = opaque;
    struct process now;
    travel_process(s->tr, &now);
    gdb_process_of(&now, out);
}

void gdb_process_of(const struct process *r, struct gdb_process *out)
{
    *out = (struct gdb_process){.pgd = r->root, .known = r->task, .pid = r->pid};
    memcpy(out->comm, r->comm, sizeof(out->comm));
}

static bool point_holds(void *opaque, unsigned point)
{
    struct debug_session *s = opaque;
    struct process now;
    if (point >= s->npoints)
        return debug_step_holds(s, point);
    if (scope_owns(&s->scope, point)) {
        travel_process(s->tr, &now);
        if (!scope_holds(&s->scope, point, &now))
            return false;
    }
    return gdb_condition_holds(s->points[point].conditions, &s->target);
}

static int target_before_write(void *opaque, struct err *err)
{
    struct debug_session *s = opaque;
    bool was = timeline_branched(s->tr->t);
    int code = timeline_branch(s->tr->t, err);
    if (!code && !was)
        fprintf(stderr, "reprise: a what-if branch from position %" PRIu64 "\n",
                timeline_now(s->tr->t).position);
    return code;
}

/* ---- progress: what takes long says how far it is, which also keeps a connection alive ---- */

static void progress_text(struct debug_session *s, const char *text)
{
    if (s->progress.out) {
        fputs(text, s->progress.out);
        fflush(s->progress.out);
    } else {
        gdb_server_print(s->server, text);
    }
}

static void progress_begin(struct debug_session *s, FILE *out)
{
    s->progress.out = out;
    s->progress.began = host_ns();
    s->progress.next = s->progress.began + PROGRESS_FIRST_NS;
    s->progress.drawn = false;
}

static void progress_end(struct debug_session *s)
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

static bool poll_gdb(void *opaque)
{
    struct debug_session *s = opaque;
    progress_show(s);
    return session_ended_by() || gdb_server_poll(s->server);
}

/* gdb waits for the answer to a command and sends nothing. */
static bool poll_signals(void *opaque)
{
    progress_show(opaque);
    return session_ended_by();
}

static enum gdb_monitor target_monitor(void *opaque, const char *command, FILE *out)
{
    struct debug_session *s = opaque;
    struct instant from = timeline_now(s->tr->t);
    bool branched = timeline_branched(s->tr->t);
    progress_begin(s, out);
    s->tr->also = poll_signals;
    enum gdb_monitor result = debug_monitor(s, command, out);
    progress_end(s);
    s->tr->also = poll_gdb;
    /* A place that could not be reached leaves the machine where it was. */
    if (result == GDB_MONITOR_MOVED && !branched && instant_equal(from, timeline_now(s->tr->t)))
        result = GDB_MONITOR_OK;
    return result == GDB_MONITOR_MOVED && s->child ? GDB_MONITOR_MOVED_HOOK : result;
}

/* ---- running ---- */

static void set_end(struct debug_session *s, struct gdb_stop *stop)
{
    struct run_end end;
    char how[256];
    stop->reason = GDB_STOP_HISTORY_END;
    timeline_at_end(s->tr->t, &end);
    run_end_sentence(&end, false, how, sizeof(how));
    snprintf(stop->text, sizeof(stop->text), "The %s here: %.200s",
             timeline_branched(s->tr->t) ? "branch ends" : "recording ends",
             *timeline_end_text(s->tr->t) ? timeline_end_text(s->tr->t) : how);
}

static void describe(struct debug_session *s, enum timeline_stop what, struct gdb_stop *stop)
{
    const struct debug_hit *hit = timeline_hit(s->tr->t);
    switch (what) {
    case TIMELINE_REACHED: stop->reason = GDB_STOP_TRAP; break;
    case TIMELINE_INTERRUPTED: stop->reason = GDB_STOP_INTERRUPT; break;
    case TIMELINE_BEGIN:
        stop->reason = GDB_STOP_HISTORY_BEGIN;
        scope_note(&s->scope, stop->text, sizeof(stop->text));
        break;
    case TIMELINE_END:
        set_end(s, stop);
        scope_note(&s->scope, stop->text, sizeof(stop->text));
        break;
    case TIMELINE_HIT:
        if (hit->point < s->npoints)
            gdb_stop_of(&s->points[hit->point], hit->address, stop);
        break;
    }
}

/* Steps while RIP is in the range; a call of a function leaves it. */
static int range_step(struct debug_session *s, const struct gdb_resume *r, enum timeline_stop *what,
                      struct gdb_stop *stop, struct err *err)
{
    u64 rip;
    do {
        int code = debug_step(s, what, stop, err);
        if (code)
            return code;
        rip = machine_vcpu(timeline_machine(s->tr->t))->rip;
        if (poll_gdb(s))
            *what = TIMELINE_INTERRUPTED;
    } while (*what == TIMELINE_REACHED && rip >= r->start && rip < r->end);
    return 0;
}

/* A branch has no history. */
static int run_backwards(struct debug_session *s, enum gdb_action action, enum timeline_stop *what,
                         struct gdb_stop *stop, struct err *err)
{
    if (timeline_branched(s->tr->t)) {
        snprintf(stop->text, sizeof(stop->text),
                 "A what-if branch goes forwards only; `monitor back` returns to the recording.");
        *what = TIMELINE_BEGIN;
        return 0;
    }
    if (action == GDB_REVERSE_STEP)
        return debug_step_back(s, what, stop, err);
    pos_t from = timeline_now(s->tr->t).position;
    int code = timeline_backward(s->tr->t, what, err);
    pos_t now = timeline_now(s->tr->t).position;
    if (!code && *what == TIMELINE_INTERRUPTED && now < from)
        snprintf(stop->text, sizeof(stop->text),
                 "Interrupted: nothing was hit from there back to here, %.0f%% of the way to the "
                 "beginning; reverse-continue searches on.",
                 100.0 * (double)(from - now) / (double)from);
    return code;
}

static int run(struct debug_session *s, const struct gdb_resume *r, struct gdb_stop *stop,
               struct err *err)
{
    enum timeline_stop what = TIMELINE_REACHED;
    bool steps =
        r->action == GDB_STEP || r->action == GDB_RANGE_STEP || r->action == GDB_REVERSE_STEP;
    struct process now;
    memset(stop, 0, sizeof(*stop));
    travel_process(s->tr, &now);
    int code =
        scope_run(&s->scope, s->points, s->npoints, timeline_machine(s->tr->t), &now, steps, err);
    if (!code && !steps)
        code = debug_step_disarm(s, err);
    if (code)
        return code;
    progress_begin(s, NULL);
    switch (r->action) {
    case GDB_STEP: code = debug_step(s, &what, stop, err); break;
    case GDB_RANGE_STEP: code = range_step(s, r, &what, stop, err); break;
    case GDB_REVERSE_STEP:
    case GDB_REVERSE_CONTINUE: code = run_backwards(s, r->action, &what, stop, err); break;
    default:
        code = timeline_forward(s->tr->t, (struct instant){NEVER, 0}, false, &what, err);
        break;
    }
    travel_quiet(s->tr);
    progress_end(s);
    if (!code)
        describe(s, what, stop);
    return code;
}

/* Serves until the user or gdb ends it. */
static int serve(struct debug_session *s, bool piped, struct err *err)
{
    struct gdb_resume resume;
    for (;;) {
        int code = gdb_server_wait(s->server, &resume, err);
        if (code)
            return code;
        if (gdb_action_runs(resume.action)) {
            struct gdb_stop stop;
            code = run(s, &resume, &stop, err);
            if (code)
                return code;
            gdb_server_stopped(s->server, &stop);
            continue;
        }
        if (resume.action == GDB_KILL || resume.action == GDB_INTERRUPTED || piped)
            return 0;
        if (s->child)
            continue;
        char at[32];
        fprintf(stderr,
                "reprise: gdb has left at position %" PRIu64 " (%s); waiting for the next at "
                "%s; Ctrl-C ends\n",
                timeline_now(s->tr->t).position, text_count(timeline_now(s->tr->t).position, at),
                gdb_server_address(s->server));
    }
}

struct debug_session *debug_listen(const char *endpoint, struct err *err)
{
    struct debug_session *s = calloc(1, sizeof(*s));
    if (!s) {
        err_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    s->engine_points = calloc(STEP_POINTS, sizeof(*s->engine_points));
    s->target = (struct gdb_target){.opaque = s,
                                    .can_reverse = true,
                                    .machine = target_machine,
                                    .set_points = target_set_points,
                                    .before_write = target_before_write,
                                    .monitor = target_monitor,
                                    .process = target_process,
                                    .warn = gdb_warn};
    int code = s->engine_points ? gdb_server_create(&s->server, endpoint, &s->target, err)
                                : err_set(err, -ENOMEM, "out of memory");
    if (code) {
        free(s->engine_points);
        free(s);
        return NULL;
    }
    sandbox_plan_more(SANDBOX_LISTEN);
    return s;
}

void debug_drop(struct debug_session *s)
{
    if (!s)
        return;
    session_wakes_none();
    gdb_server_destroy(s->server);
    scope_free(&s->scope);
    free(s->engine_points);
    free(s);
}

int debug_start(struct travel *tr, struct debug_session *s, struct err *err)
{
    tr->opaque = s;
    s->tr = tr;
    if (machine_by_branch(timeline_machine(tr->t)))
        return err_set(
            err, -ENOTSUP,
            "positions of this recording are branches, and gdb stops at each instruction; "
            "to make one that counts them: reprise replay --instructions -o DIR2 %s",
            timeline_recording(tr->t)->quoted);
    return 0;
}

const char *debug_address(const struct debug_session *s)
{
    return gdb_server_address(s->server);
}

void debug_end(struct travel *tr)
{
    struct debug_session *s = tr->opaque;
    tr->also = NULL;
    tr->holds = NULL;
    tr->opaque = NULL;
    debug_drop(s);
}

static void catch_signals(struct debug_session *s, bool piped)
{
    session_begin(s->server, s->child);
    session_ends_on(SIGTERM, NULL);
    session_ends_on(SIGHUP, NULL);
    if (s->child)
        session_ends_on(SIGCHLD, NULL);
    else if (!piped)
        session_ends_on(SIGINT, NULL);
}

static bool ended_by_signal(void)
{
    return session_ended_by() && session_ended_by() != SIGCHLD;
}

/* A signal ends the session, and so the gdb that we started, which may wait for an answer or for
 * its user: it finds the connection closed and is told to end. */
static void end_gdb(struct debug_session *s)
{
    static const struct timespec moment = {.tv_nsec = 10000000};
    session_wakes_none();
    gdb_server_destroy(s->server);
    s->server = NULL;
    signal(SIGCHLD, SIG_DFL);
    outside_kill(s->child, SIGTERM);
    for (unsigned i = 0; i < GDB_END_MOMENTS; i++, nanosleep(&moment, NULL)) {
        siginfo_t ended = {.si_pid = 0};
        if (waitid(P_PID, (id_t)s->child, &ended, WEXITED | WNOHANG | WNOWAIT) || ended.si_pid)
            return;
    }
    outside_kill(s->child, SIGKILL);
}

int debug_serve(struct travel *tr, int child, struct err *err)
{
    struct debug_session *s = tr->opaque;
    bool piped = !strcmp(gdb_server_address(s->server), "-");
    int status, code = 0;
    s->child = child;
    tr->also = poll_gdb;
    tr->holds = point_holds;
    catch_signals(s, piped);
    if (!piped && !child)
        fprintf(stderr, "reprise: position %" PRIu64 "; in gdb: target remote %s\n%s",
                timeline_now(tr->t).position, gdb_server_address(s->server),
                gdb_server_open_to_all(s->server) ? GDB_OPEN_WARNING : "");
    bool gone = child && waitpid(child, &status, WNOHANG) != 0;
    if (!gone)
        code = serve(s, piped, err);
    if (child) {
        signal(SIGCHLD, SIG_DFL);
        /* In moments: a signal just before a wait without end would not end it. */
        static const struct timespec moment = {.tv_nsec = 20000000};
        while (!gone) {
            if (ended_by_signal())
                end_gdb(s);
            pid_t ended = waitpid(child, &status, WNOHANG);
            gone = ended > 0 || (ended < 0 && errno != EINTR);
            if (!gone)
                nanosleep(&moment, NULL);
        }
        if (!code && WIFEXITED(status) && WEXITSTATUS(status) == 127)
            return EX_ERROR;
    }
    return code ? cmd_fail(err) : EX_FINE;
}
