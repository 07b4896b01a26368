/*
 * Time: the host's TSC, what a guest sees of it, and CLOCK_MONOTONIC of the whole program, which
 * agree. What the host takes away from a thread with a vCPU while it could run (other programs on
 * the same CPU) is left out of both: on a busy machine every slice would else run over a tick of
 * the TSC. What REPRISE_IMITATION asks for is not. Suspends are invented: CLOCK_BOOTTIME has them
 * and so has the TSC, CLOCK_MONOTONIC has not.
 */
#define _GNU_SOURCE
#include <sys/resource.h>
#include <time.h>

#include "imitation.h"

#define SUSPENDED_NS 3000000000u
#define GAP_NS       20000u /* between two looks at the clock: nobody is away for less */

int __real_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out);
int __real_timer_settime(timer_t timer, int flags, const struct itimerspec *in,
                         struct itimerspec *old);
int __wrap_timer_settime(timer_t timer, int flags, const struct itimerspec *in,
                         struct itimerspec *old);

static u64 suspended, taken; /* ns; taken: atomic */
/* Of this thread, when it was last looked at. */
static _Thread_local struct {
    bool vcpu;
    u64 wall, look, cpu;
    long slept;
} seen;

static u64 real(clockid_t id)
{
    struct timespec t;
    __real_clock_gettime(id, &t);
    return (u64)t.tv_sec * 1000000000u + (u64)t.tv_nsec;
}

static struct timespec moved(struct timespec t, u64 ns)
{
    u64 sum = (u64)t.tv_sec * 1000000000u + (u64)t.tv_nsec + ns;
    return (struct timespec){.tv_sec = (time_t)(sum / 1000000000),
                             .tv_nsec = (long)(sum % 1000000000)};
}

/* Time since the last look that this thread neither ran nor slept was taken from it: but none that
 * somebody has seen pass. */
static void look(void)
{
    struct rusage u;
    u64 wall = real(CLOCK_MONOTONIC), cpu = real(CLOCK_THREAD_CPUTIME_ID);
    getrusage(RUSAGE_THREAD, &u);
    u64 passed = wall - seen.wall, ran = cpu - seen.cpu;
    if (u.ru_nvcsw == seen.slept && passed > ran + GAP_NS / 2)
        __atomic_add_fetch(&taken, MIN(passed - ran, wall - seen.look), __ATOMIC_SEQ_CST);
    seen.wall = seen.look = wall;
    seen.cpu = cpu;
    seen.slept = u.ru_nvcsw;
}

void im_clock_enter(void)
{
    if (!seen.vcpu) {
        struct rusage u;
        getrusage(RUSAGE_THREAD, &u);
        seen.wall = seen.look = real(CLOCK_MONOTONIC);
        seen.cpu = real(CLOCK_THREAD_CPUTIME_ID);
        seen.slept = u.ru_nvcsw;
    }
    seen.vcpu = true;
    look();
}

static u64 now(void)
{
    u64 wall = real(CLOCK_MONOTONIC);
    if (seen.vcpu && wall - seen.look > GAP_NS) {
        look();
        wall = seen.wall;
    }
    seen.look = wall;
    return wall - __atomic_load_n(&taken, __ATOMIC_SEQ_CST);
}

int __wrap_clock_gettime(clockid_t id, struct timespec *out)
{
    if (id == CLOCK_MONOTONIC) {
        *out = moved((struct timespec){0}, now());
        return 0;
    }
    if (id == CLOCK_BOOTTIME) {
        *out = moved((struct timespec){0}, now() + suspended);
        return 0;
    }
    return __real_clock_gettime(id, out);
}

/* Only those of CLOCK_MONOTONIC are set to an hour of the clock. */
int __wrap_timer_settime(timer_t timer, int flags, const struct itimerspec *in,
                         struct itimerspec *old)
{
    struct itimerspec late = *in;
    if ((flags & TIMER_ABSTIME) && (in->it_value.tv_sec || in->it_value.tv_nsec))
        late.it_value = moved(in->it_value, __atomic_load_n(&taken, __ATOMIC_SEQ_CST));
    return __real_timer_settime(timer, flags, &late, old);
}

u64 im_host_ticks(u32 khz)
{
    return (u64)((unsigned __int128)(now() + suspended) * khz / 1000000);
}

u64 im_tsc(const struct im_vcpu *v)
{
    return im_host_ticks(v->khz) + v->tsc_offset;
}

/* Longer than a tick of the slowest TSC. */
void im_sleep_over_tick(void)
{
    const struct timespec nap = {.tv_nsec = 1100000 + (long)im_random(2000000)};
    look();
    nanosleep(&nap, NULL);
    look();
}

void im_suspend(void)
{
    suspended += SUSPENDED_NS + im_random(SUSPENDED_NS);
}
