/*
 * Gives the operands of a decoded instruction somewhere to point: solves base and index registers
 * (or displacements) for a chosen target, puts interesting values there, and keeps branches,
 * counts, selectors and state images within what can be compared.
 */
#include "tests/insn/insn.h"

static bool writable(u64 off, u64 len)
{
    for (u64 p = off / PAGE_SIZE; p <= (off + len - 1) / PAGE_SIZE; p++)
        if (p >= DATA_PAGES || !(DATA_RW >> p & 1))
            return false;
    return true;
}

/* The bytes that memory holds at `address` before the case; ignored where it cannot be written. */
static void patch(struct icase *c, u64 address, const void *bytes, unsigned len)
{
    u64 off = address - T_DATA;

    if (off >= DATA_SIZE || c->npatches == MAX_PATCHES ||
        len > sizeof c->patch_data - c->patch_used || !writable(off, len))
        return;
    c->patches[c->npatches++] = (struct patch){(u32)off, len, c->patch_used};
    memcpy(c->patch_data + c->patch_used, bytes, len);
    c->patch_used += len;
}

/* A selector from the read-only page or from code could be any; the two GDTs agree about few. */
static void known_selector(struct icase *c, u64 ea, unsigned size)
{
    u64 off = ea - T_DATA;
    bool code = ea - T_CODE < CODE_SIZE;

    if (code || (off < DATA_SIZE && !writable(off, size) &&
                 ((DATA_RW | DATA_RO) >> (off / PAGE_SIZE) & 1))) {
        c->skip = true;
        c->why = "a selector that the two GDTs may not agree about";
    }
}

static u64 data_page(unsigned page)
{
    return T_DATA + page * PAGE_SIZE;
}

/* Somewhere an access of `size` bytes touches both sides of `edge` (or just one, if size is 1). */
static u64 astride(struct rng *r, u64 edge, u64 size)
{
    return size > 1 ? edge - 1 - rng_below(r, size - 1) : edge - rng_below(r, 2);
}

static u64 pick_target(struct rng *r, u64 size)
{
    static const u8 rw[] = {1, 2, 4, 6};
    static const u8 align[] = {1, 1, 2, 4, 8, 16, 32, 64, 64};
    u64 n = rng_below(r, 100), t;

    size = size ? MIN(size, 1024u) : 1;
    if (n < 62) {
        t = data_page(rw[rng_below(r, 4)]) + rng_below(r, PAGE_SIZE - size + 1);
        return t & ~(u64)(align[rng_below(r, sizeof align)] - 1);
    }
    if (n < 70)
        return astride(r, data_page(2), size);
    if (n < 75)
        return astride(r, data_page(3), size); /* out of the last mapped page */
    if (n < 79)
        return astride(r, data_page(1), size); /* into the first */
    if (n < 83)
        return astride(r, data_page(5), size); /* writable, then read-only */
    if (n < 86)
        return astride(r, data_page(6), size); /* read-only, then writable */
    if (n < 91)
        return data_page(5) + rng_below(r, PAGE_SIZE - size + 1);
    if (n < 94)
        return data_page(3) + rng_below(r, PAGE_SIZE);
    if (n < 96)
        return T_CODE + rng_below(r, CODE_SIZE);
    if (n < 97)
        return astride(r, 0x800000000000ull, size); /* the end of the lower half */
    return (value_int(r) & 0xffffffffffff) | (1 + rng_below(r, 0x7ffe)) << 48;
}

static unsigned gpr_id(ZydisRegister reg)
{
    ZydisRegister full = ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, reg);

    return full >= ZYDIS_REGISTER_RAX && full <= ZYDIS_REGISTER_R15
               ? (unsigned)(full - ZYDIS_REGISTER_RAX)
               : 16;
}

static u64 gpr_value(const struct icase *c, ZydisRegister reg)
{
    unsigned id = gpr_id(reg);
    unsigned width = ZydisRegisterGetWidth(ZYDIS_MACHINE_MODE_LONG_64, reg);

    if (id > 15)
        return 0;
    return width == 64 ? c->st.gpr[id] : c->st.gpr[id] & ((1ull << width) - 1);
}

static void set_reg_bits(struct icase *c, ZydisRegister reg, u64 v)
{
    unsigned id = gpr_id(reg);
    unsigned width = ZydisRegisterGetWidth(ZYDIS_MACHINE_MODE_LONG_64, reg);
    u64 mask = width == 64 ? ~0ull : (1ull << width) - 1;

    if (id < 16)
        c->st.gpr[id] = (c->st.gpr[id] & ~mask) | (v & mask);
}

static void set_disp(struct icase *c, u64 value)
{
    unsigned bytes = c->insn.raw.disp.size / 8;

    memcpy(c->code + c->insn.raw.disp.offset, &value, bytes);
    memcpy(c->native + c->insn.raw.disp.offset, &value, bytes);
}

static u64 seg_base(const struct icase *c, ZydisRegister seg)
{
    if (test_code != CODE_64)
        return seg >= ZYDIS_REGISTER_ES && seg <= ZYDIS_REGISTER_GS
                   ? test_base(c->st.sel[seg - ZYDIS_REGISTER_ES])
                   : 0;
    return seg == ZYDIS_REGISTER_FS ? c->st.fs_base : seg == ZYDIS_REGISTER_GS ? c->st.gs_base : 0;
}

/* Where a push or pop really goes: by SS, whatever size of address the code has. */
static u64 stack_top(const struct icase *c)
{
    u16 ss = c->st.sel[SEG_SS];
    bool wide = !(ss & 4) || test_ldt[ss >> 3] >> 54 & 1;
    return wide ? (u32)c->st.gpr[RSP] : (u16)c->st.gpr[RSP];
}

/* Makes memory operand `op` point to `target` as nearly as its form allows; returns where it does.
 */
static u64 solve(struct rng *r, struct icase *c, const ZydisDecodedOperand *op, u64 target)
{
    u64 seg = seg_base(c, op->mem.segment);
    u64 t = target - seg - (u64)op->mem.disp.value;
    u64 amask = ~0ull >> (64 - c->insn.address_width);
    ZydisRegister base = op->mem.base, index = op->mem.index;
    bool vsib = op->mem.type == ZYDIS_MEMOP_TYPE_VSIB;
    u64 ivalue;

    if (base == ZYDIS_REGISTER_RIP || base == ZYDIS_REGISTER_EIP) {
        u64 d = target - seg - (c->address + c->insn.length);

        set_disp(c, d);
        return (((c->address + c->insn.length + (u64)(i64)(i32)d) & amask) + seg);
    }
    if (base == ZYDIS_REGISTER_NONE && (index == ZYDIS_REGISTER_NONE || vsib)) {
        set_disp(c, target - seg);
        return c->insn.raw.disp.size == 64 ? target : (u64)(i64)(i32)(target - seg) + seg;
    }
    if (vsib)
        index = ZYDIS_REGISTER_NONE;
    if (index != ZYDIS_REGISTER_NONE && gpr_id(index) == gpr_id(base) &&
        ZydisRegisterGetWidth(ZYDIS_MACHINE_MODE_LONG_64, index) > 8) {
        u64 v = (t & amask) / (1u + op->mem.scale);

        set_reg_bits(c, base, v);
        return ((v * (1u + op->mem.scale) + (u64)op->mem.disp.value) & amask) + seg;
    }
    if (base == ZYDIS_REGISTER_NONE) {
        u64 v = (t & amask) / op->mem.scale;

        set_reg_bits(c, index, v);
        return ((v * op->mem.scale + (u64)op->mem.disp.value) & amask) + seg;
    }
    if (index != ZYDIS_REGISTER_NONE && rng_chance(r, 50))
        set_reg_bits(c, index, rng_below(r, 512) - 256);
    ivalue = index == ZYDIS_REGISTER_NONE ? 0 : gpr_value(c, index) * op->mem.scale;
    set_reg_bits(c, base, t - ivalue);
    if (test_code != CODE_64 && gpr_id(base) == RSP &&
        op->visibility == ZYDIS_OPERAND_VISIBILITY_HIDDEN)
        return (u32)(stack_top(c) + (u64)op->mem.disp.value) + seg;
    return ((gpr_value(c, base) + ivalue + (u64)op->mem.disp.value) & amask) + seg;
}

static u16 pick_selector(struct rng *r)
{
    /* Linux' GDT and guest.c's agree about these. */
    static const u16 sel[] = {0, 0, 1, 2, 3, 0x2b, 0x2b, 0x33, 0x23, 0x10, 0x18, 0x2a, 0xfff8};

    if (test_code != CODE_64 && rng_chance(r, 60))
        return LDT_SEL(rng_below(r, LDT_SIZE));
    return sel[rng_below(r, ARRAY_SIZE(sel))];
}

static u64 branch_target(struct rng *r)
{
    switch (rng_below(r, 8)) {
    case 0: return data_page(1) + rng_below(r, PAGE_SIZE); /* not executable */
    case 1: return data_page(3) + rng_below(r, PAGE_SIZE); /* not mapped */
    case 2: return rng_u64(r) | 1ull << 62;                /* not canonical, mostly */
    default: return T_LAND + rng_below(r, PAGE_SIZE - 16);
    }
}

static void plan_relative(struct rng *r, struct icase *c)
{
    const ZydisDecodedInstruction *in = &c->insn;
    unsigned bytes = in->raw.imm[0].size / 8;
    u64 end = c->address + in->length;
    i64 d;

    if (bytes == 1) { /* stay among this slot's INT3s, and out of the instruction itself */
        d = 1 + (i64)rng_below(r, 40);
        if (rng_chance(r, 50))
            d = -(i64)in->length - d;
    } else {
        d = (i64)(branch_target(r) - end);
        if (d != (i32)d)
            d = (i64)(T_LAND - end);
    }
    memcpy(c->code + in->raw.imm[0].offset, &d, bytes);
    memcpy(c->native + in->raw.imm[0].offset, &d, bytes);
}

/* What memory holds at the operand: edges and floats, a selector, a pointer, a state image. */
static void plan_content(struct rng *r, struct icase *c, const ZydisDecodedOperand *op, u64 ea)
{
    unsigned size = op->size / 8;
    u8 b[XSAVE_SIZE];
    u64 v;

    switch (c->insn.mnemonic) {
    case ZYDIS_MNEMONIC_XRSTOR:
    case ZYDIS_MNEMONIC_XRSTOR64:
    case ZYDIS_MNEMONIC_FXRSTOR:
    case ZYDIS_MNEMONIC_FXRSTOR64:
        value_xsave(r, b, true);
        b[512] = (u8)rng_below(r, 8) & c->st.xsave[512]; /* what the model's XCR0 has */
        if (rng_chance(r, 5))
            b[rng_below(r, 2) ? 26 : 512 + 8 + rng_below(r, 48)] ^= 1; /* must give #GP */
        if (rng_chance(r, 3))
            b[512 + 7] ^= 0x80;
        patch(c, ea, b, c->insn.meta.isa_set == ZYDIS_ISA_SET_XSAVE ? XSAVE_SIZE : 512);
        return;
    case ZYDIS_MNEMONIC_LDMXCSR:
    case ZYDIS_MNEMONIC_VLDMXCSR:
        v = rng_u64(r) & (rng_chance(r, 90) ? 0xffff : 0x1ffff);
        patch(c, ea, &v, 4);
        return;
    case ZYDIS_MNEMONIC_CALL:
    case ZYDIS_MNEMONIC_JMP:
    case ZYDIS_MNEMONIC_RET:
        v = branch_target(r);
        patch(c, ea, &v, 8);
        return;
    case ZYDIS_MNEMONIC_LDS:
    case ZYDIS_MNEMONIC_LES:
    case ZYDIS_MNEMONIC_LFS:
    case ZYDIS_MNEMONIC_LGS:
    case ZYDIS_MNEMONIC_LSS:
        v = rng_u64(r);
        memcpy(b, &v, 8);
        v = pick_selector(r);
        memcpy(b + size - 2, &v, 2);
        patch(c, ea, b, size);
        known_selector(c, ea, size);
        return;
    case ZYDIS_MNEMONIC_MOV:
    case ZYDIS_MNEMONIC_POP:
    case ZYDIS_MNEMONIC_LAR:
    case ZYDIS_MNEMONIC_LSL:
    case ZYDIS_MNEMONIC_VERR:
    case ZYDIS_MNEMONIC_VERW:
        if (c->insn.mnemonic == ZYDIS_MNEMONIC_VERR || c->insn.mnemonic == ZYDIS_MNEMONIC_VERW ||
            (c->ops[0].type == ZYDIS_OPERAND_TYPE_REGISTER && size >= 2 &&
             (c->insn.meta.category == ZYDIS_CATEGORY_SYSTEM ||
              (c->ops[0].reg.value >= ZYDIS_REGISTER_ES &&
               c->ops[0].reg.value <= ZYDIS_REGISTER_GS)))) {
            v = pick_selector(r);
            patch(c, ea, &v, MIN(size, 8u));
            known_selector(c, ea, size);
            return;
        }
        break;
    case ZYDIS_MNEMONIC_POPF:
    case ZYDIS_MNEMONIC_POPFD:
    case ZYDIS_MNEMONIC_POPFQ:
        v = rng_u64(r) & (rng_chance(r, 85) ? ~(u64)FL_TF : ~0ull);
        patch(c, ea, &v, size);
        return;
    case ZYDIS_MNEMONIC_FLDCW:
        v = 0x37f & ~(rng_chance(r, 40) ? rng_below(r, 64) : 0);
        patch(c, ea, &v, 2);
        return;
    default: break;
    }
    if (!size || size > 64 || rng_chance(r, 25))
        return;
    if (size == 10)
        value_x87(r, b);
    else if (size <= 8 && rng_chance(r, 50)) {
        v = value_int(r);
        memcpy(b, &v, 8);
    } else {
        value_vector(r, b, size);
    }
    patch(c, ea, b, size);
}

static void plan_vsib(struct rng *r, struct icase *c, const ZydisDecodedOperand *op)
{
    unsigned reg = (unsigned)ZydisRegisterGetId(op->mem.index);
    bool dword = !(c->insn.opcode & 1);
    unsigned n = c->insn.encoding == ZYDIS_INSTRUCTION_ENCODING_EVEX ? 64 : 32;

    for (unsigned at = 0; at < n; at += dword ? 4 : 8) {
        i64 v = (i64)(rng_below(r, 64) - 32) * (rng_chance(r, 10) ? 512 : 1);

        memcpy(state_vector(&c->st, reg, at), &v, dword ? 4 : 8);
    }
}

static void plan_special(struct rng *r, struct icase *c)
{
    u64 *gpr = c->st.gpr;
    const ZydisDecodedOperand *ops = c->ops;

    switch (c->insn.mnemonic) {
    case ZYDIS_MNEMONIC_BT:
    case ZYDIS_MNEMONIC_BTS:
    case ZYDIS_MNEMONIC_BTR:
    case ZYDIS_MNEMONIC_BTC:
        if (ops[0].type == ZYDIS_OPERAND_TYPE_MEMORY &&
            ops[1].type == ZYDIS_OPERAND_TYPE_REGISTER) {
            static const u8 shift[] = {5, 8, 12, 12, 15, 15, 16, 18, 34, 50, 62};
            u64 range = 1ull << shift[rng_below(r, sizeof shift)];

            set_reg_bits(c, ops[1].reg.value,
                         rng_below(r, 64) + (rng_chance(r, 50) ? range : -range) *
                                                (rng_chance(r, 50) ? 1 : rng_below(r, 2)));
        }
        break;
    case ZYDIS_MNEMONIC_DIV:
    case ZYDIS_MNEMONIC_IDIV:
        if (rng_chance(r, 70))
            gpr[RDX] = c->insn.mnemonic == ZYDIS_MNEMONIC_DIV ? rng_below(r, 2)
                                                              : (u64)((i64)gpr[RAX] >> 63);
        break;
    case ZYDIS_MNEMONIC_XSAVE:
    case ZYDIS_MNEMONIC_XSAVE64:
    case ZYDIS_MNEMONIC_XRSTOR:
    case ZYDIS_MNEMONIC_XRSTOR64:
        gpr[RAX] &= 0xffffffff00000000 | (c->st.xsave[512] & 7); /* the host has more components */
        gpr[RDX] &= 0xffffffff00000000;
        break;
    case ZYDIS_MNEMONIC_CALL:
    case ZYDIS_MNEMONIC_JMP:
        if (ops[0].type == ZYDIS_OPERAND_TYPE_REGISTER)
            set_reg_bits(c, ops[0].reg.value, branch_target(r));
        break;
    case ZYDIS_MNEMONIC_LOOP:
    case ZYDIS_MNEMONIC_LOOPE:
    case ZYDIS_MNEMONIC_LOOPNE:
    case ZYDIS_MNEMONIC_JCXZ:
    case ZYDIS_MNEMONIC_JRCXZ:
    case ZYDIS_MNEMONIC_JECXZ:
        if (rng_chance(r, 60))
            gpr[RCX] = rng_chance(r, 50) ? rng_below(r, 3) : 0xffffffff00000000 | rng_below(r, 3);
        break;
    case ZYDIS_MNEMONIC_CMPXCHG:
        if (rng_chance(r, 30) && ops[0].type == ZYDIS_OPERAND_TYPE_REGISTER &&
            gpr_id(ops[0].reg.value) < 16)
            gpr[RAX] = gpr[gpr_id(ops[0].reg.value)];
        break;
    default: break;
    }
    for (unsigned i = 0; i < c->insn.operand_count; i++) {
        if (ops[i].type != ZYDIS_OPERAND_TYPE_REGISTER)
            continue;
        if (ops[i].reg.value == ZYDIS_REGISTER_CL && rng_chance(r, 70))
            gpr[RCX] = rng_below(r, 70);
        /* The source of a segment load, or of LAR and its kin. */
        if (ops[i].visibility == ZYDIS_OPERAND_VISIBILITY_EXPLICIT &&
            i + 1u == c->insn.operand_count_visible &&
            (c->insn.meta.category == ZYDIS_CATEGORY_SYSTEM ||
             c->insn.mnemonic == ZYDIS_MNEMONIC_LAR || c->insn.mnemonic == ZYDIS_MNEMONIC_LSL ||
             c->insn.mnemonic == ZYDIS_MNEMONIC_VERR || c->insn.mnemonic == ZYDIS_MNEMONIC_VERW ||
             (c->ops[0].type == ZYDIS_OPERAND_TYPE_REGISTER &&
              c->ops[0].reg.value >= ZYDIS_REGISTER_ES &&
              c->ops[0].reg.value <= ZYDIS_REGISTER_GS)))
            set_reg_bits(c, ops[i].reg.value, pick_selector(r));
    }
    if (c->insn.attributes &
        (ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE | ZYDIS_ATTRIB_HAS_REPNE)) {
        gpr[RCX] = rng_chance(r, 80)   ? rng_below(r, 24)
                   : rng_chance(r, 90) ? rng_below(r, 3000)
                                       : value_int(r);
        if (c->insn.address_width == 32 && rng_chance(r, 50))
            gpr[RCX] |= rng_u64(r) << 32;
    }
}

void plan_operands(struct rng *r, struct icase *c)
{
    if (c->insn.raw.imm[0].is_relative)
        plan_relative(r, c);
    plan_special(r, c);
    for (unsigned i = 0; i < c->insn.operand_count; i++) {
        const ZydisDecodedOperand *op = &c->ops[i];
        u64 size = op->size / 8, ea, target;

        if (op->type != ZYDIS_OPERAND_TYPE_MEMORY || op->mem.type == ZYDIS_MEMOP_TYPE_AGEN)
            continue;
        target = pick_target(r, size);
        if (op->visibility == ZYDIS_OPERAND_VISIBILITY_HIDDEN && gpr_id(op->mem.base) == RSP &&
            (op->actions & ZYDIS_OPERAND_ACTION_MASK_WRITE))
            target += size; /* pushes go below */
        if (op->mem.type == ZYDIS_MEMOP_TYPE_VSIB)
            plan_vsib(r, c, op);
        ea = solve(r, c, op, target);
        plan_content(r, c, op, ea);
        c->image_ea = ea;
    }
    if (c->insn.address_width == 32 && c->image_ea >> 32 == 0 && c->image_ea > 0xfffff000) {
        c->skip = true;
        c->why = "an operand that wraps around at 4 GiB";
    }
    if (c->insn.address_width == 16 && c->insn.raw.modrm.mod != 3 &&
        (c->image || c->insn.meta.isa_set == ZYDIS_ISA_SET_XSAVE ||
         c->insn.meta.isa_set == ZYDIS_ISA_SET_FXSAVE)) {
        c->skip = true;
        c->why = "a state image that may wrap around at 64 KiB";
    }
    /* Its operand's address may have taken RAX or RDX. */
    if (c->insn.meta.isa_set == ZYDIS_ISA_SET_XSAVE && c->insn.raw.modrm.mod != 3 &&
        (((u32)c->st.gpr[RAX] & ~(c->st.xsave[512] & 7u)) || (u32)c->st.gpr[RDX])) {
        c->skip = true;
        c->why = "state components that the model does not have";
    }
}
