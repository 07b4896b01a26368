/*
 * Vector instructions whose access is not one plain operand: masked stores, masked loads, gathers.
 * The masks and indices are read from the parked image; only enabled elements are touched, so that
 * disabled ones never fault (SDM vol. 2, VMASKMOV, VGATHER).
 */
#include "cpu/x86/core.h"

#include <Zydis/Mnemonic.h>
#include <Zydis/SharedTypes.h>

#include "cpu/x86/approx.h"
#include "cpu/x86/avx512.h"
#include "cpu/x86/exec.h"
#include "cpu/x86/fpu.h"
#include "cpu/x86/memory.h"
#include "cpu/x86/mode.h"
#include "cpu/x86/park.h"

struct vex {
    u8 vvvv, l, w, x;
};

static struct vex vex_fields(const struct insn *in)
{
    const u8 *b = in->bytes + in->opcode_off;
    if (b[0] == 0xc5)
        return (struct vex){.vvvv = (u8)(~b[1] >> 3 & 15), .l = b[1] >> 2 & 1};
    return (struct vex){
        .vvvv = (u8)(~b[2] >> 3 & 15), .l = b[2] >> 2 & 1, .w = b[2] >> 7, .x = !(b[1] >> 6 & 1)};
}

/* ModRM.reg with VEX.R. */
static unsigned vex_reg(const struct insn *in)
{
    const u8 *b = in->bytes + in->opcode_off;
    return (in->bytes[in->modrm_off] >> 3 & 7) | (b[1] & 0x80 ? 0 : 8);
}

/* EFLAGS.AC does not concern the elements of masked and gathered accesses. */
static int unaligned(struct core *d, struct insn *in, helper_fn *fn)
{
    bool ac = d->ac_check;
    d->ac_check = false;
    int r = fn(d, in);
    d->ac_check = ac;
    return r;
}

/* MASKMOVQ, MASKMOVDQU: one RMW operand of full width at [RDI]. Whether disabled bytes may fault
 * is the implementation's choice; ours always checks them, the upper half first. */
HELPER(maskmov)
{
    unsigned n = in->mnemonic == ZYDIS_MNEMONIC_MASKMOVQ ? 8 : 16;
    if (in->fpu_wait && fpu_pending(d))
        return raise_fault(d, EXC_MF);
    u64 off = low_bytes(d->cpu.gpr[RDI], in->addrsize);
    TRY(check_segment(d, in->seg, off, n, ACC_W));
    if (n == 16)
        TRY(mem_check(d, in->seg, off + 8, 8, ACC_W));
    struct operand op = {.off = off, .len = n, .seg = in->seg, .acc = ACC_W, .read = true};
    TRY(operand_open(d, &op));
    u64 rdi = d->cpu.gpr[RDI];
    d->cpu.gpr[RDI] = (u64)d->ptr;
    int r = core_native(d, in);
    d->cpu.gpr[RDI] = rdi;
    return r ? r : operand_close(d, &op);
}

static int vmaskmov(struct core *d, struct insn *in)
{
    struct vex v = vex_fields(in);
    unsigned elem =
        in->mnemonic == ZYDIS_MNEMONIC_VMASKMOVPS || in->mnemonic == ZYDIS_MNEMONIC_VPMASKMOVD ? 4
                                                                                               : 8;
    unsigned len = v.l ? 32 : 16;
    u64 off = insn_offset(d, in);
    core_park(d);
    u8 *buf = d->bounce_raw;
    bool store = in->mem & MEM_W;
    bool on[8];
    for (unsigned i = 0; i < len; i += elem) {
        on[i / elem] = vector_at(d, v.vvvv, i)[elem - 1] & 0x80;
        if (on[i / elem] && !in_segment(d, in->seg, off + i, elem))
            return raise_segment(d, in->seg);
        for (unsigned k = 0; k < elem; k++)
            buf[i + k] = 0;
    }
    for (unsigned i = 0; i < len; i += elem) {
        if (!on[i / elem])
            continue;
        if (store)
            TRY(mem_check(d, in->seg, off + i, elem, ACC_W));
        else
            TRY(mem_read(d, in->seg, off + i, elem, buf + i));
    }
    d->ptr = buf;
    TRY(core_native(d, in));
    if (!store)
        return DONE;
    for (unsigned i = 0; i < len; i += elem)
        if (on[i / elem])
            TRY(mem_write(d, in->seg, off + i, elem, buf + i));
    return DONE;
}

HELPER(vmaskmov)
{
    return unaligned(d, in, vmaskmov);
}

static int gather(struct core *d, struct insn *in)
{
    struct vex v = vex_fields(in);
    unsigned dst = vex_reg(in), index = (in->bytes[in->modrm_off + 1] >> 3 & 7) | v.x << 3;
    if (dst == index || dst == v.vvvv || index == v.vvvv)
        return raise_fault(d, EXC_UD);
    unsigned elem = v.w ? 8 : 4;
    bool qindex = in->opcode & 1; /* 90, 92: dword indices; 91, 93: qword indices */
    unsigned isize = qindex ? 8 : 4, wide = v.l ? 32 : 16;
    unsigned n = wide / (elem > isize ? elem : isize);
    core_park(d);
    u64 base = in->base >= 0 ? d->cpu.gpr[in->base] : 0;
    /* The mask is widened first: each element all ones or zero, nothing above the vector. */
    for (unsigned i = 0; i < 32 / elem; i++) {
        u8 *m = vector_at(d, v.vvvv, i * elem);
        u8 fill = i * elem < wide && m[elem - 1] & 0x80 ? 0xff : 0;
        for (unsigned k = 0; k < elem; k++)
            m[k] = fill;
    }
    int fault = DONE;
    for (unsigned i = 0; i < n && !fault; i++) {
        u8 *m = vector_at(d, v.vvvv, i * elem);
        if (!m[0])
            continue;
        const u8 *ip = vector_at(d, index, i * isize);
        i64 idx = qindex ? *(const i64 *)ip : *(const i32 *)ip;
        u64 off = low_bytes(base + (u64)(idx * in->scale) + (u64)in->disp, in->addrsize);
        u8 buf[8];
        fault = mem_read(d, in->seg, off, elem, buf);
        if (fault)
            break;
        u8 *out = vector_at(d, dst, i * elem);
        for (unsigned k = 0; k < elem; k++) {
            out[k] = buf[k];
            m[k] = 0;
        }
        if (wide == 16)
            for (unsigned b = 16; b < 32; b++)
                *vector_at(d, dst, b) = 0;
    }
    if (!fault) {
        /* Bits above the elements are zeroed, and all of the mask. */
        for (unsigned b = n * elem; b < 32; b++)
            *vector_at(d, dst, b) = 0;
        for (unsigned b = 0; b < 32; b++)
            *vector_at(d, v.vvvv, b) = 0;
        vector_clear_high(d, dst);
        vector_clear_high(d, v.vvvv);
    }
    park_changed(d);
    return fault;
}

HELPER(gather)
{
    if (in->encoding == ZYDIS_INSTRUCTION_ENCODING_EVEX)
        return evex_gather(d, in);
    return unaligned(d, in, gather);
}

/* VZEROALL and VZEROUPPER outside 64-bit code. */
HELPER(vzero)
{
    unsigned from = vex_fields(in).l ? 0 : 16;
    core_park(d);
    for (unsigned r = 0; r < 8; r++)
        for (unsigned b = from; b < 32; b++)
            *vector_at(d, r, b) = 0;
    for (unsigned r = 0; r < 8; r++)
        vector_clear_high(d, r);
    park_changed(d);
    return DONE;
}

struct approx_form approx_form(const struct insn *in)
{
    struct approx_form f = {.vex = in->encoding != 0,
                            .root = in->opcode == 0x52,
                            .dst = in->reg,
                            .rest = in->reg,
                            .src = in->rm};
    bool scalar = in->mnemonic == ZYDIS_MNEMONIC_RCPSS || in->mnemonic == ZYDIS_MNEMONIC_VRCPSS ||
                  in->mnemonic == ZYDIS_MNEMONIC_RSQRTSS || in->mnemonic == ZYDIS_MNEMONIC_VRSQRTSS;
    struct vex v = {0};
    if (f.vex) {
        const u8 *b = in->bytes + in->opcode_off;
        v = vex_fields(in);
        f.dst = (u8)vex_reg(in);
        f.rest = v.vvvv;
        if (b[0] == 0xc4 && !(b[1] & 0x20))
            f.src += 8;
    }
    f.n = scalar ? 1 : v.l ? 8 : 4;
    if (in->code != CODE_64) {
        f.dst &= 7;
        f.rest &= 7;
        f.src &= 7;
    }
    return f;
}

/* By our own tables (approx.h). */
HELPER(approx)
{
    struct approx_form f = approx_form(in);
    u32 x[8];
    if (in->mem) {
        if (in->align && (insn_linear(d, in) & (in->align - 1u)))
            return raise_error(d, EXC_GP, 0);
        TRY(mem_read(d, in->seg, insn_offset(d, in), 4 * f.n, x));
    }
    core_park(d);
    if (!in->mem)
        for (unsigned i = 0; i < f.n; i++)
            x[i] = *(const u32 *)(const void *)vector_at(d, f.src, 4 * i);
    for (unsigned i = 4; f.n == 1 && i < 16; i += 4)
        *(u32 *)(void *)vector_at(d, f.dst, i) =
            *(const u32 *)(const void *)vector_at(d, f.rest, i);
    for (unsigned i = 0; i < f.n; i++)
        *(u32 *)(void *)vector_at(d, f.dst, 4 * i) = approx_of(&d->approx, f.root, x[i]);
    for (unsigned i = f.n > 4 ? 32 : 16; f.vex && i < 32; i += 4)
        *(u32 *)(void *)vector_at(d, f.dst, i) = 0;
    if (f.vex)
        vector_clear_high(d, f.dst);
    park_changed(d);
    return DONE;
}
