/* What record and replay can tell of a run's speed: --stats, --perf-map, --jitdump. */
#ifndef REPRISE_CMD_PROFILE_H
#define REPRISE_CMD_PROFILE_H

#include <argp.h>

#include "cmd/perf.h"
#include "cmd/stats.h"

struct profile_options {
    bool stats;
    struct perf_options perf;
};
/* A child of argp's, whose input is a struct profile_options. */
extern const struct argp profile_argp;
bool profile_wanted(const struct profile_options *o);

struct profile {
    struct run_stats stats;
    struct perf perf;
};
#define PROFILE_OFF ((struct profile){.stats = RUN_STATS_OFF})

/* Before the sandbox is entered; for the engine that will run the machine. */
int profile_open(struct profile *p, const struct profile_options *o, enum engine_kind engine,
                 struct err *err);
/* Safe on PROFILE_OFF; before the machine is destroyed. */
void profile_close(struct profile *p);

#endif
