/*
 * One position after the other of the stepped engine: what it was, as the oracle is told; and what
 * the engine should have done there by the manuals.
 */
#include "tests/insn/counters.h"

#include "cpu/x86/pmu.h"

unsigned counters_cpl(const struct vcpu *v)
{
    return v->seg_attr[SEG_SS] >> 5 & 3;
}

void counters_before(void *opaque)
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
    m->cpl = counters_cpl(&m->cpu);
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
    case ZYDIS_CATEGORY_CALL:
        f->call = !far;
        f->far = far;
        break;
    case ZYDIS_CATEGORY_RET:
        f->ret = !far;
        f->far = far;
        break;
    case ZYDIS_CATEGORY_UNCOND_BR:
        f->jump = !far;
        f->far = far;
        break;
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
        says = m->cpl && !(m->cpu.cr4 & CR4_PCE) ? ORACLE_GP : oracle_rdpmc(&o, (u32)g[RCX], &v);
    else
        return;
    if (says == ORACLE_UNKNOWN)
        return;
    if ((says == ORACLE_OK) != retired)
        counters_fail(c, "ECX %x, value %llx: expected %s", (u32)g[RCX], (unsigned long long)was,
                      says == ORACLE_OK ? "no fault" : "#GP");
    else if (retired && m->in.mnemonic != ZYDIS_MNEMONIC_WRMSR && is != v)
        counters_fail(c, "ECX %x: expected %llx, got %llx", (u32)g[RCX], (unsigned long long)v,
                      (unsigned long long)is);
    if (retired && m->in.mnemonic == ZYDIS_MNEMONIC_WRMSR)
        c->oracle = o;
}

void counters_count(struct campaign *c, const struct facts *f, pos_t after)
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

static void compare_register(struct campaign *c, u32 msr)
{
    struct core *core = core_of(guest_engine(c->guest[STEPPED]));
    u64 expected = 0, got = 0;
    bool ok = false;
    bool there = pmu_rdmsr(core, msr, &got, &ok) && ok;
    bool due = oracle_read(&c->oracle, msr, &expected) == ORACLE_OK;

    if (there != due || (due && got != expected))
        counters_fail(c, "MSR %x: expected %s%llx, got %s%llx", msr, due ? "" : "#GP ",
                      (unsigned long long)expected, there ? "" : "#GP ", (unsigned long long)got);
}

/* Entry i of the last branches, also one that this CPU has not. */
static void compare_record(struct campaign *c, u32 i)
{
    compare_register(c, 0x680 + i);
    compare_register(c, 0x6c0 + i);
    compare_register(c, 0xdc0 + i);
}

void counters_compare_registers(struct campaign *c)
{
    bool amd = c->model == CPU_ZEN2;

    for (unsigned i = 0; i < (amd ? 21 : INTEL_MSRS); i++)
        compare_register(c, !amd     ? counters_intel_msrs[i]
                            : i < 12 ? 0xc0010200 + i
                            : i < 20 ? 0xc0010000 + i - 12
                                     : 0x1d9);
    u32 tos = (u32)c->oracle.tos;
    compare_record(c, tos);
    compare_record(c, (tos + 1) & 31);
}

void counters_compare_records(struct campaign *c)
{
    for (u32 i = 0; i < 32; i++)
        compare_record(c, i);
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
    /* A branch to itself; of one that is not relative nothing else can be. */
    bool itself = m->decoded &&
                  (m->in.raw.imm[0].is_relative ? m->in.raw.imm[0].value.s == -(i64)m->in.length
                                                : m->in.meta.branch_type != ZYDIS_BRANCH_TYPE_NONE);
    return (m->cpu.rflags & FL_TF) && (is_rep_string(m) || itself);
}

/* A fault that is not the instruction's: a single-step trap's, whose gate in the IDT the program
 * has ruined. What it pushes is behind the instruction. */
static bool is_traps_fault(struct campaign *c, const struct vcpu *now, int vector)
{
    u64 pushed = 0;

    return (c->before.cpu.rflags & FL_TF) &&
           (!engine_peek(guest_engine(c->guest[STEPPED]),
                         now->gpr[RSP] + (HAS_ERROR >> vector & 1 ? 8 : 0), &pushed, 8) ||
            pushed != c->before.cpu.rip);
}

void counters_after(void *opaque)
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
        counters_fail(c, "%llu positions at once", (unsigned long long)(now - m->at));
    u64 exceptions = st.exceptions - m->exceptions;
    int vector = exceptions ? guest_vector(c->guest[STEPPED]) : -1;
    if (exceptions && vector < 0)
        c->left = true; /* its tables are ruined */
    bool trap = exceptions && was_trap(c, v, vector), fault = exceptions && !trap;
    if (fault && vector >= 0 && is_traps_fault(c, v, vector))
        c->left = true;
    u64 rip = v->rip;
    if (trap && !engine_peek(e, v->gpr[RSP], &rip, 8))
        c->left = true;
    bool iteration = is_rep_string(m) && rip == m->cpu.rip;
    f.insn = !fault && !iteration;
    f.delivery = fault;
    if (f.insn)
        classify(m, &f);
    f.empty_call = f.call && rip == m->cpu.rip + m->in.length;
    if (f.cond && m->in.raw.imm[0].value.s && (rip != m->cpu.rip + m->in.length) != f.taken)
        counters_fail(c, "the test takes it for %staken", f.taken ? "" : "not ");
    judge_access(c, v, f.insn, fault && vector == EXC_GP);
    if (!fault && !c->left && m->cpu.shadow != 2 && traps(c, &f) != trap)
        counters_fail(c, trap ? "a single-step trap" : "no single-step trap");
    u64 cs = v->seg_sel[SEG_CS];
    if (trap && !engine_peek(e, v->gpr[RSP] + 8, &cs, 8))
        c->left = true;
    if (f.cond || f.jump || f.call || f.ret || f.far || (fault && vector != EXC_DB))
        oracle_branch(&c->oracle, &f, m->cpu.rip, rip, cs & 3, now);
    counters_count(c, &f, now);
    if (trap)
        counters_count(c, &delivered, now);
    if (exceptions && vector == EXC_DB)
        c->oracle.debugctl &= ~3ull;
    oracle_ring(&c->oracle, counters_cpl(v));
    if (!c->left)
        counters_compare_registers(c);
}
