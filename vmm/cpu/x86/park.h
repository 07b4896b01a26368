/* park.c: where the guest's vector state is, and what counts an event (the machine is called). */
#ifndef REPRISE_X86_PARK_H
#define REPRISE_X86_PARK_H

#include "cpu/x86/core.h"

/* Into cpu.xsave, canonical; and back into the host's registers. */
void core_park(struct core *d);
void core_unpark(struct core *d);
/* Out of the host's registers only, where it is soon to be there again: cpu.xsave is not read then.
 */
void core_set_aside(struct core *d);
/* The parked state has other contents: XSTATE_BV as they are. */
void park_changed(struct core *d);
/* The image at power-on. */
void park_init_image(struct core *d);
/* An XSAVE image (standard format) of the guest's registers into cpu.xsave, canonical. */
void park_take_image(struct core *d, const u8 *image);

/* n events have retired. */
static inline void count_events(struct core *d, unsigned n)
{
    if (LIKELY(!counts_branches(d)) || !n)
        return;
    d->events += n;
    core_park(d);
    d->env->counted(d->env->cpu);
}

/* Stops the machine with a report; libc formats it, so the guest's vector state is parked first. */
#define REPORT(d, ...) (core_park(d), err_set(&(d)->err, -1, __VA_ARGS__), STOP_UNSUPPORTED)

#endif
