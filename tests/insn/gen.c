/*
 * Makes case number N of a seed: picks a form, encodes it with random registers and prefixes,
 * decodes what came out, decides whether it can run on the bare host, and fills in the CPU state.
 */
#include "tests/insn/insn.h"

u64 case_slot(u64 number)
{
    return SLOT_FIRST + (number % BATCH) * SLOT_SIZE;
}

/* Why this must not run natively; NULL when it may. Not an error of anybody: other tests cover it.
 */
static const char *native_unsafe(const ZydisDecodedInstruction *in, const ZydisDecodedOperand *ops)
{
    switch (in->mnemonic) {
    case ZYDIS_MNEMONIC_SYSCALL:
    case ZYDIS_MNEMONIC_SYSENTER: return "enters the host's kernel";
    case ZYDIS_MNEMONIC_INT: return ops[0].imm.value.u == 0x80 ? "enters the host's kernel" : NULL;
    case ZYDIS_MNEMONIC_CPUID:
    case ZYDIS_MNEMONIC_RDTSC:
    case ZYDIS_MNEMONIC_RDTSCP:
    case ZYDIS_MNEMONIC_RDPID:
    case ZYDIS_MNEMONIC_RDPMC:
    case ZYDIS_MNEMONIC_RDRAND:
    case ZYDIS_MNEMONIC_RDSEED:
    case ZYDIS_MNEMONIC_XGETBV:
    case ZYDIS_MNEMONIC_WRPKRU:
    case ZYDIS_MNEMONIC_RDPKRU: return "answers depend on the machine";
    case ZYDIS_MNEMONIC_SGDT:
    case ZYDIS_MNEMONIC_SIDT:
    case ZYDIS_MNEMONIC_SLDT:
    case ZYDIS_MNEMONIC_STR:
    case ZYDIS_MNEMONIC_SMSW: return "UMIP: the host's kernel emulates it";
    case ZYDIS_MNEMONIC_IRET:
    case ZYDIS_MNEMONIC_IRETD:
    case ZYDIS_MNEMONIC_IRETQ: return "far transfer";
    default: break;
    }
    if (in->meta.branch_type == ZYDIS_BRANCH_TYPE_FAR)
        return "far transfer";
    return NULL;
}

static const char *category_of(const struct icase *c)
{
    if (c->sequence)
        return "SEQUENCE";
    if (c->lacks)
        return "LACKS";
    if (!c->decoded)
        return "UNDECODED";
    return ZydisCategoryGetString(c->insn.meta.category);
}

static void random_segments(struct rng *r, struct cpu_state *s)
{
    bool high = rng_chance(r, 20), flat = rng_chance(r, test_code == CODE_32 ? 50 : 20);
    unsigned most = test_code == CODE_32 ? 60 : 20; /* within 64 KiB there is nothing from 0 on */

    for (unsigned i = 0; i < 8 && !high; i++)
        s->gpr[i] = (u32)s->gpr[i];
    s->gpr[RSP] = (u32)s->gpr[RSP];
    s->sel[SEG_CS] = test_code == CODE_32 ? 0x23 : LDT_SEL(LDT_SIZE - 1);
    for (unsigned i = 0; i < 6; i++) {
        u16 any = rng_chance(r, 5) ? 0 : LDT_SEL(rng_below(r, LDT_DATA));

        if (i == SEG_SS && (!any || any == LDT_SEL(3) || any == LDT_SEL(6)))
            any = 0x2b;
        if (i != SEG_CS)
            s->sel[i] = flat || rng_chance(r, most) ? 0x2b : any;
    }
    s->fs_base = test_base(s->sel[SEG_FS]);
    s->gs_base = test_base(s->sel[SEG_GS]);
}

void case_random_state(struct rng *r, struct icase *c, enum cpu_model model)
{
    struct cpu_state *s = &c->st;

    memset(s, 0, sizeof *s);
    for (unsigned i = 0; i < 16; i++)
        s->gpr[i] = value_int(r);
    s->rip = c->address;
    s->rflags = 0x202 | (rng_u64(r) & (FL_ARITH | FL_DF));
    if (rng_chance(r, 70))
        s->rflags &= ~(u64)FL_DF;
    if (rng_chance(r, 10))
        s->rflags |= FL_AC;
    if (rng_chance(r, 2))
        s->rflags |= FL_TF;
    if (rng_chance(r, 5))
        s->rflags |= rng_u64(r) & (FL_ID | FL_NT);
    /* Far ones lie below where a host process has its own program, libraries and stack. */
    s->fs_base = rng_chance(r, 70) ? rng_below(r, 0x1000) * 8 : value_int(r) & 0x3fffffffffff;
    s->gs_base = rng_chance(r, 70) ? rng_below(r, 0x1000) * 8 : value_int(r) & 0x3fffffffffff;
    s->sel[SEG_CS] = 0x33;
    s->sel[SEG_SS] = 0x2b;
    if (test_code != CODE_64)
        random_segments(r, s);
    value_xsave(r, s->xsave, feature_avx(model));
    if (feature_avx512(model))
        value_avx512(r, s);
}

static int image_of(const ZydisDecodedInstruction *in)
{
    switch (in->mnemonic) {
    case ZYDIS_MNEMONIC_FXSAVE:
    case ZYDIS_MNEMONIC_FXSAVE64: return IMG_FX;
    case ZYDIS_MNEMONIC_XSAVE:
    case ZYDIS_MNEMONIC_XSAVE64: return IMG_XSAVE;
    case ZYDIS_MNEMONIC_FNSAVE:
    case ZYDIS_MNEMONIC_FNSTENV: return IMG_X87;
    default: return IMG_NONE;
    }
}

/* Zydis 4.0 takes SIB base 101 under mod 00 for R13D where 67h and REX.B are there. */
static void mend_base(const ZydisDecodedInstruction *in, ZydisDecodedOperand *ops)
{
    if (!(in->attributes & ZYDIS_ATTRIB_HAS_SIB) || in->raw.sib.base != 5 || in->raw.modrm.mod != 0)
        return;
    for (unsigned i = 0; i < in->operand_count; i++)
        if (ops[i].type == ZYDIS_OPERAND_TYPE_MEMORY && ops[i].mem.base == ZYDIS_REGISTER_R13D) {
            ops[i].mem.base = ZYDIS_REGISTER_NONE;
            ops[i].mem.disp.value = in->raw.disp.value;
        }
}

/* One instruction at c->code; retries until Zydis knows it, but for a few it does not. */
static void make_single(struct rng *r, struct icase *c, const struct forms *forms,
                        enum cpu_model model, const ZydisDecoder *dec)
{
    u8 bytes[32];

    for (unsigned attempt = 0; attempt < 60; attempt++) {
        form_encode(r, &forms->v[rng_below(r, forms->n)], false, bytes);
        c->decoded =
            ZYAN_SUCCESS(ZydisDecoderDecodeFull(dec, bytes, sizeof bytes, &c->insn, c->ops));
        if (c->decoded || (attempt == 0 && rng_chance(r, 10)))
            break;
    }
    memcpy(c->code, bytes, sizeof bytes);
    c->ninsn = 1;
    c->len = c->decoded ? c->insn.length : 15;
    memset(c->code + c->len, 0xcc, sizeof bytes - c->len);
    memcpy(c->native, c->code, sizeof c->code);
    if (!c->decoded) {
        /* Hypercalls with a prefix that Zydis rejects reach the host's hypervisor all the same. */
        for (unsigned i = 0; i + 2 < c->len; i++)
            if (c->code[i] == 0x0f && c->code[i + 1] == 0x01 && (c->code[i + 2] & 0xc0) == 0xc0) {
                c->skip = true;
                c->why = "0F 01 with prefixes";
            }
        return;
    }
    mend_base(&c->insn, c->ops);
    c->lacks = !feature_in_model(model, &c->insn);
    c->why = native_unsafe(&c->insn, c->ops);
    if (!c->why)
        c->why = host_differs(&c->insn);
    if (host_checks_vector(&c->insn, c->ops))
        c->st.rflags &= ~(u64)FL_AC;
    if (!c->why)
        c->why = feature_host_lacks(&c->insn);
    /* A model without BMI1 or LZCNT reads these as BSF and BSR; the host must be shown those. */
    if (c->insn.mnemonic == ZYDIS_MNEMONIC_BSF || c->insn.mnemonic == ZYDIS_MNEMONIC_BSR)
        for (unsigned i = 0; i < c->insn.raw.prefix_count; i++)
            if (c->native[i] == 0xf3)
                c->native[i] = 0x3e;
    if (test_code != CODE_64 && memcmp(c->native, c->code, c->len)) {
        c->skip = true;
        c->why = "a prefix that means something else to the host";
    }
    c->skip = c->skip || (!c->lacks && c->why);
    c->image = image_of(&c->insn);
}

/* EVEX has no place in models without AVX-512: whatever follows 62h, it is #UD. */
static void make_evex(struct rng *r, struct icase *c, const ZydisDecoder *dec)
{
    for (unsigned i = 0; i < 15; i++)
        c->code[i] = (u8)rng_u64(r);
    c->code[0] = 0x62;
    c->code[1] = (u8)((c->code[1] & 0xf0) | (1 + rng_below(r, 3)));
    c->code[2] |= 4;
    memcpy(c->native, c->code, 15);
    c->len = 15;
    c->ninsn = 1;
    c->lacks = true;
    c->decoded = ZYAN_SUCCESS(ZydisDecoderDecodeFull(dec, c->code, 15, &c->insn, c->ops));
}

/* Sequences: these hold addresses and are never written, so that later accesses stay on target. */
#define POINTERS_64 (1u << RBX | 1u << RSI | 1u << RDI | 1u << RBP | 1u << R12 | 1u << R13)
#define POINTERS_32 (1u << RSI | 1u << RDI | 1u << RBP)
#define POINTERS    (test_code == CODE_64 ? POINTERS_64 : POINTERS_32)
/* R14, or EBX, counts rounds. */
#define FIXED (POINTERS | 1u << RSP | (test_code == CODE_64 ? 1u << R14 : 1u << RBX))

static unsigned gpr_bit(ZydisRegister reg)
{
    ZydisRegister full = ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, reg);

    return full >= ZYDIS_REGISTER_RAX && full <= ZYDIS_REGISTER_R15
               ? 1u << (full - ZYDIS_REGISTER_RAX)
               : 0;
}

bool case_fits_sequence(const ZydisDecodedInstruction *in, const ZydisDecodedOperand *ops,
                        enum cpu_model model)
{
    if (in->meta.branch_type != ZYDIS_BRANCH_TYPE_NONE || native_unsafe(in, ops) ||
        feature_host_lacks(in) || !feature_in_model(model, in) || image_of(in))
        return false;
    switch (in->meta.category) {
    case ZYDIS_CATEGORY_SYSTEM:
    case ZYDIS_CATEGORY_STRINGOP:
    case ZYDIS_CATEGORY_IO:
    case ZYDIS_CATEGORY_IOSTRINGOP:
    case ZYDIS_CATEGORY_INTERRUPT:
    case ZYDIS_CATEGORY_SEGOP:
    case ZYDIS_CATEGORY_XSAVE:
    case ZYDIS_CATEGORY_DECIMAL: /* undefined flags */
    case ZYDIS_CATEGORY_RDWRFSGS: return false;
    default: break;
    }
    if (in->attributes & ZYDIS_ATTRIB_IS_PRIVILEGED)
        return false;
    /* BSF with F3 means something else to the host (see make_single). */
    if ((in->mnemonic == ZYDIS_MNEMONIC_BSF || in->mnemonic == ZYDIS_MNEMONIC_BSR) &&
        in->raw.prefix_count)
        return false;
    switch (in->mnemonic) {
    case ZYDIS_MNEMONIC_BT:
    case ZYDIS_MNEMONIC_BTS:
    case ZYDIS_MNEMONIC_BTR:
    case ZYDIS_MNEMONIC_BTC: /* the register index would go anywhere */
        if (ops[0].type == ZYDIS_OPERAND_TYPE_MEMORY && ops[1].type == ZYDIS_OPERAND_TYPE_REGISTER)
            return false;
        break;
    case ZYDIS_MNEMONIC_POPF:
    case ZYDIS_MNEMONIC_POPFQ:
    case ZYDIS_MNEMONIC_ENTER:
    case ZYDIS_MNEMONIC_LEAVE:
    case ZYDIS_MNEMONIC_POPFD:
    case ZYDIS_MNEMONIC_POPA:
    case ZYDIS_MNEMONIC_POPAD:
    case ZYDIS_MNEMONIC_XLAT:
    case ZYDIS_MNEMONIC_UD0:
    case ZYDIS_MNEMONIC_UD1:
    case ZYDIS_MNEMONIC_UD2: return false;
    default: break;
    }
    for (unsigned i = 0; i < in->operand_count; i++) {
        const ZydisDecodedOperand *op = &ops[i];
        bool stack =
            in->meta.category == ZYDIS_CATEGORY_PUSH || in->meta.category == ZYDIS_CATEGORY_POP;

        if (op->type == ZYDIS_OPERAND_TYPE_REGISTER &&
            (op->actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) && (gpr_bit(op->reg.value) & FIXED) &&
            !(stack && op->visibility == ZYDIS_OPERAND_VISIBILITY_HIDDEN))
            return false;
        if (op->type == ZYDIS_OPERAND_TYPE_REGISTER && op->reg.value >= ZYDIS_REGISTER_ES &&
            op->reg.value <= ZYDIS_REGISTER_GS)
            return false;
        if (op->type != ZYDIS_OPERAND_TYPE_MEMORY || op->mem.type == ZYDIS_MEMOP_TYPE_AGEN)
            continue;
        if (op->mem.type == ZYDIS_MEMOP_TYPE_VSIB || op->mem.segment == ZYDIS_REGISTER_FS ||
            op->mem.segment == ZYDIS_REGISTER_GS ||
            in->address_width != (test_code == CODE_64 ? 64 : 32))
            return false;
        if (op->visibility == ZYDIS_OPERAND_VISIBILITY_HIDDEN ? !stack
                                                              : !(gpr_bit(op->mem.base) & POINTERS))
            return false;
        if (op->mem.index != ZYDIS_REGISTER_NONE && op->mem.index != ZYDIS_REGISTER_R14)
            return false;
    }
    return true;
}

static void make_sequence(struct rng *r, struct icase *c, const struct forms *forms,
                          enum cpu_model model, const ZydisDecoder *dec)
{
    unsigned want = 2 + (unsigned)rng_below(r, MAX_INSNS - 2);
    u64 *gpr = c->st.gpr;

    c->sequence = 1;
    c->decoded = true;
    for (unsigned i = 0; i < 6 && test_code != CODE_64; i++)
        if (i != SEG_CS)
            c->st.sel[i] = 0x2b;
    if (test_code != CODE_64)
        c->st.fs_base = c->st.gs_base = 0;
    for (unsigned attempt = 0; c->ninsn < want && attempt < 400; attempt++) {
        ZydisDecodedInstruction in;
        ZydisDecodedOperand ops[ZYDIS_MAX_OPERAND_COUNT];
        u8 bytes[32];

        form_encode(r, &forms->v[rng_below(r, forms->n)], true, bytes);
        if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(dec, bytes, sizeof bytes, &in, ops)) ||
            !case_fits_sequence(&in, ops, model) || host_differs(&in))
            continue;
        if (host_checks_vector(&in, ops))
            c->st.rflags &= ~(u64)FL_AC;
        if (in.raw.disp.size > 8) {
            i32 d = (i32)rng_below(r, 512) - 256;
            memcpy(bytes + in.raw.disp.offset, &d, 4);
        }
        memcpy(c->code + c->len, bytes, in.length);
        c->len += in.length;
        if (!c->ninsn++) {
            c->insn = in;
            memcpy(c->ops, ops, sizeof ops);
        }
    }
    if (rng_chance(r, 50)) {
        c->code[c->len++] = 0x9c; /* PUSHF: the flags are live */
        c->ninsn++;
    }
    memcpy(c->native, c->code, sizeof c->code);
    for (unsigned i = 0; i < 16; i++)
        if (POINTERS >> i & 1)
            gpr[i] =
                T_DATA + PAGE_SIZE + 512 + (rng_below(r, 6144) & ~(rng_chance(r, 60) ? 63ull : 0));
    if (rng_chance(r, 10))
        gpr[(const u8[]){RBP, RSI, RDI, RBX}[rng_below(r, test_code == CODE_64 ? 4 : 3)]] =
            T_DATA + (rng_chance(r, 50) ? 3 : 5) * PAGE_SIZE + rng_below(r, 4096);
    gpr[R14] = rng_below(r, 32);
    gpr[RSP] = T_DATA + 4 * PAGE_SIZE + 2048;
}

void case_generate(struct icase *c, const struct forms *forms, enum cpu_model model, u64 seed,
                   u64 number, bool sequences)
{
    struct rng r;
    ZydisDecoder dec;
    unsigned off;

    rng_seed(&r, seed, number);
    feature_decoder(model, &dec);
    memset(c, 0, offsetof(struct icase, patch_data));
    c->patch_used = 0;
    c->number = number;
    memset(c->code, 0xcc, sizeof c->code);
    memset(c->native, 0xcc, sizeof c->native);
    case_random_state(&r, c, model);

    if (sequences && rng_chance(&r, 15))
        make_sequence(&r, c, forms, model, &dec);
    else if (sequences && test_code == CODE_64 && !feature_avx512(model) && rng_chance(&r, 1))
        make_evex(&r, c, &dec);
    else
        make_single(&r, c, forms, model, &dec);

    /* The slots that straddle a page put the edge somewhere inside the instruction. */
    off = 46 + (unsigned)rng_below(&r, 16);
    if (number % 16 == 15)
        off = SLOT_SIZE - SLOT_FIRST -
              (c->len > 1 ? 1 + (unsigned)rng_below(&r, MIN(c->len, 64u) - 1) : 0);
    if (off + c->len > SLOT_SIZE)
        off = SLOT_SIZE - c->len;
    c->address = c->st.rip = T_CODE + case_slot(number) + off;
    /* Where a single-step trap falls within a gather is the CPU's business. */
    if (c->decoded && (c->insn.meta.category == ZYDIS_CATEGORY_GATHER ||
                       c->insn.meta.category == ZYDIS_CATEGORY_SCATTER ||
                       c->insn.meta.isa_set == ZYDIS_ISA_SET_AVX2GATHER))
        c->st.rflags &= ~(u64)FL_TF;
    if (c->decoded && !c->sequence)
        plan_operands(&r, c);
    c->category = category_of(c);
}
