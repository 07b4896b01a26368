/*
 * Decoding: Zydis' facts plus the treatment of insn.def, reduced to struct insn. The only file
 * besides the translator's report that knows Zydis. SDM vol. 2.
 */
#include "cpu/x86/insn.h"

#include <stdio.h>
#include <string.h>
#include <Zydis/Zydis.h>

#include "cpu/vcpu.h"
#include "cpu/x86/canon.h"

/* Every helper that insn.def names. */
#define ISA_SET(set, has, needs, treat)
#define INSN(m, treat, helper) extern helper_fn help_##helper;
#define OWN(m, helper)         extern helper_fn help_##helper;
#include "cpu/x86/insn.def"
#undef INSN
#undef ISA_SET

enum { S_GEN = 1, S_LISTED };

enum { FEAT_ALL = INSN_OF_ALL, FEAT_NONE = INSN_OF_NONE };

struct set_row {
    u16 has;
    u8 needs, treat;
};
static const struct set_row set_rows[ZYDIS_ISA_SET_MAX_VALUE + 1] = {
#define ISA_SET(set, has, needs, treat) [ZYDIS_ISA_SET_##set] = {FEAT_##has, N_##needs, S_##treat},
#define INSN(m, treat, helper)
#include "cpu/x86/insn.def"
#undef INSN
#undef ISA_SET
};

static const struct {
    const char *set;
    u8 treat;
} later_sets[] = {
#define ISA_SET(set, has, needs, treat)
#define INSN(m, treat, helper)
#define LATER_SET(set, treat) {set, T_##treat},
#include "cpu/x86/insn.def"
#undef INSN
#undef ISA_SET
};

/* MOV and MOVSD/CMPSD name two things each; they are told apart below. */
enum { T_MOV = 64, T_MOVSD, T_GEN64 };

struct insn_row {
    u8 treat;
    helper_fn *help;
};
static const struct insn_row insn_rows[ZYDIS_MNEMONIC_MAX_VALUE + 1] = {
#define ISA_SET(set, has, needs, treat)
#define INSN(m, treat, helper) [ZYDIS_MNEMONIC_##m] = {T_##treat, help_##helper},
#include "cpu/x86/insn.def"
#undef INSN
#undef ISA_SET
};

static const struct {
    u16 mnemonic;
    helper_fn *help;
} own_rows[] = {
#define ISA_SET(set, has, needs, treat)
#define INSN(m, treat, helper)
#define OWN(m, helper) {ZYDIS_MNEMONIC_##m, help_##helper},
#include "cpu/x86/insn.def"
#undef INSN
#undef ISA_SET
};

extern helper_fn help_masked;

/* Treatments that need no helper. */
int help_none(struct core *d, struct insn *in)
{
    (void)d;
    (void)in;
    return 0;
}

static int gpr_of(ZydisRegister r)
{
    if (r == ZYDIS_REGISTER_NONE)
        return -1;
    ZydisRegister g = ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, r);
    return g >= ZYDIS_REGISTER_RAX && g <= ZYDIS_REGISTER_R15 ? (int)(g - ZYDIS_REGISTER_RAX) : -1;
}

/* What Zydis calls it. */
static const struct {
    ZydisMachineMode machine;
    ZydisStackWidth stack;
} zydis_modes[CODE_SIZES] = {
    [CODE_64] = {ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64},
    [CODE_32] = {ZYDIS_MACHINE_MODE_LONG_COMPAT_32, ZYDIS_STACK_WIDTH_32},
    [CODE_16] = {ZYDIS_MACHINE_MODE_LONG_COMPAT_16, ZYDIS_STACK_WIDTH_16},
    [CODE_REAL] = {ZYDIS_MACHINE_MODE_REAL_16, ZYDIS_STACK_WIDTH_16},
};

static void decoder_for(const u32 *words, enum code_size code, ZydisDecoder *dec)
{
    ZydisDecoderInit(dec, zydis_modes[code].machine, zydis_modes[code].stack);
    ZydisDecoderEnableMode(dec, ZYDIS_DECODER_MODE_MPX, ZYAN_FALSE);
    ZydisDecoderEnableMode(dec, ZYDIS_DECODER_MODE_CET, ZYAN_TRUE);
    ZydisDecoderEnableMode(dec, ZYDIS_DECODER_MODE_CLDEMOTE, ZYAN_FALSE);
    ZydisDecoderEnableMode(dec, ZYDIS_DECODER_MODE_WBNOINVD, ZYAN_FALSE);
    /* Without BMI1/LZCNT, F3 0F BC/BD are BSF/BSR. */
    ZydisDecoderEnableMode(dec, ZYDIS_DECODER_MODE_LZCNT, cpu_words_have(words, FEAT_LZCNT));
    ZydisDecoderEnableMode(dec, ZYDIS_DECODER_MODE_TZCNT, cpu_words_have(words, FEAT_BMI1));
}

static void add_gpr(struct insn *in, ZydisRegister r, bool written)
{
    int g = gpr_of(r);
    if (g < 0)
        return;
    in->use |= 1u << g;
    if (written)
        in->wr |= 1u << g;
    if (r >= ZYDIS_REGISTER_AH && r <= ZYDIS_REGISTER_BH)
        in->high8 = 1;
}

static u8 kind_of(const ZydisDecodedOperand *o, struct insn *in)
{
    ZydisRegister r = o->reg.value;
    switch (o->type) {
    case ZYDIS_OPERAND_TYPE_MEMORY: return OP_MEM;
    case ZYDIS_OPERAND_TYPE_IMMEDIATE: return OP_IMM;
    case ZYDIS_OPERAND_TYPE_REGISTER:
        if (gpr_of(r) >= 0)
            return OP_GPR;
        if (r >= ZYDIS_REGISTER_ES && r <= ZYDIS_REGISTER_GS) {
            in->sreg = (u8)(r - ZYDIS_REGISTER_ES);
            return OP_SREG;
        }
        if (r >= ZYDIS_REGISTER_CR0 && r <= ZYDIS_REGISTER_CR15) {
            in->sreg = (u8)(r - ZYDIS_REGISTER_CR0);
            return OP_CR;
        }
        if (r >= ZYDIS_REGISTER_DR0 && r <= ZYDIS_REGISTER_DR15) {
            in->sreg = (u8)(r - ZYDIS_REGISTER_DR0);
            return OP_DR;
        }
        return OP_OTHER;
    case ZYDIS_OPERAND_TYPE_POINTER: return OP_FAR;
    default: return OP_OTHER;
    }
}

static void take_memory(struct insn *in, const ZydisDecodedInstruction *zi,
                        const ZydisDecodedOperand *o)
{
    in->has_mem = 1;
    in->base = (i8)gpr_of(o->mem.base);
    in->index = (i8)gpr_of(o->mem.index);
    in->scale = o->mem.scale ? o->mem.scale : 1;
    in->disp = o->mem.disp.has_displacement ? o->mem.disp.value : 0;
    /* Zydis 4.0 with 67h and REX.B: SIB base 101 under mod 00 is a displacement, not R13D. */
    if ((zi->attributes & ZYDIS_ATTRIB_HAS_SIB) && zi->raw.sib.base == 5 &&
        zi->raw.modrm.mod == 0) {
        in->base = -1;
        in->disp = zi->raw.disp.value;
    }
    in->rip_rel = o->mem.base == ZYDIS_REGISTER_RIP || o->mem.base == ZYDIS_REGISTER_EIP;
    in->seg = o->mem.segment >= ZYDIS_REGISTER_ES && o->mem.segment <= ZYDIS_REGISTER_GS
                  ? (u8)(o->mem.segment - ZYDIS_REGISTER_ES)
                  : SEG_DS;
    if (zi->attributes & ZYDIS_ATTRIB_HAS_NOTRACK) /* DS, where there are no shadow stacks */
        in->seg = SEG_DS;
    /* CS, DS, ES and SS overrides are ignored in 64-bit mode, but RSP and RBP bases still fault
     * with #SS (SDM vol. 1, 3.3.7.1). */
    if (in->code == CODE_64 && in->seg != SEG_FS && in->seg != SEG_GS)
        in->seg = in->base == RSP || in->base == RBP ? SEG_SS : SEG_DS;
    if (o->mem.type != ZYDIS_MEMOP_TYPE_MEM)
        return; /* LEA, VSIB, MIB: no access as it stands */
    if (o->actions & ZYDIS_OPERAND_ACTION_MASK_READ)
        in->mem |= MEM_R;
    if (o->actions & ZYDIS_OPERAND_ACTION_MASK_WRITE)
        in->mem |= MEM_W;
    in->mem_size = o->size / 8 <= 64 ? (u8)(o->size / 8) : 0;
    if (zi->mnemonic == ZYDIS_MNEMONIC_MOVSXD && in->opsize == 2)
        in->mem_size = 2;
}

static bool has_vector(const ZydisDecodedInstruction *zi, const ZydisDecodedOperand *op, bool mmx)
{
    for (int i = 0; i < zi->operand_count; i++) {
        if (op[i].type != ZYDIS_OPERAND_TYPE_REGISTER)
            continue;
        ZydisRegisterClass c = ZydisRegisterGetClass(op[i].reg.value);
        if (mmx ? c == ZYDIS_REGCLASS_MMX : c == ZYDIS_REGCLASS_XMM || c == ZYDIS_REGCLASS_YMM)
            return true;
    }
    return false;
}

/* Would VEX.W make a general register, or an integer in memory, one of 64 bits? */
static bool takes_register(const ZydisDecodedInstruction *zi, const ZydisDecodedOperand *op)
{
    for (int i = 0; i < zi->operand_count; i++)
        if (op[i].type == ZYDIS_OPERAND_TYPE_REGISTER && gpr_of(op[i].reg.value) >= 0)
            return true;
    switch (zi->mnemonic) {
    case ZYDIS_MNEMONIC_VMOVD:
    case ZYDIS_MNEMONIC_VPINSRD:
    case ZYDIS_MNEMONIC_VPEXTRD:
    case ZYDIS_MNEMONIC_VCVTUSI2SS:
    case ZYDIS_MNEMONIC_VCVTUSI2SD:
    case ZYDIS_MNEMONIC_VCVTSI2SS:
    case ZYDIS_MNEMONIC_VCVTSI2SD: return true;
    default: return false;
    }
}

/* Which control bits gate it (SDM vol. 3, tables 13-1 and 13-2). Integer instructions that came
 * with SSE (MOVNTI, CRC32, fences, PREFETCH) need none. */
static u8 needs_of(const ZydisDecodedInstruction *zi, const ZydisDecodedOperand *op, u8 needs)
{
    /* FCOMI and FISTTP came in other sets. */
    if (zi->meta.isa_ext == ZYDIS_ISA_EXT_X87 || zi->meta.category == ZYDIS_CATEGORY_X87_ALU)
        return N_X87;
    if (needs != N_SSE)
        return needs;
    if (has_vector(zi, op, false))
        return N_SSE;
    switch (zi->mnemonic) {
    case ZYDIS_MNEMONIC_CVTPS2PI:
    case ZYDIS_MNEMONIC_CVTTPS2PI:
    case ZYDIS_MNEMONIC_CVTPD2PI:
    case ZYDIS_MNEMONIC_CVTTPD2PI: return N_SSE;
    default: break;
    }
    if (has_vector(zi, op, true))
        return N_MMX;
    switch (zi->mnemonic) {
    case ZYDIS_MNEMONIC_LDMXCSR:
    case ZYDIS_MNEMONIC_STMXCSR: return N_SSE;
    default: return N_BASE;
    }
}

static void take_flags(struct insn *in, const ZydisDecodedInstruction *zi,
                       const ZydisDecodedOperand *op)
{
    const ZydisAccessedFlags *f = zi->cpu_flags;
    if (!f)
        return;
    in->test = f->tested & FL_ARITH;
    /*
     * An undefined flag counts as overwritten only where every CPU gives it a value of its own.
     * Others leave some undefined flags as they were (BT, shifts), and who reads one must not see
     * how the code was translated.
     */
    in->kill = (f->modified | f->set_0 | f->set_1) & FL_ARITH;
    switch (zi->mnemonic) {
    case ZYDIS_MNEMONIC_AND:
    case ZYDIS_MNEMONIC_OR:
    case ZYDIS_MNEMONIC_XOR:
    case ZYDIS_MNEMONIC_TEST: in->kill |= f->undefined & FL_ARITH; break;
    case ZYDIS_MNEMONIC_SHL:
    case ZYDIS_MNEMONIC_SHR:
    case ZYDIS_MNEMONIC_SAR:
    case ZYDIS_MNEMONIC_ROL:
    case ZYDIS_MNEMONIC_ROR:
    case ZYDIS_MNEMONIC_RCL:
    case ZYDIS_MNEMONIC_RCR:
    case ZYDIS_MNEMONIC_SHLD:
    case ZYDIS_MNEMONIC_SHRD: {
        /* A count of zero changes no flag. */
        const ZydisDecodedOperand *last = &op[zi->operand_count_visible - 1];
        u64 mask = zi->operand_width == 64 ? 63 : 31;
        if (last->type != ZYDIS_OPERAND_TYPE_IMMEDIATE || (last->imm.value.u & mask) == 0)
            in->kill = 0;
        /* RCL/RCR of 8 and 16 bits take the count modulo 9 and 17. */
        if (zi->operand_width < 32)
            in->kill = 0;
        break;
    }
    default: break;
    }
    if (in->rep && zi->meta.category == ZYDIS_CATEGORY_STRINGOP)
        in->kill = 0; /* RCX may be zero */
}

static void take_prefixes(struct insn *in, const ZydisDecodedInstruction *zi)
{
    unsigned k = 0, n = zi->raw.prefix_count;
    for (unsigned i = 0; i < n; i++) {
        u8 p = zi->raw.prefixes[i].value;
        if ((p & 0xf0) == 0x40) {
            continue;
        }
        switch (p) {
        case 0x66:
            if (!memchr(in->keep, p, k))
                in->keep[k++] = p;
            break;
        case 0xf2:
        case 0xf3:
            if (zi->raw.prefixes[i].type == ZYDIS_PREFIX_TYPE_MANDATORY)
                in->keep[k++] = p;
            in->rep = p;
            break;
        case 0xf0: in->lock = 1; break;
        default: break; /* segments, 67h */
        }
        if (k == sizeof(in->keep) - 1)
            break;
    }
    /* Where legacy prefixes end: a REX counts only directly before the opcode. */
    in->prefix_end = (u8)n;
    in->rex = 0;
    if (zi->attributes & ZYDIS_ATTRIB_HAS_REX) {
        in->rex = in->bytes[zi->raw.rex.offset];
        in->prefix_end = zi->raw.rex.offset;
    }
}

static void take_layout(struct insn *in, const ZydisDecodedInstruction *zi)
{
    in->modrm_off = zi->raw.modrm.offset;
    in->mod = zi->raw.modrm.mod;
    in->disp_end = (u8)(in->modrm_off + 1);
    if (zi->attributes & ZYDIS_ATTRIB_HAS_SIB)
        in->disp_end = (u8)(zi->raw.sib.offset + 1);
    if (zi->raw.disp.size)
        in->disp_end = (u8)(zi->raw.disp.offset + zi->raw.disp.size / 8);
    in->opcode = zi->opcode;
    in->map = (u8)zi->opcode_map;
    in->encoding = (u8)zi->encoding;
    u8 r = 0, b = 0;
    if (zi->encoding == ZYDIS_INSTRUCTION_ENCODING_LEGACY) {
        r = (in->rex & 4) << 1;
        b = (in->rex & 1) << 3;
        in->opcode_off = (u8)(in->prefix_end + (in->rex ? 1 : 0));
    } else {
        in->opcode_off = zi->encoding == ZYDIS_INSTRUCTION_ENCODING_EVEX ? zi->raw.evex.offset
                                                                         : zi->raw.vex.offset;
    }
    in->reg = zi->raw.modrm.reg | r;
    in->rm = zi->raw.modrm.rm | b;
}

/* Do only the values of displacement and immediate follow from their bytes? EVEX scales the one; of
 * the other shifts by 0 or 1 are something else, and ENTER and far pointers have two. */
static void take_head(struct insn *in, const ZydisDecodedInstruction *zi)
{
    unsigned imm = zi->raw.imm[0].size / 8;
    bool shifts =
        zi->meta.category == ZYDIS_CATEGORY_SHIFT || zi->meta.category == ZYDIS_CATEGORY_ROTATE;
    if (zi->encoding == ZYDIS_INSTRUCTION_ENCODING_EVEX || (imm && shifts) || zi->raw.imm[1].size)
        return;
    in->disp_bytes = zi->raw.disp.size / 8;
    in->head = (u8)(zi->length - in->disp_bytes - imm);
    in->imm_signed = zi->raw.imm[0].is_signed;
}

/* How often an embedded or static broadcast repeats what it loads. */
static unsigned lanes_of(const ZydisDecodedInstruction *zi, unsigned elements)
{
    switch (zi->avx.broadcast.mode) {
    case ZYDIS_BROADCAST_MODE_1_TO_2: return 2;
    case ZYDIS_BROADCAST_MODE_1_TO_4:
    case ZYDIS_BROADCAST_MODE_2_TO_4: return 4;
    case ZYDIS_BROADCAST_MODE_1_TO_8:
    case ZYDIS_BROADCAST_MODE_2_TO_8:
    case ZYDIS_BROADCAST_MODE_4_TO_8: return 8;
    case ZYDIS_BROADCAST_MODE_1_TO_16:
    case ZYDIS_BROADCAST_MODE_2_TO_16:
    case ZYDIS_BROADCAST_MODE_4_TO_16:
    case ZYDIS_BROADCAST_MODE_8_TO_16: return 16;
    case ZYDIS_BROADCAST_MODE_1_TO_32: return 32;
    case ZYDIS_BROADCAST_MODE_1_TO_64: return 64;
    default: return elements;
    }
}

/* Which elements of its memory operand a mask leaves out, so that they do not fault: SDM vol. 2,
 * 2.8.5 (the classes without NF). */
static void take_mask(struct insn *in, const ZydisDecodedInstruction *zi,
                      const ZydisDecodedOperand *o)
{
    if (zi->encoding != ZYDIS_INSTRUCTION_ENCODING_EVEX || !in->mem ||
        zi->avx.mask.reg <= ZYDIS_REGISTER_K0)
        return;
    in->merges = (in->mem & MEM_W) != 0;
    switch (zi->mnemonic) { /* of E4NF, and some releases of Zydis say E4 */
    case ZYDIS_MNEMONIC_VDBPSADBW:
    case ZYDIS_MNEMONIC_VGF2P8AFFINEQB:
    case ZYDIS_MNEMONIC_VGF2P8AFFINEINVQB: return;
    default: break;
    }
    switch (zi->meta.exception_class) {
    case ZYDIS_EXCEPTION_CLASS_E1:
    case ZYDIS_EXCEPTION_CLASS_E2:
    case ZYDIS_EXCEPTION_CLASS_E3:
    case ZYDIS_EXCEPTION_CLASS_E4:
    case ZYDIS_EXCEPTION_CLASS_E5:
    case ZYDIS_EXCEPTION_CLASS_E6:
    case ZYDIS_EXCEPTION_CLASS_E10:
    case ZYDIS_EXCEPTION_CLASS_E11: break;
    default: return;
    }
    in->mask = (u8)(zi->avx.mask.reg - ZYDIS_REGISTER_K0);
    in->elem = (u8)(o->element_size / 8);
    in->lanes = (u8)lanes_of(zi, o->element_count);
    in->packed =
        zi->meta.category == ZYDIS_CATEGORY_COMPRESS || zi->meta.category == ZYDIS_CATEGORY_EXPAND;
}

static bool x87_control(ZydisMnemonic m)
{
    switch (m) {
    case ZYDIS_MNEMONIC_FNINIT:
    case ZYDIS_MNEMONIC_FNCLEX:
    case ZYDIS_MNEMONIC_FLDCW:
    case ZYDIS_MNEMONIC_FNSTCW:
    case ZYDIS_MNEMONIC_FNSTSW:
    case ZYDIS_MNEMONIC_FLDENV:
    case ZYDIS_MNEMONIC_FNSTENV:
    case ZYDIS_MNEMONIC_FNSAVE:
    case ZYDIS_MNEMONIC_FRSTOR:
    case ZYDIS_MNEMONIC_FWAIT:
    case ZYDIS_MNEMONIC_FENI8087_NOP:
    case ZYDIS_MNEMONIC_FDISI8087_NOP:
    case ZYDIS_MNEMONIC_FSETPM287_NOP: return true;
    default: return false;
    }
}

/* All but the FN forms. */
static bool x87_waits(ZydisMnemonic m)
{
    switch (m) {
    case ZYDIS_MNEMONIC_FLDCW:
    case ZYDIS_MNEMONIC_FLDENV:
    case ZYDIS_MNEMONIC_FRSTOR:
    case ZYDIS_MNEMONIC_FWAIT: return true;
    default: return !x87_control(m);
    }
}

/* Alignment is checked before anything else about the address (SDM vol. 2, 2.4, types 1, 2, 4). */
static u8 alignment(const struct insn *in, const ZydisDecodedInstruction *zi)
{
    switch (zi->mnemonic) {
    case ZYDIS_MNEMONIC_MOVUPS:
    case ZYDIS_MNEMONIC_MOVUPD:
    case ZYDIS_MNEMONIC_MOVDQU:
    case ZYDIS_MNEMONIC_LDDQU:
    case ZYDIS_MNEMONIC_PCMPESTRI:
    case ZYDIS_MNEMONIC_PCMPESTRM:
    case ZYDIS_MNEMONIC_PCMPISTRI:
    case ZYDIS_MNEMONIC_PCMPISTRM: return 0;
    case ZYDIS_MNEMONIC_VMOVAPS:
    case ZYDIS_MNEMONIC_VMOVAPD:
    case ZYDIS_MNEMONIC_VMOVDQA:
    case ZYDIS_MNEMONIC_VMOVDQA32:
    case ZYDIS_MNEMONIC_VMOVDQA64:
    case ZYDIS_MNEMONIC_VMOVNTPS:
    case ZYDIS_MNEMONIC_VMOVNTPD:
    case ZYDIS_MNEMONIC_VMOVNTDQ:
    case ZYDIS_MNEMONIC_VMOVNTDQA: return in->mem_size;
    case ZYDIS_MNEMONIC_CMPXCHG16B: return 16;
    default: return in->needs == N_SSE && in->mem && in->mem_size == 16 ? 16 : 0;
    }
}

/* Of a set that insn.def names as text; T_NONE: it does not. */
static u8 later_treatment(ZydisISASet set)
{
    const char *name = ZydisISASetGetString(set);
    for (unsigned i = 0; name && i < ARRAY_SIZE(later_sets); i++) {
        if (!strcmp(name, later_sets[i].set))
            return later_sets[i].treat;
    }
    return T_NONE;
}

/* The feature that it came with. One of a set that no row names is not asked for. */
static u16 feature_of(const ZydisDecodedInstruction *zi, const struct set_row *set,
                      const struct insn *in)
{
    if (zi->mnemonic == ZYDIS_MNEMONIC_VPCLMULQDQ && set->has == FEAT_AVX)
        return FEAT_PCLMULQDQ;
    if (!set->treat || (set->has == FEAT_LAHF && in->code != CODE_64))
        return FEAT_ALL;
    return set->has;
}

static bool has_it(const u32 *words, const struct insn *in, const struct set_row *set)
{
    if (in->feature == FEAT_ALL || in->feature == FEAT_NONE)
        return in->feature == FEAT_ALL;
    if (set->needs == N_AVX && !cpu_words_have(words, FEAT_AVX))
        return false;
    if ((set->needs == N_AVX512 || set->needs == N_AVX512VL) &&
        !cpu_words_have(words, FEAT_AVX512F))
        return false;
    if (set->needs == N_AVX512VL && !cpu_words_have(words, FEAT_AVX512VL))
        return false;
    return cpu_words_have(words, in->feature);
}

static void take_treatment(struct insn *in, const ZydisDecodedInstruction *zi,
                           const ZydisDecodedOperand *op, const u32 *words)
{
    const struct set_row *set = &set_rows[zi->meta.isa_set];
    const struct insn_row *row = &insn_rows[zi->mnemonic];
    in->needs = needs_of(zi, op, set->needs == N_AVX512VL ? N_AVX512 : set->needs);
    in->help = row->help;
    in->treat = row->treat ? row->treat : set->treat == S_GEN ? T_GEN : T_NONE;
    if (!set->treat && !row->treat)
        in->treat = later_treatment(zi->meta.isa_set);
    bool string = zi->meta.category == ZYDIS_CATEGORY_STRINGOP;
    if (in->treat == T_MOVSD) {
        in->treat = string ? T_HELP : T_GEN;
        if (string)
            in->needs = N_BASE;
    } else if (in->treat == T_MOV) {
        bool system = in->op0_kind == OP_SREG || in->op0_kind == OP_CR || in->op0_kind == OP_DR ||
                      in->op1_kind == OP_SREG || in->op1_kind == OP_CR || in->op1_kind == OP_DR;
        in->treat = system ? T_HELP : T_GEN;
    } else if (in->treat == T_GEN64) {
        in->treat = in->code == CODE_64 ? T_GEN : T_HELP;
    } else if (in->treat == T_BITS) {
        in->treat = in->mem && in->op1_kind == OP_GPR ? T_HELP : T_GEN;
    }
    /* A set that the CPU lacks: #UD, but for the hints and NOPs listed. */
    in->feature = feature_of(zi, set, in);
    if (set->needs == N_AVX512VL && cpu_words_have(words, set->has) &&
        !cpu_words_have(words, FEAT_AVX512VL))
        in->feature = FEAT_AVX512VL; /* what is missing */
    if (!has_it(words, in, set)) {
        if (in->treat == T_NOP)
            in->needs = N_BASE;
        else
            in->treat = T_UD;
    }
    if (zi->meta.branch_type == ZYDIS_BRANCH_TYPE_FAR) {
        in->far = 1;
        if (in->treat == T_CALL || in->treat == T_JMP || in->treat == T_RET)
            in->treat = T_HELP;
    }
    bool near = in->treat == T_CALL || in->treat == T_JMP || in->treat == T_RET;
    in->stack = in->opsize == 2 ? 2 : 4;
    if (in->code == CODE_64 && (near || in->stack == 4))
        in->stack = 8;
    /* More than one explicit access, or one the rewrite cannot express. */
    if (in->treat == T_GEN && in->has_mem && in->mem_size == 0)
        in->treat = T_NONE;
}

/* By our own code where results are canonical; approximations if they are not the host's. */
static void take_own(struct insn *in, unsigned rules)
{
    bool approx = in->needs == N_SSE || in->needs == N_AVX;
    if (in->treat != T_GEN || (approx && !(rules & RULE_APPROX)))
        return;
    for (unsigned i = 0; i < ARRAY_SIZE(own_rows); i++)
        if (own_rows[i].mnemonic == in->mnemonic) {
            in->treat = T_HELP;
            in->help = own_rows[i].help;
        }
}

/* The segment of what is DS:... by default. */
static u8 override(const ZydisDecodedInstruction *zi, unsigned code)
{
    static const struct {
        u64 attribute;
        u8 seg;
        bool always;
    } rows[] = {{ZYDIS_ATTRIB_HAS_SEGMENT_FS, SEG_FS, true},
                {ZYDIS_ATTRIB_HAS_SEGMENT_GS, SEG_GS, true},
                {ZYDIS_ATTRIB_HAS_SEGMENT_CS, SEG_CS, false},
                {ZYDIS_ATTRIB_HAS_SEGMENT_SS, SEG_SS, false},
                {ZYDIS_ATTRIB_HAS_SEGMENT_ES, SEG_ES, false}};
    for (unsigned i = 0; i < ARRAY_SIZE(rows); i++)
        if ((zi->attributes & rows[i].attribute) && (rows[i].always || code != CODE_64))
            return rows[i].seg;
    return SEG_DS;
}

void insn_decode(const u32 *words, enum code_size code, unsigned rules, const u8 bytes[15],
                 unsigned avail, struct insn *in)
{
    ZydisDecoder dec;
    decoder_for(words, code, &dec);
    ZydisDecodedInstruction zi;
    ZydisDecodedOperand op[ZYDIS_MAX_OPERAND_COUNT];
    memset(in, 0, sizeof(*in));
    memcpy(in->bytes, bytes, avail < 15 ? avail : 15);
    in->code = (u8)code;
    in->base = in->index = in->reg0 = in->reg1 = -1;
    in->sreg = 0xff;
    ZyanStatus s = ZydisDecoderDecodeFull(&dec, in->bytes, avail, &zi, op);
    if (!ZYAN_SUCCESS(s)) {
        in->treat = s == ZYDIS_STATUS_INSTRUCTION_TOO_LONG ? T_GP_LONG
                    : s == ZYDIS_STATUS_NO_MORE_DATA       ? T_GP_LONG
                                                           : T_UD;
        in->len = s == ZYDIS_STATUS_NO_MORE_DATA && avail < 15 ? 0 : 1;
        return;
    }
    in->len = zi.length;
    in->mnemonic = (u16)zi.mnemonic;
    in->opsize = zi.operand_width / 8;
    in->addrsize = zi.address_width / 8;
    in->seg = override(&zi, in->code);
    take_prefixes(in, &zi);
    take_layout(in, &zi);
    for (int i = 0; i < zi.operand_count; i++) {
        const ZydisDecodedOperand *o = &op[i];
        bool w = o->actions & ZYDIS_OPERAND_ACTION_MASK_WRITE;
        if (o->type == ZYDIS_OPERAND_TYPE_REGISTER) {
            add_gpr(in, o->reg.value, w);
        } else if (o->type == ZYDIS_OPERAND_TYPE_MEMORY) {
            add_gpr(in, o->mem.base, false);
            add_gpr(in, o->mem.index, false);
            if (o->visibility != ZYDIS_OPERAND_VISIBILITY_HIDDEN && !in->has_mem) {
                take_memory(in, &zi, o);
                take_mask(in, &zi, o);
            }
        }
    }
    if (zi.operand_count_visible > 0) {
        in->op0_kind = kind_of(&op[0], in);
        if (in->op0_kind == OP_GPR)
            in->reg0 = (i8)gpr_of(op[0].reg.value);
        if (in->op0_kind == OP_IMM)
            in->imm = op[0].imm.value.s;
        if (in->op0_kind == OP_FAR) {
            in->imm = op[0].ptr.offset;
            in->imm2 = op[0].ptr.segment;
        }
    }
    if (zi.operand_count_visible > 1) {
        in->op1_kind = kind_of(&op[1], in);
        if (in->op1_kind == OP_GPR)
            in->reg1 = (i8)gpr_of(op[1].reg.value);
        if (in->op1_kind == OP_IMM)
            in->imm2 = op[1].imm.value.u;
    }
    take_head(in, &zi);
    take_treatment(in, &zi, op, words);
    take_flags(in, &zi, op);
    if (rules & RULE_CANONICAL) {
        canon_take(in);
        take_own(in, rules);
    }
    if (in->mask && in->treat == T_GEN)
        in->help = help_masked;
    in->cond = zi.opcode & 15;
    switch (zi.meta.category) {
    case ZYDIS_CATEGORY_SYSCALL:
    case ZYDIS_CATEGORY_SYSRET:
    case ZYDIS_CATEGORY_INTERRUPT:
    case ZYDIS_CATEGORY_RET: in->ends = 1; break;
    default:
        /* Instructions that show or replace RFLAGS as a whole. */
        in->ends = zi.mnemonic == ZYDIS_MNEMONIC_IRET || zi.mnemonic == ZYDIS_MNEMONIC_IRETD ||
                   zi.mnemonic == ZYDIS_MNEMONIC_IRETQ || zi.mnemonic == ZYDIS_MNEMONIC_HLT ||
                   zi.mnemonic == ZYDIS_MNEMONIC_SYSCALL ||
                   zi.mnemonic == ZYDIS_MNEMONIC_SYSENTER || zi.mnemonic == ZYDIS_MNEMONIC_INT1 ||
                   zi.mnemonic == ZYDIS_MNEMONIC_INT3 || zi.mnemonic == ZYDIS_MNEMONIC_INT ||
                   /* and those after which other code may stand at the next address */
                   zi.mnemonic == ZYDIS_MNEMONIC_WRMSR || zi.mnemonic == ZYDIS_MNEMONIC_LMSW ||
                   zi.mnemonic == ZYDIS_MNEMONIC_XSETBV || in->op0_kind == OP_CR;
        break;
    }
    in->syncs = in->lock || (in->mem && zi.mnemonic == ZYDIS_MNEMONIC_XCHG) ||
                zi.meta.category == ZYDIS_CATEGORY_SYSCALL ||
                zi.meta.category == ZYDIS_CATEGORY_SYSRET ||
                zi.meta.category == ZYDIS_CATEGORY_INTERRUPT;
    in->fpu_nowait = x87_control(zi.mnemonic);
    in->fpu_wait = has_vector(&zi, op, true) || (in->needs == N_X87 && x87_waits(zi.mnemonic));
    in->align = alignment(in, &zi);
    in->align_ours = in->align && zi.meta.isa_set == ZYDIS_ISA_SET_SHA;
    in->fixed_size = (in->needs >= N_X87 && in->needs <= N_AVX) || in->needs == N_AVX512 ||
                     zi.mnemonic == ZYDIS_MNEMONIC_MOVNTI ||
                     zi.meta.isa_set == ZYDIS_ISA_SET_ADOX_ADCX;
    in->small = takes_register(&zi, op);
    in->imm_register = zi.mnemonic == ZYDIS_MNEMONIC_VBLENDVPS ||
                       zi.mnemonic == ZYDIS_MNEMONIC_VBLENDVPD ||
                       zi.mnemonic == ZYDIS_MNEMONIC_VPBLENDVB;
    if (in->needs == N_X87 && zi.opcode >= 0xd8 && zi.opcode <= 0xdf)
        in->fop = (u16)((zi.opcode & 7) << 8 | in->bytes[in->modrm_off]);
}

void insn_text(enum code_size code, const u8 *bytes, unsigned len, u64 lin, char *out, size_t size)
{
    ZydisDecoder dec;
    ZydisDecoderInit(&dec, zydis_modes[code].machine, zydis_modes[code].stack);
    ZydisDecodedInstruction zi;
    ZydisDecodedOperand op[ZYDIS_MAX_OPERAND_COUNT];
    ZydisFormatter f;
    ZydisFormatterInit(&f, ZYDIS_FORMATTER_STYLE_INTEL);
    if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&dec, bytes, len, &zi, op)) ||
        !ZYAN_SUCCESS(ZydisFormatterFormatInstruction(&f, &zi, op, zi.operand_count_visible, out,
                                                      size, lin, ZYAN_NULL)))
        snprintf(out, size, "(bad)");
}
