/* What of an instruction is undefined, by its decoded form (canon.h). */
#include "cpu/x86/canon.h"

#include <Zydis/Mnemonic.h>

#include "cpu/vcpu.h"

enum how { HOW_FLAGS = 1, HOW_SCAN, HOW_SHIFT };

struct row {
    u16 mnemonic, flags;
    u8 how;
};
static const struct row rows[] = {
#define UNDEFINED(mnemonic, how, flags) {ZYDIS_MNEMONIC_##mnemonic, (flags), HOW_##how},
#include "cpu/x86/canon.def"
};

static const struct row *row_of(const struct insn *in)
{
    for (unsigned i = 0; i < ARRAY_SIZE(rows); i++)
        if (rows[i].mnemonic == in->mnemonic)
            return &rows[i];
    return NULL;
}

static bool shifts_double(const struct insn *in)
{
    return in->mnemonic == ZYDIS_MNEMONIC_SHLD || in->mnemonic == ZYDIS_MNEMONIC_SHRD;
}

/* Through the carry flag. */
static bool rotates_through(const struct insn *in)
{
    return in->mnemonic == ZYDIS_MNEMONIC_RCL || in->mnemonic == ZYDIS_MNEMONIC_RCR;
}

static bool counts_cl(const struct insn *in)
{
    if (shifts_double(in))
        return in->opcode & 1; /* 0F A5, AD; else A4, AC */
    return (in->opcode & 0xfe) == 0xd2;
}

/* How far it shifts, as the CPU masks it. */
static unsigned count_of(const struct insn *in, u64 rcx)
{
    unsigned n = counts_cl(in)                                       ? (u8)rcx
                 : !shifts_double(in) && (in->opcode & 0xfe) == 0xd0 ? 1
                                                                     : in->bytes[in->len - 1];
    return n & (in->opsize == 8 ? 63 : 31);
}

/* What is undefined after a shift by n. */
static u32 undefined_by(const struct insn *in, u32 flags, unsigned n)
{
    bool fills = in->mnemonic == ZYDIS_MNEMONIC_SHL || in->mnemonic == ZYDIS_MNEMONIC_SHR;
    if (n == 0)
        return 0;
    if (n == 1)
        flags &= ~FL_OF;
    return flags | (fills && n >= 8u * in->opsize ? FL_CF : 0);
}

/* SHLD and SHRD of 16 bits by more than 16: all is undefined. The destination stays. */
bool canon_shifts_too_far(const struct insn *in, u64 rcx)
{
    return shifts_double(in) && in->opsize == 2 && count_of(in, rcx) > 16;
}

static void take_shift(struct insn *in, const struct row *r)
{
    in->undefined = r->flags;
    if (counts_cl(in)) {
        in->canon = in->mem || in->opsize < 4 || rotates_through(in) ? CANON_CAREFUL : CANON_COUNT;
        return;
    }
    if (canon_shifts_too_far(in, 0)) {
        in->canon = CANON_CAREFUL;
        return;
    }
    in->undefined = (u16)undefined_by(in, r->flags, count_of(in, 0));
    in->canon = in->undefined ? CANON_FLAGS : CANON_NONE;
}

void canon_take(struct insn *in)
{
    if (in->treat != T_GEN)
        return;
    const struct row *r = row_of(in);
    if (!r) {
        if (in->mnemonic == ZYDIS_MNEMONIC_BSWAP && in->opsize == 2)
            in->canon = CANON_CAREFUL;
        return;
    }
    if (r->how == HOW_SHIFT) {
        take_shift(in, r);
    } else {
        in->undefined = r->flags;
        in->canon = r->how == HOW_SCAN ? CANON_SCAN : CANON_FLAGS;
    }
    /* They are zero from here on, whatever they were. */
    if (in->canon == CANON_FLAGS || in->canon == CANON_SCAN)
        in->kill |= in->undefined;
}

u32 canon_undefined(const struct insn *in, u64 rcx)
{
    bool counts = in->canon == CANON_COUNT || in->canon == CANON_CAREFUL;
    return counts ? undefined_by(in, in->undefined, count_of(in, rcx)) : in->undefined;
}
