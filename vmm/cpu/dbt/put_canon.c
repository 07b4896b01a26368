/*
 * Instructions of which something is not as the host's CPU leaves it (x86/canon.h): flags that are
 * undefined, the results of a scan that found nothing.
 */
#include "tr.h"

#include "cpu/x86/canon.h"

/* Flags that the host left become zero, or, for tests, one. Those that are dead behind instruction
 * i need not stay. */
static void put_undefined(struct tr *t, unsigned i, u32 flags, bool one)
{
    struct emit *e = &t->e;
    u8 low = (u8)flags;
    bool keep = t->after[i] & ~flags & FL_OF;
    bool scratch = t->s1 != NOREG && !guards_hold(t, t->s1);
    if (scratch) {
        t->s1_has = NOREG;
        e_mov(e, t->s1, RAX);
    } else {
        e_store(e, RAX, OFF(save_rax));
    }
    if (keep || one)
        e_flags_to_ax(e);
    else
        e1(e, 0x9f); /* lahf */
    if (one) {
        e2(e, 0xcc80); /* or ah, low */
        e1(e, low);
        if (flags & FL_OF)
            e2(e, 0x01b0); /* mov al, 1 */
    } else if (low) {
        e2(e, 0xe480); /* and ah, ~low: OF becomes 0 */
        e1(e, (u8)~low);
    } else {
        e2(e, 0xc084); /* test al, al: OF becomes 0 */
    }
    if (keep || one)
        e2(e, 0x7f04); /* add al, 7fh: OF as it was */
    e1(e, 0x9e);       /* sahf */
    if (scratch)
        e_mov(e, RAX, t->s1);
    else
        e_load(e, RAX, OFF(save_rax));
}

static void put_zero_flags(struct tr *t, unsigned i, u32 flags)
{
    if (!(flags & t->after[i]))
        return;
    if (UNLIKELY(t->d->c.other_maker))
        put_undefined(t, i, flags, true);
    if (LIKELY(t->d->c.other_maker != OTHER_RAW))
        put_undefined(t, i, flags, false);
}

/* jrcxz to what is yet to come. */
static u8 *put_jrcxz(struct emit *e)
{
    e2(e, 0x00e3);
    return e->p - 1;
}

static void fix_short(struct emit *e, u8 *at)
{
    CHECK(e->p - at - 1 < 128, "a short branch over %td bytes", e->p - at - 1);
    *at = (u8)(e->p - at - 1);
}

/*
 * A shift or rotate of a register by CL: flags stay as they are if the count is 0, all but AF are
 * defined if it is 1. No flag is touched until it is known.
 */
static void put_by_count(struct tr *t, const struct insn *in, unsigned i)
{
    struct emit *e = &t->e;
    int by = in->opsize == 8 ? 4 : 8; /* makes a byte of what counts of CL */
    e_store(e, RCX, OFF(tmp));
    e_lea(e, RCX, NOREG, RCX, by, 0);
    e2(e, 0xb60f); /* movzx ecx, cl */
    e1(e, 0xc9);
    u8 *none = put_jrcxz(e);
    e_lea(e, RCX, RCX, NOREG, 1, -by);
    u8 *once = put_jrcxz(e);
    e_load(e, RCX, OFF(tmp));
    put_copy(e, in);
    put_zero_flags(t, i, in->undefined);
    u8 *end = e_jmp(e);
    fix_short(e, none);
    e_load(e, RCX, OFF(tmp));
    put_copy(e, in);
    u8 *end2 = e_jmp(e);
    fix_short(e, once);
    e_load(e, RCX, OFF(tmp));
    put_copy(e, in);
    put_zero_flags(t, i, in->undefined & ~FL_OF);
    e_fix(e, end, e->p);
    e_fix(e, end2, e->p);
}

/* cmovz reg, gs:[tmp] */
static void put_scanned_nothing(struct emit *e, int reg)
{
    e1(e, 0x65);
    e_rex(e, 1, reg, NOREG, NOREG);
    e2(e, 0x440f);
    e_modrm(e, reg, NOREG, NOREG, 1, (i32)OFF(tmp));
}

void put_gen(struct tr *t, const struct insn *in, unsigned i)
{
    if (in->canon == CANON_COUNT && (in->undefined & t->after[i])) {
        put_by_count(t, in, i);
        return;
    }
    if (in->canon == CANON_SCAN)
        e_store(&t->e, in->reg0, OFF(tmp));
    put_plain(t, in, i);
    if (in->canon == CANON_SCAN)
        put_scanned_nothing(&t->e, in->reg0);
    if (in->canon == CANON_FLAGS || in->canon == CANON_SCAN)
        put_zero_flags(t, i, in->undefined);
}
