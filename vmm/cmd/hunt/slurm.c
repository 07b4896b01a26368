/*
 * The runs of a hunt on a Slurm cluster: array jobs whose tasks each do a batch of runs in the
 * hunt's directory, which all nodes share. What is done is seen there; what a lost node has not
 * done is begun again by Slurm (--requeue), or, once the job has gone, by another job. The user
 * asked for it by --on slurm; sbatch, squeue and scancel are found in PATH, and reach the cluster
 * that the user's environment names. See hunt.h.
 */
#define _GNU_SOURCE /* pipe2 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file_io.h"
#include "cmd/hunt/hunt.h"
#include "cmd/hunt/one.h"
#include "host/clock.h"

#define SAID_MAX   (1u << 20) /* bytes that a command of Slurm's may print */
#define OPTIONS    64u        /* words of --slurm-options */
#define TASKS      1000u      /* of an array: Slurm's MaxArraySize is 1001 */
#define TASKS_OPEN 100u       /* where the hunt has no last run */
#define LOOK_MS    1000
#define TRIES      3u            /* jobs without a run that was done */
#define GONE_NS    120000000000u /* no answer for so long: the cluster is gone */

struct cluster {
    struct hunt *h;
    char job[32]; /* "": none */
    bool cancelled;
    u64 done_before; /* runs, when it was submitted */
    unsigned tries;
    u64 answered; /* host time */
};

/* Runs a command with `input`; what it printed is malloc'ed, *said, its errors after it where it
 * failed. <0 with *err. */
static int command(char **argv, const char *input, char **said, struct err *err)
{
    int in[2], out[2];
    *said = NULL;
    if (pipe2(in, O_CLOEXEC))
        return err_errno(err, "cannot make a pipe");
    if (pipe2(out, O_CLOEXEC)) {
        close(in[0]);
        close(in[1]);
        return err_errno(err, "cannot make a pipe");
    }
    fflush(NULL);
    pid_t child = fork();
    if (!child) {
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        signal(SIGPIPE, SIG_DFL);
        if (setpgid(0, 0) || dup2(in[0], STDIN_FILENO) < 0 || dup2(out[1], STDOUT_FILENO) < 0 ||
            dup2(out[1], STDERR_FILENO) < 0)
            _exit(127);
        execvp(argv[0], argv);
        dprintf(STDERR_FILENO, "cannot start %s: %s\n", argv[0], strerror(errno));
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    signal(SIGPIPE, SIG_IGN);
    if (child > 0 && input)
        file_write_on(in[1], input, strlen(input)); /* one that does not read it says why */
    close(in[1]);
    char *text = calloc(SAID_MAX + 1, 1);
    size_t len = 0;
    ssize_t n = 1;
    while (child > 0 && text && n > 0 && len < SAID_MAX) {
        n = read(out[0], text + len, SAID_MAX - len);
        if (n < 0 && errno == EINTR)
            n = 1;
        else if (n > 0)
            len += (size_t)n;
    }
    close(out[0]);
    int status = -1;
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    while (text && len && isspace((unsigned char)text[len - 1]))
        text[--len] = 0;
    if (child < 0 || !text || status) {
        err_set(err, -EIO, "%s: %.400s", argv[0], text && *text ? text : "it has failed");
        free(text);
        return err->code;
    }
    *said = text;
    return 0;
}

/* ---- submitting ---- */

/* Does any run of that task remain? */
static bool has_work(const struct hunt *h, u64 task)
{
    u64 first = task * h->a->batch;
    return hunt_next(h, first) < first + h->a->batch;
}

/* What each task does: this program, with the hunt's own command line. */
static char *make_script(const struct hunt *h, u64 first)
{
    char program[4096], *text = NULL;
    size_t size;
    ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);
    FILE *out = n > 0 ? open_memstream(&text, &size) : NULL;
    if (!out)
        return NULL;
    program[n] = 0;
    fputs("#!/bin/sh\nexec ", out);
    text_put_word(out, program);
    fprintf(out, " hunt --task $((SLURM_ARRAY_TASK_ID + %" PRIu64 "))", first + 1);
    for (int i = 1; i < h->a->argc; i++) {
        fputc(' ', out);
        text_put_word(out, h->a->argv[i]);
    }
    fputc('\n', out);
    bool failed = ferror(out);
    if (fclose(out) || failed) {
        free(text);
        return NULL;
    }
    return text;
}

/* "--array=0-9,12%4" of the tasks from `first` on that have work; NULL: no memory. */
static char *make_array(const struct hunt *h, u64 first)
{
    char *text = NULL;
    size_t size;
    u64 most = h->a->runs ? TASKS : TASKS_OPEN;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    fputs("--array=", out);
    for (u64 i = 0, n = 0; i < most; i++) {
        u64 begin = i;
        while (i < most && has_work(h, first + i))
            i++;
        if (i == begin)
            continue;
        fprintf(out, "%s%" PRIu64, n++ ? "," : "", begin);
        if (i - 1 > begin)
            fprintf(out, "-%" PRIu64, i - 1);
    }
    if (h->a->jobs)
        fprintf(out, "%%%u", h->a->jobs);
    return fclose(out) ? NULL : text;
}

static int submit(struct cluster *c, struct err *err)
{
    struct hunt *h = c->h;
    char *argv[8 + OPTIONS], *said = NULL, *rest = NULL;
    int n = 0;
    u64 first = hunt_next(h, 0) / h->a->batch;
    char *options = strdup(h->a->slurm_options ? h->a->slurm_options : ""),
         *script = make_script(h, first), *array = make_array(h, first), *output = NULL;
    if (asprintf(&output, "--output=%s/" HUNT_TASKS, h->place.path) < 0)
        output = NULL;
    if (!options || !script || !array || !output) {
        free(output);
        free(options);
        free(script);
        free(array);
        return err_set(err, -ENOMEM, "no memory");
    }
    static const char *const fixed[] = {"sbatch", "--parsable", "--requeue",
                                        "--job-name=reprise-hunt", "--open-mode=append"};
    for (size_t i = 0; i < ARRAY_SIZE(fixed); i++)
        argv[n++] = (char *)(uintptr_t)fixed[i];
    argv[n++] = output;
    argv[n++] = array;
    for (char *word = strtok_r(options, " ", &rest); word && n < (int)ARRAY_SIZE(argv) - 1;
         word = strtok_r(NULL, " ", &rest))
        argv[n++] = word;
    argv[n] = NULL;
    int code = command(argv, script, &said, err);
    if (!code) {
        size_t digits = strspn(said, "0123456789"); /* JOB or JOB;CLUSTER */
        if (!digits || digits >= sizeof(c->job))
            code = err_set(err, -EIO, "sbatch: %.200s: that is no job", said);
        else
            snprintf(c->job, sizeof(c->job), "%.*s", (int)digits, said);
    }
    c->done_before = hunt_state_runs(&h->state);
    c->cancelled = false;
    c->answered = host_ns();
    free(options);
    free(script);
    free(array);
    free(output);
    free(said);
    return code;
}

/* ---- waiting ---- */

/* Is it still there? *running: of its tasks. An answer that does not come says nothing, for a
 * while. */
static bool look(struct cluster *c)
{
    char *argv[] = {"squeue", "-h", "-r", "-o", "%T", "-j", c->job, NULL}, *said = NULL;
    struct err err;
    if (command(argv, NULL, &said, &err)) {
        if (strstr(err.text, "Invalid job id"))
            return false;
        if (host_ns() - c->answered > GONE_NS && !c->h->err.code)
            err_set(&c->h->err, -EIO,
                    "the cluster does not answer any more (%.300s); what was done is kept, and the "
                    "hunt goes on when it is started again",
                    err.text);
        return !c->h->err.code;
    }
    c->answered = host_ns();
    c->h->running = 0;
    for (const char *at = said; (at = strstr(at, "RUNNING")); at++)
        c->h->running++;
    bool there = *said;
    free(said);
    return there;
}

static void cancel(struct cluster *c)
{
    char *argv[] = {"scancel", c->job, NULL}, *said = NULL;
    struct err ignored;
    c->cancelled = true;
    command(argv, NULL, &said, &ignored);
    free(said);
}

static void take_all(struct hunt *h)
{
    hunt_place_each_done(&h->place, hunt_take, h);
}

/* The job has gone. */
static void check_progress(struct cluster *c)
{
    struct hunt *h = c->h;
    c->job[0] = 0;
    h->running = 0;
    take_all(h);
    if (hunt_state_runs(&h->state) > c->done_before)
        c->tries = 0;
    else if (++c->tries >= TRIES && !h->err.code && !h->asked)
        err_set(&h->err, -EIO,
                "%u jobs have ended without a run that was done: can the nodes write into %s, and "
                "start this program? %s/" HUNT_TASKS " has what they said",
                c->tries, h->place.path, h->place.path);
}

void hunt_slurm(struct hunt *h)
{
    struct cluster c = {.h = h};
    for (;;) {
        take_all(h);
        bool over = hunt_over(h);
        if (!c.job[0] && over)
            return;
        if (!c.job[0] && submit(&c, &h->err))
            return;
        if (over && !c.cancelled)
            cancel(&c);
        hunt_draw(h);
        hunt_wait(h, LOOK_MS);
        if (h->asked > 1) {
            cancel(&c);
            return;
        }
        if (!look(&c))
            check_progress(&c);
    }
}

/* ---- on a node ---- */

int hunt_task(const struct hunt_args *a, const struct hunt_place *p)
{
    struct hunt_state s;
    struct err err = {0};
    int code = hunt_state_read(&s, p->dir, HUNT_STATE, &err);
    if (code)
        return cmd_fail(&err);
    struct hunt_args own = *a;
    own.seed = s.seed;
    u64 first = (u64)a->task * a->batch, last = first + a->batch;
    for (u64 run = first; run < last && !code && (!a->runs || run < a->runs); run++) {
        if (hunt_state_has(&s, run) || hunt_place_is_done(p, run))
            continue;
        pid_t pid = hunt_one_start(&own, p, run, &err);
        code = pid < 0 ? err.code : 0;
        while (!code && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    hunt_state_free(&s);
    return code ? cmd_fail(&err) : EX_FINE;
}
