/*
 * Time: the host's TSC, which goes on while the host is suspended, and what a guest sees of it. The
 * suspends are invented: CLOCK_BOOTTIME has them, CLOCK_MONOTONIC has not.
 */
#include <time.h>

#include "host/clock.h"
#include "imitation.h"

#define SUSPENDED_NS 3000000000u

int __real_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out);

static u64 suspended;

int __wrap_clock_gettime(clockid_t id, struct timespec *out)
{
    int r = __real_clock_gettime(id, out);
    if (r || id != CLOCK_BOOTTIME || !suspended)
        return r;
    u64 ns = (u64)out->tv_nsec + suspended % 1000000000;
    out->tv_sec += (time_t)(suspended / 1000000000 + ns / 1000000000);
    out->tv_nsec = (long)(ns % 1000000000);
    return 0;
}

u64 im_host_ticks(u32 khz)
{
    return (u64)((unsigned __int128)(host_ns() + suspended) * khz / 1000000);
}

u64 im_tsc(const struct im_vcpu *v)
{
    return im_host_ticks(v->khz) + v->tsc_offset;
}

/* Longer than a tick of the slowest TSC. */
void im_sleep_over_tick(void)
{
    const struct timespec nap = {.tv_nsec = 1100000 + (long)im_random(2000000)};
    nanosleep(&nap, NULL);
}

void im_suspend(void)
{
    suspended += SUSPENDED_NS + im_random(SUSPENDED_NS);
}
