/* See pmu_fake.h. */
#include "pmu_fake.h"

#include <errno.h>
#include <string.h>

#define INSNS 1024u /* of the program; the last is followed by the first */

enum insn { ALU, BRANCH, JUMP, REP, SET_RCX, PUSH, POP, OUT };

static u64 mix(u64 a, u64 b)
{
    u64 x = (a ^ b) * 0x9e3779b97f4a7c15ull;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9ull;
    return x ^ x >> 32;
}

u64 fake_random(u64 *state)
{
    *state += 0x9e3779b97f4a7c15ull;
    return mix(*state, 0x1234567);
}

static enum insn decode(u32 seed, u64 rip)
{
    static const u16 parts[] = {[ALU] = 420,    [BRANCH] = 290, [JUMP] = 30, [REP] = 60,
                                [SET_RCX] = 60, [PUSH] = 70,    [POP] = 65,  [OUT] = 5};
    unsigned pick = (unsigned)(mix(seed, rip) >> 8) % 1000;
    for (unsigned i = 0; i < ARRAY_SIZE(parts); i++) {
        if (pick < parts[i])
            return (enum insn)i;
        pick -= parts[i];
    }
    return ALU;
}

bool fake_step(u32 seed, struct fake_cpu *c)
{
    enum insn what = decode(seed, c->rip);
    u64 fact = mix(seed + 1, c->rip), next = (c->rip + 1) % INSNS;
    c->insns++;
    switch (what) {
    case ALU: c->rax = mix(c->rax, fact); break;
    case BRANCH: /* backwards by up to 20, three times of four */
        c->branches++;
        if (c->rax & 3)
            next = (c->rip + INSNS - 1 - fact % 20) % INSNS;
        c->rax = mix(c->rax, 1);
        break;
    case JUMP: /* through a register, to where it was before or a little farther: loops that no
                  branch is in, and in which RCX and RSP may stay */
        next = (c->rip + INSNS - 6 + c->rbx % 8) % INSNS;
        c->rbx = mix(c->rbx, 2);
        break;
    case REP:
        if (c->rcx) {
            c->rax++;
            if (--c->rcx)
                next = c->rip;
        }
        break;
    case SET_RCX: c->rcx = fact % 40; break;
    case PUSH: c->rsp = (c->rsp - 8) & 0xff8; break;
    case POP: c->rsp = (c->rsp + 8) & 0xff8; break;
    case OUT: c->rip = next; return true;
    }
    c->rip = next;
    return false;
}

u64 fake_hash(const struct fake_cpu *c)
{
    return mix(mix(mix(mix(c->rip, c->rcx), c->rsp), c->rax), c->rbx);
}

void fake_init(struct fake_host *h, u32 seed, u64 random, const struct fake_faults *faults)
{
    memset(h, 0, sizeof(*h));
    h->seed = seed;
    h->random = random;
    h->faults = *faults;
    h->cpu = (struct fake_cpu){.rsp = 0x800, .rax = seed, .rbx = 7};
    h->overflow_at = h->signal_at = h->kick_ns = NEVER;
    h->tsc_phase = fake_random(&h->random) % 1000000;
    h->ns = 1000000000;
}

static int count(void *host, u64 *branches, struct err *err)
{
    struct fake_host *h = host;
    const struct fake_faults *f = &h->faults;
    if (f->taken_at && h->cpu.branches > f->taken_at)
        return err_set(err, -ENODATA, "the counter was taken");
    *branches = h->cpu.branches;
    if (f->wound_back && *branches > f->wound_back)
        *branches -= f->wound_back;
    if (f->rewritten && *branches > f->rewritten)
        *branches += (1ull << 48) - f->rewritten;
    return 0;
}

static int arm(void *host, u64 branches, struct err *err)
{
    struct fake_host *h = host;
    h->overflow_at = branches == PMU_NO_PERIOD ? NEVER : h->cpu.branches + MAX(branches, 2u);
    h->asked_at = h->overflow_at;
    h->signal_at = NEVER;
    return 0;
}

static int debug(void *host, bool step, const u64 *breakpoint, struct err *err)
{
    struct fake_host *h = host;
    h->step = step;
    h->breakpoint = breakpoint;
    h->breakpoint_at = breakpoint ? *breakpoint : 0;
    return 0;
}

static u64 tsc_now(const struct fake_host *h)
{
    return (h->ns + h->tsc_phase) / (h->faults.no_scaling ? 1 : 1000000) + h->tsc_offset;
}

/* The guest looks at its TSC before every instruction. */
static void look_at_tsc(struct fake_host *h)
{
    h->tsc_last = tsc_now(h);
    if (!h->tsc_read)
        h->tsc_first = h->tsc_last;
    h->tsc_read = true;
}

/* After an instruction: has the counter overflowed? */
static void overflow(struct fake_host *h)
{
    const struct fake_faults *f = &h->faults;
    if (h->cpu.branches < h->overflow_at)
        return;
    h->overflow_at = NEVER;
    if (f->lost)
        return;
    u64 skid = f->late ? f->late : f->skid ? fake_random(&h->random) % (f->skid + 1) : 0;
    h->signal_at = h->cpu.branches + skid;
    h->signal_insns = (u32)(fake_random(&h->random) % 12);
}

/* Before an instruction: is the signal there? The last chance is before the next branch. */
static bool signalled(struct fake_host *h)
{
    const struct fake_faults *f = &h->faults;
    if (h->kick_ns != NEVER && h->ns >= h->kick_ns + f->kick_latency) {
        h->kick_ns = NEVER;
        return true;
    }
    if (f->early && fake_random(&h->random) % 1000 < f->early)
        return true;
    if (h->cpu.branches < h->signal_at)
        return false;
    if (h->signal_insns && decode(h->seed, h->cpu.rip) != BRANCH) {
        h->signal_insns--;
        return false;
    }
    h->signal_at = NEVER;
    return true;
}

static void pass_time(struct fake_host *h)
{
    const struct fake_faults *f = &h->faults;
    h->ns += f->ns_per_insn ? f->ns_per_insn : 1;
    if (h->cpu.insns != f->stall_at || !f->stall_at)
        return;
    h->ns += f->stall_ns;
    h->asleep_ns += f->asleep ? f->stall_ns : 0;
}

static int run(void *host, struct err *err)
{
    struct fake_host *h = host;
    u64 before = NEVER; /* a breakpoint is not seen again between iterations of a REP string */
    h->runs++;
    h->tsc_read = false;
    if (h->pending) {
        h->pending = false;
        return PMU_STOP_SIGNAL;
    }
    for (;;) {
        if (signalled(h))
            return PMU_STOP_SIGNAL;
        if (h->breakpoint && h->cpu.rip == h->breakpoint_at && before != h->cpu.rip)
            return PMU_STOP_DEBUG;
        look_at_tsc(h);
        before = h->cpu.rip;
        bool left = fake_step(h->seed, &h->cpu);
        pass_time(h);
        overflow(h);
        if (left || h->step) { /* what is under way finds the vCPU outside of the guest */
            h->pending = h->signal_at != NEVER;
            h->signal_at = NEVER;
            return left ? PMU_STOP_EXIT : PMU_STOP_DEBUG;
        }
    }
}

static void kick_at(void *host, u64 ns)
{
    struct fake_host *h = host;
    h->kick_ns = ns;
}

static u64 now(void *host)
{
    struct fake_host *h = host;
    h->ns += 100;
    return h->ns;
}

static u64 asleep(void *host)
{
    const struct fake_host *h = host;
    return h->asleep_ns;
}

static unsigned core(void *host)
{
    const struct fake_host *h = host;
    return h->faults.migrates_at && h->cpu.insns >= h->faults.migrates_at ? 0x20 : 0x40;
}

static int tsc(void *host, u64 *value, struct err *err)
{
    struct fake_host *h = host;
    h->ns += 700;
    *value = tsc_now(h);
    return 0;
}

static int tsc_offset(void *host, u64 offset, struct err *err)
{
    struct fake_host *h = host;
    h->ns += 900;
    h->tsc_offset = offset;
    return 0;
}

const struct pmu_host_ops fake_ops = {
    .count = count,
    .arm = arm,
    .debug = debug,
    .run = run,
    .kick_at = kick_at,
    .now = now,
    .asleep = asleep,
    .core = core,
    .tsc = tsc,
    .tsc_offset = tsc_offset,
};
