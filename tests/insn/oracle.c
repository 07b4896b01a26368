/*
 * What the guest's counters should say, a second time: by the manuals (SDM vol. 3, chapter 20; APM
 * vol. 2, 13.2) and from what a program is seen to do, one position at a time. Nothing here asks
 * vmm/cpu/x86/pmu.c; only the codes of the events (cpu/model_events.def) are the same.
 */
#include "tests/insn/oracle.h"

#define COUNT_MASK 0xffffffffffffull /* 48 bits */

static bool intel(const struct oracle *o)
{
    return o->model != CPU_ZEN2;
}

static unsigned version(const struct oracle *o)
{
    return o->model == CPU_ICELAKE_SERVER                       ? 5
           : o->model == CPU_SKYLAKE_SERVER                     ? 4
           : o->model == CPU_HASWELL || o->model == CPU_NEHALEM ? 3
                                                                : 0;
}

static unsigned general(const struct oracle *o)
{
    return intel(o) ? 4 : 6;
}

static unsigned counters(const struct oracle *o)
{
    return intel(o) ? 7 : 6;
}

void oracle_start(struct oracle *o, enum cpu_model model, unsigned ring)
{
    *o = (struct oracle){.model = model, .ring = ring};
}

/* ---- which counters count ---- */

static bool in_ring(const struct oracle *o, unsigned i)
{
    if (i < general(o))
        return o->select[i] >> (o->ring ? 16 : 17) & 1;
    return o->fixed_how >> (4 * (i - 4) + (o->ring ? 1 : 0)) & 1;
}

static bool enabled(const struct oracle *o, unsigned i)
{
    if (!intel(o))
        return o->select[i] >> 22 & 1;
    if (version(o) >= 4 && o->status >> 59 & 1)
        return false;
    if (i < 4)
        return (o->global >> i & 1) && (o->select[i] >> 22 & 1);
    return o->global >> (32 + i - 4) & 1;
}

static bool counts(const struct oracle *o, unsigned i)
{
    return enabled(o, i) && in_ring(o, i);
}

/* What is not looked at is not there: the next look sees an edge. */
static void forget_edges(struct oracle *o)
{
    for (unsigned i = 0; i < counters(o); i++)
        if (!counts(o, i) || i >= general(o) || !(o->select[i] >> 18 & 1))
            o->was[i] = false;
}

/* ---- events ---- */

static enum pmu_counts event_of(const struct oracle *o, unsigned i)
{
    static const enum pmu_counts fixed[] = {PMU_INSNS, PMU_CYCLES, PMU_REF_CYCLES};

    if (i >= general(o))
        return fixed[i - general(o)];
    u16 code = (u16)(o->select[i] & 0xff);
    if (!intel(o))
        code |= (u16)(o->select[i] >> 32 & 15) << 8;
    for (unsigned k = 0; k < oracle_events; k++)
        if ((oracle_event[k].models >> o->model & 1) && oracle_event[k].select == code &&
            oracle_event[k].umask == (u8)(o->select[i] >> 8))
            return oracle_event[k].counts;
    return PMU_NOTHING;
}

static unsigned happened(const struct facts *f, enum pmu_counts what)
{
    bool branch = f->jump || f->cond || f->call || f->ret || f->far;
    bool near_taken = f->jump || f->call || f->ret || (f->cond && f->taken);
    bool missed = f->cond && f->taken != f->backward;

    switch (what) {
    case PMU_INSNS: return f->insn;
    case PMU_CYCLES:
    case PMU_REF_CYCLES: return f->cycle;
    case PMU_BRANCHES: return branch;
    case PMU_COND: return f->cond;
    case PMU_COND_TAKEN: return f->cond && f->taken;
    case PMU_COND_NOT_TAKEN: return f->cond && !f->taken;
    case PMU_NEAR_TAKEN: return near_taken;
    case PMU_NEAR_CALLS: return f->call;
    case PMU_NEAR_RETURNS: return f->ret;
    case PMU_NEAR_INDIRECT: return (f->jump || f->call) && f->indirect;
    case PMU_FAR: return f->far;
    case PMU_BRANCHES_OR_DELIVERIES: return branch + f->delivery;
    case PMU_TAKEN_OR_DELIVERIES: return near_taken + f->far + f->delivery;
    case PMU_FAR_OR_DELIVERIES: return f->far + f->delivery;
    case PMU_INTERRUPTS: return f->interrupt;
    case PMU_BRANCH_MISSES:
    case PMU_COND_MISSES: return missed;
    default: return 0;
    }
}

static u64 increment(struct oracle *o, unsigned i, const struct facts *f)
{
    u64 select = i < general(o) ? o->select[i] : 0;
    unsigned mask = select >> 24 & 0xff, n = happened(f, event_of(o, i));
    bool edge = select >> 18 & 1, invert = select >> 23 & 1;

    if (!mask && !edge)
        return n;
    if (!f->cycle)
        return 0;
    bool now = mask ? (n >= mask) != invert : n != 0;
    bool rises = now && !o->was[i];
    if (edge)
        o->was[i] = now;
    return edge ? rises : now;
}

bool oracle_count(struct oracle *o, const struct facts *f)
{
    bool interrupts = false;

    for (unsigned i = 0; i < counters(o); i++) {
        if (!counts(o, i))
            continue;
        u64 *v = i < general(o) ? &o->count[i] : &o->fixed[i - general(o)];
        u64 sum = *v + increment(o, i, f);
        *v = sum & COUNT_MASK;
        if (sum <= COUNT_MASK)
            continue;
        o->overflows++;
        if (intel(o))
            o->status |= 1ull << (i < 4 ? i : 32 + i - 4);
        interrupts = interrupts || (i < general(o) ? o->select[i] >> 20 & 1
                                                   : o->fixed_how >> (4 * (i - 4) + 3) & 1);
    }
    if (interrupts && intel(o) && (o->debugctl >> 11 & 1)) {
        if (version(o) >= 4)
            o->status |= 1ull << 58;
        else
            o->debugctl &= ~1ull;
    }
    if (interrupts && intel(o) && (o->debugctl >> 12 & 1)) {
        if (version(o) >= 4)
            o->status |= 1ull << 59;
        else
            o->global = 0;
        forget_edges(o);
    }
    return interrupts;
}

void oracle_ring(struct oracle *o, unsigned ring)
{
    if (o->ring != ring) {
        o->ring = ring;
        forget_edges(o);
    }
}

/* ---- last branches ---- */

unsigned oracle_records(const struct oracle *o)
{
    return !intel(o) ? 0 : version(o) == 3 ? 16 : 32;
}

/* SDM vol. 3, tables on MSR_LBR_SELECT. */
static bool left_out(const struct oracle *o, const struct facts *f, unsigned ring)
{
    u64 s = o->leave_out;
    unsigned bit = f->cond                 ? 2
                   : f->far || f->delivery ? 8
                   : f->call               ? (f->indirect ? 4 : 3)
                   : f->ret                ? 5
                   : f->indirect           ? 6
                                           : 7;

    return (s >> bit & 1) || (s >> (ring ? 1 : 0) & 1);
}

void oracle_branch(struct oracle *o, const struct facts *f, u64 from, u64 to, unsigned ring,
                   u64 after)
{
    unsigned n = oracle_records(o);
    bool missed = f->cond && f->taken != f->backward, stack = o->leave_out >> 9 & 1;

    if (!n || !(o->debugctl & 1) || (version(o) >= 4 && o->status >> 58 & 1))
        return;
    if (f->cond && !f->taken)
        return;
    if (left_out(o, f, ring))
        return;
    if (stack && f->ret) {
        o->from[o->tos] = o->to[o->tos] = o->info[o->tos] = 0;
        o->tos = (o->tos + n - 1) % n;
        return;
    }
    if (stack && f->call && f->empty_call)
        return;
    o->tos = (o->tos + 1) % n;
    o->branches++;
    o->to[o->tos] = to;
    o->from[o->tos] = from;
    if (o->model == CPU_NEHALEM) /* bits 48 to 62 are as 47 */
        o->from[o->tos] = (from & 0x7fffffffffffffff) | (u64)missed << 63;
    else if (o->model == CPU_HASWELL) /* 61 and 62 are of transactions */
        o->from[o->tos] = (from & 0x1fffffffffffffff) | (u64)missed << 63;
    else
        o->info[o->tos] = (u64)missed << 63 | MIN(after - o->last, 0xffff);
    o->last = after;
}

/* ---- registers ---- */

/* Those of the last branches. */
static u64 *record_of(struct oracle *o, u32 msr, u64 *may)
{
    unsigned n = oracle_records(o);

    *may = ~0ull;
    if (msr - 0x680 < n)
        return &o->from[msr - 0x680];
    if (msr - 0x6c0 < n)
        return &o->to[msr - 0x6c0];
    if (version(o) >= 4 && msr - 0xdc0 < n) {
        *may = 0xe00000000000ffff;
        return &o->info[msr - 0xdc0];
    }
    if (n && msr == 0x1c8) {
        *may = o->model == CPU_NEHALEM ? 0x1ff : 0x3ff;
        return &o->leave_out;
    }
    if (n && msr == 0x1c9) {
        *may = n - 1;
        return &o->tos;
    }
    return NULL;
}

/* Addresses are canonical; where bit 63 says that a branch was missed, bits 47 to 62 are alike. */
static bool bad_address(const struct oracle *o, u32 msr, u64 v)
{
    bool flag = msr - 0x680 < 32 && version(o) == 3;
    u64 high = v >> 47 & (flag ? 0xffff : 0x1ffff);

    return (msr - 0x680 < 32 || msr - 0x6c0 < 32) && high && high != (flag ? 0xffff : 0x1ffff);
}

/* *may: bits that may be set. NULL: not one of them, or not plain. */
static u64 *plain(struct oracle *o, u32 msr, u64 *may)
{
    bool any = version(o) == 3 || version(o) == 4;

    u64 *record = record_of(o, msr, may);
    if (record)
        return record;
    *may = COUNT_MASK;
    if (!intel(o)) {
        u32 n = msr - 0xc0010200;
        bool counter = msr & 1;
        if (n >= 12) {
            if (msr - 0xc0010000 >= 8)
                return NULL;
            counter = msr - 0xc0010000 >= 4;
            n = 2 * (msr & 3);
        }
        *may = counter ? ~0ull : 0x30fffdfffff;
        return counter ? &o->count[n / 2] : &o->select[n / 2];
    }
    if (msr - 0x4c1 < 4)
        return &o->count[msr - 0x4c1];
    if (msr - 0xc1 < 4) {
        *may = ~0ull;
        return &o->count[msr - 0xc1];
    }
    if (msr - 0x309 < 3)
        return &o->fixed[msr - 0x309];
    if (msr - 0x186 < 4) {
        *may = any ? 0xffffffff : 0xffdfffff;
        return &o->select[msr - 0x186];
    }
    if (msr == 0x38d) {
        *may = any ? 0xfff : 0xbbb;
        return &o->fixed_how;
    }
    if (msr == 0x38f) {
        *may = 0x70000000full;
        return &o->global;
    }
    return NULL;
}

static bool write_status(struct oracle *o, u32 msr, u64 v)
{
    /* SDM vol. 4, table 2-2: 390H and, from version 4 on, 391H. */
    u64 overflow = 0x70000000full;
    u64 may = msr == 0x391      ? overflow | 0x7c80000000000000
              : version(o) >= 4 ? overflow | 0xfc80000000000000
                                : overflow | 0xc000000000000000;

    if (v & ~may)
        return false;
    o->status = msr == 0x391 ? o->status | v : o->status & ~v;
    return true;
}

enum oracle_says oracle_write(struct oracle *o, u32 msr, u64 v)
{
    u64 may, *r = plain(o, msr, &may);

    if (r) {
        if ((v & ~may) || bad_address(o, msr, v))
            return ORACLE_GP;
        if (r >= o->count && r < o->count + 8)
            v = (intel(o) && msr < 0x4c1 ? (u64)(i64)(i32)v : v) & COUNT_MASK;
        *r = v;
    } else if (msr == 0x1d9) {
        if (v & ~(intel(o) ? 0x1803ull : 2ull))
            return ORACLE_GP;
        o->debugctl = v;
    } else if (intel(o) && (msr == 0x390 || (msr == 0x391 && version(o) >= 4))) {
        if (!write_status(o, msr, v))
            return ORACLE_GP;
    } else if (intel(o) && (msr == 0x38e || msr == 0x345 || msr == 0x392 || msr == 0x391)) {
        return ORACLE_GP;
    } else {
        return ORACLE_UNKNOWN;
    }
    forget_edges(o);
    return ORACLE_OK;
}

static u64 in_use(const struct oracle *o)
{
    u64 used = 0;

    for (unsigned i = 0; i < 4; i++) {
        used |= (o->select[i] & 0xff ? 1ull : 0) << i;
        used |= (o->select[i] >> 20 & 1) << 63;
    }
    for (unsigned i = 0; i < 3; i++) {
        used |= (o->fixed_how >> 4 * i & 3 ? 1ull : 0) << (32 + i);
        used |= (o->fixed_how >> (4 * i + 3) & 1) << 63;
    }
    return used;
}

enum oracle_says oracle_read(struct oracle *o, u32 msr, u64 *v)
{
    u64 may, *r = plain(o, msr, &may);

    if (r)
        *v = *r;
    else if (msr == 0x1d9)
        *v = o->debugctl;
    else if (!intel(o))
        return ORACLE_UNKNOWN;
    else if (msr == 0x38e)
        *v = o->status;
    else if (msr == 0x345)
        *v = 0x2000 | (o->model == CPU_NEHALEM ? 3 : o->model == CPU_HASWELL ? 4 : 5);
    else if (msr == 0x390 || (msr == 0x391 && version(o) >= 4))
        *v = 0;
    else if (msr == 0x392 && version(o) >= 4)
        *v = in_use(o);
    else
        return msr == 0x391 || msr == 0x392 ? ORACLE_GP : ORACLE_UNKNOWN;
    return ORACLE_OK;
}

enum oracle_says oracle_rdpmc(struct oracle *o, u32 index, u64 *v)
{
    if (index < general(o))
        *v = o->count[index];
    else if (intel(o) && index - 0x40000000 < 3)
        *v = o->fixed[index - 0x40000000];
    else
        return ORACLE_GP;
    return ORACLE_OK;
}

#define NHM  (1u << CPU_NEHALEM)
#define HSW  (1u << CPU_HASWELL)
#define SKX  (1u << CPU_SKYLAKE_SERVER)
#define ICX  (1u << CPU_ICELAKE_SERVER)
#define ZEN2 (1u << CPU_ZEN2)

const struct oracle_event oracle_event[] = {
#define EVENT(models, select, umask, counts, name) {models, select, umask, PMU_##counts},
#include "cpu/model_events.def"
};
const unsigned oracle_events = ARRAY_SIZE(oracle_event);
