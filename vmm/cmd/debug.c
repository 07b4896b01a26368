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
#include "cmd/debug_events.h"
#include "cmd/debug_monitor.h"
#include "cmd/debug_process.h"
#include "cmd/debug_progress.h"
#include "cmd/debug_run.h"
#include "cmd/interrupt.h"
#include "cmd/visit.h"
#include "cpu/vcpu.h"
#include "host/clock.h"
#include "host/outside.h"
#include "replay/gdb/gdb.h"

#define GDB_END_MOMENTS 300u /* of 10 ms */

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
    for (size_t i = 0; debug_process_on(s) && i < n; i++)
        if (points[i].address >= SYMBOLS_FLOOR && !points[i].physical)
            return err_set(err, -EINVAL,
                           "that is an address of the kernel's, and gdb is shown a "
                           "process: without --process it stops there");
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
    s->step_armed = s->shown.run = false;
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

static enum timeline_verdict point_holds(void *opaque, unsigned point, enum timeline_side side)
{
    struct debug_session *s = opaque;
    struct process now;
    if (point >= s->npoints && s->back.waits)
        return debug_back_holds(s) ? TIMELINE_COUNTS : TIMELINE_IGNORED;
    if (point >= s->npoints)
        return debug_step_holds(s, point) || debug_events_hold(s, point) ? TIMELINE_COUNTS
                                                                         : TIMELINE_IGNORED;
    if (debug_process_on(s)) {
        travel_process(s->tr, &now);
        if (!debug_process_is(s, &now))
            return TIMELINE_IGNORED;
    } else if (scope_owns(&s->scope, point)) {
        travel_process(s->tr, &now);
        if (!scope_holds(&s->scope, point, &now))
            return TIMELINE_IGNORED;
    }
    const struct gdb_point *p = &s->points[point];
    if (p->kind >= GDB_WATCH_WRITE && !watch_decides(&s->watch, s->points, s->npoints, point))
        return TIMELINE_COUNTS;
    if (p->kind >= GDB_WATCH_WRITE && side == TIMELINE_AFTER)
        return TIMELINE_IN_FRONT;
    if (gdb_condition_holds(p->conditions, &s->target))
        return TIMELINE_COUNTS;
    return p->kind >= GDB_WATCH_WRITE ? TIMELINE_SKIPPED : TIMELINE_IGNORED;
}

static void target_seen(void *opaque)
{
    struct debug_session *s = opaque;
    watch_seen(&s->watch);
}

static void target_back(void *opaque, const struct gdb_code *code)
{
    struct debug_session *s = opaque;
    s->back.code = *code;
    s->back.group = 0;
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

static enum gdb_monitor target_monitor(void *opaque, const char *command, FILE *out)
{
    struct debug_session *s = opaque;
    struct instant from = timeline_now(s->tr->t);
    bool branched = timeline_branched(s->tr->t);
    progress_begin(s, out);
    s->tr->also = progress_poll_signals;
    enum gdb_monitor result = debug_monitor(s, command, out);
    progress_end(s);
    s->tr->also = progress_poll;
    /* A place that could not be reached leaves the machine where it was. */
    if (result == GDB_MONITOR_MOVED && debug_process_on(s))
        debug_process_stopped(s, 0);
    if (result == GDB_MONITOR_MOVED && !branched && instant_equal(from, timeline_now(s->tr->t)))
        result = GDB_MONITOR_OK;
    return result == GDB_MONITOR_MOVED && s->child ? GDB_MONITOR_MOVED_HOOK : result;
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
            code = debug_run(s, &resume, &stop, err);
            if (code)
                return code;
            gdb_server_stopped(s->server, &stop);
            continue;
        }
        debug_events_reset(s);
        debug_process_switch(s);
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
                                    .seen = target_seen,
                                    .back = target_back,
                                    .warn = gdb_warn};
    debug_process_serve(&s->target);
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
    debug_process_close(s);
    scope_free(&s->scope);
    watch_free(&s->watch);
    free(s->engine_points);
    free(s);
}

int debug_start(struct travel *tr, struct debug_session *s, const char *process, struct err *err)
{
    tr->opaque = s;
    s->tr = tr;
    if (machine_by_branch(timeline_machine(tr->t)))
        return err_set(
            err, -ENOTSUP,
            "positions of this recording are branches, and gdb stops at each instruction; "
            "to make one that counts them: reprise replay --instructions -o DIR2 %s",
            timeline_recording(tr->t)->quoted);
    struct gdb_stop stop;
    int code = process ? debug_process_open(s, process, err) : 0;
    if (!code && process && debug_events_signal(s, &stop))
        gdb_server_stands(s->server, &stop);
    return code;
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
    tr->also = progress_poll;
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
