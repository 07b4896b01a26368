/*
 * In what the CPU below differs from the models, which do as Intel's do: every quirk is found out
 * by running an instruction that shows it. Where a quirk decides, a case is not run (host_differs),
 * made without what brings it out (host_is) or compared less exactly (compare.c).
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include "tests/insn/insn.h"

#define HOLE  (T_DATA + 3 * PAGE_SIZE) /* not mapped */
#define PLACE (T_DATA + PAGE_SIZE + 256)

struct probe {
    const char *text;
    u8 len, code[10];
    bool (*shows)(const struct outcome *o);
    u64 rax, rcx, rbx, rdi;
    u64 flags;
    u32 fcw;
    bool at_end; /* of the code, in front of a page that is not mapped */
    bool code32; /* of 32 bits */
};

static bool quirk[Q_COUNT];

static u64 xmm_low(const struct outcome *o, unsigned reg)
{
    u64 v;

    memcpy(&v, o->st.xsave + 160 + 16 * reg, 8);
    return o->st.xsave[512] & 2 ? v : 0;
}

static bool no_fip(const struct outcome *o)
{
    u64 v;

    memcpy(&v, o->st.xsave + 8, 8);
    return v != T_CODE;
}

static bool wide_mask(const struct outcome *o)
{
    return o->vector == EXC_BP && o->st.mask[1] >> 32;
}

static bool stale_rsp(const struct outcome *o)
{
    return o->vector == EXC_BP && (u32)xmm_low(o, 0) != (u32)o->st.gpr[RSP];
}

static bool went_low(const struct outcome *o)
{
    return o->st.rip < 0x10000;
}

static bool is_ud(const struct outcome *o)
{
    return o->vector == EXC_UD;
}

static bool is_gp(const struct outcome *o)
{
    return o->vector == EXC_GP;
}

static bool is_pf(const struct outcome *o)
{
    return o->vector == EXC_PF;
}

static bool is_ac(const struct outcome *o)
{
    return o->vector == EXC_AC;
}

static bool stands(const struct outcome *o)
{
    return o->vector == EXC_DB && o->st.rip == T_CODE;
}

static bool exchanged(const struct outcome *o)
{
    return o->st.gpr[R8] == 1;
}

static bool no_rf(const struct outcome *o)
{
    return o->vector == EXC_DB && o->st.gpr[RCX] && !(o->st.rflags & FL_RF);
}

static bool flags_new(const struct outcome *o)
{
    return o->vector == EXC_PF && o->st.rflags & FL_ZF;
}

static bool runs(const struct outcome *o)
{
    return o->vector == EXC_BP;
}

static bool mask_kept(const struct outcome *o)
{
    return o->vector == EXC_PF && (u32)xmm_low(o, 1) != ~0u;
}

static bool no_flags(const struct outcome *o)
{
    return o->vector == EXC_PF && !(o->st.xsave[24] & 0x3f);
}

static bool nothing_pushed(const struct outcome *o)
{
    return o->vector == EXC_GP && *(u64 *)(PLACE - 8) == 0;
}

static bool more_mxcsr(const struct outcome *o)
{
    return o->st.xsave[28] != 0xff || o->st.xsave[29] != 0xff || o->st.xsave[30] || o->st.xsave[31];
}

static bool whole_slot(const struct outcome *o)
{
    return o->vector == EXC_BP && *(u32 *)(PLACE - 4) >> 16 == 0;
}

static bool taken(const struct outcome *o)
{
    return o->st.rip == T_CODE + 6;
}

static bool count_kept(const struct outcome *o)
{
    return o->st.gpr[RCX] >> 32 != 0;
}

static bool page_start(const struct outcome *o)
{
    return o->vector == EXC_PF && o->cr2 == HOLE;
}

/* clang-format off */
static const struct probe probes[Q_COUNT] = {
    [Q_FIP] = {"FIP is kept only for a pending exception", 2, {0xd9, 0xe8}, no_fip, .rax = 0},
    [Q_BRANCH16] = {"near branches with 66h are 16 bits wide", 3, {0x66, 0xeb, 0x10}, went_low},
    [Q_PREFETCH] = {"0F 0D with a register is #UD", 3, {0x0f, 0x0d, 0xc0}, is_ud},
    [Q_INT1] = {"INT1 reports its own address", 1, {0xf1}, stands},
    [Q_AC_VECTOR] = {"#AC for unaligned vectors", 3, {0x0f, 0x10, 0x03}, is_ac,
                     .rbx = PLACE + 1, .flags = FL_AC},
    [Q_AC_LATE] = {"#GP and #SS come before #AC", 2, {0x8b, 0x03}, is_gp,
                   .rbx = 0x7ffffffffffd, .flags = FL_AC},
    [Q_PAUSE] = {"F3 90 with REX.B exchanges", 3, {0xf3, 0x41, 0x90}, exchanged, .rax = 1},
    [Q_REP_RF] = {"a trap within REP has RF clear", 2, {0xf3, 0xaa}, no_rf,
                  .rcx = 3, .flags = FL_TF},
    [Q_REP_FLAGS] = {"REP that does not end has changed the flags", 2, {0xf3, 0xae}, flags_new,
                     .rcx = 5, .rdi = HOLE - 2},
    [Q_LXS] = {"LSS, LFS and LGS ignore REX.W", 4, {0x4c, 0x0f, 0xb5, 0x03}, is_gp,
               .rbx = PLACE + 64},
    [Q_MASK] = {"mask instructions ignore that a register is beyond k7", 5,
                {0xc4, 0x61, 0x79, 0x44, 0xe4}, runs},
    [Q_GATHER] = {"a gather that faults keeps its mask", 6, {0xc4, 0xe2, 0x71, 0x92, 0x04, 0x13},
                  mask_kept, .rbx = HOLE},
    [Q_X87_STORE] = {"an x87 store's #PF comes before its exception", 2, {0xdd, 0x13}, is_pf,
                     .rbx = HOLE, .fcw = 0x37e},
    [Q_CVTPS2PH] = {"VCVTPS2PH that faults has not converted", 6,
                    {0xc4, 0xe3, 0x79, 0x1d, 0x03, 0x00}, no_flags, .rbx = HOLE},
    [Q_CALL] = {"CALL to a bad address has not pushed", 2, {0xff, 0xd0}, nothing_pushed,
                .rax = 1ull << 62},
    [Q_MXCSR] = {"MXCSR_MASK is not FFFF", 1, {0x90}, more_mxcsr},
    [Q_MASKMOV] = {"MASKMOVDQU's CR2 is the page's start", 4, {0x66, 0x0f, 0xf7, 0xc1}, page_start,
                   .rdi = HOLE - 2},
    [Q_LOCK] = {"#GP, #PF and #AC come before #UD for LOCK", 4, {0xf0, 0x0f, 0x00, 0x2b}, is_pf,
                .rbx = HOLE},
    [Q_LOOP] = {"LOOPE and LOOPNE go by F2 and F3", 3, {0xf2, 0xe1, 0x02}, taken, .rcx = 2},
    [Q_MOVSXD] = {"MOVSXD with 66h reads four bytes", 3, {0x66, 0x63, 0x03}, is_pf,
                  .rbx = HOLE - 2},
    [Q_REP_A32] = {"REP with 67h keeps the high halves", 3, {0x67, 0xf3, 0xaa}, count_kept,
                   .rcx = 1ull << 32},
    [Q_CMPS] = {"REP CMPS reads the first operand first", 2, {0xf3, 0xa6}, page_start, .rcx = 1, .rdi = HOLE + 8},
    [Q_POP] = {"POP FS and POP GS read eight bytes", 2, {0x0f, 0xa9}, is_ac, .flags = FL_AC},
    [Q_UD] = {"UD0 and UD1 have no ModRM", 2, {0x0f, 0xb9}, is_ud, .at_end = true},
    [Q_XSAVE] = {"XSAVE of nothing faults at its first byte", 3, {0x0f, 0xae, 0x23}, page_start,
                 .rbx = HOLE},
    [Q_XRSTOR] = {"XRSTOR reads its header from the start", 3, {0x0f, 0xae, 0x2b}, page_start,
                  .rbx = HOLE - 512},
    [Q_OFFSET] = {"an offset that is not canonical is #GP", 3, {0x65, 0x8b, 0x03}, is_gp,
                  .rbx = 0xffff7ffffffff800},
    [Q_MOVBE] = {"MOVBE with 66h and REX.W is several accesses", 6,
                 {0x66, 0x48, 0x0f, 0x38, 0xf0, 0x03}, runs, .rbx = PLACE + 1, .flags = FL_AC},
    [Q_LA57] = {"linear addresses have 57 bits", 2, {0x8b, 0x03}, is_pf, .rbx = 1ull << 50},
    [Q_LASS] = {"the kernel's addresses are #GP", 2, {0x8b, 0x03}, is_gp,
                .rbx = 0xffff800000000000},
    [Q_PUSH_SEG] = {"PUSH of a segment writes four bytes", 4, {0x6a, 0xff, 0x58, 0x0e},
                    whole_slot, .code32 = true},
    [Q_VEX_W] = {"VPINSRD and VPEXTRD with VEX.W are #UD in 32-bit code", 6,
                 {0xc4, 0xe3, 0xf9, 0x22, 0xc0, 0x00}, is_ud, .code32 = true},
    [Q_END] = {"an access around the end of 4 GiB is beyond each limit", 2, {0x8b, 0x03}, is_gp,
               .rbx = 0xfffffffd, .code32 = true},
    [Q_BOUND] = {"BOUND reads both bounds before it compares", 2, {0x62, 0x03}, is_pf,
                 .rax = 0x80000000, .rbx = HOLE - 4, .code32 = true},
    [Q_CR8] = {"LOCK MOV CR0 is MOV CR8", 4, {0xf0, 0x0f, 0x20, 0xc0}, is_gp},
    [Q_VERW] = {"LOCK VERW of memory is VERW", 4, {0xf0, 0x0f, 0x00, 0x2b}, runs, .rbx = PLACE},
    [Q_KMOV] = {"KMOVD with VEX.W moves 64 bits in 32-bit code", 5, {0xc4, 0xe1, 0xfb, 0x92, 0xc8},
                wide_mask, .rax = 1ull << 40, .code32 = true},
    [Q_EVEX_RSP] = {"EVEX with X and RSP as a source does not see a push before", 7,
                    {0x57, 0x62, 0xb2, 0x7d, 0x08, 0x7c, 0xc4}, stale_rsp},
    /* kxnorw k1, k1, k1; vmovdqu32 zmm0 {k1} {z}, [rbx], whose first page is not there */
    [Q_MASKED] = {"a masked access finds its faults in another order", 10,
                  {0xc5, 0xf4, 0x46, 0xc9, 0x62, 0xf1, 0x7e, 0xc9, 0x6f, 0x03}, is_gp, .rbx = 0x7fffffffffd3},
    [Q_SHA] = {"SHA's operands need no alignment", 4, {0x0f, 0x38, 0xc8, 0x03}, runs, .rbx = PLACE + 1},
};
/* clang-format on */

/* Kinds of cores may differ in what is undefined: one of them must run both sides. */
static void stay_on_one_kind(void)
{
    u32 a = 0, b = 0, c = 0, d = 0;
    cpu_set_t set;
    int cpu = sched_getcpu();

    if (cpu < 0 || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d >> 15 & 1))
        return;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static bool shown(const struct probe *p)
{
    static struct outcome o;
    u64 at = p->at_end ? CODE_SIZE - p->len : 0;
    struct cpu_state st = {
        .rip = T_CODE + at, .rflags = 0x202 | p->flags, .sel = {[SEG_CS] = 0x33, [SEG_SS] = 0x2b}};
    u8 code[16];
    u32 bits = 0x80000000; /* a gather's first element, MASKMOVDQU's fourth byte */
    u16 fcw = (u16)(p->fcw ? p->fcw : 0x37f), far = 0x1234;

    memset(code, 0xcc, sizeof code);
    memcpy(code, p->code, p->len);
    native_code(at, code, sizeof code);
    if (p->code32) {
        st.sel[SEG_CS] = 0x23;
        st.sel[SEG_DS] = st.sel[SEG_ES] = 0x2b;
    }
    memset((void *)(PLACE - 256), 0, 512);
    memcpy((void *)(PLACE + 64 + 4), &far, 2);
    st.gpr[RAX] = p->rax;
    st.gpr[RCX] = p->rcx;
    st.gpr[RBX] = p->rbx;
    st.gpr[RSP] = PLACE + (p->flags & FL_AC ? 4 : 0);
    st.gpr[RSI] = HOLE;
    st.gs_base = 0x1000;
    st.gpr[RDI] = p->rdi ? p->rdi : PLACE;
    memcpy(st.xsave, &fcw, 2);
    st.xsave[24] = 0x80;
    st.xsave[25] = 0x1f;
    st.xsave[512] = 3;
    memcpy(st.xsave + 160, (const u8[]){0x01, 0x00, 0x80, 0x3f}, 4); /* 1 and a bit */
    memcpy(st.xsave + 160 + 16, &bits, 4);
    native_run(&st, &o);
    memset(code, 0xcc, sizeof code);
    native_code(at, code, sizeof code);
    return o.kind == OUT_EXCEPTION && p->shows(&o);
}

void host_probe(void)
{
    static const struct probe nop = {"NOP", 1, {0x90}, runs, .rax = 0};

    stay_on_one_kind();
    if (!shown(&nop)) { /* then no quirk would ever show */
        fprintf(stderr, "insn: a NOP does not run natively\n");
        exit(1);
    }
    for (unsigned q = 0; q < Q_COUNT; q++) /* twice: a lost register is no quirk */
        quirk[q] = shown(&probes[q]) && shown(&probes[q]);
}

void host_print(void)
{
    for (unsigned q = 0; q < Q_COUNT; q++)
        if (quirk[q])
            printf("the host differs: %s\n", probes[q].text);
}

bool host_is(enum host_quirk q)
{
    return quirk[q];
}

const char *host_text(enum host_quirk q)
{
    return probes[q].text;
}

static bool has_prefix(const ZydisDecodedInstruction *in, u8 value)
{
    for (unsigned i = 0; i < in->raw.prefix_count; i++)
        if (in->raw.prefixes[i].value == value)
            return true;
    return false;
}

static bool near_branch(const ZydisDecodedInstruction *in)
{
    return in->meta.branch_type == ZYDIS_BRANCH_TYPE_SHORT ||
           in->meta.branch_type == ZYDIS_BRANCH_TYPE_NEAR ||
           in->meta.category == ZYDIS_CATEGORY_RET;
}

/* PUSH ES, CS, SS, DS; FS, GS. */
static bool is_push_segment(const ZydisDecodedInstruction *in)
{
    return in->opcode_map == ZYDIS_OPCODE_MAP_0F ? (in->opcode & 0xf7) == 0xa0
                                                 : (in->opcode & 0xe7) == 0x06;
}

/* It may have RSP as a source. */
static bool evex_rsp(const ZydisDecodedInstruction *in)
{
    return in->encoding == ZYDIS_INSTRUCTION_ENCODING_EVEX && in->raw.modrm.mod == 3 &&
           in->raw.modrm.rm == 4 &&
           (in->meta.category == ZYDIS_CATEGORY_BROADCAST ||
            in->meta.category == ZYDIS_CATEGORY_CONVERT ||
            in->meta.category == ZYDIS_CATEGORY_DATAXFER);
}

static bool is_approx14(const ZydisDecodedInstruction *in)
{
    return in->encoding == ZYDIS_INSTRUCTION_ENCODING_EVEX &&
           in->opcode_map == ZYDIS_OPCODE_MAP_0F38 && in->opcode >= 0x4c && in->opcode <= 0x4f;
}

const char *host_differs(const ZydisDecodedInstruction *in)
{
    enum host_quirk q = Q_COUNT;

    if (near_branch(in) && has_prefix(in, 0x66) && !in->raw.rex.W)
        q = Q_BRANCH16;
    else if ((in->mnemonic == ZYDIS_MNEMONIC_LOOPE && has_prefix(in, 0xf2)) ||
             (in->mnemonic == ZYDIS_MNEMONIC_LOOPNE && has_prefix(in, 0xf3)))
        q = Q_LOOP;
    else if (in->mnemonic == ZYDIS_MNEMONIC_MOVSXD && in->operand_width == 16 &&
             in->raw.modrm.mod != 3)
        q = Q_MOVSXD;
    else if (in->opcode_map == ZYDIS_OPCODE_MAP_0F && in->opcode == 0x0d && in->raw.modrm.mod == 3)
        q = Q_PREFETCH;
    else if (in->mnemonic == ZYDIS_MNEMONIC_PAUSE && in->raw.rex.B)
        q = Q_PAUSE;
    else if ((in->mnemonic == ZYDIS_MNEMONIC_LSS || in->mnemonic == ZYDIS_MNEMONIC_LFS ||
              in->mnemonic == ZYDIS_MNEMONIC_LGS) &&
             in->raw.rex.W)
        q = Q_LXS;
    else if (test_code != CODE_64 && in->mnemonic == ZYDIS_MNEMONIC_PUSH &&
             in->operand_width == 32 && is_push_segment(in))
        q = Q_PUSH_SEG;
    else if (test_code != CODE_64 &&
             (in->mnemonic == ZYDIS_MNEMONIC_VPINSRD || in->mnemonic == ZYDIS_MNEMONIC_VPEXTRD) &&
             in->raw.vex.W)
        q = Q_VEX_W;
    else if (test_code != CODE_64 && in->meta.category == ZYDIS_CATEGORY_KMASK &&
             (in->opcode & ~1) == 0x92 && in->raw.vex.W)
        q = Q_KMOV;
    else if (evex_rsp(in))
        q = Q_EVEX_RSP;
    else if (is_approx14(in))
        return "approximations of 14 bits are by our own rule (unit/approx14)";
    return q != Q_COUNT && quirk[q] ? probes[q].text : NULL;
}

bool host_checks_vector(const ZydisDecodedInstruction *in, const ZydisDecodedOperand *ops)
{
    bool vector = in->encoding == ZYDIS_INSTRUCTION_ENCODING_VEX ||
                  in->encoding == ZYDIS_INSTRUCTION_ENCODING_EVEX;
    unsigned least = 128;

    if (!quirk[Q_AC_VECTOR])
        return false;
    switch (in->mnemonic) {
    case ZYDIS_MNEMONIC_MOVUPS:
    case ZYDIS_MNEMONIC_MOVUPD:
    case ZYDIS_MNEMONIC_MOVDQU:
    case ZYDIS_MNEMONIC_LDDQU:
    case ZYDIS_MNEMONIC_PCMPESTRI:
    case ZYDIS_MNEMONIC_PCMPESTRM:
    case ZYDIS_MNEMONIC_PCMPISTRI:
    case ZYDIS_MNEMONIC_PCMPISTRM: vector = true; break;
    case ZYDIS_MNEMONIC_VCVTPH2PS: /* these two are not checked at all by the others */
    case ZYDIS_MNEMONIC_VCVTPS2PH: least = 64; break;
    default: break;
    }
    for (unsigned i = 0; vector && i < in->operand_count; i++)
        if (ops[i].type == ZYDIS_OPERAND_TYPE_MEMORY && ops[i].size >= least)
            return true;
    return false;
}

/* Whether undecodable bytes are a mask instruction of AVX-512. */
static bool mask_insn(const u8 *b)
{
    u8 map = 1, op;

    if (b[0] == 0xc5) {
        op = b[2];
    } else if (b[0] == 0xc4) {
        map = b[1] & 31;
        op = b[3];
    } else {
        return false;
    }
    return map == 1 ? (op >= 0x41 && op <= 0x4b) || (op >= 0x90 && op <= 0x93) || op == 0x98 ||
                          op == 0x99
           : map == 3 ? op >= 0x30 && op <= 0x33
                      : false;
}

const char *host_undecoded(const struct icase *c, const struct outcome *n, const struct outcome *e)
{
    const u8 *b = c->code;
    bool lock = false;

    if (c->decoded || e->kind != OUT_EXCEPTION || e->st.rip != c->address)
        return NULL;
    for (; b < c->code + 14; b++) {
        lock |= *b == 0xf0;
        if (*b != 0x66 && *b != 0x67 && (*b | 1) != 0xf3 && *b != 0xf0 && (*b & 0xe7) != 0x26 &&
            (*b & 0xfe) != 0x64 && (*b & 0xf0) != 0x40)
            break;
    }
    /* By LOCK they are undecoded; the ModRM may be where nothing is mapped. */
    if (quirk[Q_UD] && b[0] == 0x0f && (b[1] == 0xff || b[1] == 0xb9) && n->vector == EXC_UD &&
        n->st.rip == c->address && e->vector == EXC_PF && e->err & 0x10)
        return probes[Q_UD].text;
    if (e->vector != EXC_UD)
        return NULL;
    if (*b == 0x62 && n->vector == EXC_GP && n->st.rip == c->address)
        return "an EVEX-like string that is too long";
    /* With the immediate that only /0 has. */
    if ((*b & 0xfe) == 0xc6 && b[1] & 0x38 && n->vector == EXC_GP && n->st.rip == c->address)
        return "an undefined one of group 11 that is too long";
    if (quirk[Q_MASK] && mask_insn(b))
        return probes[Q_MASK].text;
    if (quirk[Q_CR8] && lock && b[0] == 0x0f && (b[1] & 0xfd) == 0x20 && n->vector == EXC_GP &&
        n->st.rip == c->address)
        return probes[Q_CR8].text;
    if (quirk[Q_VERW] && lock && b[0] == 0x0f && b[1] == 0 && (b[2] & 0x38) == 0x28 && b[2] < 0xc0)
        return probes[Q_VERW].text;
    if (quirk[Q_LOCK] && lock && b[0] == 0x0f && (b[1] == 0 || (b[1] & 0xfc) == 0x20) &&
        (n->vector == EXC_PF || n->vector == EXC_GP || n->vector == EXC_SS ||
         n->vector == EXC_AC) &&
        n->st.rip == c->address)
        return probes[Q_LOCK].text;
    return NULL;
}
