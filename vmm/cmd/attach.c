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
#include "cmd/interrupt.h"
#include "cmd/scope.h"
#include "replay/gdb/gdb.h"

#define STEP_POINTS 2u

struct attach {
    struct gdb_server *server;
    struct gdb_target target;
    struct machine *m;
    struct recorder *recorder;
    const struct gdb_point *points;
    unsigned npoints;
    struct gdb_resume resume; /* what gdb last asked for */
    /* Which process runs, and whose the points are. */
    struct symbols symbols;
    bool have_symbols;
    struct process_layout layout;
    struct scope scope;
    /* A step of a program goes on until its thread is back in ring 3 (debug_step.h). */
    struct debug_point *engine_points; /* gdb's, and room for the step's */
    bool user_step, waits, fs_base;
    u32 cpu;         /* the vCPU that steps */
    bool turn_waits; /* what is waited for is its turn */
    struct process thread;
    u64 rip, rsp; /* where it began */
};

static const struct symbols *own_symbols(struct attach *a)
{
    struct err ignored;
    a->have_symbols = a->have_symbols || !guest_symbols_read(&a->symbols, a->m, &ignored);
    return a->have_symbols ? &a->symbols : NULL;
}

static void look(struct attach *a, struct process *out)
{
    const struct symbols *s;
    if (process_due(&a->layout, machine_position(a->m)) && (s = own_symbols(a)))
        process_learn(&a->layout, a->m, s);
    process_read(&a->layout, a->m, out);
}

static void target_process(void *opaque, struct gdb_process *out)
{
    struct process now;
    look(opaque, &now);
    gdb_process_of(&now, out);
}

static struct machine *target_machine(void *opaque)
{
    return ((struct attach *)opaque)->m;
}

static int target_set_points(void *opaque, const struct gdb_point *points, size_t n,
                             struct err *err)
{
    struct attach *a = opaque;
    struct debug_point *d = calloc(n + STEP_POINTS, sizeof(*d));
    if (!d)
        return err_set(err, -ENOMEM, "no memory for breakpoints");
    for (size_t i = 0; i < n; i++)
        d[i] = debug_point_of(&points[i]);
    int code = machine_debug_set(a->m, d, (unsigned)n);
    if (code) {
        free(d);
        return err_set(err, code, "no memory for breakpoints");
    }
    free(a->engine_points);
    a->engine_points = d;
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
    struct process now;
    struct err err;
    if (!strcmp(command, "when")) {
        const struct vcpu *c = machine_vcpu(a->m);
        fprintf(out,
                "position      %" PRIu64 "\nvirtual time  %.9f s\nRIP           %016" PRIx64 "\n",
                machine_position(a->m), (double)machine_now(a->m) * 1e-9, c->rip);
        look(a, &now);
        if (now.task)
            fprintf(out, "process       %s (pid %d)\n", now.comm, now.pid);
    } else if (!strncmp(command, "scope", 5) &&
               scope_command(&a->scope, command + 5 + strspn(command + 5, " "), out)) {
        return GDB_MONITOR_OK;
    } else if (!strncmp(command, "mark ", 5) && command[5]) {
        if (!a->recorder || recorder_mark(a->recorder, a->m, command + 5, &err))
            fprintf(out, "error: %s\n", a->recorder ? err.text : "not recording");
        else
            fprintf(out, "mark:%s is position %" PRIu64 "\n", command + 5, machine_position(a->m));
    } else if (!strcmp(command, "help")) {
        fputs("monitor help         this list\n"
              "monitor when         position and virtual time\n"
              "monitor scope [process|machine]  whose points at user addresses and steps are\n"
              "monitor mark NAME    call this place mark:NAME in the recording\n",
              out);
    } else {
        return GDB_MONITOR_UNKNOWN;
    }
    return GDB_MONITOR_OK;
}

void gdb_warn(void *opaque, const char *text)
{
    (void)opaque;
    fprintf(stderr, "reprise: %s\r\n", text); /* a guest's terminal may be in raw mode */
}

int attach_create(struct attach **out, const char *endpoint, struct err *err)
{
    struct attach *a = calloc(1, sizeof(*a));
    if (!a)
        return err_set(err, -ENOMEM, "out of memory");
    a->engine_points = calloc(STEP_POINTS, sizeof(*a->engine_points));
    if (!a->engine_points) {
        free(a);
        return err_set(err, -ENOMEM, "out of memory");
    }
    a->target = (struct gdb_target){.opaque = a,
                                    .machine = target_machine,
                                    .set_points = target_set_points,
                                    .before_write = target_before_write,
                                    .monitor = target_monitor,
                                    .process = target_process,
                                    .warn = gdb_warn};
    int code = gdb_server_create(&a->server, endpoint, &a->target, err);
    if (code) {
        free(a->engine_points);
        free(a);
        return code;
    }
    *out = a;
    return 0;
}

void attach_begin(struct attach *a, struct machine *m, struct recorder *r)
{
    a->m = m;
    a->recorder = r;
}

const char *attach_address(const struct attach *a)
{
    return gdb_server_address(a->server);
}

bool attach_open_to_all(const struct attach *a)
{
    return gdb_server_open_to_all(a->server);
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

static int wait_for_gdb(struct attach *a, struct err *err)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction before[ARRAY_SIZE(ends)];
    sigset_t set, mask;
    sigemptyset(&set);
    session_begin(a->server, 0);
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
        session_ends_on(ends[i], &before[i]);
        sigaddset(&set, ends[i]);
    }
    pthread_sigmask(SIG_UNBLOCK, &set, &mask);
    int code = gdb_server_wait(a->server, &a->resume, err);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
        sigaction(ends[i], &before[i], NULL);
    /* Blocked again: the live input finds it. Only now, as going back to ignoring a signal (a
     * recorder in the background) drops one that is pending. */
    if (session_ended_by())
        raise(session_ended_by());
    return code;
}

/* Of those that step, whosever turn it is now. */
static const struct vcpu *cpu(const struct attach *a)
{
    machine_look_at(a->m, a->cpu);
    return machine_vcpu(a->m);
}

static bool in_user(struct attach *a)
{
    return (cpu(a)->seg_sel[SEG_CS] & 3) == 3;
}

static bool steps(const struct attach *a)
{
    return a->resume.action == GDB_STEP || a->resume.action == GDB_RANGE_STEP;
}

/* The others run until it is the vCPU's turn; false: there is no memory for that. */
static bool wait_for_turn(struct attach *a, struct run_limits *limits)
{
    struct debug_point *p = a->engine_points + a->npoints;
    memset(p, 0, STEP_POINTS * sizeof(*p));
    p->kind = DEBUG_TURN_TO;
    p->address = a->cpu;
    a->waits = a->turn_waits = machine_debug_set(a->m, a->engine_points, a->npoints + 1) == 0;
    limits->stop_at = NEVER;
    machine_debug_pass(a->m);
    return a->waits;
}

static void step(struct attach *a, struct run_limits *limits)
{
    if (machine_turn(a->m) != a->cpu && wait_for_turn(a, limits))
        return;
    limits->stop_at = machine_position(a->m) + 1;
    machine_debug_pass(a->m);
}

static bool in_range(const struct attach *a)
{
    u64 rip = cpu(a)->rip;
    return a->resume.action == GDB_RANGE_STEP && rip >= a->resume.start && rip < a->resume.end;
}

static void begin_step(struct attach *a, struct run_limits *limits)
{
    const struct vcpu *c = cpu(a);
    a->user_step = !a->scope.machine && in_user(a);
    a->rip = c->rip;
    a->rsp = c->gpr[RSP];
    if (a->user_step)
        look(a, &a->thread);
    step(a, limits);
}

static void stop_waiting(struct attach *a)
{
    if (a->waits)
        machine_debug_set(a->m, a->engine_points, a->npoints); /* fewer: there is memory */
    a->waits = a->turn_waits = false;
}

/* The program that is stepped has entered the kernel. */
static bool wait_for_thread(struct attach *a, struct run_limits *limits)
{
    const struct vcpu *c = cpu(a);
    const struct symbols *s = a->thread.task ? own_symbols(a) : NULL;
    struct debug_point *p = a->engine_points + a->npoints;
    unsigned n = 1;
    memset(p, 0, STEP_POINTS * sizeof(*p));
    p[0].kind = DEBUG_TO_USER;
    if (s && symbols_address(s, "do_exit", &p[1].address)) {
        p[1].kind = DEBUG_EXEC;
        p[1].length = 1;
        n++;
    }
    a->fs_base = c->rip != c->lstar;
    a->waits = machine_debug_set(a->m, a->engine_points, a->npoints + n) == 0;
    limits->stop_at = NEVER;
    return a->waits;
}

/* A point of such a wait was hit: is the step to go on? */
static bool waits_on(struct attach *a, struct run_limits *limits)
{
    const u32 was = a->cpu;
    struct process now;
    if (a->turn_waits) {
        stop_waiting(a);
        step(a, limits);
        return true;
    }
    a->cpu = machine_debug_hit(a->m)->cpu;
    const struct vcpu *c = cpu(a);
    look(a, &now);
    if (!process_same_thread(&now, &a->thread, a->fs_base)) {
        a->cpu = was;
        machine_debug_pass(a->m);
        return true;
    }
    stop_waiting(a);
    if (!in_user(a) || ((c->rip != a->rip || c->gpr[RSP] != a->rsp) && !in_range(a)))
        return false;
    begin_step(a, limits);
    return true;
}

static bool counts(struct attach *a, unsigned point)
{
    struct process now;
    if (scope_owns(&a->scope, point)) {
        look(a, &now);
        if (!scope_holds(&a->scope, point, &now))
            return false;
    }
    return gdb_condition_holds(a->points[point].conditions, &a->target);
}

/* Does the machine go on without asking gdb? */
static bool goes_on(struct attach *a, const struct run_end *end, struct run_limits *limits)
{
    const struct debug_hit *hit = machine_debug_hit(a->m);
    if (gdb_server_poll(a->server) && end->reason == RUN_STOP)
        return false;
    if (end->reason == RUN_DEBUG && hit->point >= a->npoints)
        return waits_on(a, limits);
    if (end->reason == RUN_DEBUG && counts(a, hit->point))
        return false;
    if (end->reason == RUN_DEBUG)
        machine_debug_pass(a->m);
    if (a->waits || (end->reason == RUN_DEBUG && !steps(a)))
        return true;
    if (steps(a) && a->user_step && !in_user(a))
        return wait_for_thread(a, limits);
    if (end->reason == RUN_DEBUG || in_range(a)) {
        begin_step(a, limits);
        return true;
    }
    return false;
}

static void tell(struct attach *a, const struct run_end *end)
{
    const struct debug_hit *hit = machine_debug_hit(a->m);
    struct gdb_stop stop = {.reason = GDB_STOP_TRAP};
    if (end->reason == RUN_DEBUG && hit->point < a->npoints) {
        gdb_stop_of(&a->points[hit->point], hit->address, &stop);
    } else if (end->reason == RUN_DEBUG && !in_user(a)) {
        stop.reason = GDB_STOP_INTERRUPT;
        process_end_sentence(&a->thread, a->m, stop.text, sizeof(stop.text));
    } else if (a->resume.action == GDB_CONTINUE || gdb_server_poll(a->server)) {
        stop.reason = GDB_STOP_INTERRUPT;
    }
    stop.thread = (i32)(end->reason == RUN_DEBUG ? hit->cpu
                        : steps(a)               ? a->cpu
                                                 : machine_turn(a->m)) +
                  1;
    gdb_server_stopped(a->server, &stop);
}

int attach_stopped(struct attach *a, const struct run_end *end, struct run_limits *limits,
                   struct err *err)
{
    struct process now;
    if (goes_on(a, end, limits))
        return 0;
    stop_waiting(a);
    tell(a, end);
    limits->stop_at = NEVER;
    int code = wait_for_gdb(a, err);
    if (code)
        return code;
    a->user_step = false;
    if (gdb_action_runs(a->resume.action)) {
        look(a, &now);
        code = scope_run(&a->scope, a->points, a->npoints, a->m, &now, steps(a), err);
        if (code)
            return code;
    }
    a->cpu = a->resume.thread ? (u32)a->resume.thread - 1 : machine_turn(a->m);
    if (steps(a))
        begin_step(a, limits);
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
    if (a->have_symbols)
        symbols_free(&a->symbols);
    scope_free(&a->scope);
    free(a->engine_points);
    free(a);
}
