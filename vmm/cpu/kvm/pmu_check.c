/* See pmu_check.h. */
#include "cpu/kvm/pmu_check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#define RUN_NS      500000000u /* no run is near that long */
#define SIGNALS_MAX 8u         /* that nobody asked for, and those at RUN_NS */

const char *pmu_check_name(enum pmu_check_kind kind)
{
    static const char *const names[] = {
        [PMU_CHECK_EXACT] = "exact", [PMU_CHECK_INSNS] = "insns",         [PMU_CHECK_REP] = "rep",
        [PMU_CHECK_EXITS] = "exits", [PMU_CHECK_OVERFLOWS] = "overflows", [PMU_CHECK_SKID] = "skid",
        [PMU_CHECK_LOCKS] = "locks"};
    return names[kind];
}

PRINTF(4, 5)
static void verdict(struct pmu_check *c, enum pmu_check_kind kind, bool good, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(c->text[kind], sizeof(c->text[kind]), fmt, ap);
    va_end(ap);
    c->good[kind] = good;
    c->tried[kind] = true;
}

/* Runs once: enum pmu_stop; *count: branches since the last call. */
static int go(const struct pmu_check_host *h, u64 *last, u64 *count, struct err *err)
{
    u64 now;
    h->ops->kick_at(h->host, h->ops->now(h->host) + RUN_NS);
    int stop = h->ops->run(h->host, err);
    h->ops->kick_at(h->host, NEVER);
    int code = stop < 0 ? stop : h->ops->count(h->host, &now, err);
    if (code)
        return code;
    *count = now - *last;
    *last = now;
    return stop;
}

/* To the exit at the code's end, past `exits` others and any overflow: *count, and of signals. */
static int whole(const struct pmu_check_host *h, enum pmu_check_code what, unsigned ring, u64 n,
                 u64 exits, u64 *count, u64 *signals, struct err *err)
{
    u64 last, part;
    *count = *signals = 0;
    int code = h->load(h->host, what, ring, n, err);
    if (!code)
        code = h->ops->count(h->host, &last, err);
    while (!code) {
        int stop = go(h, &last, &part, err);
        if (stop < 0)
            return stop;
        *count += part;
        *signals += stop == PMU_STOP_SIGNAL;
        if (stop == PMU_STOP_EXIT && !exits--)
            return 0;
        if (*signals > SIGNALS_MAX)
            code = err_set(err, -ETIME, "the guest's loop does not come to its end");
    }
    return code;
}

/* A number of tries, each with another n. */
static int counts(const struct pmu_check_host *h, struct pmu_check *c, enum pmu_check_kind kind,
                  enum pmu_check_code what, unsigned ring, unsigned tries, u64 per_n,
                  const char *blame, struct err *err)
{
    i64 low = 0, high = 0;
    unsigned right = 0;
    for (unsigned i = 0; i < tries; i++) {
        u64 n = 500 + i * 7 % 1000, count, signals;
        if (what == PMU_CODE_EXITS)
            n = 20;
        int code = whole(h, what, ring, n, what == PMU_CODE_EXITS ? n : 0, &count, &signals, err);
        if (code)
            return code;
        i64 off = (i64)(count - n * per_n);
        right += !off;
        low = off < low ? off : low;
        high = off > high ? off : high;
    }
    verdict(c, kind, right == tries, "%u of %u counts are exact", right, tries);
    if (right != tries)
        verdict(c, kind, false,
                "%u of %u counts are exact, the others are off by %" PRId64 " to %" PRId64
                " branches%s",
                right, tries, low, high, blame);
    return 0;
}

/* Overflows with all kinds of periods: how late each stop is, and whether the count is whole.
 */
static int overflows(const struct pmu_check_host *h, const struct pmu_event *event, unsigned ring,
                     struct pmu_check *c, struct err *err)
{
    u64 lost = 0, early = 0, disturbed = 0, n = 4 * (u64)event->margin + 20000;
    for (unsigned i = 0; i < PMU_CHECK_TRIES; i++) {
        u64 last, count, rest, signals, period = 100 + i * 13 % 8000;
        int code = h->load(h->host, PMU_CODE_LOOP, ring, n, err);
        if (!code)
            code = h->ops->count(h->host, &last, err);
        if (!code)
            code = h->ops->arm(h->host, period, err);
        int stop = code ? code : go(h, &last, &count, err);
        if (stop < 0)
            return stop;
        lost += stop == PMU_STOP_EXIT;
        early += stop == PMU_STOP_SIGNAL && count < period;
        if (stop == PMU_STOP_SIGNAL && count >= period)
            c->skid = MAX(c->skid, count - period);
        code = h->ops->arm(h->host, PMU_NO_PERIOD, err);
        for (signals = 0; !code && stop == PMU_STOP_SIGNAL; count += rest) {
            stop = go(h, &last, &rest, err);
            if (stop < 0)
                return stop;
            if (++signals > SIGNALS_MAX)
                code = err_set(err, -ETIME, "the guest's loop does not come to its end");
        }
        if (code)
            return code;
        disturbed += count != n;
    }
    verdict(c, PMU_CHECK_OVERFLOWS, !lost && !disturbed,
            "%" PRIu64 " of %u were lost, %" PRIu64 " early, %" PRIu64 " disturbed the count%s",
            lost, PMU_CHECK_TRIES, early, disturbed,
            disturbed ? " (Xen is known for that)"
            : lost    ? " (kernels without PERF_EVENT_IOC_PERIOD at once are known for that)"
                      : "");
    verdict(c, PMU_CHECK_SKID, c->skid <= event->margin && lost < PMU_CHECK_TRIES,
            "up to %" PRIu64 " branches in %u overflows; the margin is %u%s", c->skid,
            PMU_CHECK_TRIES, event->margin, event->unbounded ? ", no limit is known" : "");
    return 0;
}

static int locks(const struct pmu_check_host *h, const struct pmu_event *event, unsigned ring,
                 struct pmu_check *c, struct err *err)
{
    u64 before = 0, after = 0;
    int code = h->must_stay_zero ? h->must_stay_zero(h->host, &before, err) : 0;
    if (!code)
        code = counts(h, c, PMU_CHECK_LOCKS, PMU_CODE_LOCKS, ring, 100, 1, "", err);
    if (!code && h->must_stay_zero)
        code = h->must_stay_zero(h->host, &after, err);
    if (!code && after != before)
        verdict(c, PMU_CHECK_LOCKS, false,
                "event 0x%" PRIx64 " counted %" PRIu64 ": the CPU maps locks speculatively "
                "(SpecLockMap) and counts branches twice; it has to be switched off",
                event->must_stay_zero, after - before);
    return code;
}

int pmu_check_ring(const struct pmu_check_host *h, const struct pmu_event *event, unsigned ring,
                   struct pmu_check *out, struct err *err)
{
    *out = (struct pmu_check){0};
    int code = counts(h, out, PMU_CHECK_EXACT, PMU_CODE_LOOP, ring, PMU_CHECK_TRIES, 1, "", err);
    if (!code)
        code = counts(h, out, PMU_CHECK_INSNS, PMU_CODE_INSNS, ring, 100, 2, "", err);
    if (!code)
        code = counts(h, out, PMU_CHECK_REP, PMU_CODE_REP, ring, 100, 0, "", err);
    if (!code)
        code = counts(h, out, PMU_CHECK_EXITS, PMU_CODE_EXITS, ring, 50, 1,
                      " (KVM counting the host's too, as some versions do)", err);
    if (!code)
        code = overflows(h, event, ring, out, err);
    return code ? code : locks(h, event, ring, out, err);
}

int pmu_check_verdict(const struct pmu_check *c, const struct pmu_event *event, unsigned ring,
                      struct err *err)
{
    for (unsigned k = 0; k < PMU_CHECKS; k++)
        if (!c->good[k])
            return err_set(err, -EPROTO,
                           "the counter of conditional branches (%s) is not exact here: ring %u, "
                           "test %s: %s",
                           event->family, ring, pmu_check_name((enum pmu_check_kind)k),
                           c->tried[k] ? c->text[k] : "not tried");
    return 0;
}
