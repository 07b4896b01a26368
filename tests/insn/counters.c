/*
 * The guest's performance counters: random programs that write, read and overflow them, under three
 * engines: in long slices; in random ones, moved now and then to another engine as a checkpoint
 * would; and one position at a time, traced, which oracle.c watches and counts by itself. At each
 * stop the registers and what else is in the machine must be equal, and all interrupts of counters
 * must have come at the oracle's positions.
 */
#include "tests/insn/oracle.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "cpu/x86/pmu.h"

#define LENGTH  6000u
#define PMI_MAX (LENGTH * 2)

enum { ENGINES = 4 };
enum { STRAIGHT, SLICED, SPARE, STEPPED }; /* SPARE: what the sliced one moves to */

struct pmis {
    unsigned n;
    pos_t at[PMI_MAX];
};

/* In front of the position that is looked at. */
struct moment {
    pos_t at;
    u64 exceptions;
    struct vcpu cpu;
    unsigned cpl;
    bool decoded;
    ZydisDecodedInstruction in;
    ZydisDecodedOperand op[ZYDIS_MAX_OPERAND_COUNT];
};

/* Where interrupts came from: of what they are made, and in which ring. */
struct tally {
    u64 rings[2], rep, fault, trap, interrupt, msr;
};

struct campaign {
    enum cpu_model model;
    const struct forms *forms;
    u64 seed, number;
    struct guest *guest[ENGINES];
    struct oracle oracle;
    struct moment before;
    bool left; /* the program does what the oracle cannot tell */
    bool failed;
    struct pmis pmis[ENGINES], due; /* of SLICED and SPARE together in the first; the oracle's */
    u64 overflows, interrupts, stops, moves, positions, leaves;
    struct tally tally;
};

static const char *model_arg(enum cpu_model model)
{
    return cpu_model_alias(model) ? cpu_model_alias(model) : cpu_model_name(model);
}

static void fail(struct campaign *c, const char *format, ...)
{
    va_list args;

    if (c->failed)
        return;
    c->failed = true;
    printf("FAIL counters: position %llu of program %llu, RIP %llx, %s: ",
           (unsigned long long)c->before.at, (unsigned long long)c->number,
           (unsigned long long)c->before.cpu.rip,
           c->before.decoded ? ZydisMnemonicGetString(c->before.in.mnemonic) : "?");
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n  again: tests/insn --counters --code %u --model %s --seed %llu --case %llu\n",
           test_bits(), model_arg(c->model), (unsigned long long)c->seed,
           (unsigned long long)c->number);
}

/* ---- what programs are made of ---- */

static u64 near_overflow(struct rng *r)
{
    static const u16 most[] = {3, 30, 100, 300, 3000};

    return -(1 + rng_below(r, most[rng_below(r, ARRAY_SIZE(most))]));
}

static u64 draw_select(const struct campaign *c, struct rng *r)
{
    const struct oracle_event *e;
    u64 v = (u64)(1 + rng_below(r, 3)) << 16;

    do
        e = &oracle_event[rng_below(r, oracle_events)];
    while (!(e->models >> c->model & 1));
    v |= (e->select & 0xff) | (u64)e->umask << 8 | (u64)(e->select >> 8) << 32;
    if (rng_chance(r, 5))
        v ^= 1u << rng_below(r, 16);
    v |= (u64)rng_chance(r, 4) << 18 | (u64)rng_chance(r, 60) << 20 |
         (u64)rng_chance(r, 90) << 22 | (u64)rng_chance(r, 15) << 23;
    if (rng_chance(r, 25))
        v |= (1 + rng_below(r, rng_chance(r, 70) ? 1 : 3)) << 24;
    if (c->model != CPU_ZEN2)
        v |= (u64)rng_chance(r, 5) << 19 | (u64)rng_chance(r, 2) << 21;
    return v;
}

static const u32 intel_msrs[] = {0xc1,  0xc2,  0xc3,  0xc4,  0x186, 0x187, 0x188, 0x189,
                                 0x309, 0x30a, 0x30b, 0x38d, 0x38e, 0x38f, 0x390, 0x391,
                                 0x392, 0x345, 0x4c1, 0x4c2, 0x4c3, 0x4c4, 0x1d9};

static u32 draw_msr(const struct campaign *c, struct rng *r)
{
    if (c->model != CPU_ZEN2)
        return intel_msrs[rng_below(r, ARRAY_SIZE(intel_msrs))];
    return rng_chance(r, 5)    ? 0x1d9
           : rng_chance(r, 60) ? 0xc0010200 + (u32)rng_below(r, 12)
                               : 0xc0010000 + (u32)rng_below(r, 8);
}

static u32 draw_write_amd(const struct campaign *c, struct rng *r, unsigned kind, u64 *v)
{
    bool core = rng_chance(r, 60), counter = kind >= 45;

    *v = counter ? near_overflow(r) : draw_select(c, r);
    return core ? 0xc0010200 + 2 * (u32)rng_below(r, 6) + counter
                : 0xc0010000 + (u32)rng_below(r, 4) + 4 * counter;
}

static u32 draw_write(const struct campaign *c, struct rng *r, u64 *v)
{
    unsigned kind = (unsigned)rng_below(r, 100);
    const u64 all = 0x70000000full;

    if (kind >= 95) { /* anything: mostly #GP */
        *v = rng_chance(r, 30) ? 0 : rng_u64(r) >> rng_below(r, 64);
        return draw_msr(c, r);
    }
    if (kind >= 89) {
        *v = c->model == CPU_ZEN2 ? 2 * rng_below(r, 2)
                                  : 2 * rng_below(r, 2) + 0x1000 * rng_below(r, 2);
        return 0x1d9;
    }
    if (c->model == CPU_ZEN2)
        return draw_write_amd(c, r, kind, v);
    if (kind < 32) {
        *v = draw_select(c, r);
        return 0x186 + (u32)rng_below(r, 4);
    }
    if (kind < 62) {
        *v = near_overflow(r);
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
    u32 msr = draw_write(c, r, &v);
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
        {2, false, "\xe3\x00"},                                /* jrcxz */
        {2, false, "\xe2\x00"},                                /* loop */
        {2, false, "\xe1\x01"},                                /* loope over a byte */
        {2, false, "\x74\x00"},                                /* jz */
        {2, false, "\x75\x00"},                                /* jnz */
        {2, false, "\xeb\x00"},                                /* jmp */
        {5, false, "\xe8\x00\x00\x00\x00"},                    /* call */
        {9, true, "\x48\x8d\x05\x02\x00\x00\x00\xff\xe0"},     /* lea rax, [rip + 2]; jmp rax */
        {9, true, "\x48\x8d\x05\x02\x00\x00\x00\xff\xd0"},     /* ... call rax */
        {9, true, "\x48\x8d\x05\x02\x00\x00\x00\x50\xc3"},     /* ... push rax; ret */
        {12, true, "\x48\xb8\0\0\0\0\0\0\x50\x50\xff\xe0"},    /* mov rax, not canonical; jmp */
        {12, true, "\x48\xb8\0\0\0\0\0\0\x50\x50\xff\xd0"},    /* ... call */
        {12, true, "\x48\xb8\0\0\0\0\0\0\x50\x50\x50\xc3"},    /* ... push; ret */
        {9, true, "\x9c\x81\x0c\x24\x00\x01\x00\x00\x9d"},     /* pushfq; or [rsp], TF; popfq */
        {3, false, "\xfd\xf3\xaa"},                            /* std; rep stosb */
        {1, false, "\xcc"},                                    /* int3 */
        /* mov rax, rsp; push 2bh; push rax; pushfq; push 33h; lea rax, [rip + 3]; push rax; iretq */
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

static unsigned extra(void *opaque, struct rng *r, u8 *out)
{
    return (unsigned)((rng_chance(r, 60) ? put_access(opaque, r, out) : put_branch(r, out)) - out);
}

/* ---- what the stepped engine did ---- */

static void on_pmi(void *opaque, struct guest *g)
{
    struct pmis *p = opaque;
    pos_t now = engine_count(guest_engine(g));

    if (p->n && p->at[p->n - 1] == now) /* an instruction's, and its trap's */
        return;
    CHECK(p->n < PMI_MAX, "%u interrupts of counters in a program", p->n);
    p->at[p->n++] = now;
}

static unsigned cpl_of(const struct vcpu *v)
{
    return v->seg_attr[SEG_SS] >> 5 & 3;
}

static void before(void *opaque)
{
    struct campaign *c = opaque;
    struct moment *m = &c->before;
    struct engine *e = guest_engine(c->guest[STEPPED]);
    struct machine_stats st;
    ZydisDecoder d;
    u8 bytes[15] = {0};
    unsigned n = sizeof bytes;

    engine_sync(e);
    engine_stats(e, &st);
    m->at = engine_count(e);
    m->exceptions = st.exceptions;
    m->cpu = *engine_vcpu(e);
    m->cpl = cpl_of(&m->cpu);
    bool wide = m->cpu.seg_attr[SEG_CS] >> 13 & 1, big = m->cpu.seg_attr[SEG_CS] >> 14 & 1;
    if (!(m->cpu.efer & EFER_LMA) || (m->cpu.dr[7] & 0xff))
        c->left = true;
    u64 lin = m->cpu.rip + (wide ? 0 : m->cpu.seg_base[SEG_CS]);
    if (!engine_peek(e, lin, bytes, n)) {
        n = (unsigned)(PAGE_SIZE - (lin & (PAGE_SIZE - 1)));
        if (n > sizeof bytes || !engine_peek(e, lin, bytes, n))
            n = 0;
    }
    ZydisDecoderInit(&d,
                     wide  ? ZYDIS_MACHINE_MODE_LONG_64
                     : big ? ZYDIS_MACHINE_MODE_LONG_COMPAT_32
                           : ZYDIS_MACHINE_MODE_LONG_COMPAT_16,
                     wide  ? ZYDIS_STACK_WIDTH_64
                     : big ? ZYDIS_STACK_WIDTH_32
                           : ZYDIS_STACK_WIDTH_16);
    ZydisDecoderEnableMode(&d, ZYDIS_DECODER_MODE_MPX, ZYAN_FALSE); /* NOPs */
    ZydisDecoderEnableMode(&d, ZYDIS_DECODER_MODE_CET, ZYAN_FALSE);
    m->decoded = n && ZYAN_SUCCESS(ZydisDecoderDecodeFull(&d, bytes, n, &m->in, m->op));
}

/* By the state in front of it. */
static bool jumps_at(const struct moment *m)
{
    u64 f = m->cpu.rflags, cx = m->cpu.gpr[RCX];
    bool cf = f & FL_CF, zf = f & FL_ZF, sf = f & FL_SF, of = f & FL_OF, pf = f & FL_PF;

    if (m->in.address_width < 64)
        cx &= (1ull << m->in.address_width) - 1;
    u64 less = cx - 1;
    if (m->in.address_width < 64)
        less &= (1ull << m->in.address_width) - 1;
    switch (m->in.mnemonic) {
    case ZYDIS_MNEMONIC_LOOP: return less;
    case ZYDIS_MNEMONIC_LOOPE: return less && zf;
    case ZYDIS_MNEMONIC_LOOPNE: return less && !zf;
    case ZYDIS_MNEMONIC_JCXZ:
    case ZYDIS_MNEMONIC_JECXZ:
    case ZYDIS_MNEMONIC_JRCXZ: return !cx;
    default: break;
    }
    const bool is[] = {of, cf, zf, cf || zf, sf, pf, sf != of, zf || sf != of};
    return is[m->in.opcode >> 1 & 7] != (m->in.opcode & 1);
}

static void classify(const struct moment *m, struct facts *f)
{
    const ZydisDecodedInstruction *in = &m->in;

    if (!m->decoded)
        return;
    bool far = in->meta.branch_type == ZYDIS_BRANCH_TYPE_FAR;
    f->indirect = m->op[0].type != ZYDIS_OPERAND_TYPE_IMMEDIATE;
    switch (in->mnemonic) {
    case ZYDIS_MNEMONIC_INT:
    case ZYDIS_MNEMONIC_INT1:
    case ZYDIS_MNEMONIC_INT3:
    case ZYDIS_MNEMONIC_IRET:
    case ZYDIS_MNEMONIC_IRETD:
    case ZYDIS_MNEMONIC_IRETQ:
    case ZYDIS_MNEMONIC_SYSCALL:
    case ZYDIS_MNEMONIC_SYSRET:
    case ZYDIS_MNEMONIC_SYSENTER:
    case ZYDIS_MNEMONIC_SYSEXIT: f->far = true; return;
    case ZYDIS_MNEMONIC_INTO: f->far = m->cpu.rflags & FL_OF; return;
    default: break;
    }
    switch (in->meta.category) {
    case ZYDIS_CATEGORY_CALL: f->call = !far; f->far = far; break;
    case ZYDIS_CATEGORY_RET: f->ret = !far; f->far = far; break;
    case ZYDIS_CATEGORY_UNCOND_BR: f->jump = !far; f->far = far; break;
    case ZYDIS_CATEGORY_COND_BR:
        f->cond = true;
        f->taken = jumps_at(m);
        f->backward = in->raw.imm[0].value.s < 0;
        break;
    default: break;
    }
}

static bool is_rep_string(const struct moment *m)
{
    const u64 rep = ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE | ZYDIS_ATTRIB_HAS_REPNE;

    return m->decoded && (m->in.attributes & rep);
}

/* Does a single-step trap follow an instruction that has retired? Of a WRMSR to DEBUGCTL: by what
 * that says now. */
static bool traps(const struct campaign *c, const struct facts *f)
{
    const struct moment *m = &c->before;

    if (!(m->cpu.rflags & FL_TF))
        return false;
    switch (m->decoded ? m->in.mnemonic : ZYDIS_MNEMONIC_INVALID) {
    case ZYDIS_MNEMONIC_INT:
    case ZYDIS_MNEMONIC_INT1:
    case ZYDIS_MNEMONIC_INT3: return false;
    case ZYDIS_MNEMONIC_SYSCALL:
        if (m->cpu.sfmask & FL_TF)
            return false;
        break;
    case ZYDIS_MNEMONIC_INTO:
        if (m->cpu.rflags & FL_OF)
            return false;
        break;
    default: break;
    }
    if (!(c->oracle.debugctl & 2))
        return true;
    return f->insn && (f->jump || f->call || f->ret || f->far || (f->cond && f->taken));
}

static void judge_access(struct campaign *c, const struct vcpu *now, bool retired, bool gp)
{
    const struct moment *m = &c->before;
    const u64 *g = m->cpu.gpr;
    struct oracle o = c->oracle;
    u64 v = 0, was = (u32)g[RAX] | g[RDX] << 32, is = (u32)now->gpr[RAX] | now->gpr[RDX] << 32;
    enum oracle_says says = ORACLE_UNKNOWN;

    if (!m->decoded || (!retired && !gp))
        return;
    if (m->in.mnemonic == ZYDIS_MNEMONIC_WRMSR && !m->cpl)
        says = oracle_write(&o, (u32)g[RCX], was);
    else if (m->in.mnemonic == ZYDIS_MNEMONIC_RDMSR && !m->cpl)
        says = oracle_read(&o, (u32)g[RCX], &v);
    else if (m->in.mnemonic == ZYDIS_MNEMONIC_RDPMC)
        says = m->cpl && !(m->cpu.cr4 & CR4_PCE) ? ORACLE_GP
                                                  : oracle_rdpmc(&o, (u32)g[RCX], &v);
    else
        return;
    if (says == ORACLE_UNKNOWN)
        return;
    if ((says == ORACLE_OK) != retired)
        fail(c, "ECX %x, value %llx: expected %s", (u32)g[RCX], (unsigned long long)was,
             says == ORACLE_OK ? "no fault" : "#GP");
    else if (retired && m->in.mnemonic != ZYDIS_MNEMONIC_WRMSR && is != v)
        fail(c, "ECX %x: expected %llx, got %llx", (u32)g[RCX], (unsigned long long)v,
             (unsigned long long)is);
    if (retired && m->in.mnemonic == ZYDIS_MNEMONIC_WRMSR)
        c->oracle = o;
}

/* One position, or a trap's delivery after it. */
static void count(struct campaign *c, const struct facts *f, pos_t after)
{
    if (!oracle_count(&c->oracle, f))
        return;
    if (c->due.n && c->due.at[c->due.n - 1] == after)
        return;
    c->due.at[c->due.n++] = after;
    c->tally.rings[c->oracle.ring != 0]++;
    c->tally.rep += is_rep_string(&c->before) && !f->insn && !f->delivery;
    c->tally.trap += f->delivery && !f->cycle;
    c->tally.fault += f->delivery && f->cycle && !f->interrupt;
    c->tally.interrupt += f->interrupt;
    c->tally.msr += f->insn && c->before.decoded && c->before.in.mnemonic == ZYDIS_MNEMONIC_WRMSR;
}

/* What the stepped one's registers say, and the oracle's. */
static void compare_registers(struct campaign *c)
{
    struct core *core = core_of(guest_engine(c->guest[STEPPED]));
    bool amd = c->model == CPU_ZEN2;

    for (unsigned i = 0; i < (amd ? 21 : ARRAY_SIZE(intel_msrs)); i++) {
        u32 msr = !amd     ? intel_msrs[i]
                  : i < 12 ? 0xc0010200 + i
                  : i < 20 ? 0xc0010000 + i - 12
                           : 0x1d9;
        u64 expected = 0, got = 0;
        bool ok = false;
        bool there = pmu_rdmsr(core, msr, &got, &ok) && ok;
        bool due = oracle_read(&c->oracle, msr, &expected) == ORACLE_OK;
        if (there != due || (due && got != expected))
            fail(c, "MSR %x: expected %s%llx, got %s%llx", msr, due ? "" : "#GP ",
                 (unsigned long long)expected, there ? "" : "#GP ", (unsigned long long)got);
    }
}

/* Is the exception that was delivered a trap? Its handler has just begun. */
static bool was_trap(struct campaign *c, const struct vcpu *now, int vector)
{
    const struct moment *m = &c->before;
    u64 pushed = 0;

    if (vector != EXC_DB)
        return false;
    if (!engine_peek(guest_engine(c->guest[STEPPED]), now->gpr[RSP], &pushed, 8))
        c->left = true;
    if (pushed != m->cpu.rip)
        return true;
    bool itself = m->decoded && m->in.raw.imm[0].is_relative && m->in.raw.imm[0].value.s == -(i64)m->in.length;
    return (m->cpu.rflags & FL_TF) && (is_rep_string(m) || itself);
}

static void after(void *opaque)
{
    struct campaign *c = opaque;
    const struct moment *m = &c->before;
    struct engine *e = guest_engine(c->guest[STEPPED]);
    const struct vcpu *v = engine_vcpu(e);
    struct machine_stats st;
    struct facts f = {.cycle = true}, delivered = {.delivery = true};
    pos_t now = engine_count(e);

    engine_sync(e);
    engine_stats(e, &st);
    if (now == m->at || c->left)
        return; /* it did not happen: what the engine cannot run, or a shutdown */
    if (now != m->at + 1)
        fail(c, "%llu positions at once", (unsigned long long)(now - m->at));
    u64 exceptions = st.exceptions - m->exceptions;
    int vector = exceptions ? guest_vector(c->guest[STEPPED]) : -1;
    if (exceptions && vector < 0)
        c->left = true; /* its tables are ruined */
    bool trap = exceptions && was_trap(c, v, vector), fault = exceptions && !trap;
    u64 rip = v->rip;
    if (trap && !engine_peek(e, v->gpr[RSP], &rip, 8))
        c->left = true;
    bool iteration = is_rep_string(m) && rip == m->cpu.rip;
    f.insn = !fault && !iteration;
    f.delivery = fault;
    if (f.insn)
        classify(m, &f);
    if (f.cond && m->in.raw.imm[0].value.s && (rip != m->cpu.rip + m->in.length) != f.taken)
        fail(c, "the test takes it for %staken", f.taken ? "" : "not ");
    judge_access(c, v, f.insn, fault && vector == EXC_GP);
    if (!fault && !c->left && m->cpu.shadow != 2 && traps(c, &f) != trap)
        fail(c, trap ? "a single-step trap" : "no single-step trap");
    count(c, &f, now);
    if (trap)
        count(c, &delivered, now);
    if (exceptions && vector == EXC_DB)
        c->oracle.debugctl &= ~2ull;
    oracle_ring(&c->oracle, cpl_of(v));
    if (!c->left)
        compare_registers(c);
}

/* An interrupt from outside, if they take one. */
static void external(struct campaign *c)
{
    struct engine *e = guest_engine(c->guest[STEPPED]);
    pos_t at = engine_count(e);
    const struct facts f = {.cycle = true, .delivery = true, .interrupt = true};

    for (unsigned i = 0; i < ENGINES; i++)
        if (i != SPARE)
            guest_external(c->guest[i]);
    if (engine_count(e) == at)
        return;
    count(c, &f, at + 1);
    oracle_ring(&c->oracle, cpl_of(engine_vcpu(e)));
}

/* ---- comparing ---- */

static void compare_pmis(struct campaign *c, unsigned role, pos_t at, const char *who)
{
    const struct pmis *p = &c->pmis[role];
    unsigned i = 0;

    while (i < p->n && i < c->due.n && p->at[i] == c->due.at[i])
        i++;
    if (i == p->n && i == c->due.n)
        return;
    fail(c, "up to position %llu, %s: interrupt %u expected at %llu, came at %llu (0: none)",
         (unsigned long long)at, who, i, (unsigned long long)(i < c->due.n ? c->due.at[i] : 0),
         (unsigned long long)(i < p->n ? p->at[i] : 0));
}

static void compare(struct campaign *c, unsigned role, pos_t at, const char *who)
{
    char text[512];

    if (c->left || c->failed)
        return;
    compare_pmis(c, role, at, who);
    if (!guest_equal(c->guest[STEPPED], c->guest[role], text, sizeof text))
        fail(c, "at position %llu, %s differs:\n%s", (unsigned long long)at, who, text);
    c->stops++;
}

/* ---- programs ---- */

/* As a debugger would, between two positions. */
static void write_all(struct campaign *c, u32 msr, u64 v)
{
    bool due = oracle_write(&c->oracle, msr, v) == ORACLE_OK;

    for (unsigned i = 0; i < ENGINES; i++) {
        bool ok = false;

        pmu_wrmsr(core_of(guest_engine(c->guest[i])), msr, v, &ok);
        if (ok != due)
            fail(c, "MSR %x from outside: value %llx is%s taken", msr, (unsigned long long)v,
                 ok ? "" : " not");
    }
}

/* One of the counters is soon to overflow. */
static void arm(struct campaign *c, struct rng *r)
{
    u32 i = (u32)rng_below(r, 4);

    if (c->model == CPU_ZEN2) {
        write_all(c, 0xc0010200 + 2 * i, draw_select(c, r));
        write_all(c, 0xc0010201 + 2 * i, near_overflow(r));
        return;
    }
    if (i < 3 && rng_chance(r, 30)) {
        write_all(c, 0x309 + i, near_overflow(r) & 0xffffffffffff);
        write_all(c, 0x38d, rng_u64(r) & 0xbbb);
    } else {
        write_all(c, 0x186 + i, draw_select(c, r));
        write_all(c, 0xc1 + i, near_overflow(r));
    }
    if (rng_chance(r, 50))
        write_all(c, 0x38f, 0x70000000f);
    if (c->oracle.status >> 59 & rng_chance(r, 70))
        write_all(c, 0x390, 1ull << 59);
}

static void start_engines(struct campaign *c, const struct program *p, struct rng *r)
{
    bool pce = rng_chance(r, 70);
    u64 sfmask = rng_chance(r, 50) ? FL_TF : 0;

    oracle_start(&c->oracle, c->model, p->kernel ? 0 : 3);
    c->left = c->failed = false;
    c->due.n = 0;
    for (unsigned i = 0; i < ENGINES; i++) {
        guest_program(c->guest[i], p);
        guest_services(c->guest[i], pce, sfmask);
        c->pmis[i].n = 0;
    }
    for (unsigned n = (unsigned)rng_below(r, 32); n; n--) {
        u64 v;
        u32 msr = draw_write(c, r, &v);

        write_all(c, msr, v);
    }
    if (c->model != CPU_ZEN2 && rng_chance(r, 90))
        write_all(c, 0x38f, 0x70000000f);
}

static void move(struct campaign *c)
{
    struct guest *g = c->guest[SLICED];

    guest_copy(c->guest[SPARE], g);
    c->guest[SLICED] = c->guest[SPARE];
    c->guest[SPARE] = g;
    c->moves++;
}

static bool run_program(struct campaign *c)
{
    static struct program program;
    const struct program_kind kind = {.model = c->model,
                                      .forms = c->forms,
                                      .often = c->number & 1,
                                      .extra = extra,
                                      .percent = 25,
                                      .opaque = c};
    struct rng r;

    program_draw(&program, &kind, c->seed, c->number, &r);
    start_engines(c, &program, &r);
    pos_t start = engine_count(guest_engine(c->guest[STEPPED])), pos = start;
    for (unsigned i = 0; i < ENGINES; i++)
        if (engine_count(guest_engine(c->guest[i])) != start)
            return false;
    pos_t end = start + 200 + rng_below(&r, LENGTH);
    bool ended = false;

    while (pos < end && !c->left && !c->failed && !ended) {
        pos_t part = pos + 1 + rng_below(&r, rng_chance(&r, 50) ? 60 : rng_chance(&r, 80) ? 600 : 4000);

        part = MIN(part, end);
        while (pos < part && !c->left && !c->failed) {
            pos_t next = pos + 1 + rng_below(&r, rng_chance(&r, 50) ? 20 : 900);

            next = MIN(next, part);
            bool moves = rng_chance(&r, 5), looks = rng_chance(&r, 50);
            while (pos < next && !c->left && !c->failed)
                guest_go(c->guest[STEPPED], ++pos);
            if (c->left || c->failed)
                break;
            guest_go(c->guest[SLICED], next);
            if (looks)
                compare(c, SLICED, next, "with slices");
            if (moves)
                move(c);
            pos = next;
        }
        if (c->left || c->failed)
            break;
        guest_go(c->guest[STRAIGHT], part);
        compare(c, STRAIGHT, part, "in a straight line");
        ended = guest_ended(c->guest[STEPPED]);
        external(c);
        if (!ended)
            compare_registers(c);
        compare(c, SLICED, part, "with slices");
        if (!ended && !c->failed && rng_chance(&r, 70))
            arm(c, &r);
        pos = MAX(part, engine_count(guest_engine(c->guest[STEPPED])));
    }
    compare_pmis(c, STEPPED, pos, "step by step");
    c->positions += pos - start;
    c->overflows += c->oracle.overflows;
    c->interrupts += c->due.n;
    c->leaves += c->left;
    return !c->failed;
}

static int create(struct campaign *c)
{
    static const u8 mem[DATA_SIZE];
    const struct engine_trace trace = {.before = before, .after = after, .opaque = c};
    char why[256];

    for (unsigned i = 0; i < ENGINES; i++) {
        if (guest_create(&c->guest[i], c->model, ENGINE_DBT, true, mem, why, sizeof why) < 0) {
            fprintf(stderr, "insn: %s\n", why);
            return -1;
        }
        guest_on_pmi(c->guest[i], on_pmi, &c->pmis[i == SPARE ? SLICED : i]);
    }
    return engine_set_trace(guest_engine(c->guest[STEPPED]), &trace);
}

static void destroy(struct campaign *c)
{
    for (unsigned i = 0; i < ENGINES; i++)
        guest_destroy(c->guest[i]);
}

int counters_main(enum cpu_model model, const struct forms *forms, u64 seed, u64 first, u64 count)
{
    static struct campaign c;
    u64 failed = 0;

    c = (struct campaign){.model = model, .forms = forms, .seed = seed};
    if (cpu_model_pmu(model)->kind == PMU_KIND_NONE) {
        fprintf(stderr, "insn: %s has no counters\n", cpu_model_name(model));
        return 2;
    }
    if (create(&c))
        return 2;
    for (c.number = first; c.number < first + count && failed < 10; c.number++) {
        if (run_program(&c))
            continue;
        failed++;
        destroy(&c); /* fresh ones: the old differ for ever */
        if (create(&c))
            return 2;
    }
    struct machine_stats st;
    engine_stats(guest_engine(c.guest[STRAIGHT]), &st);
    destroy(&c);
    printf("counters: the straight engine made %lu blocks, took %lu exceptions and %lu interrupts, "
           "ran %lu instructions by hand\n",
           (unsigned long)st.blocks, (unsigned long)st.exceptions, (unsigned long)st.interrupts,
           (unsigned long)st.careful);
    const struct tally *t = &c.tally;
    printf("counters: %llu positions, %llu overflows; interrupts: %llu in ring 0, %llu in ring 3; "
           "%llu after a REP's iteration, %llu a fault, %llu a trap, %llu an interrupt, %llu WRMSR; "
           "%llu engines moved to, %llu programs left early\n",
           (unsigned long long)c.positions, (unsigned long long)c.overflows,
           (unsigned long long)t->rings[0], (unsigned long long)t->rings[1],
           (unsigned long long)t->rep, (unsigned long long)t->fault, (unsigned long long)t->trap,
           (unsigned long long)t->interrupt, (unsigned long long)t->msr, (unsigned long long)c.moves,
           (unsigned long long)c.leaves);
    printf("counters: model %s seed %llu: %llu interrupts, %llu stops in %llu programs; %llu passed, "
           "%llu failed, 0 skipped\n",
           model_arg(model), (unsigned long long)seed, (unsigned long long)c.interrupts,
           (unsigned long long)c.stops, (unsigned long long)count,
           (unsigned long long)(count - failed), (unsigned long long)failed);
    return failed != 0;
}
