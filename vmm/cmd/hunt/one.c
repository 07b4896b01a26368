/* See one.h. */
#define _GNU_SOURCE /* asprintf */
#include "cmd/hunt/one.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_io.h"
#include "cmd/apart.h"
#include "cmd/hunt/outcome.h"

#define OWN_ARGS 16 /* of a run, besides what stands behind -- */
#define CHAOS    "--chaos"

struct one {
    const struct hunt_args *a;
    const struct hunt_place *p;
    u64 run;
    char name[256];  /* its directory */
    char *recording; /* its path */
    int dir;
    char seed[32], limit[32], chaos[48];
};

/* Its outputs, and no input. */
static int open_outputs(const struct one *o, struct err *err)
{
    int in = open("/dev/null", O_RDONLY | O_CLOEXEC), out = file_create_at(o->dir, "out"),
        said = file_create_at(o->dir, "err");
    if (in < 0 || out < 0 || said < 0 || dup2(in, STDIN_FILENO) < 0 ||
        dup2(out, STDOUT_FILENO) < 0 || dup2(said, STDERR_FILENO) < 0)
        return err_errno(err, "cannot make %s", o->name);
    close(in);
    close(out);
    close(said);
    return 0;
}

static int make_place(struct one *o, struct err *err)
{
    char host[65] = "";
    if (gethostname(host, sizeof(host) - 1))
        host[0] = 0;
    for (char *c = host; *c; c++)
        if (*c == '/')
            *c = '_';
    snprintf(o->name, sizeof(o->name), HUNT_RUN "%" PRIu64 "-%s-%d", o->run, host, (int)getpid());
    if (asprintf(&o->recording, "%s/%s/rec", o->p->path, o->name) < 0)
        return err_set(err, -ENOMEM, "no memory");
    if (mkdirat(o->p->dir, o->name, DIRECTORY_PRIVATE))
        return err_errno(err, "cannot make %s/%s", o->p->path, o->name);
    o->dir = openat(o->p->dir, o->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return o->dir < 0 ? err_errno(err, "cannot open %s/%s", o->p->path, o->name) : 0;
}

static char *text(const char *t)
{
    return (char *)(uintptr_t)t;
}

/* The command of this run: its own options, then those behind --, where --chaos gets the seed. */
static char **make_argv(const struct one *o, int *argc)
{
    const struct hunt_args *a = o->a;
    char **argv = calloc((size_t)a->nrest + OWN_ARGS, sizeof(*argv));
    int n = 0;
    if (!argv)
        return NULL;
    argv[n++] = text(a->record ? "reprise record" : "reprise run");
    argv[n++] = text("-o");
    argv[n++] = o->recording;
    argv[n++] = text("--seed");
    argv[n++] = text(o->seed);
    if (a->base) {
        argv[n++] = text("--from");
        argv[n++] = a->base;
    }
    if (a->record) {
        argv[n++] = text("--max-time");
        argv[n++] = text(o->limit);
    }
    for (int i = 0; i < a->nrest; i++)
        argv[n++] = i < a->program && !strcmp(a->rest[i], CHAOS) ? text(o->chaos) : a->rest[i];
    *argc = n;
    return argv;
}

/* Its exit code; -1 with *err. */
static int record(char **argv, struct err *err)
{
    const struct apart_ends ends = {.agent = -1, .voice = -1};
    pid_t child = apart_record((const char *const *)argv, &ends);
    int code = child < 0 ? -1 : apart_wait(child);
    if (code < 0)
        err_errno(err, child < 0 ? "cannot start a recorder" : "the recorder is lost");
    return code;
}

/* Runs it; <0 with a text: there is no recording of it that says how it ended. */
static int go(struct one *o, struct hunt_outcome *out, struct err *err)
{
    struct hunt_run r = {.recording = o->recording, .dir = o->dir};
    char *more[] = {text("--unpaced"), text("--max-time"), o->limit, NULL};
    int argc;
    char **argv = make_argv(o, &argc);
    if (!argv)
        return err_set(err, -ENOMEM, "no memory");
    int code = o->a->record ? record(argv, err) : run_with(argc, argv, more, &r.program);
    free(argv);
    if (code < 0)
        return code;
    if (access(o->recording, F_OK) || (r.program.known && r.program.result == RUN_FAILED))
        return err_set(err, -ENOENT, "%s", ""); /* it has said why */
    if (hunt_look_end(o->recording, &r.end, err))
        return err->code;
    if (!r.end.known)
        return err_set(err, -EIO, "the recorder was killed (exit code %d)", code);
    if (r.end.reason == RUN_QUIT && r.end.arg == QUIT_DISK)
        return err_set(err, -ENOSPC, "the recording was ended: %s", strerror(ENOSPC));
    if (r.end.reason == RUN_QUIT && r.end.arg == QUIT_SIGNAL)
        return err_set(err, -EINTR, "the run was ended by a signal");
    if (!o->a->record && !r.program.known)
        return err_set(err, -EIO, "the program's end is not known (exit code %d)", code);
    hunt_outcome(o->a, &r, out);
    return 0;
}

static int finish(const struct one *o, const struct hunt_outcome *outcome, struct err *err)
{
    struct hunt_state s = {.seed = o->a->seed + o->run};
    char done[64];
    int code = hunt_state_done(&s, o->run, err);
    if (!code && outcome && !hunt_state_count(&s, outcome->kind, outcome->found, o->run))
        code = err_set(err, -ENOMEM, "no memory");
    s.failed = !outcome;
    if (!code)
        code = hunt_state_write(&s, o->dir, HUNT_RESULT, err);
    hunt_state_free(&s);
    snprintf(done, sizeof(done), HUNT_DONE "%" PRIu64, o->run);
    /* One that is there is another attempt's, which has done it as well. */
    if (!code && renameat(o->p->dir, o->name, o->p->dir, done) && errno != EEXIST &&
        errno != ENOTEMPTY)
        code = err_errno(err, "cannot rename %s", o->name);
    return code;
}

static int run_one(struct one *o)
{
    struct err err = {0};
    struct hunt_outcome outcome;
    int code = make_place(o, &err);
    if (!code)
        code = open_outputs(o, &err);
    if (code)
        return cmd_fail(&err);
    snprintf(o->seed, sizeof(o->seed), "%" PRIu64, o->a->seed + o->run);
    snprintf(o->chaos, sizeof(o->chaos), CHAOS "=%s", o->seed);
    snprintf(o->limit, sizeof(o->limit), "%.9f", o->a->limit);
    code = go(o, &outcome, &err);
    if (code == -EINTR) /* it will be done again */
        return EX_ERROR;
    if (code && *err.text)
        cmd_fail(&err);
    code = finish(o, code ? NULL : &outcome, &err);
    return code ? cmd_fail(&err) : EX_FINE;
}

pid_t hunt_one_start(const struct hunt_args *a, const struct hunt_place *p, u64 run,
                     struct err *err)
{
    struct one o = {.a = a, .p = p, .run = run, .dir = -1};
    sigset_t none;
    fflush(NULL);
    pid_t parent = getpid(), child = fork();
    if (child < 0)
        err_errno(err, "cannot start a process");
    if (child)
        return child;
    /* Ctrl-C is the hunt's; and the lock, which ends with it. */
    if (setpgid(0, 0) || prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
        _exit(EX_ERROR);
    if (p->lock >= 0)
        close(p->lock);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    _exit(run_one(&o));
}
