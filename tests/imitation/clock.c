/*
 * Time: the host's TSC, what a guest sees of it, and CLOCK_MONOTONIC of the whole program, which
 * agree. On a busy host every slice would run over a tick of the TSC. So what takes a thread with a
 * vCPU long, without that it sleeps, is left out of both: other programs on its CPU, a hypervisor,
 * also the translation of code. What REPRISE_IMITATION asks for is not. Suspends are invented:
 * CLOCK_BOOTTIME has them and so has the TSC, CLOCK_MONOTONIC has not.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "imitation.h"

#define SUSPENDED_NS 3000000000u
#define CHECK_NS     1000000u
/* Between two looks, if the thread does not sleep. There are some between the timer and the last
 * look at the TSC, and all that passes is to be less than the guard of pmu_tsc.h. */
#define MOST_NS 12000u

int __real_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out);
int __real_timer_create(clockid_t clock, struct sigevent *event, timer_t *timer);
int __wrap_timer_create(clockid_t clock, struct sigevent *event, timer_t *timer);
int __real_timer_delete(timer_t timer);
int __wrap_timer_delete(timer_t timer);
int __real_timer_settime(timer_t timer, int flags, const struct itimerspec *in,
                         struct itimerspec *old);
int __wrap_timer_settime(timer_t timer, int flags, const struct itimerspec *in,
                         struct itimerspec *old);

static u64 suspended, taken; /* ns; taken: atomic */
/* Of this thread, when it was last looked at. */
static _Thread_local struct {
    bool vcpu, guest; /* it has a vCPU; it is in the guest */
    u64 look, checked;
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

static long sleeps(void)
{
    struct rusage u;
    getrusage(RUSAGE_THREAD, &u);
    return u.ru_nvcsw;
}

/* Some time has passed since the last look: all of it counts if the thread slept, which it does not
 * in the guest. */
static void look(u64 wall)
{
    u64 gap = wall - seen.look;
    long slept = seen.guest ? seen.slept : sleeps();
    if (slept == seen.slept)
        __atomic_add_fetch(&taken, gap - MIN(gap, MOST_NS), __ATOMIC_SEQ_CST);
    seen.slept = slept;
    seen.look = wall;
}

static u64 now(void)
{
    u64 wall = real(CLOCK_MONOTONIC);
    if (seen.vcpu && wall - seen.look > MOST_NS)
        look(wall);
    seen.look = wall;
    return wall - __atomic_load_n(&taken, __ATOMIC_SEQ_CST);
}

void im_clock_begin(void)
{
    seen.look = real(CLOCK_MONOTONIC);
    seen.slept = sleeps();
    seen.vcpu = true;
}

u64 im_clock_enter(void)
{
    if (!seen.vcpu)
        im_clock_begin();
    u64 wall = now();
    if (wall - seen.checked > CHECK_NS) {
        seen.slept = sleeps(); /* so that one sleep does not hide what comes after it */
        seen.checked = wall;
    }
    seen.guest = true;
    return wall;
}

u64 im_clock_left(void)
{
    u64 wall = now();
    seen.guest = false;
    return wall;
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

/* Timers that send a signal to a thread: known here, as the kernel's may be late, too. */
#define TIMERS 8
static struct {
    bool used;
    timer_t timer;
    pthread_t owner; /* gettid() takes long */
    pid_t thread;
    int signal;
    u64 at; /* as the program's clock has it */
} timers[TIMERS];

int __wrap_timer_create(clockid_t clock, struct sigevent *event, timer_t *timer)
{
    int r = __real_timer_create(clock, event, timer);
    if (r || !event || event->sigev_notify != SIGEV_THREAD_ID || clock != CLOCK_MONOTONIC ||
        event->_sigev_un._tid != gettid())
        return r;
    for (unsigned i = 0; i < TIMERS; i++)
        if (!timers[i].used) {
            timers[i].used = true;
            timers[i].timer = *timer;
            timers[i].owner = pthread_self();
            timers[i].thread = event->_sigev_un._tid;
            timers[i].signal = event->sigev_signo;
            timers[i].at = NEVER;
            break;
        }
    return r;
}

int __wrap_timer_delete(timer_t timer)
{
    for (unsigned i = 0; i < TIMERS; i++)
        if (timers[i].used && timers[i].timer == timer)
            timers[i].used = false;
    return __real_timer_delete(timer);
}

int __wrap_timer_settime(timer_t timer, int flags, const struct itimerspec *in,
                         struct itimerspec *old)
{
    struct itimerspec late = *in;
    bool on = in->it_value.tv_sec || in->it_value.tv_nsec;
    for (unsigned i = 0; i < TIMERS; i++) {
        if (!timers[i].used || timers[i].timer != timer)
            continue;
        timers[i].at = NEVER;
        if (!on || !(flags & TIMER_ABSTIME))
            continue;
        timers[i].at = (u64)in->it_value.tv_sec * 1000000000u + (u64)in->it_value.tv_nsec;
        late.it_value = moved(in->it_value, __atomic_load_n(&taken, __ATOMIC_SEQ_CST));
    }
    return __real_timer_settime(timer, flags, &late, old);
}

void im_clock_tick(void)
{
    u64 wall = now();
    for (unsigned i = 0; i < TIMERS; i++) {
        if (!timers[i].used || timers[i].at > wall || timers[i].owner != pthread_self())
            continue;
        timers[i].at = NEVER;
        syscall(SYS_tgkill, getpid(), timers[i].thread, timers[i].signal);
    }
}

u64 im_host_ticks(u32 khz)
{
    u64 ns = now() + suspended;
    return khz <= 1000 ? ns * khz / 1000000 : (u64)((unsigned __int128)ns * khz / 1000000);
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
    seen.look = real(CLOCK_MONOTONIC); /* all of it counts */
}

void im_suspend(void)
{
    suspended += SUSPENDED_NS + im_random(SUSPENDED_NS);
}
