/* See sampler.h. The handler may interrupt translated code: it runs on the alternate stack, as the
 * stack pointer is the guest's there. */
#define _GNU_SOURCE
#include "host/sampler.h"

#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

static void on_tick(int sig, siginfo_t *si, void *context)
{
    const ucontext_t *uc = context;
    u64 rip = (u64)uc->uc_mcontext.gregs[REG_RIP];
    enum phase p = (enum phase)phases.now;
    if (p == PHASE_LOOP && rip - (u64)(uintptr_t)phases.code < phases.code_size)
        p = PHASE_CODE;
    phases.samples[p] += 1 + (u64)MAX(si->si_overrun, 0);
    (void)sig;
}

int sampler_start(struct sampler *s, struct err *err)
{
    struct sigaction sa = {.sa_sigaction = on_tick,
                           .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGPROF};
    struct timespec every = {.tv_nsec = 1000000000 / SAMPLER_HZ};
    struct itimerspec when = {.it_interval = every, .it_value = every};
    event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
    sigemptyset(&sa.sa_mask);
    for (unsigned p = 0; p < PHASE_COUNT; p++)
        phases.samples[p] = 0;
    if (sigaction(SIGPROF, &sa, NULL) || timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &s->timer))
        return err_errno(err, "cannot make a timer of CPU time");
    if (timer_settime(s->timer, 0, &when, NULL)) {
        int code = err_errno(err, "cannot start a timer of CPU time");
        timer_delete(s->timer);
        return code;
    }
    s->runs = true;
    return 0;
}

void sampler_stop(struct sampler *s)
{
    if (!s->runs)
        return;
    timer_delete(s->timer);
    s->runs = false;
    /* One that was on its way must not end the process. */
    signal(SIGPROF, SIG_IGN);
}
