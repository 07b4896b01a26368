/*
 * Where a thread's CPU time goes: a timer of that time interrupts it, and each interruption counts
 * for the phase that the thread is in (base/phase.h).
 */
#ifndef REPRISE_HOST_SAMPLER_H
#define REPRISE_HOST_SAMPLER_H

#include <time.h>

#include "base/err.h"
#include "base/phase.h"

/* Samples a second of CPU time that are asked for; a host whose ticks are longer gives each the
 * weight of those it lacks. */
#define SAMPLER_HZ 1000u

struct sampler {
    timer_t timer;
    bool runs;
};

/* Of the calling thread, from zero. System calls are restarted where the kernel restarts any; the
 * others see EINTR, as they do at every signal. */
int sampler_start(struct sampler *s, struct err *err);
/* By the same thread. phases.samples has what was counted. Safe on zeros. */
void sampler_stop(struct sampler *s);

#endif
