/* The runs of a hunt on this host: so many at a time, each a process. See hunt.h. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "cmd/hunt/hunt.h"
#include "cmd/hunt/one.h"

#define TICK_MS 250

struct job {
    pid_t pid; /* 0: none */
    u64 run;
};

static bool is_running(const struct job *jobs, unsigned n, u64 run)
{
    for (unsigned i = 0; i < n; i++)
        if (jobs[i].pid && jobs[i].run == run)
            return true;
    return false;
}

static void begin(struct hunt *h, struct job *jobs)
{
    for (unsigned i = 0; i < h->a->jobs && !hunt_over(h); i++) {
        if (jobs[i].pid)
            continue;
        u64 run = hunt_next(h, 0);
        while (run < HUNT_RUNS_MAX && is_running(jobs, h->a->jobs, run))
            run = hunt_next(h, run + 1);
        if (run >= HUNT_RUNS_MAX)
            return;
        /* Whether anything can be recorded shows the first one: the others wait for it. */
        if (h->running && !h->done_here && !h->state.nkinds)
            return;
        jobs[i] = (struct job){hunt_one_start(h->a, &h->place, run, &h->err), run};
        if (jobs[i].pid < 0)
            jobs[i].pid = 0;
        else
            h->running++;
    }
}

static void end(struct hunt *h, struct job *jobs)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (unsigned i = 0; i < h->a->jobs; i++)
            if (jobs[i].pid == pid) {
                jobs[i].pid = 0;
                h->running--;
                if (h->asked > 1 && !hunt_place_is_done(&h->place, jobs[i].run))
                    continue; /* it was ended */
                hunt_take(h, jobs[i].run);
            }
}

void hunt_local(struct hunt *h)
{
    struct job *jobs = calloc(h->a->jobs, sizeof(*jobs));
    if (!jobs) {
        err_set(&h->err, -ENOMEM, "no memory");
        return;
    }
    for (bool killed = false;;) {
        begin(h, jobs);
        if (!h->running)
            break;
        hunt_draw(h);
        hunt_wait(h, TICK_MS);
        if (h->asked > 1 && !killed)
            for (unsigned i = 0; i < h->a->jobs; i++)
                if (jobs[i].pid)
                    kill(jobs[i].pid, SIGKILL); /* its recorder ends with it */
        killed = h->asked > 1;
        end(h, jobs);
    }
    free(jobs);
}
