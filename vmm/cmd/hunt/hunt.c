#define _GNU_SOURCE
/* `reprise hunt`: the same thing recorded again and again, until it fails. */
#include "cmd/hunt/hunt.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file_io.h"
#include "cmd/apart.h"
#include "host/clock.h"
#include "replay/recording.h"

#define ROOM_FOR_A_RUN  (16u << 20) /* bytes; most recordings take less */
#define FAILED_IN_A_ROW 10u         /* so many runs without a recording are no accident */

/* ---- while it goes on ---- */

static u64 spent(const struct hunt *h)
{
    return h->spent_before + (host_ns() - h->began) / 1000000u;
}

bool hunt_over(const struct hunt *h)
{
    u64 ignored;
    return h->err.code || h->asked ||
           (h->a->seconds > 0 && (double)spent(h) >= h->a->seconds * 1e3) ||
           (h->a->kinds && hunt_state_found(&h->state, &ignored) >= h->a->kinds) ||
           hunt_next(h, 0) >= HUNT_RUNS_MAX;
}

u64 hunt_next(const struct hunt *h, u64 from)
{
    u64 run = hunt_state_next(&h->state, from);
    return h->a->runs && run >= h->a->runs ? HUNT_RUNS_MAX : run;
}

static void check_room(struct hunt *h)
{
    struct statvfs fs;
    if (h->err.code || fstatvfs(h->place.dir, &fs))
        return;
    if (fs.f_bavail * fs.f_frsize < ROOM_FOR_A_RUN)
        err_set(&h->err, -ENOSPC,
                "the disk of %s is full: what was found is kept, and the hunt goes on when it is "
                "started again",
                h->place.path);
}

static void count_failure(struct hunt *h)
{
    bool full = strstr(h->failure, strerror(ENOSPC)) || strstr(h->failure, strerror(EDQUOT));
    h->failed_in_a_row++;
    if (full)
        err_set(
            &h->err, -ENOSPC,
            "the disk is full (%.300s): what was found is kept, and the hunt goes on when it is "
            "started again",
            h->failure);
    else if (!h->state.nkinds || h->failed_in_a_row >= FAILED_IN_A_ROW)
        err_set(&h->err, -EIO, "%s there is no recording: %.600s",
                h->state.nkinds ? "of ten runs one after the other" : "of the first run",
                h->failure);
}

void hunt_take(struct hunt *h, u64 run)
{
    struct err err = {0};
    h->state.spent_ms = spent(h);
    h->failure[0] = 0;
    int code =
        hunt_place_is_done(&h->place, run)
            ? hunt_place_take(&h->place, &h->state, run, h->failure, sizeof(h->failure), &err)
            : err_set(&err, -EIO, "a run has ended without a result");
    if (code == -EIO && !hunt_place_is_done(&h->place, run)) {
        /* Killed by somebody, or it could not even write that: it is done again. */
        snprintf(h->failure, sizeof(h->failure), "%s", err.text);
        check_room(h);
        if (!h->err.code)
            count_failure(h);
        return;
    }
    if (code) {
        if (!h->err.code)
            h->err = err;
        return;
    }
    h->done_here++;
    if (*h->failure)
        count_failure(h);
    else
        h->failed_in_a_row = 0;
    check_room(h);
}

void hunt_wait(struct hunt *h, int ms)
{
    struct pollfd fd = {.fd = h->signals, .events = POLLIN};
    struct signalfd_siginfo info;
    if (poll(&fd, 1, ms) <= 0)
        return;
    while (read(h->signals, &info, sizeof(info)) == sizeof(info)) {
        if (info.ssi_signo == SIGCHLD)
            continue;
        h->asked += info.ssi_signo == SIGINT ? 1 : 2;
        hunt_undraw(h);
        if (h->asked == 1 && h->running)
            fprintf(stderr, "reprise: no more runs are begun; again to end those that go on\n");
    }
}

/* ---- beginning ---- */

static int open_signals(struct hunt *h, struct err *err)
{
    static const int those[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_SIZE(those); i++)
        sigaddset(&set, those[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    h->signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    return h->signals < 0 ? err_errno(err, "cannot listen for signals") : 0;
}

/* What is known of an earlier time, which must have been the same hunt. */
static int open_state(struct hunt *h, struct err *err)
{
    char *what = hunt_what(h->a);
    int code = what ? hunt_state_read(&h->state, h->place.dir, HUNT_STATE, err)
                    : err_set(err, -ENOMEM, "no memory");
    if (code == -ENOENT) {
        h->state = (struct hunt_state){.what = what, .seed = h->a->seed};
        *err = (struct err){0};
        return hunt_state_write(&h->state, h->place.dir, HUNT_STATE, err);
    }
    if (code)
        err_prefix(err, "%s", h->place.path);
    else if (strcmp(h->state.what, what))
        code = err_set(err, -EEXIST, "%s is of another hunt (%.300s); -o names another directory",
                       h->place.path, h->state.what);
    else if (h->a->seed_given && h->state.seed != h->a->seed)
        code =
            err_set(err, -EEXIST,
                    "%s is of a hunt whose first seed is %" PRIu64 "; -o names another directory",
                    h->place.path, h->state.seed);
    free(what);
    return code;
}

/* --from: what each run begins in is the other recording up to that point, with a checkpoint
 * there, so that each run is at once where it begins. */
static int make_base(const struct hunt_args *a, const struct hunt_place *p, struct err *err)
{
    char *fresh = NULL, *path = a->base;
    struct err ignored;
    if (!access(path, F_OK))
        return 0;
    if (asprintf(&fresh, "%s/base.new", p->path) < 0)
        return err_set(err, -ENOMEM, "no memory");
    if (!access(fresh, F_OK))
        recording_remove(fresh, &ignored);
    const char *argv[] = {"reprise record",
                          "-o",
                          fresh,
                          "--from",
                          a->from,
                          "--at",
                          a->at ? a->at : "end",
                          "--checkpoint-end",
                          "--max-insns",
                          "1",
                          "--no-notes",
                          NULL};
    int code = apart_record_quietly(argv, false, NULL);
    if (code)
        code = err_set(err, -EIO, "nothing can begin in %s there", a->from);
    if (!code && rename(fresh, path))
        code = err_errno(err, "cannot rename %s", fresh);
    free(fresh);
    return code;
}

static int begin(struct hunt *h, struct hunt_args *a, struct err *err)
{
    int code = hunt_place_open(&h->place, a->dir, true, err);
    if (!code)
        code = open_state(h, err);
    if (code)
        return code;
    a->seed = h->state.seed;
    hunt_place_clean(&h->place);
    h->spent_before = h->state.spent_ms;
    h->began = host_ns();
    hunt_place_each_done(&h->place, hunt_take, h); /* of a hunt that was killed */
    if (a->from && asprintf(&a->base, "%s/base", h->place.path) < 0)
        code = err_set(err, -ENOMEM, "no memory");
    if (!code && a->from)
        code = make_base(a, &h->place, err);
    return code ? code : open_signals(h, err);
}

/* ---- ending ---- */

static int finish(struct hunt *h)
{
    struct err err = {0};
    u64 found;
    hunt_undraw(h);
    h->state.spent_ms = spent(h);
    if (hunt_state_write(&h->state, h->place.dir, HUNT_STATE, &err) && !h->err.code)
        h->err = err;
    hunt_place_clean(&h->place);
    if (h->a->json)
        hunt_print_json(h);
    else if (hunt_state_runs(&h->state))
        hunt_print(h);
    if (h->err.code)
        return cmd_fail(&h->err);
    if (h->asked)
        fprintf(stderr, "reprise: ended before its end; the same command goes on with it\n");
    return hunt_state_found(&h->state, &found) ? EX_FINE : EX_NOT_FOUND;
}

int cmd_hunt(int argc, char **argv)
{
    struct hunt_args a;
    struct err err = {0};
    struct hunt h = {.a = &a, .place = HUNT_PLACE_CLOSED, .signals = -1};
    hunt_options(argc, argv, &a);
    int code;
    if (a.task >= 0) {
        code = hunt_place_open(&h.place, a.dir, false, &err);
        if (!code && a.from && asprintf(&a.base, "%s/base", h.place.path) < 0)
            code = err_set(&err, -ENOMEM, "no memory");
        code = code ? cmd_fail(&err) : hunt_task(&a, &h.place);
    } else {
        code = begin(&h, &a, &err);
        if (code)
            cmd_fail(&err);
        else if (a.slurm)
            hunt_slurm(&h);
        else
            hunt_local(&h);
        code = code ? EX_ERROR : finish(&h);
    }
    if (h.signals >= 0)
        close(h.signals);
    hunt_state_free(&h.state);
    hunt_place_close(&h.place);
    free(a.base);
    return code;
}
