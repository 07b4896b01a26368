/*
 * The progress counter `pmu` as the engine has it (counter.h): retired conditional branches. It
 * opens only where a throw-away guest shows that the event is exact (pmu_check.h).
 */
#include <errno.h>
#include <stdlib.h>

#include "cpu/kvm/counter.h"
#include "cpu/kvm/pmu_window.h"
#include "cpu/kvm/probe_pmu.h"

struct counter {
    const struct pmu_event *event;
    struct pmu_cpu cpu;
    struct pmu_kvm host; /* its event only */
    struct pmu_window window;
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
        pmu_perf_close(&c->host.perf);
    free(c);
}

static int open_counter(struct counter **out, const struct counter_config *config, struct err *err)
{
    struct counter *c = calloc(1, sizeof(*c));
    *out = NULL;
    if (!c)
        return err_set(err, -ENOMEM, "no memory for a counter");
    c->host.perf.fd = -1;
    int code = self_test(c, err);
    if (!code)
        code = pmu_pin(&c->cpu, config->thread, err);
    if (!code)
        code = pmu_perf_open(&c->host.perf, &c->cpu, c->event->config, config->thread,
                             config->signal, err);
    if (code) {
        close_counter(c);
        return code;
    }
    c->host.hybrid = c->cpu.hybrid;
    pmu_window_init(&c->window, &pmu_kvm_ops, &c->host, c->event);
    *out = c;
    return 0;
}

static int start(struct counter *c, u64 events, struct err *err)
{
    return pmu_window_start(&c->window, events, err);
}

static int stop(struct counter *c, u64 *events, struct err *err)
{
    return pmu_window_stop(&c->window, events, err);
}

const struct counter_ops counter_pmu = {
    .name = "pmu",
    .unit = UNIT_BRANCH,
    .open = open_counter,
    .close = close_counter,
    .start = start,
    .stop = stop,
};
