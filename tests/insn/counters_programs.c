/* What programs that use counters are made of, besides program.c's: accesses to them, and branches.
 */
#include "tests/insn/counters.h"

u64 counters_near_overflow(struct rng *r)
{
    static const u16 most[] = {3, 30, 100, 300, 3000};

    return -(1 + rng_below(r, most[rng_below(r, ARRAY_SIZE(most))]));
}

u64 counters_draw_select(const struct campaign *c, struct rng *r)
{
    const struct oracle_event *e;
    u64 v = (u64)(1 + rng_below(r, 3)) << 16;

    do
        e = &oracle_event[rng_below(r, oracle_events)];
    while (!(e->models >> c->model & 1));
    v |= (e->select & 0xff) | (u64)e->umask << 8 | (u64)(e->select >> 8) << 32;
    if (rng_chance(r, 5))
        v ^= 1u << rng_below(r, 16);
    v |= (u64)rng_chance(r, 4) << 18 | (u64)rng_chance(r, 60) << 20 | (u64)rng_chance(r, 90) << 22 |
         (u64)rng_chance(r, 15) << 23;
    if (rng_chance(r, 25))
        v |= (1 + rng_below(r, rng_chance(r, 70) ? 1 : 3)) << 24;
    if (c->model != CPU_ZEN2)
        v |= (u64)rng_chance(r, 5) << 19 | (u64)rng_chance(r, 2) << 21;
    return v;
}

const u32 counters_intel_msrs[INTEL_MSRS] = {0xc1,  0xc2,  0xc3,  0xc4,  0x186, 0x187, 0x188, 0x189,
                                             0x309, 0x30a, 0x30b, 0x38d, 0x38e, 0x38f, 0x390, 0x391,
                                             0x392, 0x345, 0x4c1, 0x4c2, 0x4c3, 0x4c4, 0x1d9};

static u64 draw_address(struct rng *r)
{
    return (u64)((i64)(rng_u64(r) << 16) >> 16);
}

/* A register of the last branches, and what is written there. */
static u32 draw_record(struct rng *r, u64 *v)
{
    u32 i = (u32)rng_below(r, rng_chance(r, 60) ? 16 : 34);

    switch (rng_below(r, 8)) {
    case 0: *v = draw_address(r); return 0x680 + i;
    case 1: *v = draw_address(r) ^ (u64)rng_below(r, 2) << 63; return 0x680 + i;
    case 2: *v = draw_address(r); return 0x6c0 + i;
    case 3: *v = rng_u64(r) & 0xe00000000000ffff; return 0xdc0 + i;
    case 4: *v = i; return 0x1c9;
    /* As calls are kept: all but calls and returns are left out. */
    case 5: *v = 0x3c4 | rng_below(r, 3); return 0x1c8;
    default: *v = rng_u64(r) & rng_u64(r) & 0x3ff; return 0x1c8;
    }
}

static u32 draw_msr(const struct campaign *c, struct rng *r)
{
    u64 v;
    if (c->model != CPU_ZEN2 && rng_chance(r, 20))
        return draw_record(r, &v);
    if (c->model != CPU_ZEN2)
        return counters_intel_msrs[rng_below(r, INTEL_MSRS)];
    return rng_chance(r, 5)    ? 0x1d9
           : rng_chance(r, 60) ? 0xc0010200 + (u32)rng_below(r, 12)
                               : 0xc0010000 + (u32)rng_below(r, 8);
}

static u32 draw_write_amd(const struct campaign *c, struct rng *r, unsigned kind, u64 *v)
{
    bool core = rng_chance(r, 60), counter = kind >= 45;

    *v = counter ? counters_near_overflow(r) : counters_draw_select(c, r);
    return core ? 0xc0010200 + 2 * (u32)rng_below(r, 6) + counter
                : 0xc0010000 + (u32)rng_below(r, 4) + 4 * counter;
}

u32 counters_draw_write(const struct campaign *c, struct rng *r, u64 *v)
{
    unsigned kind = (unsigned)rng_below(r, 100);
    const u64 all = 0x70000000full;

    if (kind >= 95) { /* anything: mostly #GP */
        *v = rng_chance(r, 30) ? 0 : rng_u64(r) >> rng_below(r, 64);
        return draw_msr(c, r);
    }
    /* With branches recorded much runs by hand: in one of four programs. */
    bool records = c->model != CPU_ZEN2 && c->number % 4 == 3;
    if (records && rng_chance(r, 15))
        return draw_record(r, v);
    if (kind >= 89) {
        *v = c->model == CPU_ZEN2 ? 2 * rng_below(r, 2)
                                  : 2 * rng_below(r, 2) + 0x1000 * rng_below(r, 2);
        if (records)
            *v |= rng_chance(r, 80) + 0x800 * rng_below(r, 2);
        return 0x1d9;
    }
    if (c->model == CPU_ZEN2)
        return draw_write_amd(c, r, kind, v);
    if (kind < 32) {
        *v = counters_draw_select(c, r);
        return 0x186 + (u32)rng_below(r, 4);
    }
    if (kind < 62) {
        *v = counters_near_overflow(r);
        if (rng_chance(r, 50))
            return 0xc1 + (u32)rng_below(r, 4);
        *v &= 0xffffffffffff;
        return (rng_chance(r, 40) ? 0x4c1 : 0x309) + (u32)rng_below(r, 3);
    }
    if (kind < 70) {
        *v = rng_u64(r) & 0xbbb;
        return 0x38d;
    }
    if (kind < 78) {
        *v = rng_chance(r, 70) ? all : rng_u64(r) & all;
        return 0x38f;
    }
    if (kind < 86) {
        *v = (rng_u64(r) & all) | (rng_chance(r, 70) ? 1ull << 59 : 0);
        if (c->model == CPU_HASWELL || c->model == CPU_NEHALEM)
            *v &= all;
        return 0x390;
    }
    *v = (rng_u64(r) & all) | (rng_chance(r, 20) ? 1ull << 59 : 0);
    return 0x391;
}

static u8 *put_mov(u8 *p, u8 op, u32 v)
{
    *p++ = op;
    memcpy(p, &v, 4);
    return p + 4;
}

/* Reads a counter, or writes a register: in ring 0 as it is, from anywhere by a service. */
static u8 *put_access(const struct campaign *c, struct rng *r, u8 *p)
{
    unsigned how = (unsigned)rng_below(r, 100);
    bool kept = rng_chance(r, 60);
    u64 v;

    if (how < 15) { /* mov ecx, number; rdpmc */
        u32 n = (u32)rng_below(r, rng_chance(r, 90) ? 4 : 9);
        p = put_mov(p, 0xb9, rng_chance(r, 30) ? n | 0x40000000 : n);
        *p++ = 0x0f;
        *p++ = 0x33;
        return p;
    }
    if (how < 30) { /* mov ecx, msr; int 81h or rdmsr */
        p = put_mov(p, 0xb9, draw_msr(c, r));
        bool direct = rng_chance(r, 20);
        *p++ = direct ? 0x0f : 0xcd;
        *p++ = direct ? 0x32 : SERVICE_READ;
        return p;
    }
    u32 msr = counters_draw_write(c, r, &v);
    bool call = test_code == CODE_64 && rng_chance(r, 30);
    if (kept) {
        memcpy(p, "\x50\x51\x52", 3); /* push rax; push rcx; push rdx */
        p += 3;
    }
    if (call)
        *p++ = 0x41; /* mov r10d */
    p = put_mov(p, call ? 0xba : 0xb9, msr);
    p = put_mov(p, 0xb8, (u32)v);
    p = put_mov(p, 0xba, (u32)(v >> 32));
    bool direct = !call && rng_chance(r, 25);
    *p++ = call || direct ? 0x0f : 0xcd;
    *p++ = call ? 0x05 : direct ? 0x30 : SERVICE_WRITE;
    if (kept) {
        memcpy(p, "\x5a\x59\x58", 3);
        p += 3;
    }
    return p;
}

/* Branches of all kinds, most of them to the instruction that follows. */
static u8 *put_branch(struct rng *r, u8 *p)
{
    static const struct {
        u8 len;
        bool wide; /* of 64-bit code */
        const char *bytes;
    } some[] = {
        {2, false, "\xe3\x00"},                             /* jrcxz */
        {2, false, "\xe2\x00"},                             /* loop */
        {2, false, "\xe1\x01"},                             /* loope over a byte */
        {2, false, "\x74\x00"},                             /* jz */
        {2, false, "\x75\x00"},                             /* jnz */
        {2, false, "\xeb\x00"},                             /* jmp */
        {5, false, "\xe8\x00\x00\x00\x00"},                 /* call */
        {9, true, "\x48\x8d\x05\x02\x00\x00\x00\xff\xe0"},  /* lea rax, [rip + 2]; jmp rax */
        {9, true, "\x48\x8d\x05\x02\x00\x00\x00\xff\xd0"},  /* ... call rax */
        {9, true, "\x48\x8d\x05\x02\x00\x00\x00\x50\xc3"},  /* ... push rax; ret */
        {12, true, "\x48\xb8\0\0\0\0\0\0\x50\x50\xff\xe0"}, /* mov rax, not canonical; jmp */
        {12, true, "\x48\xb8\0\0\0\0\0\0\x50\x50\xff\xd0"}, /* ... call */
        {12, true, "\x48\xb8\0\0\0\0\0\0\0\xc0\xff\xe0"}, /* ... what the jump cache has for none */
        {12, true, "\x48\xb8\0\0\0\0\0\0\x50\x50\x50\xc3"}, /* ... push; ret */
        {9, true, "\x9c\x81\x0c\x24\x00\x01\x00\x00\x9d"},  /* pushfq; or [rsp], TF; popfq */
        {3, false, "\xfd\xf3\xaa"},                         /* std; rep stosb */
        {1, false, "\xcc"},                                 /* int3 */
        /* mov rax, rsp; push 2bh; push rax; pushfq; push 33h; lea rax, [rip + 3]; push rax; iretq
         */
        {19, true, "\x48\x89\xe0\x6a\x2b\x50\x9c\x6a\x33\x48\x8d\x05\x03\x00\x00\x00\x50\x48\xcf"},
        /* push 33h; lea rax, [rip + 3]; push rax; retfq */
        {12, true, "\x6a\x33\x48\x8d\x05\x03\x00\x00\x00\x50\x48\xcb"},
    };
    unsigned i;

    do
        i = (unsigned)rng_below(r, ARRAY_SIZE(some));
    while (some[i].wide && test_code != CODE_64);
    memcpy(p, some[i].bytes, some[i].len);
    return p + some[i].len;
}

unsigned counters_extra(void *opaque, struct rng *r, u8 *out)
{
    return (unsigned)((rng_chance(r, 60) ? put_access(opaque, r, out) : put_branch(r, out)) - out);
}
