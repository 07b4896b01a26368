/*
 * Pacing: which host time corresponds to which virtual time while an idle machine waits. Time that
 * the machine was slower or faster is forgotten once it is more than a little. Nothing of it
 * reaches the guest but through a recorded input.
 */
#ifndef REPRISE_LIVE_PACE_H
#define REPRISE_LIVE_PACE_H

#include "base/types.h"

struct pace {
    u64 host; /* host_ns that corresponds to ... */
    vns_t virtual;
};

/* Forgets what host and virtual time are apart when that is more than a little. */
void pace_rebase(struct pace *p, u64 host, vns_t virtual);
/* NEVER: not in a time that could be waited for. */
u64 pace_host_time(const struct pace *p, vns_t t);
vns_t pace_virtual_time(const struct pace *p, u64 host, vns_t lowest, vns_t highest);
/* Everything stood still for so long: that was not the guest's time. */
void pace_stopped(struct pace *p, u64 ns);

#endif
