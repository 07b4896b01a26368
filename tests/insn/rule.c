/*
 * The frozen rule of dead flags (docs: vmm/cpu/x86/flags.c), written a second time and from the
 * decoder's facts alone: what an exception at an instruction shows of the arithmetic flags. It
 * depends on the guest's code bytes and on nothing else, so every way of running must agree.
 */
#include "tests/insn/insn.h"

static u32 written(const ZydisDecodedInstruction *in, const ZydisDecodedOperand *ops)
{
    const ZydisAccessedFlags *f = in->cpu_flags;
    const ZydisDecodedOperand *last = &ops[in->operand_count_visible - 1];
    u32 sure;

    if (!f)
        return 0;
    sure = (f->modified | f->set_0 | f->set_1) & FL_ARITH;
    switch (in->mnemonic) {
    case ZYDIS_MNEMONIC_AND:
    case ZYDIS_MNEMONIC_OR:
    case ZYDIS_MNEMONIC_XOR:
    case ZYDIS_MNEMONIC_TEST: return sure | (f->undefined & FL_ARITH);
    case ZYDIS_MNEMONIC_SHL:
    case ZYDIS_MNEMONIC_SHR:
    case ZYDIS_MNEMONIC_SAR:
    case ZYDIS_MNEMONIC_ROL:
    case ZYDIS_MNEMONIC_ROR:
    case ZYDIS_MNEMONIC_RCL:
    case ZYDIS_MNEMONIC_RCR:
    case ZYDIS_MNEMONIC_SHLD:
    case ZYDIS_MNEMONIC_SHRD:
        if (last->type != ZYDIS_OPERAND_TYPE_IMMEDIATE || in->operand_width < 32)
            return 0;
        return last->imm.value.u & (in->operand_width == 64 ? 63 : 31) ? sure : 0;
    default: break;
    }
    if (in->meta.category == ZYDIS_CATEGORY_STRINGOP)
        for (unsigned i = 0; i < in->raw.prefix_count; i++)
            if ((in->raw.prefixes[i].value | 1) == 0xf3)
                return 0;
    return sure;
}

/* Where what is undefined becomes zero, that is overwritten as well, unless a count decides. */
static u32 overwritten(const ZydisDecodedInstruction *in, const ZydisDecodedOperand *ops)
{
    u32 sure = written(in, ops);
    if (test_revision > REVISION_HOSTS && canon_flags(in, ops, 0) == canon_flags(in, ops, 1) &&
        canon_flags(in, ops, 0) == canon_flags(in, ops, 2))
        sure |= canon_flags(in, ops, 0);
    return sure;
}

static bool stops(enum cpu_model model, const ZydisDecodedInstruction *in)
{
    if (in->meta.branch_type != ZYDIS_BRANCH_TYPE_NONE)
        return true;
    switch (in->meta.category) {
    case ZYDIS_CATEGORY_SYSCALL:
    case ZYDIS_CATEGORY_SYSRET:
    case ZYDIS_CATEGORY_INTERRUPT:
    case ZYDIS_CATEGORY_RET: return true;
    default: break;
    }
    switch (in->mnemonic) {
    case ZYDIS_MNEMONIC_HLT:
    case ZYDIS_MNEMONIC_UD0:
    case ZYDIS_MNEMONIC_UD1:
    case ZYDIS_MNEMONIC_UD2:
    case ZYDIS_MNEMONIC_RSM: return true;
    case ZYDIS_MNEMONIC_ENDBR32:
    case ZYDIS_MNEMONIC_ENDBR64:
    case ZYDIS_MNEMONIC_RDSSPD:
    case ZYDIS_MNEMONIC_RDSSPQ: return false; /* hints where shadow stacks are absent */
    default: return in->meta.isa_set == ZYDIS_ISA_SET_CET || !feature_in_model(model, in);
    }
}

u32 rule_live(enum cpu_model model, const u8 page[PAGE_SIZE], unsigned offset)
{
    u32 live = 0, open = FL_ARITH;
    ZydisDecoder dec;

    feature_decoder(model, &dec);
    while (open && offset < PAGE_SIZE) {
        ZydisDecodedInstruction in;
        ZydisDecodedOperand ops[ZYDIS_MAX_OPERAND_COUNT];
        u32 kill;

        if (!ZYAN_SUCCESS(
                ZydisDecoderDecodeFull(&dec, page + offset, PAGE_SIZE - offset, &in, ops)) ||
            stops(model, &in))
            break;
        kill = overwritten(&in, ops);
        if (in.cpu_flags) {
            live |= in.cpu_flags->tested & open;
            kill |= in.cpu_flags->tested;
        }
        open &= ~kill;
        offset += in.length;
    }
    return live | open;
}
