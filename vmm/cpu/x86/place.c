/* UNIT_BRANCH: instants between two positions (cpu/engine.h, struct engine_place). */
#include "cpu/x86/core.h"

#include <errno.h>
#include <xxhash.h>

#include "cpu/x86/run.h"

/* More than a CPU executes in the time in which it would have been stopped. A log may be forged. */
#define STEPS_MAX (1u << 27)

#define IN_SHADOW (1ull << 63) /* no flag of RFLAGS */

void core_place(struct engine *e, struct engine_place *out)
{
    struct core *d = core_of(e);
    const struct vcpu *c = &d->cpu;
    u64 all[18];
    for (unsigned i = 0; i < 16; i++)
        all[i] = c->gpr[i];
    all[16] = c->rip;
    all[17] = get_rflags(d) & ~(u64)FL_RF;
    /* After STI a jump to itself is in the shadow once, and then no more. */
    if (d->shadow_pos == position(d))
        all[17] |= IN_SHADOW;
    *out = (struct engine_place){c->rip, c->gpr[RCX], c->gpr[RSP], XXH3_64bits(all, sizeof(all))};
}

static bool there(struct core *d, const struct engine_place *to)
{
    struct engine_place here;
    if (d->cpu.rip != to->rip || d->cpu.gpr[RCX] != to->rcx || d->cpu.gpr[RSP] != to->rsp)
        return false;
    core_place(&d->base, &here);
    return here.hash == to->hash;
}

/* In a REP string all iterations up to the one that is looked for are one step. */
static u64 stride(const struct core *d, const struct engine_place *to)
{
    u64 rcx = d->cpu.gpr[RCX];
    return d->cpu.rip == to->rip && d->cpu.rep_resume && rcx > to->rcx ? rcx - to->rcx : 1;
}

int core_reach(struct engine *e, const struct engine_place *to, struct err *err)
{
    struct core *d = core_of(e);
    pos_t at = branch_position(d);
    enum engine_exit r = ENGINE_STOP;
    for (u64 steps = 0; !there(d, to); steps++) {
        if (r == ENGINE_STOP)
            r = core_run_insns(d, stride(d, to), err);
        /* A write of CR8 that holds interrupts off: the machine looks at that afterwards. */
        if (r == ENGINE_ATTENTION)
            r = ENGINE_STOP;
        if (branch_position(d) != at || r != ENGINE_STOP || steps > STEPS_MAX)
            return err_set(err, -ESRCH,
                           "at position %llu the guest never is at RIP %llx with RCX %llx, RSP "
                           "%llx and the same registers: this is another run",
                           (unsigned long long)at, (unsigned long long)to->rip,
                           (unsigned long long)to->rcx, (unsigned long long)to->rsp);
    }
    /* Of a REP string in the middle CPUs say different things here. */
    d->cpu.rep_resume = 0;
    d->cpu.rflags &= ~(u64)FL_RF;
    return 0;
}
