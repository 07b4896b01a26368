/*
 * What is undefined after an instruction, and what it is by today's rules (docs/determinism.md),
 * written apart from the engine's table: from the decoder's facts and the manual's words about
 * counts.
 */
#include "tests/insn/insn.h"

#include "cpu/x86/canon.h"

u32 test_revision = REVISION_HOSTS;

/* A count's operand: an immediate, or CL. */
static unsigned shift_count(const ZydisDecodedInstruction *in, const ZydisDecodedOperand *ops,
                            u64 rcx)
{
    bool three = in->mnemonic == ZYDIS_MNEMONIC_SHLD || in->mnemonic == ZYDIS_MNEMONIC_SHRD;
    const ZydisDecodedOperand *o = &ops[three ? 2 : 1];
    u64 n = o->type == ZYDIS_OPERAND_TYPE_IMMEDIATE ? o->imm.value.u : rcx;
    return n % (in->operand_width == 64 ? 64 : 32);
}

u32 canon_flags(const ZydisDecodedInstruction *in, const ZydisDecodedOperand *ops, u64 rcx)
{
    unsigned n;
    switch (in->mnemonic) {
    case ZYDIS_MNEMONIC_MUL:
    case ZYDIS_MNEMONIC_IMUL: return FL_ARITH & ~(FL_CF | FL_OF);
    case ZYDIS_MNEMONIC_DIV:
    case ZYDIS_MNEMONIC_IDIV: return FL_ARITH;
    case ZYDIS_MNEMONIC_BSF:
    case ZYDIS_MNEMONIC_BSR: return FL_ARITH & ~FL_ZF;
    case ZYDIS_MNEMONIC_TZCNT:
    case ZYDIS_MNEMONIC_LZCNT: return FL_ARITH & ~(FL_ZF | FL_CF);
    case ZYDIS_MNEMONIC_ANDN:
    case ZYDIS_MNEMONIC_BLSI:
    case ZYDIS_MNEMONIC_BLSMSK:
    case ZYDIS_MNEMONIC_BLSR:
    case ZYDIS_MNEMONIC_BZHI: return FL_AF | FL_PF;
    case ZYDIS_MNEMONIC_BEXTR: return FL_AF | FL_PF | FL_SF;
    case ZYDIS_MNEMONIC_FCOMI:
    case ZYDIS_MNEMONIC_FCOMIP:
    case ZYDIS_MNEMONIC_FUCOMI:
    case ZYDIS_MNEMONIC_FUCOMIP: return FL_OF | FL_SF | FL_AF;
    case ZYDIS_MNEMONIC_SHLD:
    case ZYDIS_MNEMONIC_SHRD:
        n = shift_count(in, ops, rcx);
        if (n > in->operand_width)
            return FL_ARITH;
        return n == 0 ? 0 : n == 1 ? FL_AF : FL_AF | FL_OF;
    case ZYDIS_MNEMONIC_SHL:
    case ZYDIS_MNEMONIC_SHR:
    case ZYDIS_MNEMONIC_SAR:
        n = shift_count(in, ops, rcx);
        if (n >= in->operand_width && in->mnemonic != ZYDIS_MNEMONIC_SAR)
            return FL_AF | FL_OF | FL_CF;
        return n == 0 ? 0 : n == 1 ? FL_AF : FL_AF | FL_OF;
    case ZYDIS_MNEMONIC_ROL:
    case ZYDIS_MNEMONIC_ROR:
    case ZYDIS_MNEMONIC_RCL:
    case ZYDIS_MNEMONIC_RCR: return shift_count(in, ops, rcx) < 2 ? 0 : FL_OF;
    default: return 0;
    }
}

/* Approximations are the host's, or have a model in tests/unit/test_approx.c alone. */
static bool host_approximates(void)
{
    static int known = -1;
    if (known < 0) {
        struct approx a;
        approx_fill(&a);
        known = canon_host_approximates(&a);
    }
    return known;
}

/* Undefined results, not flags: tests/unit/test_x87_own.c and the guest `undefined` have their
 * models. */
static bool has_own_result(const struct icase *c)
{
    switch (c->insn.mnemonic) {
    case ZYDIS_MNEMONIC_RCPPS:
    case ZYDIS_MNEMONIC_RCPSS:
    case ZYDIS_MNEMONIC_RSQRTPS:
    case ZYDIS_MNEMONIC_RSQRTSS:
    case ZYDIS_MNEMONIC_VRCPPS:
    case ZYDIS_MNEMONIC_VRCPSS:
    case ZYDIS_MNEMONIC_VRSQRTPS:
    case ZYDIS_MNEMONIC_VRSQRTSS: return !host_approximates();
    case ZYDIS_MNEMONIC_F2XM1:
    case ZYDIS_MNEMONIC_FYL2X:
    case ZYDIS_MNEMONIC_FYL2XP1:
    case ZYDIS_MNEMONIC_FPTAN:
    case ZYDIS_MNEMONIC_FPATAN:
    case ZYDIS_MNEMONIC_FSIN:
    case ZYDIS_MNEMONIC_FCOS:
    case ZYDIS_MNEMONIC_FSINCOS:
    case ZYDIS_MNEMONIC_FBLD: return true;
    case ZYDIS_MNEMONIC_BSWAP: return c->insn.operand_width == 16;
    case ZYDIS_MNEMONIC_SHLD:
    case ZYDIS_MNEMONIC_SHRD:
        return shift_count(&c->insn, c->ops, c->st.gpr[RCX]) > c->insn.operand_width;
    default: return false;
    }
}

bool canon_expect(const struct icase *c, struct outcome *n)
{
    const ZydisDecodedInstruction *in = &c->insn;
    if (!c->decoded)
        return true;
    if (c->sequence || has_own_result(c))
        return false;
    /* Not if it faulted. */
    if (n->kind != OUT_EXCEPTION || n->st.rip == c->st.rip)
        return true;
    n->st.rflags &= ~(u64)canon_flags(in, c->ops, c->st.gpr[RCX]);
    if ((in->mnemonic == ZYDIS_MNEMONIC_BSF || in->mnemonic == ZYDIS_MNEMONIC_BSR) &&
        (n->st.rflags & FL_ZF)) {
        ZydisRegister r =
            ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, c->ops[0].reg.value);
        n->st.gpr[r - ZYDIS_REGISTER_RAX] = c->st.gpr[r - ZYDIS_REGISTER_RAX];
    }
    return true;
}
