/* See pmu_window.h. */
#include "cpu/kvm/pmu_window.h"

#include <errno.h>
#include <inttypes.h>

#include "cpu/kvm/counter.h"

void pmu_window_init(struct pmu_window *w, const struct pmu_host_ops *ops, void *host,
                     const struct pmu_event *event)
{
    *w = (struct pmu_window){.ops = ops, .host = host, .event = event, .core = ops->core(host)};
}

int pmu_window_start(struct pmu_window *w, u64 events, struct err *err)
{
    /* One branch early: whoever runs freely and stops with `events` may be some instructions after
     * the last branch, and nobody could tell. Kernels make a period of 1 one of 2. */
    u64 early = w->event->margin + 1u;
    w->free = events >= early + 2;
    w->limit = events;
    w->armed = w->free ? events - early : events;
    u64 period = w->free && w->armed < PMU_PERIOD_MAX ? w->armed : PMU_NO_PERIOD;
    int code = w->ops->count(w->host, &w->at, err);
    if (!code)
        code = w->ops->arm(w->host, period, err);
    return code ? code : w->free ? COUNTER_FREE : COUNTER_STEP;
}

int pmu_window_stop(struct pmu_window *w, u64 *events, struct err *err)
{
    u64 now;
    int code = w->ops->count(w->host, &now, err);
    if (code)
        return code;
    if (w->ops->core(w->host) != w->core)
        return err_set(err, -EXDEV,
                       "the vCPU's thread moved to a core of another kind, which counts "
                       "differently: pin it to cores of one kind (taskset)");
    if (now < w->at)
        return err_set(err, -ENODATA,
                       "the counter went back from %" PRIu64 " to %" PRIu64 " branches: another "
                       "program programs this CPU's counters",
                       w->at, now);
    *events = now - w->at;
    if (*events > w->limit || (w->free && *events == w->limit))
        return err_set(err, -EOVERFLOW,
                       "the vCPU ran on for %" PRIu64
                       " branches after its counter's overflow, which was lost, or late by more "
                       "than the skid margin of this CPU (%s), which is %u%s: it had %" PRIu64
                       " branches, and ran %" PRIu64,
                       *events - w->armed, w->event->family, w->event->margin,
                       w->event->unbounded ? " and no proven limit" : "", w->limit, *events);
    return 0;
}
