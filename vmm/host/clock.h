/*
 * The host's clock, for pacing, time limits and intervals between progress records. Host time never
 * reaches the guest: only the live input source turns it into positions, and those are recorded.
 */
#ifndef REPRISE_HOST_CLOCK_H
#define REPRISE_HOST_CLOCK_H

#include <time.h>

#include "base/types.h"

static inline u64 host_clock_read(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (u64)t.tv_sec * 1000000000u + (u64)t.tv_nsec;
}

static inline u64 host_ns(void)
{
    return host_clock_read(CLOCK_MONOTONIC);
}

/* Up to 10 ms after host_ns(), never ahead; a few nanoseconds to read. */
static inline u64 host_ns_coarse(void)
{
    return host_clock_read(CLOCK_MONOTONIC_COARSE);
}

#endif
