/*
 * The assembler: the few instruction forms that the translator inserts. SDM vol. 2, chapter 2.
 * Register numbers are the hardware's (vcpu.h). All moves and LEAs are flag-neutral.
 */
#ifndef REPRISE_DBT_EMIT_H
#define REPRISE_DBT_EMIT_H

#include <string.h>

#include "base/check.h"
#include "base/types.h"

/*
 * Where code depends on where it is: noted, so that a copy of it can be at another address of the
 * guest's and of the cache's (copies.c).
 */
enum reloc_kind {
    RELOC_ID,    /* u32: the block's number in an EXIT_ID */
    RELOC_LIN,   /* u64: from the block's address on */
    RELOC_MINUS, /* u64: 0 less that */
    RELOC_FAR,   /* RELOC_LIN of put_far_edge(), and its place in the jump cache */
    RELOC_TLB,   /* i32: the place in the TLB of an address; how far that is from the block's comes
                    next */
    RELOC_OUT,   /* rel32 to a stub */
    RELOC_OTHER, /* ... from the block's code to what seldom runs, or back */
};
struct reloc {
    u16 at; /* from where that part of the block begins */
    u8 cold, kind;
};
#define RELOCS_MAX 1024u
struct notes {
    const u8 *hot, *cold; /* where both parts begin; */
    const u8 *colds;      /* what seldom runs is from here on, */
    const u8 *blocks;     /* and blocks from here on */
    bool lost;            /* there is something that cannot be noted */
    unsigned n;
    struct reloc reloc[RELOCS_MAX];
};

struct emit {
    u8 *p;
    struct notes *notes; /* NULL: none are taken */
};

static inline void e_note(struct emit *e, const u8 *at, enum reloc_kind kind)
{
    struct notes *k = e->notes;
    if (!k)
        return;
    bool cold = at >= k->colds;
    if (k->n + 2 > RELOCS_MAX)
        k->lost = true;
    else
        k->reloc[k->n++] = (struct reloc){(u16)(at - (cold ? k->cold : k->hot)), cold, (u8)kind};
}

static inline void e_note_lost(struct emit *e)
{
    if (e->notes)
        e->notes->lost = true;
}

/* The displacement that ends here is that of the TLB's entry for an address so far from the
 * block's. */
static inline void e_note_tlb(struct emit *e, i32 off)
{
    struct notes *k = e->notes;
    e_note(e, e->p - 4, RELOC_TLB);
    if (k && !k->lost)
        memcpy(&k->reloc[k->n++], &off, 4);
}

/* The rel32 at `at` is to `target`. */
static inline void e_note_rel(struct emit *e, const u8 *at, const u8 *target)
{
    struct notes *k = e->notes;
    if (k && target < k->blocks)
        e_note(e, at, RELOC_OUT);
    else if (k && (at >= k->colds) != (target >= k->colds))
        e_note(e, at, RELOC_OTHER);
}

static inline void e1(struct emit *e, u8 v)
{
    *e->p++ = v;
}

static inline void e2(struct emit *e, u16 v)
{
    memcpy(e->p, &v, 2);
    e->p += 2;
}

static inline void e4(struct emit *e, u32 v)
{
    memcpy(e->p, &v, 4);
    e->p += 4;
}

static inline void e8(struct emit *e, u64 v)
{
    memcpy(e->p, &v, 8);
    e->p += 8;
}

#define NOREG (-1)

static inline void e_modrm_as(struct emit *e, int reg, int base, int index, int scale, i32 disp,
                              bool wide)
{
    int ss = scale == 8 ? 3 : scale == 4 ? 2 : scale == 2 ? 1 : 0;
    CHECK(index != 4, "RSP as an index");
    reg &= 7;
    if (base < 0) {
        e1(e, (u8)(reg << 3 | 4));
        e1(e, (u8)(ss << 6 | (index < 0 ? 4 : index & 7) << 3 | 5));
        e4(e, (u32)disp);
        return;
    }
    int mod = disp == 0 && (base & 7) != 5 ? 0 : !wide && disp >= -128 && disp < 128 ? 1 : 2;
    if (index >= 0 || (base & 7) == 4) {
        e1(e, (u8)(mod << 6 | reg << 3 | 4));
        e1(e, (u8)(ss << 6 | (index < 0 ? 4 : index & 7) << 3 | (base & 7)));
    } else {
        e1(e, (u8)(mod << 6 | reg << 3 | (base & 7)));
    }
    if (mod == 1)
        e1(e, (u8)disp);
    else if (mod == 2)
        e4(e, (u32)disp);
}

/* ModRM (+SIB, +disp) for [base + index*scale + disp]; no base and no index: absolute disp32. */
static inline void e_modrm(struct emit *e, int reg, int base, int index, int scale, i32 disp)
{
    e_modrm_as(e, reg, base, index, scale, disp, false);
}

/* The same without displacements of 8 bits. */
static inline void e_modrm_wide(struct emit *e, int reg, int base, int index, int scale, i32 disp)
{
    e_modrm_as(e, reg, base, index, scale, disp, true);
}

static inline void e_rex(struct emit *e, int w, int reg, int index, int base)
{
    u8 rex =
        (u8)(0x40 | (w ? 8 : 0) | (reg >= 8 ? 4 : 0) | (index >= 8 ? 2 : 0) | (base >= 8 ? 1 : 0));
    if (rex != 0x40)
        e1(e, rex);
}

/* op reg, [base + index*scale + disp], opcode of one byte */
static inline void e_mem(struct emit *e, int w, u8 op, int reg, int base, int index, int scale,
                         i32 disp)
{
    e_rex(e, w, reg, index, base);
    e1(e, op);
    e_modrm(e, reg, base, index, scale, disp);
}

/* The same with an engine slot: gs:[index*scale + off] */
static inline void e_gs(struct emit *e, int w, u8 op, int reg, int index, int scale, size_t off)
{
    int base = NOREG;
    if (scale == 1) { /* shorter */
        base = index;
        index = NOREG;
    }
    e1(e, 0x65);
    e_rex(e, w, reg, index, base);
    e1(e, op);
    e_modrm(e, reg, base, index, scale, (i32)off);
}

static inline void e_load(struct emit *e, int reg, size_t off)
{
    e_gs(e, 1, 0x8b, reg, NOREG, 1, off);
}

static inline void e_store(struct emit *e, int reg, size_t off)
{
    e_gs(e, 1, 0x89, reg, NOREG, 1, off);
}

static inline void e_store_imm32(struct emit *e, size_t off, u32 v)
{
    e_gs(e, 0, 0xc7, 0, NOREG, 1, off);
    e4(e, v);
}

/* cmp dword gs:[off], 0 */
static inline void e_cmp_slot_0(struct emit *e, size_t off)
{
    e_gs(e, 0, 0x83, 7, NOREG, 1, off);
    e1(e, 0);
}

static inline void e_rr(struct emit *e, int w, u8 op, int reg, int rm)
{
    e_rex(e, w, reg, NOREG, rm);
    e1(e, op);
    e1(e, (u8)(0xc0 | (reg & 7) << 3 | (rm & 7)));
}

static inline void e_mov(struct emit *e, int dst, int src)
{
    e_rr(e, 1, 0x89, src, dst);
}

static inline void e_lea(struct emit *e, int dst, int base, int index, int scale, i32 disp)
{
    e_mem(e, 1, 0x8d, dst, base, index, scale, disp);
}

/* Does e_movi() write all 8 bytes? */
static inline bool movi_is_wide(u64 v)
{
    return v != (u32)v && (i64)v != (i32)v;
}

static inline void e_movi(struct emit *e, int reg, u64 v)
{
    if (v == (u32)v) {
        if (reg >= 8)
            e1(e, 0x41);
        e1(e, (u8)(0xb8 | (reg & 7)));
        e4(e, (u32)v);
    } else if ((i64)v == (i32)v) {
        e1(e, reg >= 8 ? 0x49 : 0x48);
        e1(e, 0xc7);
        e1(e, (u8)(0xc0 | (reg & 7)));
        e4(e, (u32)v);
    } else {
        e1(e, reg >= 8 ? 0x49 : 0x48);
        e1(e, (u8)(0xb8 | (reg & 7)));
        e8(e, v);
    }
}

/* The same of what depends on where the block is. */
static inline void e_movi_noted(struct emit *e, int reg, u64 v, enum reloc_kind kind)
{
    e_movi(e, reg, v);
    if (movi_is_wide(v))
        e_note(e, e->p - 8, kind);
    else
        e_note_lost(e);
}

/* pext reg, reg, gs:[off] */
static inline void e_pext(struct emit *e, int reg, size_t off)
{
    e1(e, 0x65);
    e1(e, 0xc4);
    e1(e, reg >= 8 ? 0x62 : 0xe2);
    e1(e, (u8)(0x82 | (~reg & 15) << 3));
    e1(e, 0xf5);
    e_modrm(e, reg, NOREG, NOREG, 1, (i32)off);
}

/* lea reg, [rip + what gives `target`] */
static inline void e_lea_rip(struct emit *e, int reg, const u8 *target)
{
    e_rex(e, 1, reg, NOREG, NOREG);
    e1(e, 0x8d);
    e1(e, (u8)((reg & 7) << 3 | 5));
    e4(e, (u32)(target - (e->p + 4)));
    e_note_rel(e, e->p - 4, target);
}

static inline void e_cmp_imm32(struct emit *e, int reg, u32 v)
{
    e_rex(e, 1, NOREG, NOREG, reg);
    e1(e, 0x81);
    e1(e, (u8)(0xf8 | (reg & 7)));
    e4(e, v);
}

static inline void e_neg(struct emit *e, int reg)
{
    e_rex(e, 1, NOREG, NOREG, reg);
    e1(e, 0xf7);
    e1(e, (u8)(0xd8 | (reg & 7)));
}

/* rorx reg, rm, count: of 32 bits */
static inline void e_rorx(struct emit *e, int reg, int rm, u8 count)
{
    e1(e, 0xc4);
    e1(e, (u8)(0x43 | (reg >= 8 ? 0 : 0x80) | (rm >= 8 ? 0 : 0x20)));
    e1(e, 0x7b);
    e1(e, 0xf0);
    e1(e, (u8)(0xc0 | (reg & 7) << 3 | (rm & 7)));
    e1(e, count);
}

/* jmp/jcc with a 32-bit displacement; return the address of the displacement. */
static inline u8 *e_jmp(struct emit *e)
{
    e1(e, 0xe9);
    e4(e, 0);
    return e->p - 4;
}

static inline u8 *e_jcc(struct emit *e, int cond)
{
    e1(e, 0x0f);
    e1(e, (u8)(0x80 | cond));
    e4(e, 0);
    return e->p - 4;
}

static inline void e_fix(struct emit *e, u8 *at, const u8 *target)
{
    i32 d = (i32)(target - (at + 4));
    memcpy(at, &d, 4);
    e_note_rel(e, at, target);
}

static inline void e_jmp_to(struct emit *e, const u8 *target)
{
    e_fix(e, e_jmp(e), target);
}

/* Flags into AX (lahf; seto al) and back; AX itself must have been saved. */
static inline void e_flags_to_ax(struct emit *e)
{
    e1(e, 0x9f);
    e1(e, 0x0f);
    e1(e, 0x90);
    e1(e, 0xc0);
}

static inline void e_flags_from_ax(struct emit *e)
{
    e1(e, 0x04);
    e1(e, 0x7f);
    e1(e, 0x9e);
}

#endif
