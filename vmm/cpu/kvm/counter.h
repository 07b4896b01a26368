/*
 * Progress counters of the KVM engine that let the guest run freely: what says how far it has come,
 * and brings it out of the guest a little before a position. (The other one, `step`, is the way in
 * which step.c runs the guest: each instruction is counted as it is done.)
 */
#ifndef REPRISE_KVM_COUNTER_H
#define REPRISE_KVM_COUNTER_H

#include <sys/types.h>

#include "base/err.h"
#include "base/types.h"
#include "cpu/unit.h"

struct counter;

struct counter_config {
    pid_t thread; /* which runs the vCPU, and gets the signal */
    int signal;   /* sent to it to bring the vCPU out of the guest */
};

/* What start() says. */
enum { COUNTER_STEP, COUNTER_FREE };

struct counter_ops {
    const char *name;        /* "pmu": in the recording */
    enum position_unit unit; /* of the positions that it counts */
    /* *out is the caller's until close(). <0 with a text: what is missing, and what would help. */
    int (*open)(struct counter **out, const struct counter_config *config, struct err *err);
    void (*close)(struct counter *c);
    /*
     * Before the vCPU enters the guest: it must come out before more than `events` have retired.
     * COUNTER_FREE: it may run, and a signal comes in time. COUNTER_STEP: `events` is within the
     * counter's margin (or it has none), so the engine single-steps; each step is its own
     * start() and stop(). <0 with a text.
     */
    int (*start)(struct counter *c, u64 events, struct err *err);
    /*
     * After it came out, for whatever reason: *events retired since start(), exactly. -EOVERFLOW
     * if they are more than start() was told (the skid was larger than the margin); the text says
     * by how much. Other <0: the counter is no longer ours (another user, a lost overflow).
     */
    int (*stop)(struct counter *c, u64 *events, struct err *err);
};

extern const struct counter_ops counter_pmu;

#endif
