/* See pmu.h. */
#include "cpu/kvm/pmu.h"

#include <errno.h>
#include <inttypes.h>

int pmu_init(struct pmu *p, const struct pmu_host_ops *ops, void *host,
             const struct pmu_event *event, struct pmu_tsc *tsc, struct err *err)
{
    *p = (struct pmu){.ops = ops, .host = host, .event = event, .tsc = tsc};
    p->core = ops->core(host);
    int code = ops->count(host, &p->count, err);
    return code ? code : ops->debug(host, false, NULL, err);
}

void pmu_kick(struct pmu *p)
{
    __atomic_store_n(&p->kicked, true, __ATOMIC_SEQ_CST);
}

int pmu_position(struct pmu *p, struct pmu_target *out, struct err *err)
{
    *out = (struct pmu_target){.where = PMU_EXACT};
    int code = p->ops->count(p->host, &out->branches, err);
    if (!code)
        code = p->ops->place(p->host, &out->place, err);
    return code ? code : p->ops->hash(p->host, &out->hash, err);
}

static int set_debug(struct pmu *p, bool step, const u64 *breakpoint, struct err *err)
{
    bool on = step || breakpoint;
    if (!on && !p->debug)
        return 0;
    p->debug = on;
    return p->ops->debug(p->host, step, breakpoint, err);
}

/* What must hold after each run, whatever ended it; then p->count is right. */
static int verify(struct pmu *p, struct err *err)
{
    u64 before = p->count;
    unsigned core = p->ops->core(p->host);
    if (core != p->core)
        return err_set(
            err, -EXDEV,
            "the vCPU's thread moved from a core of kind 0x%x to one of kind 0x%x, which "
            "counts differently: pin it to cores of one kind (taskset)",
            p->core, core);
    int code = p->ops->count(p->host, &p->count, err);
    if (!code && p->count < before)
        return err_set(err, -ENODATA,
                       "the counter went back from %" PRIu64 " to %" PRIu64 " branches: another "
                       "program programs this CPU's counters",
                       before, p->count);
    return code;
}

/* One entry into the guest: enum pmu_stop. */
static int run(struct pmu *p, struct err *err)
{
    u64 until = NEVER, watch = p->ops->now(p->host) + PMU_WATCH_NS;
    int code = p->tsc ? pmu_tsc_enter(p->tsc, &until, err) : 0;
    if (code)
        return code;
    p->ops->kick_at(p->host, MIN(until, watch));
    p->stats.runs++;
    int stop = p->ops->run(p->host, err);
    p->ops->kick_at(p->host, NEVER);
    code = p->tsc && stop > 0 ? pmu_tsc_left(p->tsc, err) : 0;
    if (stop > 0 && !code)
        code = verify(p, err);
    return code ? code : stop;
}

/* Whether the caller has to look: PMU_KICKED, else 0. */
static int kicked(struct pmu *p)
{
    return __atomic_exchange_n(&p->kicked, false, __ATOMIC_SEQ_CST) ? PMU_KICKED : 0;
}

static int overshot(const struct pmu *p, const struct pmu_target *t, u64 armed, struct err *err)
{
    return err_set(err, -EOVERFLOW,
                   "the vCPU ran on for %" PRIu64
                   " branches behind its counter's overflow, %" PRIu64
                   " beyond the target at %" PRIu64 " branches: the overflow was lost, or late by "
                   "more than the skid margin of this CPU (%s), which is %u%s",
                   p->count - armed, p->count - t->branches, t->branches, p->event->family,
                   p->event->margin, p->event->unbounded ? " and no proven limit" : "");
}

/* Without a place to be exact at: stops where the CPU does. */
static int anywhere(struct pmu *p, const struct pmu_target *t, struct err *err)
{
    while (p->count < t->branches) {
        u64 left = t->branches - p->count;
        int code = p->ops->arm(p->host, left < PMU_PERIOD_MAX ? left : PMU_NO_PERIOD, err);
        if (!code)
            code = run(p, err);
        if (code < 0)
            return code;
        if (code == PMU_STOP_EXIT)
            return PMU_EXIT;
        if (kicked(p))
            return PMU_KICKED;
    }
    return PMU_AT;
}

/*
 * Until the target is within the margin: 0 then. The overflow is asked for one branch earlier than
 * the margin says, so that the CPU stops before the branch that makes the target's count: behind it
 * nobody could tell whether the target has been passed. Periods below 2 are not for hardware: the
 * kernel makes them 2.
 */
static int approach(struct pmu *p, const struct pmu_target *t, struct err *err)
{
    u64 margin = (u64)p->event->margin + 1;
    while (t->branches - p->count > margin + 1) {
        u64 period = t->branches - p->count - margin, armed = p->count + period;
        int code = p->ops->arm(p->host, period, err);
        if (!code)
            code = run(p, err);
        if (code < 0)
            return code;
        bool reached = p->count >= armed;
        if (reached && code == PMU_STOP_SIGNAL) {
            p->stats.overflows++;
            p->stats.skid = MAX(p->stats.skid, p->count - armed);
        } else if (code == PMU_STOP_SIGNAL) {
            p->stats.early++;
        }
        if (p->count >= t->branches)
            return overshot(p, t, armed, err);
        if (code == PMU_STOP_EXIT)
            return PMU_EXIT;
        if (kicked(p))
            return PMU_KICKED;
    }
    return p->ops->arm(p->host, PMU_NO_PERIOD, err);
}

static int missed(const struct pmu *p, const struct pmu_target *t, struct err *err)
{
    return err_set(err, -ESRCH,
                   "the guest went on to %" PRIu64 " branches and was never at RIP 0x%" PRIx64
                   " with %" PRIu64 " branches, RCX 0x%" PRIx64 ", RSP 0x%" PRIx64
                   " and the same registers: this is another run",
                   p->count, t->place.rip, t->branches, t->place.rcx, t->place.rsp);
}

/* Is it there? *step: the next run has to be a single step, as a breakpoint here would not let it
 * go on, or there is none that would stop it. */
static int arrived(struct pmu *p, const struct pmu_target *t, bool *step, struct err *err)
{
    struct pmu_place here;
    u64 hash;
    *step = true;
    if (t->where != PMU_EXACT)
        return p->count == t->branches ? PMU_AT : 0;
    int code = p->ops->place(p->host, &here, err);
    if (code)
        return code;
    *step = here.rip == t->place.rip;
    if (p->count != t->branches || here.rip != t->place.rip || here.rcx != t->place.rcx ||
        here.rsp != t->place.rsp)
        return 0;
    code = p->ops->hash(p->host, &hash, err);
    return code ? code : hash == t->hash ? PMU_AT : 0;
}

static int home_in(struct pmu *p, const struct pmu_target *t, struct err *err)
{
    bool step, armed = false;
    for (;;) {
        int code = arrived(p, t, &step, err);
        if (code)
            return code;
        /* If nothing stops it, the count passing the target does. */
        if (!step && !armed)
            code = p->ops->arm(p->host, t->branches - p->count + 1, err);
        armed = armed || !step;
        if (!code)
            code = set_debug(p, step, step ? NULL : &t->place.rip, err);
        if (!code)
            code = run(p, err);
        if (code < 0)
            return code;
        if (code == PMU_STOP_DEBUG)
            *(step ? &p->stats.steps : &p->stats.breakpoints) += 1;
        if (p->count > t->branches)
            return missed(p, t, err);
        if (code == PMU_STOP_EXIT)
            return PMU_EXIT;
        if (kicked(p))
            return PMU_KICKED;
    }
}

int pmu_run(struct pmu *p, const struct pmu_target *target, struct err *err)
{
    static const struct pmu_target never = {.where = PMU_ANYWHERE, .branches = UINT64_MAX};
    const struct pmu_target *t = target ? target : &never;
    int code = kicked(p);
    if (!code)
        code = verify(p, err);
    if (code)
        return code;
    if (t->branches < p->count)
        return t->where == PMU_ANYWHERE ? PMU_AT : missed(p, t, err);
    if (t->where == PMU_ANYWHERE)
        code = anywhere(p, t, err);
    else if (!(code = approach(p, t, err)))
        code = home_in(p, t, err);
    struct err ignored;
    int off = set_debug(p, false, NULL, code < 0 ? &ignored : err);
    if (!off)
        off = p->ops->arm(p->host, PMU_NO_PERIOD, code < 0 ? &ignored : err);
    return code < 0 ? code : off ? off : code;
}
