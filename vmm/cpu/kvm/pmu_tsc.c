/* See pmu_tsc.h. */
#include "cpu/kvm/pmu_tsc.h"

#include <errno.h>
#include <inttypes.h>

/* Reads until the value changes: `edge` is between the last two reads. */
static int watch(struct pmu_tsc *t, u64 *value, struct err *err)
{
    u64 before = t->ops->now(t->host), began = before, first, now;
    int code = t->ops->tsc(t->host, &first, err);
    for (*value = first; !code && *value == first; before = now) {
        code = t->ops->tsc(t->host, value, err);
        now = t->ops->now(t->host);
        if (!code && now - began > 20ull * PMU_TSC_TICK_NS && *value == first)
            return err_set(
                err, -ETIME,
                "the guest's TSC did not tick within %u ms: this KVM scales it otherwise "
                "than asked for",
                20 * PMU_TSC_TICK_NS / 1000000);
        t->edge = now;
        t->slack = now - before;
    }
    t->waited_ns += t->ops->now(t->host) - began;
    return code;
}

int pmu_tsc_init(struct pmu_tsc *t, const struct pmu_host_ops *ops, void *host, struct err *err)
{
    u64 first, second;
    *t = (struct pmu_tsc){.ops = ops, .host = host};
    int code = ops->tsc_offset(host, 0, err);
    if (!code)
        code = watch(t, &first, err);
    u64 edge = t->edge;
    if (!code)
        code = watch(t, &second, err);
    if (code)
        return code;
    /* Missing ticks is our being held up; more than one at a time, or too early, is no 1 kHz. */
    u64 passed = t->edge - edge + PMU_TSC_TICK_NS / 2;
    if (second <= first || passed / PMU_TSC_TICK_NS + 1 < second - first ||
        passed / PMU_TSC_TICK_NS > second - first + 1)
        return err_set(err, -ETIME,
                       "the guest's TSC went from %" PRIu64 " to %" PRIu64 " in %" PRIu64
                       " us: not the one tick a millisecond that was asked for",
                       first, second, (t->edge - edge) / 1000);
    return 0;
}

void pmu_tsc_set(struct pmu_tsc *t, u64 value)
{
    t->value = value;
}

/* Host time of the first tick after `now`, at the earliest. */
static u64 next_tick(const struct pmu_tsc *t, u64 now)
{
    u64 since = now > t->edge ? now - t->edge : 0;
    u64 tick = t->edge + (since / PMU_TSC_TICK_NS + 1) * PMU_TSC_TICK_NS;
    /* The clocks drift apart: NTP moves the host's by 500 ppm at most. */
    u64 drift = since / 2000 + t->slack;
    return tick - MIN(drift, PMU_TSC_TICK_NS / 2);
}

int pmu_tsc_enter(struct pmu_tsc *t, u64 *until, struct err *err)
{
    u64 read, now = t->ops->now(t->host), tick = next_tick(t, now);
    int code;
    if (tick < now + PMU_TSC_GUARD_NS + PMU_TSC_LEAST_NS) {
        code = watch(t, &read, err);
        tick = t->edge + PMU_TSC_TICK_NS - MIN(t->slack, PMU_TSC_TICK_NS / 2);
    } else {
        code = t->ops->tsc(t->host, &read, err);
    }
    if (code)
        return code;
    t->offset += t->value - read;
    t->asleep = t->ops->asleep(t->host);
    t->slices++;
    *until = tick - PMU_TSC_GUARD_NS;
    return read == t->value ? 0 : t->ops->tsc_offset(t->host, t->offset, err);
}

int pmu_tsc_left(struct pmu_tsc *t, struct err *err)
{
    u64 value;
    int code = t->ops->tsc(t->host, &value, err);
    if (code || value == t->value)
        return code;
    i64 slept = (i64)(t->ops->asleep(t->host) - t->asleep);
    t->over++;
    if (slept >= 1000000) /* less, or less than none, is two clocks read one after the other */
        return err_set(err, -ETIME,
                       "the host was suspended for %" PRId64 " ms while the guest ran, and the "
                       "guest's TSC went on by %" PRId64 " ms",
                       slept / 1000000, (i64)(value - t->value));
    return err_set(err, -ETIME,
                   "a slice of the guest ran over a tick of its TSC by %" PRId64
                   " ms: the host held it up (too many programs, or a hypervisor of its own)",
                   (i64)(value - t->value));
}
