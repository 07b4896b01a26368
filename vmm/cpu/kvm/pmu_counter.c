/*
 * The progress counter `pmu` as the engine has it (counter.h): retired conditional branches. It
 * opens only where a throw-away guest shows that the event is exact (pmu_check.h).
 */
#define _GNU_SOURCE /* gettid */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "cpu/kvm/counter.h"
#include "cpu/kvm/pmu_perf.h"
#include "cpu/kvm/probe_pmu.h"

struct counter {
    const struct pmu_event *event;
    struct pmu_perf perf;
    struct pmu_cpu cpu;
    u64 at, limit; /* at start() */
};

/* In rings 0 and 3, as a guest uses both. */
static int self_test(struct counter *c, struct err *err)
{
    struct pmu_bench b;
    struct pmu_check check;
    int code = pmu_bench_open(&b, err);
    if (code)
        return err_prefix(err, "the counter pmu");
    c->event = b.event;
    c->cpu = b.cpu;
    for (unsigned ring = 0; !code && ring <= 3; ring += 3) {
        code = pmu_bench_check(&b, ring, &check, err);
        if (!code)
            code = pmu_check_verdict(&check, b.event, ring, err);
    }
    pmu_bench_close(&b);
    return code;
}

static void close_counter(struct counter *c)
{
    if (c)
        pmu_perf_close(&c->perf);
    free(c);
}

static int open_counter(struct counter **out, const struct counter_config *config, struct err *err)
{
    struct counter *c = calloc(1, sizeof(*c));
    *out = NULL;
    if (!c)
        return err_set(err, -ENOMEM, "no memory for a counter");
    c->perf.fd = -1;
    int code = self_test(c, err);
    if (!code)
        code = pmu_pin(&c->cpu, config->thread, err);
    if (!code)
        code =
            pmu_perf_open(&c->perf, &c->cpu, c->event->config, config->thread, config->signal, err);
    if (code) {
        close_counter(c);
        return code;
    }
    *out = c;
    return 0;
}

static int start(struct counter *c, u64 events, struct err *err)
{
    int code = pmu_perf_count(&c->perf, &c->at, err);
    if (code)
        return code;
    c->limit = events;
    bool near = events < c->event->margin + 2u; /* the kernel makes a period of 1 one of 2 */
    code = pmu_perf_arm(&c->perf, near || events > PMU_PERIOD_MAX ? 0 : events - c->event->margin,
                        err);
    return code ? code : near ? COUNTER_STEP : COUNTER_FREE;
}

static int stop(struct counter *c, u64 *events, struct err *err)
{
    u64 now;
    struct pmu_cpu here;
    int code = pmu_perf_count(&c->perf, &now, err);
    if (code)
        return code;
    if (c->cpu.hybrid) {
        pmu_cpu_read(&here);
        if (here.core != c->cpu.core)
            return err_set(err, -EXDEV, "the vCPU's thread ran on a core of another kind");
    }
    *events = now - c->at;
    if (*events > c->limit)
        return err_set(err, -EOVERFLOW,
                       "the vCPU ran %" PRIu64
                       " branches beyond where it had to stop: the counter's "
                       "overflow was lost, or late by more than the skid margin of this CPU (%s), "
                       "which is %u%s",
                       *events - c->limit, c->event->family, c->event->margin,
                       c->event->unbounded ? " and no proven limit" : "");
    return 0;
}

const struct counter_ops counter_pmu = {
    .name = "pmu",
    .unit = UNIT_BRANCH,
    .open = open_counter,
    .close = close_counter,
    .start = start,
    .stop = stop,
};
