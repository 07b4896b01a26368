/* The bytes of one guest instruction as host code: as they are, or with another memory operand. */
#include "tr.h"

#include <Zydis/Mnemonic.h>
#include <Zydis/SharedTypes.h>

enum { EVEX = ZYDIS_INSTRUCTION_ENCODING_EVEX };

static void put_prefixes(struct emit *e, const struct insn *in)
{
    /* In 16-bit code 66h says the opposite. */
    bool flip = (in->code == CODE_16 || in->code == CODE_REAL) && !in->fixed_size;
    if (flip && !memchr(in->keep, 0x66, sizeof(in->keep)))
        e1(e, 0x66);
    for (const u8 *k = in->keep; *k; k++)
        if (!flip || *k != 0x66)
            e1(e, *k);
}

/*
 * What follows copies bytes of the guest's into the host's code, where they have to mean the same.
 * What other code says in another way than 64-bit code is said anew.
 */

static void put_rest(struct emit *e, const struct insn *in, unsigned from)
{
    memcpy(e->p, in->bytes + from, in->len - from);
    e->p += in->len - from;
    /* The register in an immediate: there are eight. */
    if (in->code != CODE_64 && in->imm_register)
        e->p[-1] &= 0x7f;
}

/* VEX up to the opcode, of three bytes; what does not count outside 64-bit code is as it has to be.
 * Returns where the opcode is. */
static unsigned put_vex(struct emit *e, const struct insn *in, u8 x_b, u8 x_b_value)
{
    const u8 *v = in->bytes + in->opcode_off;
    bool two = v[0] == 0xc5;
    u8 b2 = two ? (u8)((v[1] & 0x80) | 0x61) : v[1], b3 = two ? v[1] & 0x7f : v[2];
    if (in->code != CODE_64) {
        b2 |= 0xe0;
        b3 |= 0x40;
        if (in->small)
            b3 &= 0x7f; /* W */
    }
    e1(e, 0xc4);
    e1(e, (u8)((b2 & ~x_b) | x_b_value));
    e1(e, b3);
    return in->opcode_off + (two ? 2u : 3u);
}

/* EVEX up to the opcode. Outside 64-bit code the fourth and fifth bit of a register do not count.
 */
static void put_evex(struct emit *e, const struct insn *in, u8 x_b, u8 x_b_value)
{
    const u8 *v = in->bytes + in->opcode_off;
    bool narrow = in->code != CODE_64;
    u8 b2 = narrow ? v[1] | 0xf0 : v[1], b3 = narrow ? v[2] | 0x40 : v[2];
    if (narrow && in->small)
        b3 &= 0x7f; /* W */
    e1(e, 0x62);
    e1(e, (u8)((b2 & ~x_b) | x_b_value));
    e1(e, b3);
    e1(e, narrow ? v[3] | 0x08 : v[3]);
    e1(e, in->opcode);
}

/* A register-only form as it is, without the prefixes that mean nothing or something else here. */
void put_copy(struct emit *e, const struct insn *in)
{
    if (in->encoding == EVEX && in->code != CODE_64) {
        put_evex(e, in, 0, 0);
        put_rest(e, in, in->modrm_off);
        return;
    }
    if (in->encoding != 0) {
        put_rest(e, in, in->code == CODE_64 ? in->opcode_off : put_vex(e, in, 0, 0));
        return;
    }
    put_prefixes(e, in);
    u8 op = in->bytes[in->prefix_end];
    if (in->code != CODE_64 && (op & 0xf0) == 0x40 && in->map == 0) { /* INC, DEC */
        e1(e, 0xff);
        e1(e, (u8)(0xc0 | (op & 15)));
        return;
    }
    u8 *at = e->p;
    put_rest(e, in, in->prefix_end);
    if (in->code != CODE_64 && op == 0x82 && in->map == 0)
        *at = 0x80;
}

/* The instruction with its memory operand replaced by [base + index + disp]. */
void put_patched_at(struct emit *e, const struct insn *in, int base, int index, i32 disp)
{
    if (in->encoding == 0) {
        put_prefixes(e, in);
        if (!in->modrm_off) { /* MOV moffs */
            static const u8 op[4] = {0x8a, 0x8b, 0x88, 0x89};
            e_rex(e, in->opsize == 8, RAX, index, base);
            e1(e, op[in->opcode & 3]);
            e_modrm(e, RAX, base, index, 1, disp);
            return;
        }
        u8 rex = (u8)((in->rex & 0x4c) | (base >= 8 ? 0x41 : 0) | (index >= 8 ? 0x42 : 0));
        if (in->rex)
            rex |= 0x40;
        if (rex)
            e1(e, rex);
        u8 *at = e->p;
        memcpy(e->p, in->bytes + in->opcode_off, in->modrm_off - in->opcode_off);
        e->p += in->modrm_off - in->opcode_off;
        if (in->code != CODE_64 && in->map == 0 && *at == 0x82)
            *at = 0x80;
    } else if (in->encoding == EVEX) {
        u8 x_b = (u8)((index >= 8 ? 0 : 0x40) | (base >= 8 ? 0 : 0x20));
        put_evex(e, in, 0x60, x_b);
        /* A displacement of 8 bits would be counted in operands. */
        e_modrm_wide(e, in->bytes[in->modrm_off] >> 3 & 7, base, index, 1, disp);
        put_rest(e, in, in->disp_end);
        return;
    } else {
        u8 x_b = (u8)((index >= 8 ? 0 : 0x40) | (base >= 8 ? 0 : 0x20));
        for (unsigned v = put_vex(e, in, 0x60, x_b); v < in->modrm_off; v++)
            e1(e, in->bytes[v]);
    }
    e_modrm(e, in->bytes[in->modrm_off] >> 3 & 7, base, index, 1, disp);
    put_rest(e, in, in->disp_end);
}

/* The same, by [base]. */
void put_patched(struct emit *e, const struct insn *in, int base)
{
    put_patched_at(e, in, base, NOREG, 0);
}
