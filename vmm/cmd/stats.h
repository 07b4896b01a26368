/*
 * `--stats` of record and replay: how long a run took, where its CPU time went, what the engine
 * counted on the way. Nothing of it reaches the guest.
 */
#ifndef REPRISE_CMD_STATS_H
#define REPRISE_CMD_STATS_H

#include <stdio.h>

#include "base/err.h"
#include "host/sampler.h"
#include "machine/machine.h"

struct run_stats {
    bool on;
    int status;    /* /proc/self/status, for the end; -1: not open */
    u64 wall, cpu; /* ns: when it began; from stats_end() on how long it took */
    u64 peak;      /* bytes resident at most; 0: unknown */
    struct sampler sampler;
    struct err unsampled; /* why there are no samples; code 0: there are */
};
#define RUN_STATS_OFF ((struct run_stats){.status = -1})

/* Turns them on; before the sandbox is entered, as the end needs a file and a timer. */
int stats_prepare(struct run_stats *s, struct err *err);
/* Around the run, by the thread that runs the machine. Nothing happens unless they are on. */
void stats_begin(struct run_stats *s);
void stats_end(struct run_stats *s);
/* Of a machine that ran from power-on and whose log has so many bytes: a table, or an object. */
void stats_print(const struct run_stats *s, struct machine *m, u64 log_bytes, FILE *out);
void stats_json(const struct run_stats *s, struct machine *m, u64 log_bytes, FILE *out);
/* Safe on RUN_STATS_OFF. */
void stats_close(struct run_stats *s);

#endif
