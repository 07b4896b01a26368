/* See attach.h. */
#include "cmd/attach.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/engine.h"
#include "cpu/vcpu.h"
#include "replay/gdb/gdb.h"

struct attach {
    struct gdb_server *server;
    struct machine *m;
    struct recorder *recorder;
    const struct gdb_point *points;
    unsigned npoints;
    struct gdb_resume resume; /* what gdb last asked for */
};

static struct machine *target_machine(void *opaque)
{
    return ((struct attach *)opaque)->m;
}

static int target_set_points(void *opaque, const struct gdb_point *points, size_t n,
                             struct err *err)
{
    struct attach *a = opaque;
    struct debug_point *d = calloc(n + 1, sizeof(*d));
    if (!d)
        return err_set(err, -ENOMEM, "no memory for breakpoints");
    for (size_t i = 0; i < n; i++)
        d[i] = debug_point_of(&points[i]);
    int code = machine_debug_set(a->m, d, (unsigned)n);
    free(d);
    if (code)
        return err_set(err, code, "no memory for breakpoints");
    a->points = points;
    a->npoints = (unsigned)n;
    return 0;
}

static int target_before_write(void *opaque, struct err *err)
{
    (void)opaque;
    return err_set(err, -EPERM,
                   "the machine is being recorded: a change from outside would not be in the "
                   "recording (replay it and change it there)");
}

static enum gdb_monitor target_monitor(void *opaque, const char *command, FILE *out)
{
    struct attach *a = opaque;
    struct err err;
    if (!strcmp(command, "when")) {
        const struct vcpu *c = machine_vcpu(a->m);
        fprintf(out,
                "position      %" PRIu64 "\nvirtual time  %.9f s\nRIP           %016" PRIx64 "\n",
                machine_position(a->m), (double)machine_now(a->m) * 1e-9, c->rip);
    } else if (!strncmp(command, "mark ", 5) && command[5]) {
        if (!a->recorder || recorder_mark(a->recorder, a->m, command + 5, &err))
            fprintf(out, "error: %s\n", a->recorder ? err.text : "not recording");
        else
            fprintf(out, "mark:%s is position %" PRIu64 "\n", command + 5, machine_position(a->m));
    } else if (!strcmp(command, "help")) {
        fputs("monitor help         this list\n"
              "monitor when         position and virtual time\n"
              "monitor mark NAME    call this place mark:NAME in the recording\n",
              out);
    } else {
        return GDB_MONITOR_UNKNOWN;
    }
    return GDB_MONITOR_OK;
}

int attach_create(struct attach **out, const char *endpoint, struct machine *m, struct err *err)
{
    struct attach *a = calloc(1, sizeof(*a));
    struct gdb_target target = {.opaque = a,
                                .machine = target_machine,
                                .set_points = target_set_points,
                                .before_write = target_before_write,
                                .monitor = target_monitor};
    if (!a)
        return err_set(err, -ENOMEM, "out of memory");
    a->m = m;
    int code = gdb_server_create(&a->server, endpoint, &target, err);
    if (code) {
        free(a);
        return code;
    }
    *out = a;
    return 0;
}

void attach_set_recorder(struct attach *a, struct recorder *r)
{
    a->recorder = r;
}

const char *attach_address(const struct attach *a)
{
    return gdb_server_address(a->server);
}

bool attach_wants(void *attach)
{
    return gdb_server_poll(((struct attach *)attach)->server);
}

unsigned attach_fds(void *attach, int fds[2])
{
    return gdb_server_fds(((struct attach *)attach)->server, fds);
}

/* ---- waiting for gdb, in which signals still end the recording ---- */

static struct gdb_server *waked;
static volatile int signalled;

static void on_signal(int sig)
{
    signalled = sig;
    gdb_server_wake(waked);
}

static int wait_for_gdb(struct attach *a, struct err *err)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction sa = {.sa_handler = on_signal}, before[ARRAY_SIZE(ends)];
    sigset_t set, mask;
    sigemptyset(&sa.sa_mask);
    sigemptyset(&set);
    waked = a->server;
    signalled = 0;
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
        sigaction(ends[i], &sa, &before[i]);
        sigaddset(&set, ends[i]);
    }
    pthread_sigmask(SIG_UNBLOCK, &set, &mask);
    int code = gdb_server_wait(a->server, &a->resume, err);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
        sigaction(ends[i], &before[i], NULL);
    /* Blocked again: the live input finds it. Only now, as going back to ignoring a signal (a
     * recorder in the background) drops one that is pending. */
    if (signalled)
        raise(signalled);
    return code;
}

/* Does the machine go on without asking gdb? */
static bool goes_on(struct attach *a, const struct run_end *end)
{
    const struct debug_hit *hit = machine_debug_hit(a->m);
    u64 rip = machine_vcpu(a->m)->rip;
    if (end->reason == RUN_DEBUG && hit->point < a->npoints &&
        !gdb_condition_holds(a->points[hit->point].conditions, a->m)) {
        machine_debug_pass(a->m);
        return true;
    }
    return end->reason == RUN_STOP && a->resume.action == GDB_RANGE_STEP &&
           rip >= a->resume.start && rip < a->resume.end && !gdb_server_poll(a->server);
}

static void tell(struct attach *a, const struct run_end *end)
{
    const struct debug_hit *hit = machine_debug_hit(a->m);
    struct gdb_stop stop = {.reason = GDB_STOP_TRAP};
    if (end->reason == RUN_DEBUG && hit->point < a->npoints)
        gdb_stop_of(&a->points[hit->point], hit->address, &stop);
    else if (a->resume.action == GDB_CONTINUE || gdb_server_poll(a->server))
        stop.reason = GDB_STOP_INTERRUPT;
    gdb_server_stopped(a->server, &stop);
}

static void step(struct attach *a, struct run_limits *limits)
{
    limits->stop_at = machine_position(a->m) + 1;
    machine_debug_pass(a->m);
}

int attach_stopped(struct attach *a, const struct run_end *end, struct run_limits *limits,
                   struct err *err)
{
    if (goes_on(a, end)) {
        if (a->resume.action == GDB_RANGE_STEP || a->resume.action == GDB_STEP)
            step(a, limits);
        return 0;
    }
    tell(a, end);
    limits->stop_at = NEVER;
    int code = wait_for_gdb(a, err);
    if (code)
        return code;
    if (a->resume.action == GDB_STEP || a->resume.action == GDB_RANGE_STEP)
        step(a, limits);
    else if (a->resume.action == GDB_KILL)
        raise(SIGTERM); /* blocked: ends the recording as a signal from outside does */
    return 0;
}

void attach_ended(struct attach *a, const struct run_end *end)
{
    struct gdb_stop stop = {.reason = GDB_STOP_EXITED,
                            .status = end->reason == RUN_EXIT ? (int)(end->arg & 0xff) : 0};
    run_end_sentence(end, false, stop.text, sizeof(stop.text));
    gdb_server_stopped(a->server, &stop);
}

void attach_destroy(struct attach *a)
{
    if (!a)
        return;
    gdb_server_destroy(a->server);
    free(a);
}
