/*
 * Facts about what this host can do for the KVM engine, each found by trying: tiny guests in
 * throw-away machines, in processes of their own with a time limit, so that nothing hangs and
 * nothing of it stays. Used by `reprise doctor`, and by the counter `pmu` before it trusts the
 * hardware.
 */
#ifndef REPRISE_CPU_KVM_PROBE_H
#define REPRISE_CPU_KVM_PROBE_H

#include "base/err.h"
#include "base/types.h"

enum fact_state {
    FACT_NO,
    FACT_YES,
    FACT_INFO,     /* neither good nor bad */
    FACT_UNTESTED, /* could not be tried; the note says why */
};

struct fact {
    char key[40];    /* "step.ring0": stable, for programs */
    char value[120]; /* a few words */
    char note[280];  /* why, or what to do; may be empty */
    u32 state;
    bool has_number;
    double number;
};

#define FACTS_MAX 160
struct facts {
    u32 n;
    struct fact fact[FACTS_MAX];
};

/* The fact, for fact_note() and fact_number(). The key must be new and short enough. */
struct fact *fact_add(struct facts *f, const char *key, enum fact_state state, const char *fmt, ...)
    PRINTF(4, 5);
void fact_note(struct fact *fact, const char *fmt, ...) PRINTF(2, 3);
void fact_number(struct fact *fact, double number);
/* NULL: nothing of that name was found out. */
const struct fact *fact_find(const struct facts *f, const char *key);
/* It is there and FACT_YES. */
bool fact_yes(const struct facts *f, const char *key);

/*
 * Runs `probe` in a child process and takes over the facts it added. Ended by a signal, or not at
 * its end in time: the facts it had by then, and `key` as FACT_UNTESTED with the reason.
 */
void probe_isolated(struct facts *f, const char *key, unsigned seconds,
                    void (*probe)(struct facts *f));

/* What KVM says of itself: kvm.device, kvm.api, cap.NAME. */
void probe_kvm(struct facts *f);
/* What a tiny guest in each ring shows: speed.*, exit.*, step.*, breakpoint.*, cpuid.*, insn.*. */
void probe_guest(struct facts *f);
/* tsc.scaling, tsc.offset, tsc.still. */
void probe_tsc(struct facts *f);
/* perf.paranoid, perf.sample_rate, perf.nmi_watchdog. */
void probe_perf(struct facts *f);
/* perf.*, pmu.*: the event of this CPU, and whether it counts a guest's branches exactly. */
void probe_pmu(struct facts *f);
/* host.cpu, host.kernel, host.hypervisor, host.cpuid_faulting. */
void probe_host(struct facts *f);

/* Rings that are tried: 0 and 3. */
#define PROBE_RINGS 2
static inline unsigned probe_ring(unsigned i)
{
    return i ? 3 : 0;
}

#endif
