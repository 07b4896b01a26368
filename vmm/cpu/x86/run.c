/* Running up to a position in either unit, by as many instructions as there are at most. */
#include "cpu/x86/run.h"

#include <errno.h>

#include "cpu/x86/pmu.h"

/* So many instructions and REP iterations without anything that counts are a guest that waits. */
#define BETWEEN_INSNS (1u << 22)
/* ... while another vCPU waits for its turn, which a loop without a branch never gives on. */
#define BETWEEN_TURNS (1u << 17)

static enum engine_exit run(struct core *d, u64 n, struct err *err)
{
    d->runs = true;
    d->modes |= 1u << vcpu_mode(&d->cpu);
    d->pmu.again = false;
    enum engine_exit r = d->translator->run_insns(d, n, err);
    d->runs = false;
    return r;
}

/*
 * While counters count: up to where one may overflow that interrupts, and again. Each position
 * counts one at most (but for a trap's delivery, which looks by itself), so none is passed.
 */
static enum engine_exit run_parts(struct core *d, u64 n, struct err *err)
{
    pos_t end = position(d) + n;
    do {
        pos_t until = position(d) + MIN(end - position(d), pmu_distance(d));
        enum engine_exit r = run(d, until - position(d), err);
        if (UNLIKELY(d->pmu.on) && pmu_sync(d) && r == ENGINE_STOP)
            return ENGINE_ATTENTION;
        if (r != ENGINE_STOP || d->kicked || (position(d) < until && !d->pmu.again))
            return r;
    } while (position(d) < end);
    return ENGINE_STOP;
}

enum engine_exit core_run_insns(struct core *d, u64 n, struct err *err)
{
    if (UNLIKELY(core_host_lacks_avx(d) && (d->cpu.xcr0 & 4))) {
        err_set(err, -ENOTSUP, "AVX's registers are in use, and this host's CPU lacks AVX");
        return ENGINE_FAILED;
    }
    if (UNLIKELY(core_host_lacks_avx512(d) && (d->cpu.xsave[512] & XSAVE_AVX512))) {
        err_set(err, -ENOTSUP, "AVX-512's registers are in use, and this host's CPU lacks AVX-512");
        return ENGINE_FAILED;
    }
    enum engine_exit r = run_parts(d, n, err);
    d->kicked = 0;
    return r;
}

/*
 * UNIT_BRANCH: an instruction counts one at most (but for devices, which ask for attention), so as
 * many instructions as positions are left cannot go too far; they go a part of the way, and again.
 */
static enum engine_exit run_branches(struct core *d, pos_t stop_at, struct err *err)
{
    enum engine_exit r = ENGINE_STOP;
    pos_t moved = position(d), at = unit_position(d);
    u64 between = core_waited_for(d) ? BETWEEN_TURNS : BETWEEN_INSNS;
    while (r == ENGINE_STOP && unit_position(d) < stop_at) {
        u64 n = MIN(stop_at - unit_position(d), between);
        pos_t until = position(d) + n;
        r = core_run_insns(d, n, err);
        CHECK(unit_position(d) >= at, "position %llu after %llu",
              (unsigned long long)unit_position(d), (unsigned long long)at);
        if (position(d) != until)
            break; /* kicked */
        if (unit_position(d) != at) {
            at = unit_position(d);
            moved = position(d);
        } else if (r == ENGINE_STOP && position(d) - moved >= between) {
            return ENGINE_BETWEEN;
        }
    }
    if (r == ENGINE_SHUTDOWN)
        core_shut_down(d);
    return r;
}

enum engine_exit core_run(struct engine *e, pos_t stop_at, struct err *err)
{
    struct core *d = core_of(e);
    CHECK(stop_at >= unit_position(d), "a run from %llu to %llu",
          (unsigned long long)unit_position(d), (unsigned long long)stop_at);
    return d->unit == UNIT_BRANCH ? run_branches(d, stop_at, err)
                                  : core_run_insns(d, stop_at - position(d), err);
}
