/*
 * RCPPS, RSQRTPS and their like where the host's own are not the canonical ones (x86/approx.h):
 * each element's entry of a table is put where it was, and what its exponent makes of it is
 * subtracted, all elements at once. Elements that are zero, infinite, NaN and so on are for C
 * (slow_approx). Flags stay, and MXCSR: no floating-point instruction is used.
 *
 * Registers that the guest does not have for itself are general ones only; so the destination is
 * used for all, and what is needed later waits in slots.
 */
#include "tr.h"

#include "cpu/x86/approx.h"
#include "cpu/x86/exec.h"

/* One form of instruction for the registers as the guest writes it: with VEX or without. */
struct form {
    struct emit *e;
    bool vex, wide; /* 256 bits */
    int x;          /* the register that is worked in */
};

enum { MAP_0F = 1, MAP_0F3A = 3, PP_66 = 1 };

/* VEX with registers that are known (SDM vol. 2, 2.3.5); r, index, base and first are numbers. */
static void put_vex_of(struct emit *e, bool wide, unsigned map, unsigned pp, int r, int index,
                       int base, int first)
{
    u8 tail = (u8)((~first & 15) << 3 | (wide ? 4 : 0) | (int)pp);
    u8 r_bit = r >= 8 ? 0 : 0x80;
    if (map == MAP_0F && index < 8 && base < 8) {
        e1(e, 0xc5);
        e1(e, (u8)(r_bit | tail));
        return;
    }
    e1(e, 0xc4);
    e1(e, (u8)(r_bit | (index >= 8 ? 0 : 0x40) | (base >= 8 ? 0 : 0x20) | (int)map));
    e1(e, tail);
}

static void put_head(const struct form *f, unsigned pp, u8 op, int r, int index, int base,
                     int first)
{
    if (f->vex) {
        put_vex_of(f->e, f->wide, MAP_0F, pp, r, index, base, first);
    } else {
        if (pp == PP_66)
            e1(f->e, 0x66);
        e_rex(f->e, 0, r, index, base);
        e1(f->e, 0x0f);
    }
    e1(f->e, op);
}

/* op r, gs:[off]; with VEX the first source is `first`, 0 if there is none. */
static void put_slot(const struct form *f, unsigned pp, u8 op, int r, int first, size_t off)
{
    e1(f->e, 0x65);
    put_head(f, pp, op, r, NOREG, NOREG, first);
    e_modrm(f->e, r, NOREG, NOREG, 1, (i32)off);
}

static void put_rr(const struct form *f, unsigned pp, u8 op, int r, int rm, int first)
{
    put_head(f, pp, op, r, NOREG, rm, first);
    e1(f->e, (u8)(0xc0 | (r & 7) << 3 | (rm & 7)));
}

static void put_load(const struct form *f, size_t off)
{
    put_slot(f, 0, 0x28, f->x, 0, off); /* movaps */
}

static void put_store(const struct form *f, int r, size_t off)
{
    put_slot(f, 0, 0x29, r, 0, off);
}

#define PAND     0xdb
#define PADDD    0xfe
#define PSUBD    0xfa
#define PCMPGTD  0x66
#define SHIFT_UP 6
#define SHIFT    2 /* down, without sign */

static void put_with(const struct form *f, u8 op, size_t off)
{
    put_slot(f, PP_66, op, f->x, f->x, off);
}

static void put_shift(const struct form *f, int digit, u8 by)
{
    put_head(f, PP_66, 0x72, 0, NOREG, f->x, f->x);
    e1(f->e, (u8)(0xc0 | digit << 3 | (f->x & 7)));
    e1(f->e, by);
}

/* pinsrw x, gs:[index*2 + off], word; of 128 bits */
static void put_word_of(const struct form *f, int index, size_t off, u8 word)
{
    struct form narrow = *f;
    narrow.wide = false;
    e1(f->e, 0x65);
    put_head(&narrow, PP_66, 0xc4, f->x, index, NOREG, f->x);
    e_modrm(f->e, f->x, NOREG, index, 2, (i32)off);
    e1(f->e, word);
}

/* Entries of elements `from` on, as many as n; the other words are zero. */
static void put_entries(struct tr *t, const struct form *f, unsigned from, unsigned n, size_t table)
{
    struct form narrow = *f;
    narrow.wide = false;
    put_rr(&narrow, PP_66, 0xef, f->x, f->x, f->x); /* pxor */
    for (unsigned k = 0; k < n; k++) {
        int s = k & 1 ? t->s2 : t->s1;
        e1(f->e, 0x65); /* movzx s, word gs:[] */
        e_rex(f->e, 0, s, NOREG, NOREG);
        e2(f->e, 0xb70f);
        e_modrm(f->e, s, NOREG, NOREG, 1, (i32)(OFF(approx.place) + 4 * (from + k)));
        put_word_of(f, s, table, (u8)(2 * k));
    }
}

/* To C where an element is none that has an entry. Clobbers s1, or else RCX is a scratch one. */
static void put_special(struct tr *t, const struct form *f, const struct approx_form *a, unsigned i,
                        size_t slots)
{
    struct emit *e = f->e;
    int kept = t->s1 == RCX || t->s2 == RCX ? NOREG : t->s1;
    if (!a->root)
        put_shift(f, SHIFT_UP, 1); /* without its sign */
    put_with(f, PADDD, slots + offsetof(struct approx_slots, least));
    put_with(f, PCMPGTD, slots + offsetof(struct approx_slots, most));
    if (kept >= 0)
        e_mov(e, kept, RCX);
    if (a->n == 1)
        put_rr(f, PP_66, 0x7e, f->x, RCX, 0); /* movd ecx, x */
    else
        put_rr(f, 0, 0x50, RCX, f->x, 0); /* movmskps */
    e1(e, 0xe3);                          /* jrcxz over the jump */
    e1(e, 5);
    u8 *at = e_jmp(e);
    if (kept >= 0)
        e_mov(e, RCX, kept);
    tr_cold(t, (struct cold){.at = at, .kind = COLD_APPROX, .id = i, .kept = (i8)kept});
}

/* One element into the lowest one of x, the rest from where it is kept. */
static void put_merge(const struct form *f)
{
    put_load(f, OFF(approx.rest));
    for (unsigned k = 0; k < 2; k++) {
        e1(f->e, 0x65);
        put_head(f, PP_66, 0xc4, f->x, NOREG, NOREG, f->x);
        e_modrm(f->e, f->x, NOREG, NOREG, 1, (i32)(OFF(approx.out) + 2 * k));
        e1(f->e, (u8)k);
    }
}

/* The memory operand into the destination: a load that is written alike. */
static void put_operand_load(struct tr *t, unsigned i, const struct approx_form *a)
{
    struct insn load = t->in[i];
    load.treat = T_GEN;
    load.opcode = load.align ? 0x28 : 0x10;
    load.bytes[load.modrm_off - 1] = load.opcode;
    if (a->vex) /* no second source */
        load.bytes[load.modrm_off - 2] |= 0x78;
    put_plain(t, &load, i);
}

void put_approx(struct tr *t, unsigned i)
{
    const struct insn *in = &t->in[i];
    struct approx_form a = approx_form(in);
    struct form f = {&t->e, a.vex, a.n == 8, a.dst};
    size_t slots = a.root ? OFF(approx.root) : OFF(approx.reciprocal);
    size_t table = a.root ? OFF(c.approx.root) : OFF(c.approx.reciprocal);
    int src = a.src;
    if (a.n == 1)
        put_store(&f, a.rest, OFF(approx.rest));
    if (in->mem) {
        put_operand_load(t, i, &a);
        src = a.dst;
    }
    put_store(&f, src, OFF(approx.in));
    /* Where in the table, */
    if (f.vex) {
        put_slot(&f, PP_66, PAND, f.x, src, slots + offsetof(struct approx_slots, places));
    } else {
        if (src != f.x)
            put_rr(&f, 0, 0x28, f.x, src, 0);
        put_with(&f, PAND, slots + offsetof(struct approx_slots, places));
    }
    put_shift(&f, SHIFT, APPROX_UNIT);
    put_store(&f, f.x, OFF(approx.place));
    /* what its exponent takes off, */
    put_load(&f, OFF(approx.in));
    put_shift(&f, SHIFT, a.root ? 24 : 23);
    put_shift(&f, SHIFT_UP, 23);
    put_with(&f, PSUBD, slots + offsetof(struct approx_slots, base));
    put_store(&f, f.x, OFF(approx.less));
    /* and is it there at all? */
    put_load(&f, OFF(approx.in));
    put_special(t, &f, &a, i, slots);
    struct cold *special = &t->cold[t->ncold - 1];
    struct form half = f;
    half.wide = false;
    if (f.wide) {
        put_entries(t, &f, 4, 4, table);
        put_store(&half, f.x, OFF(approx.out) + 16);
    }
    put_entries(t, &f, 0, MIN(a.n, 4u), table);
    if (f.wide) { /* vinsertf128 x, x, gs:[out + 16], 1 */
        e1(f.e, 0x65);
        put_vex_of(f.e, true, MAP_0F3A, PP_66, f.x, NOREG, NOREG, f.x);
        e1(f.e, 0x18);
        e_modrm(f.e, f.x, NOREG, NOREG, 1, (i32)(OFF(approx.out) + 16));
        e1(f.e, 1);
    }
    put_shift(&f, SHIFT_UP, APPROX_UNIT);
    put_with(&f, PSUBD, OFF(approx.less));
    if (a.n == 1) {
        put_slot(&f, PP_66, 0x7e, f.x, 0, OFF(approx.out)); /* movd */
        special->resume = f.e->p;
        put_merge(&f);
    } else {
        special->resume = f.e->p;
    }
}

void put_approx_cold(struct tr *t, const struct cold *c)
{
    struct emit *e = &t->e;
    struct approx_form a = approx_form(&t->in[c->id]);
    struct form f = {e, a.vex, a.n == 8, a.dst};
    if (c->kept >= 0)
        e_mov(e, RCX, c->kept);
    if (t->live[c->id])
        put_save_flags(t);
    e_store_imm32(e, OFF(tmp2), a.n | (a.root ? SLOW_ROOT : 0));
    u8 *back = e->p;
    e_lea_rip(e, t->s1, back);
    e_store(e, t->s1, OFF(resume));
    e_jmp_to(e, t->d->code->rw + t->d->code->approx);
    struct emit again = {.p = back};
    e_lea_rip(&again, t->s1, e->p);
    if (t->live[c->id])
        put_restore_flags(t);
    if (a.n > 1)
        put_load(&f, OFF(approx.out));
    e_jmp_to(e, c->resume);
}

static void fill(u32 to[8], u32 value)
{
    for (unsigned i = 0; i < 8; i++)
        to[i] = value;
}

/* `least` makes of the least operand that has an entry the least number with a sign; `most` is what
 * it makes of the greatest one. */
void approx_slots_fill(struct dbt *d)
{
    struct approx_slots *r = &d->approx.reciprocal, *s = &d->approx.root;
    fill(r->places, 4095u << APPROX_UNIT);
    fill(r->base, APPROX_RECIPROCAL_BASE);
    fill(r->least, 0x80000000u - 0x01000000u); /* twice a number without its sign: from 2 << 23, */
    fill(r->most, 0x7bffffff);                 /* below 253 << 24 */
    fill(s->places, (APPROX_PLACES - 1) << APPROX_UNIT);
    fill(s->base, APPROX_ROOT_BASE);
    fill(s->least, 0x80000000u - 0x00800000u);
    fill(s->most, 0xfeffffff); /* below infinity */
}

bool has_approx(const struct dbt *d, const struct insn *in)
{
    return in->code == CODE_64 && (approx_form(in).n < 8 || d->avx2);
}
