/*
 * --perf-map and --jitdump of record and replay: names of translated code for Linux's perf, in the
 * guest's terms. What is made is noted as it is made, and named when it goes: at the end of the
 * run, or when it is dropped from the code cache; only then are the guest kernel's symbols looked
 * for.
 */
#ifndef REPRISE_CMD_PERF_H
#define REPRISE_CMD_PERF_H

#include "base/err.h"
#include "cmd/jitdump.h"
#include "cpu/engine.h"
#include "machine/machine.h"

struct perf_options {
    bool map;
    const char *dir; /* of jit-PID.dump; NULL: none */
};

struct perf_piece;
struct perf {
    struct perf_options options;
    FILE *map; /* NULL: none */
    struct jitdump jitdump;
    struct machine *m;
    struct perf_piece *list; /* as they were made */
    u32 n, room, stubs;      /* stubs: the first ones, which stay */
    u64 drops, lost;         /* lost: for want of memory */
    bool finished;
};

/* Makes the files, before the sandbox is entered. -ENOTSUP with a text for an engine that
 * translates no guest code. */
int perf_open(struct perf *p, const struct perf_options *options, enum engine_kind engine,
              struct err *err);
/* The machine of that engine is there and did not run yet. */
void perf_attach(struct perf *p, struct machine *m);
/* The run is over: names everything, writes it, and says on stderr what there is to say. */
int perf_finish(struct perf *p, struct err *err);
/* Safe on zeros. Before the machine is destroyed. Of a run that never was no file stays. */
void perf_close(struct perf *p);

#endif
