/* Decoding without Zydis: of instructions whose head was decoded before. SDM vol. 2, 2.1 to 2.3. */
#include "cpu/x86/heads.h"

#define HEADS_BITS 12
#define HEAD_MAX   8 /* bytes */

struct head {
    u64 bytes; /* the rest zeros */
    struct insn in;
};

struct heads {
    struct head head[1u << HEADS_BITS];
};

size_t heads_bytes(void)
{
    return sizeof(struct heads);
}

/* Opcodes with a ModRM byte, a bit each, of the one-byte map and of 0F. Where they are wrong an
 * instruction is not kept: insn_decode() knows. */
static const u32 with_modrm[2][8] = {{0x0f0f0f0f, 0x0f0f0f0f, 0x00000000, 0x00000a08, 0x0000ffff,
                                      0x00000000, 0xff0f00c3, 0xc0c00000},
                                     {0xffff200f, 0x0500ffff, 0xffffffff, 0xff7fffff, 0xffff0000,
                                      0xfffff8f8, 0xffff00ff, 0xffffffff}};

static bool has_modrm(unsigned map, u8 opcode)
{
    return with_modrm[map][opcode >> 5] >> (opcode & 31) & 1;
}

/* How long the head is; 0: longer than HEAD_MAX, or of a form that is not kept. */
static unsigned length(enum code_size code, const u8 *b)
{
    unsigned i = 0;
    for (;; i++) {
        u8 p = b[i];
        bool prefix = p == 0x66 || p == 0x67 || p == 0xf2 || p == 0xf3 || p == 0xf0 || p == 0x2e ||
                      p == 0x36 || p == 0x3e || p == 0x26 || p == 0x64 || p == 0x65;
        if (!prefix)
            break;
        if (i == 4)
            return 0;
    }
    if (code == CODE_64 && (b[i] & 0xf0) == 0x40)
        i++;
    bool modrm;
    if (code == CODE_64 && (b[i] == 0xc4 || b[i] == 0xc5)) {
        i += b[i] == 0xc4 ? 4 : 3;
        modrm = true;
    } else if (b[i] == 0x0f) {
        u8 op = b[++i];
        modrm = has_modrm(1, op);
        i += op == 0x38 || op == 0x3a ? 2 : 1;
    } else {
        modrm = has_modrm(0, b[i]);
        i++;
    }
    if (modrm) {
        u8 m = b[i++];
        if (m >> 6 != 3 && (m & 7) == 4)
            i++;
    }
    return i <= HEAD_MAX ? i : 0;
}

static u64 head_of(const u8 *bytes, unsigned n)
{
    u64 v = *(const u64 *)(const void *)bytes;
    return n == 8 ? v : v & ((1ull << 8 * n) - 1);
}

static u32 slot_of(enum code_size code, u64 head)
{
    return (u32)((head ^ (u64)code << 60) * 0x9e3779b97f4a7c15ull >> (64 - HEADS_BITS));
}

static u64 number(const u8 *at, unsigned n, bool is_signed)
{
    u64 v = 0;
    for (unsigned i = 0; i < n; i++)
        v |= (u64)at[i] << 8 * i;
    if (!n || n == 8 || !is_signed)
        return v;
    unsigned up = 64 - 8 * n;
    return (u64)((i64)(v << up) >> up);
}

/* The displacement and the immediate, out of in->bytes. */
static void take_rest(struct insn *in)
{
    unsigned disp = in->disp_bytes, imm = in->len - in->head - disp;
    if (in->has_mem)
        in->disp = (i64)number(in->bytes + in->head, disp, true);
    if (!imm)
        return;
    u64 v = number(in->bytes + in->head + disp, imm, in->imm_signed);
    if (in->op0_kind == OP_IMM)
        in->imm = (i64)v;
    if (in->op1_kind == OP_IMM)
        in->imm2 = v;
}

bool heads_find(const struct heads *h, enum code_size code, const u8 bytes[15], unsigned avail,
                struct insn *in)
{
    unsigned n = length(code, bytes);
    u64 head = head_of(bytes, n);
    const struct head *have = &h->head[slot_of(code, head)];
    if (!n || have->bytes != head || have->in.head != n || have->in.code != code ||
        have->in.len > avail)
        return false;
    *in = have->in;
    for (unsigned i = 0; i < 15; i++)
        in->bytes[i] = bytes[i];
    take_rest(in);
    return true;
}

void heads_keep(struct heads *h, const struct insn *in)
{
    enum code_size code = (enum code_size)in->code;
    if (!in->head || length(code, in->bytes) != in->head)
        return;
    struct insn again = *in;
    take_rest(&again);
    if (again.disp != in->disp || again.imm != in->imm || again.imm2 != in->imm2)
        return;
    u64 head = head_of(in->bytes, in->head);
    struct head *at = &h->head[slot_of(code, head)];
    at->in = *in;
    at->bytes = head;
}
