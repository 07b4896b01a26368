/* See probe_pmu.h, and probe.h for the facts. */
#include "cpu/kvm/probe_pmu.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cpu/kvm/probe.h"

#define END 0xe6, PROBE_PORT, 0xeb, 0xfc /* out, and again */

static const struct {
    u8 size, code[24];
} codes[] = {
    /* 1: dec rcx; jnz 1 */
    [PMU_CODE_LOOP] = {9, {0x48, 0xff, 0xc9, 0x75, 0xfb, END}},
    /* 1: jrcxz 2; 2: loop 1 */
    [PMU_CODE_INSNS] = {8, {0xe3, 0x00, 0xe2, 0xfc, END}},
    /* rep stosb */
    [PMU_CODE_REP] = {6, {0xf3, 0xaa, END}},
    /* 1: out PROBE_PORT, al; dec rcx; jnz 1 */
    [PMU_CODE_EXITS] = {11, {0xe6, PROBE_PORT, 0x48, 0xff, 0xc9, 0x75, 0xf9, END}},
    /* 1: lock inc qword [rdi]; dec rcx; jnz 1 */
    [PMU_CODE_LOCKS] = {13, {0xf0, 0x48, 0xff, 0x07, 0x48, 0xff, 0xc9, 0x75, 0xf7, END}},
};

static struct pmu_bench *bench(void *host)
{
    return (struct pmu_bench *)((char *)host - offsetof(struct pmu_bench, vm.host));
}

static int load(void *host, enum pmu_check_code code, unsigned ring, u64 n, struct err *err)
{
    return probe_vm_load(&bench(host)->vm, codes[code].code, codes[code].size, ring, n, 0, err);
}

static int must_stay_zero(void *host, u64 *count, struct err *err)
{
    return pmu_perf_count(&bench(host)->zero, count, err);
}

int pmu_bench_open(struct pmu_bench *b, struct err *err)
{
    *b = (struct pmu_bench){.zero = {-1}};
    pmu_cpu_read(&b->cpu);
    int code = pmu_pin(&b->cpu, 0, err);
    b->event = pmu_event_find(&b->cpu);
    if (!code && !b->event)
        code =
            err_set(err, -ENOTSUP, "no exact event is known for this CPU (%s, family %u, model %u)",
                    b->cpu.vendor, b->cpu.family, b->cpu.model);
    if (!code)
        code = probe_vm_open(&b->vm, NULL, err);
    if (!code)
        code =
            pmu_perf_open(&b->vm.host.perf, &b->cpu, b->event->config, 0, b->vm.host.signal, err);
    if (!code && b->event->must_stay_zero)
        code = pmu_perf_open(&b->zero, &b->cpu, b->event->must_stay_zero, 0, 0, err);
    if (code)
        pmu_bench_close(b);
    return code;
}

void pmu_bench_close(struct pmu_bench *b)
{
    pmu_perf_close(&b->zero);
    probe_vm_close(&b->vm);
}

int pmu_bench_check(struct pmu_bench *b, unsigned ring, struct pmu_check *out, struct err *err)
{
    const struct pmu_check_host h = {.ops = &pmu_kvm_ops,
                                     .host = &b->vm.host,
                                     .load = load,
                                     .must_stay_zero =
                                         b->event->must_stay_zero ? must_stay_zero : NULL};
    return pmu_check_ring(&h, b->event, ring, out, err);
}

/* One line of a file of the kernel. */
static bool setting(const char *path, int *value)
{
    FILE *f = fopen(path, "re");
    bool got = f && fscanf(f, "%d", value) == 1;
    if (f)
        fclose(f);
    return got;
}

void probe_perf(struct facts *f)
{
    int value;
    if (setting("/proc/sys/kernel/perf_event_paranoid", &value)) {
        struct fact *fact = fact_add(f, "perf.paranoid", FACT_INFO, "%d", value);
        fact_number(fact, value);
        if (value > 1)
            fact_note(fact, "counting a guest's kernel takes at most 1, or CAP_PERFMON: sysctl "
                            "kernel.perf_event_paranoid=1");
    } else {
        fact_add(f, "perf.paranoid", FACT_NO, "this kernel has no perf events");
    }
    /* The kernel stops a counter for the rest of a tick when it overflows more often than that. */
    if (setting("/proc/sys/kernel/perf_event_max_sample_rate", &value)) {
        struct fact *fact = fact_add(f, "perf.sample_rate", FACT_INFO, "%d a second", value);
        fact_number(fact, value);
        if (value < 50000)
            fact_note(fact, "the kernel stops counters that overflow more often: sysctl "
                            "kernel.perf_cpu_time_max_percent=0 kernel.perf_event_max_sample_rate="
                            "100000");
    }
    if (setting("/proc/sys/kernel/nmi_watchdog", &value))
        fact_number(fact_add(f, "perf.nmi_watchdog", FACT_INFO, "%s",
                             value ? "on: it takes a counter" : "off"),
                    value);
}

void probe_pmu(struct facts *f)
{
    struct pmu_bench b;
    struct err err = {0};
    char key[40];
    probe_perf(f);
    int code = pmu_bench_open(&b, &err);
    if (b.event)
        fact_note(fact_add(f, "pmu.event", FACT_INFO, "0x%llx, margin %u",
                           (unsigned long long)b.event->config, b.event->margin),
                  "%s", b.event->family);
    if (code) {
        fact_note(fact_add(f, "pmu.counter", FACT_NO, "no"), "%s", err.text);
        return;
    }
    bool all = true;
    for (unsigned i = 0; i < PROBE_RINGS; i++) {
        struct pmu_check c;
        code = pmu_bench_check(&b, probe_ring(i), &c, &err);
        for (unsigned k = 0; k < PMU_CHECKS; k++) {
            snprintf(key, sizeof(key), "pmu.%s.ring%u", pmu_check_name((enum pmu_check_kind)k),
                     probe_ring(i));
            struct fact *fact = fact_add(f, key, c.good[k] ? FACT_YES : FACT_NO, "%s",
                                         c.good[k]    ? "yes"
                                         : c.tried[k] ? "no"
                                                      : "not tried");
            fact_note(fact, "%s", c.tried[k] ? c.text[k] : err.text);
            if (k == PMU_CHECK_SKID)
                fact_number(fact, (double)c.skid);
            all = all && c.good[k];
        }
    }
    fact_note(fact_add(f, "pmu.counter", all ? FACT_YES : FACT_NO, "%s", all ? "yes" : "not exact"),
              "%s", all ? "" : "a check above says where; recordings would not replay");
    pmu_bench_close(&b);
}
