/*
 * gdb on a recording: the remote stub's requests turned into moves along the timeline, and the
 * `monitor` commands. See visit.h.
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
#include "cmd/gpu_play.h"
#include "cmd/gpu_scene.h"
#include "cmd/replay_screen.h"
#include "cmd/visit.h"
#include "cpu/vcpu.h"
#include "replay/gdb/gdb.h"
#include "virtio-gpu-log/print.h"

struct debug_session {
    struct travel *tr;
    struct gdb_server *server;
    const struct gdb_point *points; /* the stub's */
    unsigned npoints;
    int child; /* gdb itself, when we started it */
};

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
    struct debug_point *d = calloc(n + 1, sizeof(*d));
    if (!d)
        return err_set(err, -ENOMEM, "no memory for breakpoints");
    for (size_t i = 0; i < n; i++)
        d[i] = debug_point_of(&points[i]);
    int code = timeline_set_points(s->tr->t, d, (unsigned)n, err);
    free(d);
    if (!code) {
        s->points = points;
        s->npoints = (unsigned)n;
    }
    return code;
}

static bool point_holds(void *opaque, unsigned point)
{
    struct debug_session *s = opaque;
    return point >= s->npoints ||
           gdb_condition_holds(s->points[point].conditions, timeline_machine(s->tr->t));
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

static volatile sig_atomic_t signalled; /* the session is to end */

static bool poll_gdb(void *opaque)
{
    struct debug_session *s = opaque;
    return signalled || gdb_server_poll(s->server);
}

/* ---- monitor commands ---- */

static int monitor_fail(FILE *out, const struct err *err)
{
    fprintf(out, "error: %s\n", err->text);
    return GDB_MONITOR_OK;
}

static enum gdb_monitor monitor_goto(struct debug_session *s, const char *arg, FILE *out)
{
    struct point p;
    struct err err;
    enum timeline_stop stop;
    if (point_parse(arg, &p, &err))
        return monitor_fail(out, &err);
    int code = travel_to(s->tr, &p, &stop, &err);
    if (code)
        monitor_fail(out, &err);
    print_place(out, s->tr, 1);
    return GDB_MONITOR_MOVED;
}

static enum gdb_monitor monitor_back(struct debug_session *s, const char *arg, FILE *out)
{
    struct err err;
    (void)arg;
    if (timeline_back(s->tr->t, &err))
        return monitor_fail(out, &err);
    print_place(out, s->tr, 1);
    return GDB_MONITOR_MOVED;
}

static enum gdb_monitor monitor_when(struct debug_session *s, const char *arg, FILE *out)
{
    (void)arg;
    print_place(out, s->tr, 1);
    return GDB_MONITOR_OK;
}

static enum gdb_monitor monitor_checkpoint(struct debug_session *s, const char *arg, FILE *out)
{
    struct err err;
    struct timeline_stats st;
    (void)arg;
    if (timeline_checkpoint(s->tr->t, &err))
        return monitor_fail(out, &err);
    timeline_stats(s->tr->t, &st);
    fprintf(out, "a checkpoint at position %" PRIu64 "; %u in memory\n",
            timeline_now(s->tr->t).position, st.checkpoints);
    return GDB_MONITOR_OK;
}

static enum gdb_monitor monitor_info(struct debug_session *s, const char *arg, FILE *out)
{
    struct timeline_stats st;
    char memory[32], budget[32], disk[32], count[32], time[32];
    struct instant end = timeline_end(s->tr->t);
    (void)arg;
    timeline_stats(s->tr->t, &st);
    fprintf(out, "recording     %s\n", timeline_recording(s->tr->t)->rec.path);
    fprintf(out, "length        %" PRIu64 " positions (%s), %s of virtual time\n", end.position,
            text_count(end.position, count), text_seconds(end.time, time));
    fprintf(out, "checkpoints   %u in memory (%s of %s), %u on disk (%s)\n", st.checkpoints,
            text_bytes(st.memory, memory), text_bytes(st.budget, budget), st.files,
            text_bytes(st.disk, disk));
    print_place(out, s->tr, 1);
    return GDB_MONITOR_OK;
}

static enum gdb_monitor monitor_mark(struct debug_session *s, const char *arg, FILE *out)
{
    struct err err;
    if (timeline_branched(s->tr->t)) {
        fputs("error: a what-if branch has no place in the recording; go back first\n", out);
        return GDB_MONITOR_OK;
    }
    if (mark_add(&timeline_recording(s->tr->t)->rec, timeline_now(s->tr->t), arg, &err))
        return monitor_fail(out, &err);
    fprintf(out, "mark:%s is position %" PRIu64 "\n", arg, timeline_now(s->tr->t).position);
    return GDB_MONITOR_OK;
}

static void print_mark(void *opaque, struct instant at, const char *name, size_t len)
{
    char text[256], shown[512];
    snprintf(text, sizeof(text), "%.*s", (int)MIN(len, sizeof(text) - 1), name);
    fprintf(opaque, "%16" PRIu64 "  %14.9f s  mark:%s\n", at.position, (double)at.time * 1e-9,
            text_printable(text, shown, sizeof(shown)));
}

static enum gdb_monitor monitor_marks(struct debug_session *s, const char *arg, FILE *out)
{
    struct err err;
    (void)arg;
    if (marks_each(timeline_recording(s->tr->t)->rec.path, print_mark, out, &err))
        return monitor_fail(out, &err);
    return GDB_MONITOR_OK;
}

static enum gdb_monitor monitor_phys(struct debug_session *s, const char *arg, FILE *out)
{
    char spec[300], address[200], length[64] = "16";
    struct err err;
    if (sscanf(arg, "%199s %63s", address, length) < 1) {
        fputs("usage: monitor phys ADDRESS [LENGTH]\n", out);
        return GDB_MONITOR_OK;
    }
    snprintf(spec, sizeof(spec), "phys:%s,%s", address, length);
    if (print_memory(out, s->tr, spec, &err))
        return monitor_fail(out, &err);
    return GDB_MONITOR_OK;
}

static enum gdb_monitor monitor_console(struct debug_session *s, const char *arg, FILE *out)
{
    unsigned lines = (unsigned)strtoul(arg, NULL, 10);
    print_console(out, s->tr->t, lines ? lines : 20);
    return GDB_MONITOR_OK;
}

static enum gdb_monitor monitor_screen(struct debug_session *s, const char *arg, FILE *out)
{
    struct err err;
    if (!*arg) {
        fputs("usage: monitor screen FILE\n", out);
        return GDB_MONITOR_OK;
    }
    if (write_screenshot(s->tr, arg, true, &err))
        return monitor_fail(out, &err);
    if (*replay_screen_note(s->tr->screen))
        fprintf(out, "%s\n", replay_screen_note(s->tr->screen));
    fprintf(out, "%s shows the screen\n", arg);
    return GDB_MONITOR_OK;
}

/* Who drew that pixel of the screen as it is here. */
static int gpu_who_here(struct debug_session *s, u32 x, u32 y, FILE *out, struct err *err)
{
    const char *path = timeline_recording(s->tr->t)->rec.path;
    struct dev_screen screen;
    struct gpu_log_reader *log;
    struct gpu_player *p;
    struct gpu_who w = {0};
    if (!machine_screen(timeline_machine(s->tr->t), &screen) || !screen.width)
        return err_set(err, -ENODATA, "the screen is off here");
    int code = gpu_play_open(path, NULL, 0, false, &log, &p, err);
    if (code)
        return code;
    code = gpu_player_seek_command(p, screen.commands, err);
    if (!code)
        code = gpu_who_drew(p, 0, x, y, &w, err);
    if (!code)
        code = gpu_who_report(out, path, &w, log, false, err);
    if (!code)
        fprintf(out, "`monitor goto gpu:%" PRIu64 "` goes to where the guest hands it over\n",
                w.number);
    gpu_player_destroy(p);
    gpu_log_reader_destroy(log);
    return code;
}

static enum gdb_monitor monitor_gpu(struct debug_session *s, const char *arg, FILE *out)
{
    unsigned x, y;
    int used = 0;
    if (sscanf(arg, "who %u %u %n", &x, &y, &used) == 2 && used && !arg[used]) {
        struct err failed;
        return gpu_who_here(s, x, y, out, &failed) ? monitor_fail(out, &failed) : GDB_MONITOR_OK;
    }
    struct err err;
    struct gpu_scene place;
    char *end;
    unsigned long context = strtoul(arg, &end, 10);
    if (*arg && (*end || end == arg)) {
        fputs("usage: monitor gpu [CONTEXT | who X Y]\n", out);
        return GDB_MONITOR_OK;
    }
    if (gpu_scene_find(&place, timeline_recording(s->tr->t)->rec.path, timeline_machine(s->tr->t),
                       &err))
        return monitor_fail(out, &err);
    if (*arg)
        gpu_print_bound(out, place.state, (u32)context);
    else
        gpu_scene_print(out, &place);
    gpu_scene_free(&place);
    return GDB_MONITOR_OK;
}

static enum gdb_monitor monitor_help(struct debug_session *s, const char *arg, FILE *out);

static const struct {
    const char *name, *args, *what;
    enum gdb_monitor (*run)(struct debug_session *s, const char *arg, FILE *out);
} commands[] = {
    {"help", "", "this list", monitor_help},
    {"when", "", "position, virtual time and place of the machine", monitor_when},
    {"goto", "POINT",
     "go there: insn:N, time:1.5s, event:N, end, end-N, console:TEXT[#K], mark:NAME, frame:N, "
     "gpu:N",
     monitor_goto},
    {"back", "", "drop the what-if branch that a write began", monitor_back},
    {"mark", "NAME", "call this place mark:NAME from now on", monitor_mark},
    {"marks", "", "the recording's marks", monitor_marks},
    {"checkpoint", "", "keep a checkpoint of this place in memory", monitor_checkpoint},
    {"info", "", "the recording and its checkpoints", monitor_info},
    {"console", "[LINES]", "what the guest's console shows here", monitor_console},
    {"screen", "FILE", "what the screen shows here, as a PNG file", monitor_screen},
    {"gpu", "[CONTEXT]",
     "what the GPU has here, and its last commands; what is bound in a context; who X Y: the "
     "last draw that changed a pixel of the screen",
     monitor_gpu},
    {"phys", "ADDR [LEN]", "guest-physical memory", monitor_phys},
};

static enum gdb_monitor monitor_help(struct debug_session *s, const char *arg, FILE *out)
{
    (void)s;
    (void)arg;
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
        fprintf(out, "monitor %-10s %-10s  %s\n", commands[i].name, commands[i].args,
                commands[i].what);
    return GDB_MONITOR_OK;
}

static enum gdb_monitor target_monitor(void *opaque, const char *command, FILE *out)
{
    struct debug_session *s = opaque;
    size_t n = strcspn(command, " \t");
    const char *arg = command + n + strspn(command + n, " \t");
    enum gdb_monitor result = GDB_MONITOR_UNKNOWN;
    s->tr->also = NULL; /* gdb waits for the answer and sends nothing */
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
        if (strlen(commands[i].name) == n && !strncmp(commands[i].name, command, n))
            result = commands[i].run(s, arg, out);
    s->tr->also = poll_gdb;
    /* The gdb that we started has a hook for it. */
    return result == GDB_MONITOR_MOVED && s->child ? GDB_MONITOR_OK : result;
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
    case TIMELINE_BEGIN: stop->reason = GDB_STOP_HISTORY_BEGIN; break;
    case TIMELINE_END: set_end(s, stop); break;
    case TIMELINE_HIT:
        if (hit->point < s->npoints)
            gdb_stop_of(&s->points[hit->point], hit->address, stop);
        break;
    }
}

static int step(struct debug_session *s, enum timeline_stop *what, struct err *err)
{
    struct instant to = {timeline_now(s->tr->t).position + 1, 0};
    return timeline_forward(s->tr->t, to, true, what, err);
}

/* Steps while RIP is in the range; a call of a function or an interrupt leaves it. */
static int range_step(struct debug_session *s, const struct gdb_resume *r, enum timeline_stop *what,
                      struct err *err)
{
    u64 rip;
    do {
        int code = step(s, what, err);
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
    return action == GDB_REVERSE_STEP ? timeline_step_back(s->tr->t, what, err)
                                      : timeline_backward(s->tr->t, what, err);
}

static int run(struct debug_session *s, const struct gdb_resume *r, struct gdb_stop *stop,
               struct err *err)
{
    enum timeline_stop what = TIMELINE_REACHED;
    int code;
    memset(stop, 0, sizeof(*stop));
    switch (r->action) {
    case GDB_STEP: code = step(s, &what, err); break;
    case GDB_RANGE_STEP: code = range_step(s, r, &what, err); break;
    case GDB_REVERSE_STEP:
    case GDB_REVERSE_CONTINUE: code = run_backwards(s, r->action, &what, stop, err); break;
    default:
        code = timeline_forward(s->tr->t, (struct instant){NEVER, 0}, false, &what, err);
        break;
    }
    travel_quiet(s->tr);
    if (!code)
        describe(s, what, stop);
    return code;
}

static struct gdb_server *waked;
static volatile sig_atomic_t own_gdb; /* its process; 0: not ours */

static void on_signal(int sig)
{
    siginfo_t ended = {.si_pid = 0};
    int kept = errno;
    /* A renderer that drew a picture is a child too. */
    bool other =
        sig == SIGCHLD &&
        (waitid(P_PID, (id_t)own_gdb, &ended, WEXITED | WNOHANG | WNOWAIT) || !ended.si_pid);
    errno = kept;
    if (other)
        return;
    signalled = 1;
    gdb_server_wake(waked);
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

int debug_start(struct travel *tr, const char *endpoint, struct err *err)
{
    if (machine_by_branch(timeline_machine(tr->t)))
        return err_set(
            err, -ENOTSUP,
            "positions of this recording are branches, and gdb stops at each instruction; "
            "to make one that counts them: reprise replay --instructions -o DIR2 %s",
            timeline_recording(tr->t)->quoted);
    struct debug_session *s = calloc(1, sizeof(*s));
    struct gdb_target target = {.opaque = s,
                                .can_reverse = true,
                                .machine = target_machine,
                                .set_points = target_set_points,
                                .before_write = target_before_write,
                                .monitor = target_monitor};
    tr->opaque = s;
    if (!s)
        return err_set(err, -ENOMEM, "out of memory");
    s->tr = tr;
    return gdb_server_create(&s->server, endpoint, &target, err);
}

void debug_end(struct travel *tr)
{
    struct debug_session *s = tr->opaque;
    tr->also = NULL;
    tr->holds = NULL;
    tr->opaque = NULL;
    if (s)
        gdb_server_destroy(s->server);
    free(s);
}

static void catch_signals(struct debug_session *s, bool piped)
{
    struct sigaction sa = {.sa_handler = on_signal};
    waked = s->server;
    own_gdb = s->child;
    signalled = 0;
    sigemptyset(&sa.sa_mask);
    sigaction(SIGTERM, &sa, NULL);
    sigaction(SIGHUP, &sa, NULL);
    if (s->child)
        sigaction(SIGCHLD, &sa, NULL);
    else if (!piped)
        sigaction(SIGINT, &sa, NULL);
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
        fprintf(stderr, "reprise: position %" PRIu64 "; in gdb: target remote %s\n",
                timeline_now(tr->t).position, gdb_server_address(s->server));
    bool gone = child && waitpid(child, &status, WNOHANG) != 0;
    if (!gone)
        code = serve(s, piped, err);
    if (child) {
        signal(SIGCHLD, SIG_DFL);
        while (!gone && waitpid(child, &status, 0) < 0 && errno == EINTR)
            ;
        if (!code && WIFEXITED(status) && WEXITSTATUS(status) == 127)
            return EX_ERROR;
    }
    return code ? cmd_fail(err) : EX_FINE;
}
