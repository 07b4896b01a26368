/*
 * AVX-512: accesses whose elements a mask chooses, gathers and scatters, and the approximations of
 * 14 bits, which are by a rule of ours: makers' CPUs differ (SDM vol. 2, 2.7; vol. 1, 15).
 */
#include "cpu/x86/avx512.h"

#include <Zydis/Mnemonic.h>

#include "cpu/x86/exec.h"
#include "cpu/x86/fpu.h"
#include "cpu/x86/memory.h"
#include "cpu/x86/mode.h"
#include "cpu/x86/park.h"
#include "cpu/x86/xsave_image.h"

struct evex {
    u8 reg, vvvv, rm; /* registers, as wide as the encoding has them */
    u8 index;         /* of a vector in SIB */
    u8 bytes;         /* of the vector */
    u8 mask;
    bool w, zeroing, broadcast;
};

static struct evex evex_fields(const struct insn *in)
{
    const u8 *p = in->bytes + in->opcode_off;
    u8 modrm = in->bytes[in->modrm_off], sib = in->bytes[in->modrm_off + 1];
    struct evex e = {.w = p[2] >> 7,
                     .zeroing = p[3] >> 7,
                     .broadcast = p[3] >> 4 & 1,
                     .mask = p[3] & 7,
                     .bytes = (u8)(16 << (p[3] >> 5 & 3))};
    e.reg = (modrm >> 3 & 7);
    e.rm = modrm & 7;
    e.vvvv = ~p[2] >> 3 & 7;
    e.index = sib >> 3 & 7;
    if (in->code == CODE_64) {
        u8 high = p[3] & 8 ? 0 : 16;
        e.reg |= (p[1] & 0x80 ? 0 : 8) | (p[1] & 0x10 ? 0 : 16);
        e.rm |= (p[1] & 0x20 ? 0 : 8) | (p[1] & 0x40 ? 0 : 16);
        e.vvvv |= (p[2] & 0x40 ? 0 : 8) | high;
        e.index |= (p[1] & 0x40 ? 0 : 8) | high;
    }
    return e;
}

u8 *vector_at(struct core *d, unsigned reg, unsigned byte)
{
    struct vcpu *c = &d->cpu;
    if (reg >= 16)
        return c->zmm_above + 64 * (reg - 16) + byte;
    if (byte >= 32)
        return c->zmm_high + 32 * reg + byte - 32;
    return byte < 16 ? c->xsave + 160 + 16 * reg + byte : c->xsave + 576 + 16 * reg + byte - 16;
}

/* Bytes from `from` on. */
static void clear_from(struct core *d, unsigned reg, unsigned from)
{
    for (unsigned b = from; b < 64; b++)
        *vector_at(d, reg, b) = 0;
}

void vector_clear_high(struct core *d, unsigned reg)
{
    if (d->xmask & XF_512)
        clear_from(d, reg, 32);
}

/* ---- masked accesses ---- */

static unsigned ones(u64 v)
{
    unsigned n = 0;
    for (; v; v &= v - 1)
        n++;
    return n;
}

/* Which elements of memory there are, a bit for each. */
static u64 elements(const struct core *d, const struct insn *in)
{
    unsigned n = in->mem_size / in->elem;
    u64 m = d->cpu.mask[in->mask], on = 0;
    if (in->lanes < 64)
        m &= (1ull << in->lanes) - 1;
    if (in->packed) {
        unsigned k = ones(m);
        return k == 64 ? ~0ull : (1ull << k) - 1;
    }
    for (unsigned i = 0; i < in->lanes; i++)
        if (m >> i & 1)
            on |= 1ull << i % n;
    return on;
}

/*
 * Translated code looks up the whole operand, whatever the mask says, and leaves accessed and dirty
 * bits so. Where that works here too it is what happens. A debugger's watchpoints are told of the
 * elements that there are, and leave the same bits.
 */
static bool whole(struct core *d, struct operand *op)
{
    u64 va = linear(d, op->seg, op->off);
    struct fault was = d->fault;
    if (d->dr_active || (va & (PAGE_SIZE - 1)) + op->len > PAGE_SIZE)
        return false;
    bool watching = d->watching;
    d->watching = false;
    int r = operand_check(d, op);
    d->watching = watching;
    if (r) {
        d->fault = was;
        return false;
    }
    return !watching && ram_ptr(d->ram, op->gpa[0], op->len);
}

static int by_elements(struct core *d, struct insn *in, u64 on)
{
    u64 off = insn_offset(d, in);
    bool store = in->mem & MEM_W;
    /* Without any element it need not be aligned, whatever this host's CPU says. */
    u8 *b = d->bounce_raw + 64 + (on ? linear(d, in->seg, off) & 63 : 0);
    for (unsigned i = 0; i < in->mem_size; i++)
        b[i] = 0;
    for (unsigned i = 0; i < in->mem_size; i += in->elem) {
        if (!(on >> i / in->elem & 1))
            continue;
        if (store)
            TRY(mem_check(d, in->seg, off + i, in->elem, ACC_W));
        else
            TRY(mem_read(d, in->seg, off + i, in->elem, b + i));
    }
    d->ptr = b;
    TRY(core_native(d, in));
    for (unsigned i = 0; store && i < in->mem_size; i += in->elem)
        if (on >> i / in->elem & 1)
            TRY(mem_write(d, in->seg, off + i, in->elem, b + i));
    return DONE;
}

/* An instruction whose mask says which elements of its memory operand there are (insn.mask). */
HELPER(masked)
{
    struct operand op = {.off = insn_offset(d, in),
                         .len = in->mem_size,
                         .seg = in->seg,
                         .acc = in->mem & MEM_W ? ACC_W : ACC_R,
                         .read = true}; /* a store leaves what the mask leaves out */
    core_park(d);
    u64 on = elements(d, in);
    u64 va = linear(d, op.seg, op.off);
    bool aligned = !in->align || !(va & (in->align - 1u));
    if (on && !aligned)
        return raise_error(d, EXC_GP, 0);
    /* Vectors are not checked; what has the size of an integer is, by its elements. */
    if (d->ac_check && on && in->mem_size <= 8 && (va & (in->elem - 1u)))
        return is_canonical(va) ? raise_error(d, EXC_AC, 0) : raise_segment(d, in->seg);
    bool ac = d->ac_check;
    d->ac_check = false;
    int r;
    if (aligned && whole(d, &op)) {
        r = operand_open(d, &op);
        if (!r)
            r = core_native(d, in);
        if (!r)
            r = operand_close(d, &op);
    } else {
        r = by_elements(d, in, on);
    }
    d->ac_check = ac;
    return r;
}

/* ---- gathers and scatters ---- */

struct vsib {
    struct evex e;
    unsigned elem, isize, n;
};

static struct vsib vsib_fields(const struct insn *in)
{
    struct vsib v = {.e = evex_fields(in)};
    v.elem = v.e.w ? 8 : 4;
    v.isize = in->opcode & 1 ? 8 : 4;
    v.n = v.e.bytes / (v.elem > v.isize ? v.elem : v.isize);
    return v;
}

static u64 vsib_offset(struct core *d, const struct insn *in, const struct vsib *v, unsigned i)
{
    const u8 *at = vector_at(d, v->e.index, i * v->isize);
    i64 index = v->isize == 8 ? *(const i64 *)(const void *)at : *(const i32 *)(const void *)at;
    u64 base = in->base >= 0 ? d->cpu.gpr[in->base] : 0;
    return low_bytes(base + (u64)(index * in->scale) + (u64)in->disp, in->addrsize);
}

/* Elements are done from the first on; what was done of those in front of a fault stays done. */
static int each_element(struct core *d, struct insn *in, bool store)
{
    struct vsib v = vsib_fields(in);
    if (!store && v.e.reg == v.e.index)
        return raise_fault(d, EXC_UD);
    bool ac = d->ac_check;
    core_park(d);
    d->ac_check = false;
    int r = DONE;
    for (unsigned i = 0; i < v.n && !r; i++) {
        if (!(d->cpu.mask[v.e.mask] >> i & 1))
            continue;
        u8 *reg = vector_at(d, v.e.reg, i * v.elem), buf[8];
        u64 off = vsib_offset(d, in, &v, i);
        if (store) {
            for (unsigned k = 0; k < v.elem; k++)
                buf[k] = reg[k];
            r = mem_write(d, in->seg, off, v.elem, buf);
        } else {
            r = mem_read(d, in->seg, off, v.elem, buf);
            for (unsigned k = 0; !r && k < v.elem; k++)
                reg[k] = buf[k];
        }
        if (!r)
            d->cpu.mask[v.e.mask] &= ~(1ull << i);
    }
    d->ac_check = ac;
    if (!r) {
        d->cpu.mask[v.e.mask] = 0;
        if (!store)
            clear_from(d, v.e.reg, v.n * v.elem);
    }
    park_changed(d);
    return r;
}

int evex_gather(struct core *d, struct insn *in)
{
    return each_element(d, in, false);
}

HELPER(scatter)
{
    return each_element(d, in, true);
}

/* ---- VRCP14, VRSQRT14 ---- */

struct format {
    unsigned fraction; /* bits */
    u64 exponents;     /* the largest one, of infinity */
};

/* A number's parts. A denormal one is as if its exponent had more bits. */
struct parts {
    u64 sign; /* where the result has it */
    u64 fraction;
    i64 exponent;
    bool zero, infinite, nan;
};

static struct parts parts_of(const struct format *f, u64 x, bool daz)
{
    u64 one = 1ull << f->fraction;
    struct parts p = {.sign = x & (f->exponents + 1) << f->fraction,
                      .fraction = x & (one - 1),
                      .exponent = (i64)(x >> f->fraction & f->exponents)};
    bool last = p.exponent == (i64)f->exponents;
    p.nan = last && p.fraction;
    p.infinite = last && !p.fraction;
    p.zero = !p.exponent && (!p.fraction || daz);
    if (p.exponent || p.zero)
        return p;
    for (p.exponent = 1; !(p.fraction & one); p.exponent--)
        p.fraction <<= 1;
    p.fraction &= one - 1;
    return p;
}

static u64 infinity(const struct format *f)
{
    return f->exponents << f->fraction;
}

static u64 quiet(const struct format *f)
{
    return 1ull << (f->fraction - 1);
}

static u64 rcp14(const struct format *f, u64 x, bool daz, bool ftz)
{
    struct parts p = parts_of(f, x, daz);
    if (p.nan)
        return x | quiet(f);
    if (p.infinite)
        return p.sign;
    if (p.zero)
        return p.sign | infinity(f);
    /* 1.m as 32 bits; 2^63 by it has 32 bits, or 33 of a power of two. */
    u64 whole = 1ull << 31 | (f->fraction == 23 ? p.fraction << 8 : p.fraction >> 21);
    u64 q = (1ull << 63) / whole;
    i64 out = (i64)(f->exponents >> 1) * 2 - p.exponent - 1;
    if (q >> 32) {
        q >>= 1;
        out++;
    }
    if (out >= (i64)f->exponents)
        return p.sign | infinity(f);
    q = (q + (1u << 16)) >> 17; /* 1 and 14 bits */
    if (q >> 15) {
        q >>= 1;
        if (++out >= (i64)f->exponents) { /* it is finite, so this is */
            out--;
            q = 0x7fff;
        }
    }
    u64 fraction = (q & 0x3fff) << (f->fraction - 14);
    if (out > 0)
        return p.sign | (u64)out << f->fraction | fraction;
    if (ftz)
        return p.sign;
    return p.sign | (fraction | 1ull << f->fraction) >> (1 - out);
}

static u64 rsqrt14(const struct format *f, u64 x, bool daz)
{
    struct parts p = parts_of(f, x, daz);
    i64 bias = (i64)(f->exponents >> 1);
    if (p.nan)
        return x | quiet(f);
    if (p.zero)
        return p.sign | infinity(f);
    if (p.sign)
        return p.sign | infinity(f) | quiet(f);
    if (p.infinite)
        return 0;
    /* 1.m, or twice that of an odd exponent, with 28 bits after the point. */
    i64 power = p.exponent - bias;
    u64 v = 1ull << f->fraction | p.fraction;
    v = f->fraction == 23 ? v << 5 : v >> 24;
    if (power & 1)
        v <<= 1;
    power = (power - (power & 1)) / 2;
    /* The largest y with y * y * v <= 1: with 16 bits after the point. */
    u64 y = 0;
    for (int bit = 16; bit >= 0; bit--)
        if ((y | 1u << bit) * (y | 1u << bit) * v <= 1ull << 60)
            y |= 1u << bit;
    i64 out = bias - power;
    if (!(y >> 16)) { /* below 1 */
        y <<= 1;
        out--;
    }
    y = (y + 2) >> 2;
    if (y >> 15) {
        y >>= 1;
        out++;
    }
    return (u64)out << f->fraction | (y & 0x3fff) << (f->fraction - 14);
}

u64 approx14(bool root, bool wide, u64 x, bool daz, bool ftz)
{
    static const struct format single = {23, 0xff}, twice = {52, 0x7ff};
    const struct format *f = wide ? &twice : &single;
    return root ? rsqrt14(f, x, daz) : rcp14(f, x, daz, ftz);
}

static u64 load(const u8 *at, unsigned n)
{
    return n == 8 ? *(const u64 *)(const void *)at : *(const u32 *)(const void *)at;
}

static void store(u8 *at, unsigned n, u64 v)
{
    for (unsigned k = 0; k < n; k++)
        at[k] = (u8)(v >> 8 * k);
}

/* The source in memory, as far as the mask lets it be read; the rest is zero. */
static int read_source(struct core *d, struct insn *in, u8 *out)
{
    u64 off = insn_offset(d, in), on = ~0ull;
    core_park(d);
    if (in->mask)
        on = elements(d, in);
    unsigned elem = in->mask ? in->elem : in->mem_size;
    for (unsigned i = 0; i < in->mem_size; i++)
        out[i] = 0;
    bool ac = d->ac_check;
    d->ac_check = ac && !in->mask;
    int r = DONE;
    for (unsigned i = 0; i < in->mem_size && !r; i += elem)
        if (on >> i / elem & 1)
            r = mem_read(d, in->seg, off + i, elem, out + i);
    d->ac_check = ac;
    return r;
}

/* Opcodes 4C to 4F: of vectors, and (odd) of scalars. */
HELPER(approx14)
{
    struct evex e = evex_fields(in);
    unsigned elem = e.w ? 8 : 4;
    bool scalar = in->opcode & 1;
    unsigned n = scalar ? 1 : e.bytes / elem;
    u8 source[64];
    if (in->mem)
        TRY(read_source(d, in, source));
    core_park(d);
    for (unsigned b = 0; !in->mem && b < (scalar ? 16u : e.bytes); b++)
        source[b] = *vector_at(d, e.rm, b);
    u64 m = e.mask ? d->cpu.mask[e.mask] : ~0ull;
    u32 mxcsr = *(const u32 *)(const void *)(d->cpu.xsave + 24);
    for (unsigned i = 0; i < n; i++) {
        u8 *to = vector_at(d, e.reg, i * elem);
        const u8 *from = source + (in->mem && e.broadcast ? 0 : i * elem);
        if (m >> i & 1)
            store(to, elem,
                  approx14(in->opcode & 2, e.w, load(from, elem), mxcsr & 0x40, mxcsr & 0x8000));
        else if (e.zeroing)
            store(to, elem, 0);
    }
    for (unsigned b = elem; scalar && b < 16; b++)
        *vector_at(d, e.reg, b) = *vector_at(d, e.vvvv, b);
    clear_from(d, e.reg, scalar ? 16 : e.bytes);
    park_changed(d);
    return DONE;
}
