/* See lbr.h. */
#include "cpu/x86/lbr.h"

#include "cpu/x86/mode.h"
#include "cpu/x86/tlb.h"

#define MSR_SELECT 0x1c8u
#define MSR_TOS    0x1c9u
#define MSR_FROM   0x680u
#define MSR_TO     0x6c0u
#define MSR_INFO   0xdc0u

/* MSR_LBR_SELECT (SDM vol. 3, 18.9.2): what is not recorded; and, from Haswell on, the last one. */
#define NOT_RING0      (1u << 0)
#define NOT_OTHERS     (1u << 1)
#define NOT_COND       (1u << 2)
#define NOT_CALL       (1u << 3)
#define NOT_INDIRECT_C (1u << 4)
#define NOT_RET        (1u << 5)
#define NOT_INDIRECT_J (1u << 6)
#define NOT_JMP        (1u << 7)
#define NOT_FAR        (1u << 8)
#define CALL_STACK     (1u << 9)

#define MISSED    (1ull << 63)
#define CYCLES    0xffffu
#define INFO_BITS (7ull << 61 | CYCLES) /* missed, in a transaction, aborted one */
#define S(signal) (1u << SIG_##signal)
#define TOS(d)    ((u32)(d)->cpu.lbr_tos & ((d)->pmu.lbrs - 1u))

static unsigned format(const struct core *d)
{
    return d->pmu.kind->lbr_format;
}

void lbr_settle(struct core *d)
{
    u64 not = d->cpu.lbr_select;
    u8 rings = (u8)((not &NOT_RING0 ? 0 : 1) | (not &NOT_OTHERS ? 0 : 2));
    u8 before = d->pmu.lbr_rings;
    d->pmu.lbr_rings = d->pmu.lbr ? rings : 0;
    if (d->pmu.lbr_rings != before)
        mmu_mode_changed(d);
}

static bool here(const struct core *d)
{
    return d->pmu.lbr_rings >> (d->cpl != 0) & 1;
}

/* `now`: the position after it. */
static void record(struct core *d, u64 from, u64 to, bool missed, pos_t now)
{
    struct vcpu *c = &d->cpu;
    u32 at = (TOS(d) + 1) & (d->pmu.lbrs - 1u);
    u64 info = 0;
    if (format(d) == LBR_FLAG)
        from = (from & ~MISSED) | (missed ? MISSED : 0);
    else if (format(d) == LBR_FLAGS) /* and no transactions */
        from = (from & ~(7ull << 61)) | (missed ? MISSED : 0);
    else
        info = (missed ? MISSED : 0) | MIN(now - c->lbr_position, CYCLES);
    c->lbr_from[at] = from;
    c->lbr_to[at] = to;
    c->lbr_info[at] = info;
    c->lbr_tos = at;
    c->lbr_position = now;
}

/* The bit of LBR_SELECT that leaves it out. */
static u32 left_out(u32 signals)
{
    if (signals & S(COND))
        return NOT_COND;
    if (signals & S(FAR))
        return NOT_FAR;
    if (signals & S(CALL))
        return signals & S(INDIRECT) ? NOT_INDIRECT_C : NOT_CALL;
    if (signals & S(RET))
        return NOT_RET;
    return signals & S(INDIRECT) ? NOT_INDIRECT_J : NOT_JMP;
}

void lbr_branch(struct core *d, const struct insn *in, u32 signals, u64 from)
{
    struct vcpu *c = &d->cpu;
    if (!here(d) || (c->lbr_select & left_out(signals)))
        return;
    bool stack = c->lbr_select & CALL_STACK;
    if (stack && (signals & S(RET))) { /* SDM vol. 3, 18.11.2: it takes its call's away */
        u32 at = TOS(d);
        c->lbr_from[at] = c->lbr_to[at] = c->lbr_info[at] = 0;
        c->lbr_tos = (at - 1) & (d->pmu.lbrs - 1u);
        return;
    }
    if (stack && (signals & S(CALL)) && d->next == rip_moved(d, from, in->len))
        return; /* it is for its return address, and has no RET */
    record(d, from, d->next, signals & S(COND_MISS), position(d) + 1);
}

void lbr_delivery(struct core *d, u64 from)
{
    if (here(d) && !(d->cpu.lbr_select & NOT_FAR))
        record(d, from, d->cpu.rip, false, position(d));
}

/* ---- registers ---- */

/* The register that an MSR is. NULL: none. */
static u64 *find(struct core *d, u32 msr)
{
    struct vcpu *c = &d->cpu;
    u32 n = d->pmu.lbrs;
    if (!n)
        return NULL;
    if (msr == MSR_SELECT)
        return &c->lbr_select;
    if (msr == MSR_TOS)
        return &c->lbr_tos;
    if (msr - MSR_FROM < n)
        return &c->lbr_from[msr - MSR_FROM];
    if (msr - MSR_TO < n)
        return &c->lbr_to[msr - MSR_TO];
    if (format(d) == LBR_INFO && msr - MSR_INFO < n)
        return &c->lbr_info[msr - MSR_INFO];
    return NULL;
}

/* Are the bits of it from `top` down those of bit 47? */
static bool extended(u64 v, unsigned top)
{
    unsigned above = 63 - top;
    return (u64)((i64)(v << 16) >> 16) << above == v << above;
}

static bool may_write(const struct core *d, u32 msr, u64 v)
{
    if (msr == MSR_SELECT)
        return !(v & ~(u64)(format(d) == LBR_FLAG ? CALL_STACK - 1 : 2 * CALL_STACK - 1));
    if (msr == MSR_TOS)
        return v < d->pmu.lbrs;
    if (msr >= MSR_INFO)
        return !(v & ~INFO_BITS);
    return extended(v, msr < MSR_TO && format(d) != LBR_INFO ? 62 : 63);
}

bool lbr_rdmsr(struct core *d, u32 msr, u64 *value)
{
    const u64 *r = find(d, msr);
    if (!r)
        return false;
    *value = msr == MSR_TOS ? TOS(d) : *r;
    return true;
}

bool lbr_wrmsr(struct core *d, u32 msr, u64 value, bool *ok)
{
    u64 *r = find(d, msr);
    if (!r)
        return false;
    *ok = may_write(d, msr, value);
    if (*ok)
        *r = value;
    if (*ok && msr == MSR_SELECT)
        lbr_settle(d);
    return true;
}
