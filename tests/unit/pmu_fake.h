/*
 * A host for the progress counter `pmu` (vmm/cpu/kvm/pmu_host.h) that misbehaves as asked: a CPU
 * that executes a made-up program with branches, REP strings, stretches without branches and exits,
 * a counter whose overflows skid, come early, late or never, and a clock.
 */
#ifndef REPRISE_TESTS_PMU_FAKE_H
#define REPRISE_TESTS_PMU_FAKE_H

#include "cpu/kvm/pmu_host.h"

/* What is wrong with this host. All zero: nothing. */
struct fake_faults {
    u32 skid;        /* branches from an overflow to its stop, the most there is: random below */
    u32 late;        /* exactly that many instead; 0: not so */
    bool lost;       /* overflows never stop the vCPU */
    u32 early;       /* in 1000 instructions: a signal that nothing has asked for */
    u64 taken_at;    /* branches from which on the counter is somebody else's; 0: never */
    u64 wound_back;  /* branches from which on so many fewer are said; 0: never */
    u64 rewritten;   /* branches at which another program sets it to 0, which perf takes for a
                        counter that went around; 0: never */
    u64 migrates_at; /* instructions after which the thread is on another kind of core; 0: never */
    u64 ns_per_insn; /* host time of an instruction; 0: 1 */
    u64 stall_at;    /* instructions after which the host is held up for stall_ns once; 0: never */
    u64 stall_ns;
    bool asleep;      /* ... because it was suspended */
    bool no_scaling;  /* the TSC ticks as often as it likes */
    u64 kick_latency; /* ns from a kick to its stop */
};

struct fake_cpu {
    u64 rip, rcx, rsp, rax, rbx;
    u64 insns, branches;
};

struct fake_host {
    u32 seed;   /* of the program */
    u64 random; /* of the faults */
    struct fake_cpu cpu;
    struct fake_faults faults;
    bool step, breakpoint;
    u64 breakpoint_at;
    u64 overflow_at;  /* branches; NEVER: none */
    u64 asked_at;     /* the last that was asked for */
    u64 signal_at;    /* branches; NEVER: no signal is under way */
    u32 signal_insns; /* and that many instructions more, but no branch */
    bool pending;     /* a signal that came outside of a run */
    u64 kick_ns;
    u64 ns, asleep_ns;
    u64 tsc_offset, tsc_phase;
    u64 tsc_first, tsc_last; /* what the guest read in this run */
    bool tsc_read;
    u64 runs;
};

extern const struct pmu_host_ops fake_ops;

/* At the program's start. */
void fake_init(struct fake_host *h, u32 seed, u64 random, const struct fake_faults *faults);
/* Runs the program without a host: one instruction, or iteration; true: it ends in an exit. */
bool fake_step(u32 seed, struct fake_cpu *cpu);
u64 fake_hash(const struct fake_cpu *cpu);
u64 fake_random(u64 *state);

#endif
