/*
 * The x87's transcendental instructions and partial remainders by our own code (SDM vol. 1, 8.3.7
 * to 8.3.11 and 8.5; vol. 2 has the table of each): operands, exceptions in their order, the stack.
 * The numbers are x87_math.c's. What the manuals leave open: F2XM1 of more than 1 leaves the
 * register as it is; FYL2XP1 goes beyond its range as the function does, with -1 as FYL2X with 0; a
 * partial remainder of an exponent difference D >= 64 takes 32 + D mod 32 bits off, and C0, C1 and
 * C3 are 0; FSINCOS has C1 of the cosine; FBLD takes a digit above 9 for 9.
 */
#include "cpu/x86/x87_own.h"

#include <Zydis/Mnemonic.h>

#include "cpu/x86/exec.h"
#include "cpu/x86/fpu.h"
#include "cpu/x86/memory.h"
#include "cpu/x86/park.h"
#include "cpu/x86/xsave_image.h"

enum { IE = 1, DE = 2, ZE = 4, OE = 8, UE = 0x10, PE = 0x20, SF = 0x40, ES = 0x8080 };
enum { C0 = 0x100, C1 = 0x200, C2 = 0x400, C3 = 0x4000 };

#define ONE       ((struct x87_value){1ull << 63, 0x3fff})
#define DEFAULT   ((struct x87_value){3ull << 62, 0xffff}) /* the real indefinite */
#define INF(neg)  ((struct x87_value){1ull << 63, (u16)((neg) ? 0xffff : 0x7fff)})
#define ZERO(neg) ((struct x87_value){0, (u16)((neg) ? 0x8000 : 0)})

struct x87 {
    u8 *image;
    u16 fcw, fsw;
};

static struct x87_value get_st(const struct x87 *f, unsigned i)
{
    const u8 *r = f->image + 32 + 16 * i;
    return (struct x87_value){get64(r), *(const u16 *)(const void *)(r + 8)};
}

static void set_st(struct x87 *f, unsigned i, struct x87_value v)
{
    u8 *r = f->image + 32 + 16 * i;
    put64(r, v.m);
    put64(r + 8, v.se);
}

static unsigned top_of(const struct x87 *f)
{
    return f->fsw >> 11 & 7;
}

/* A result: the register has a value, also if it was empty. */
static void result(struct x87 *f, unsigned i, struct x87_value v)
{
    f->image[4] |= (u8)(1u << ((top_of(f) + i) & 7));
    set_st(f, i, v);
}

/* i: 7 is what a push fills. */
static bool is_empty(const struct x87 *f, unsigned i)
{
    return !(f->image[4] >> ((top_of(f) + i) & 7) & 1);
}

/* The image has ST0 first, so its registers move with TOP. */
static void move_top(struct x87 *f, unsigned by)
{
    struct x87_value old[8];
    for (unsigned i = 0; i < 8; i++)
        old[i] = get_st(f, i);
    for (unsigned i = 0; i < 8; i++)
        set_st(f, i, old[(i + by) & 7]);
    f->fsw = (u16)((f->fsw & 0xc7ffu) | ((top_of(f) + by) & 7) << 11);
}

static void pop(struct x87 *f)
{
    f->image[4] &= (u8) ~(1u << top_of(f));
    move_top(f, 1);
}

static void push(struct x87 *f, struct x87_value v)
{
    move_top(f, 7);
    f->image[4] |= (u8)(1u << top_of(f));
    set_st(f, 0, v);
}

/* Notes exceptions; is one of them unmasked? */
static bool note(struct x87 *f, u16 flags)
{
    f->fsw |= flags;
    if (!(flags & ~f->fcw & 0x3f))
        return false;
    f->fsw |= ES;
    return true;
}

static bool is_negative(struct x87_value v)
{
    return v.se >> 15;
}
static bool is_zero(struct x87_value v)
{
    return !(v.se & 0x7fff) && !v.m;
}
static bool is_inf(struct x87_value v)
{
    return (v.se & 0x7fff) == 0x7fff && v.m == 1ull << 63;
}
static bool is_nan(struct x87_value v)
{
    return (v.se & 0x7fff) == 0x7fff && v.m >> 63 && v.m << 1;
}
static bool is_signalling(struct x87_value v)
{
    return is_nan(v) && !(v.m >> 62 & 1);
}
/* Unnormals, pseudo-infinities and pseudo-NaNs. */
static bool is_unsupported(struct x87_value v)
{
    return (v.se & 0x7fff) && !(v.m >> 63);
}
static bool is_denormal(struct x87_value v)
{
    return !(v.se & 0x7fff) && v.m;
}

static struct x87_value quiet(struct x87_value v)
{
    v.m |= 1ull << 62;
    return v;
}

/* Which NaN two operands give (SDM vol. 1, table 4-7). */
static struct x87_value pick_nan(struct x87_value a, struct x87_value b)
{
    if (!is_nan(a))
        return quiet(b);
    if (!is_nan(b))
        return quiet(a);
    if (is_signalling(a) != is_signalling(b))
        return is_signalling(a) ? b : a;
    if (a.m != b.m)
        return quiet(a.m > b.m ? a : b);
    return quiet(is_negative(a) ? b : a);
}

/*
 * The n operands ST0 and ST1, looked at in the order of exceptions. True: the instruction is a
 * number's to compute. Else *nan is the result, unless *stop: an unmasked exception leaves all as
 * it was.
 */
static bool operands(struct x87 *f, unsigned n, struct x87_value *nan, bool *stop)
{
    struct x87_value a = get_st(f, 0), b = n > 1 ? get_st(f, 1) : a;
    *stop = false;
    *nan = DEFAULT;
    if (is_empty(f, 0) || (n > 1 && is_empty(f, 1))) {
        *stop = note(f, IE | SF);
        return false;
    }
    if (is_unsupported(a) || is_unsupported(b)) {
        *stop = note(f, IE);
        return false;
    }
    if (is_nan(a) || is_nan(b)) {
        *nan = pick_nan(a, b);
        *stop = (is_signalling(a) || is_signalling(b)) && note(f, IE);
        return false;
    }
    return true;
}

/* #D, after what is invalid and #Z. True: unmasked, all stays. */
static bool denormal_stops(struct x87 *f, struct x87_value a, struct x87_value b)
{
    return (is_denormal(a) || is_denormal(b)) && note(f, DE);
}

static struct x87_value rounded(struct x87 *f, enum x87_function fn, struct x87_value a,
                                struct x87_value b)
{
    struct x87_rounded r = x87_compute(fn, a, b, f->fcw);
    f->fsw = (u16)((f->fsw & ~C1) | (r.flags & C1));
    note(f, r.flags & 0x3f);
    return r.v;
}

static void f2xm1(struct x87 *f)
{
    struct x87_value a = get_st(f, 0), nan;
    bool stop;
    if (!operands(f, 1, &nan, &stop)) {
        if (!stop)
            result(f, 0, nan);
        return;
    }
    unsigned e = a.se & 0x7fff;
    if (is_zero(a) || e > 0x3fff || (e == 0x3fff && a.m != 1ull << 63) || denormal_stops(f, a, a))
        return;
    result(f, 0, rounded(f, X87_2XM1, a, a));
}

static struct x87_value circular(struct x87 *f, enum x87_function fn, struct x87_value a)
{
    if (is_zero(a))
        return fn == X87_COS ? ONE : a;
    return rounded(f, fn, a, a);
}

static void trigonometric(struct x87 *f, enum x87_op op)
{
    bool two = op == X87_OP_FSINCOS || op == X87_OP_FPTAN, stop;
    struct x87_value a = get_st(f, 0), nan = DEFAULT;
    f->fsw &= (u16)~C2;
    bool full = two && !is_empty(f, 0) && !is_empty(f, 7);
    bool number = !full && operands(f, 1, &nan, &stop);
    if (full) {
        f->fsw |= C1;
        stop = note(f, IE | SF);
    } else if (number && is_inf(a)) {
        number = false;
        stop = note(f, IE);
    }
    if (!number) {
        if (stop)
            return;
        result(f, 0, nan);
        if (two)
            push(f, nan);
        return;
    }
    if ((a.se & 0x7fff) >= 0x3fff + 63) {
        f->fsw |= C2;
        return;
    }
    if (denormal_stops(f, a, a))
        return;
    switch (op) {
    case X87_OP_FSIN: result(f, 0, circular(f, X87_SIN, a)); break;
    case X87_OP_FCOS: result(f, 0, circular(f, X87_COS, a)); break;
    case X87_OP_FPTAN:
        result(f, 0, circular(f, X87_TAN, a));
        push(f, ONE);
        break;
    default: result(f, 0, circular(f, X87_SIN, a)); push(f, circular(f, X87_COS, a));
    }
}

static void fpatan(struct x87 *f)
{
    struct x87_value a = get_st(f, 0), b = get_st(f, 1), r;
    bool stop;
    if (operands(f, 2, &r, &stop)) {
        if (denormal_stops(f, a, b))
            return;
        /* Infinities: any finite number of the other kind stands for the rest of the axis. */
        if (is_inf(a) && is_inf(b)) {
            a = (struct x87_value){1ull << 63, (u16)((a.se & 0x8000) | 0x3fff)};
            b = (struct x87_value){1ull << 63, (u16)((b.se & 0x8000) | 0x3fff)};
        } else if (is_inf(a)) {
            a = (struct x87_value){1ull << 63, (u16)((a.se & 0x8000) | 0x3fff)};
            b = ZERO(is_negative(b));
        } else if (is_inf(b)) {
            b = (struct x87_value){1ull << 63, (u16)((b.se & 0x8000) | 0x3fff)};
            a = ZERO(false);
        }
        r = rounded(f, X87_ATAN, a, b);
    } else if (stop) {
        return;
    }
    result(f, 1, r);
    pop(f);
}

enum log_of { LOG_INVALID, LOG_MINUS_INF, LOG_INF, LOG_ZERO, LOG_NUMBER };

static enum log_of log_kind(struct x87_value a, bool plus_one)
{
    bool one = a.se == (plus_one ? 0xbfff : 0x3fff) && a.m == 1ull << 63;
    if (plus_one) {
        if (one)
            return LOG_MINUS_INF;
        if (is_negative(a) && (a.se & 0x7fff) >= 0x3fff)
            return LOG_INVALID;
        return is_inf(a) ? LOG_INF : is_zero(a) ? LOG_ZERO : LOG_NUMBER;
    }
    if (is_zero(a))
        return LOG_MINUS_INF;
    if (is_negative(a))
        return LOG_INVALID;
    return is_inf(a) ? LOG_INF : one ? LOG_ZERO : LOG_NUMBER;
}

/* Is the logarithm below zero? */
static bool log_negative(struct x87_value a, enum log_of kind, bool plus_one)
{
    if (kind == LOG_MINUS_INF)
        return true;
    return plus_one ? is_negative(a) : (a.se & 0x7fff) < 0x3fff;
}

static void logarithm(struct x87 *f, bool plus_one)
{
    struct x87_value a = get_st(f, 0), b = get_st(f, 1), r;
    bool stop;
    if (operands(f, 2, &r, &stop)) {
        enum log_of kind = log_kind(a, plus_one);
        bool inf = kind == LOG_INF || kind == LOG_MINUS_INF;
        bool negative = is_negative(b) != log_negative(a, kind, plus_one);
        if (kind == LOG_INVALID || (inf && is_zero(b)) || (kind == LOG_ZERO && is_inf(b))) {
            r = DEFAULT;
            stop = note(f, IE);
        } else if (kind == LOG_MINUS_INF && !is_inf(b)) {
            r = INF(negative);
            stop = note(f, ZE);
        } else {
            stop = denormal_stops(f, a, b);
            if (inf || is_inf(b))
                r = INF(negative);
            else if (kind == LOG_ZERO || is_zero(b))
                r = ZERO(negative);
            else if (!stop)
                r = rounded(f, plus_one ? X87_YL2XP1 : X87_YL2X, a, b);
        }
    }
    if (stop)
        return;
    result(f, 1, r);
    pop(f);
}

/* Finite and no zero: magnitude m * 2^(e - 63), m with its highest bit set. */
static u64 split(struct x87_value v, i32 *e)
{
    unsigned shift = (unsigned)__builtin_clzll(v.m);
    *e = (v.se & 0x7fff ? v.se & 0x7fff : 1) - 16383 - (i32)shift;
    return v.m << shift;
}

/* m * 2^(e - 63), exact; tiny ones with the exponent moved, if #U is unmasked. */
static struct x87_value join(struct x87 *f, bool negative, u64 m, i32 e)
{
    if (!m)
        return ZERO(negative);
    unsigned shift = (unsigned)__builtin_clzll(m);
    m <<= shift;
    e += 16383 - (i32)shift;
    if (e <= 0 && !(f->fcw & UE)) {
        note(f, UE);
        e += 24576;
    }
    if (e <= 0) {
        m >>= 1 - e;
        e = 0;
    }
    return (struct x87_value){m, (u16)((negative ? 0x8000 : 0) | (u16)e)};
}

static void remainder_of(struct x87 *f, bool nearest)
{
    struct x87_value a = get_st(f, 0), b = get_st(f, 1), r;
    bool stop, negative = is_negative(a);
    f->fsw &= (u16)~C2;
    if (!operands(f, 2, &r, &stop)) {
        if (!stop)
            result(f, 0, r);
        return;
    }
    if (is_inf(a) || is_zero(b)) {
        if (!note(f, IE))
            result(f, 0, DEFAULT);
        return;
    }
    if (denormal_stops(f, a, b))
        return;
    f->fsw &= (u16) ~(C0 | C3);
    if (is_zero(a) || is_inf(b)) {
        if (is_denormal(a)) {
            i32 e;
            u64 m = split(a, &e);
            result(f, 0, join(f, negative, m, e));
        }
        return;
    }
    i32 ea, eb;
    u64 ma = split(a, &ea), mb = split(b, &eb), q = 0;
    i32 distance = ea - eb, steps = distance < 64 ? distance : 32 + distance % 32;
    __extension__ unsigned __int128 rest = ma;
    i32 e = ea - (steps > 0 ? steps : 0);
    for (i32 i = 0; i <= steps; i++) {
        q <<= 1;
        if (rest >= mb) {
            rest -= mb;
            q |= 1;
        }
        if (i < steps)
            rest <<= 1;
    }
    if (distance >= 64) {
        f->fsw |= C2;
        result(f, 0, join(f, negative, (u64)rest, e));
        return;
    }
    if (nearest && distance >= -1) {
        /* Twice what is left against the divisor, both by 2^(e - 63). */
        __extension__ unsigned __int128 divisor = (unsigned __int128)mb << (distance < 0);
        if (2 * rest > divisor || (2 * rest == divisor && (q & 1))) {
            rest = divisor - rest;
            q++;
            negative = !negative;
        }
    }
    if (!rest)
        negative = is_negative(a);
    f->fsw |= (u16)((q & 4 ? C0 : 0) | (q & 2 ? C3 : 0) | (q & 1 ? C1 : 0));
    result(f, 0, join(f, negative, (u64)rest, e));
}

void x87_execute(enum x87_op op, u8 *image)
{
    struct x87 f = {image, *(u16 *)(void *)image, *(u16 *)(void *)(image + 2)};
    f.fsw &= (u16)~C1;
    switch (op) {
    case X87_OP_F2XM1: f2xm1(&f); break;
    case X87_OP_FSIN:
    case X87_OP_FCOS:
    case X87_OP_FSINCOS:
    case X87_OP_FPTAN: trigonometric(&f, op); break;
    case X87_OP_FPATAN: fpatan(&f); break;
    case X87_OP_FYL2X: logarithm(&f, false); break;
    case X87_OP_FYL2XP1: logarithm(&f, true); break;
    case X87_OP_FPREM: remainder_of(&f, false); break;
    case X87_OP_FPREM1: remainder_of(&f, true); break;
    }
    put16(image + 2, f.fsw);
}

static enum x87_op op_of(const struct insn *in)
{
    switch (in->mnemonic) {
    case ZYDIS_MNEMONIC_F2XM1: return X87_OP_F2XM1;
    case ZYDIS_MNEMONIC_FSIN: return X87_OP_FSIN;
    case ZYDIS_MNEMONIC_FCOS: return X87_OP_FCOS;
    case ZYDIS_MNEMONIC_FSINCOS: return X87_OP_FSINCOS;
    case ZYDIS_MNEMONIC_FPTAN: return X87_OP_FPTAN;
    case ZYDIS_MNEMONIC_FPATAN: return X87_OP_FPATAN;
    case ZYDIS_MNEMONIC_FYL2X: return X87_OP_FYL2X;
    case ZYDIS_MNEMONIC_FYL2XP1: return X87_OP_FYL2XP1;
    case ZYDIS_MNEMONIC_FPREM: return X87_OP_FPREM;
    default: return X87_OP_FPREM1;
    }
}

HELPER(x87_own)
{
    if (fpu_pending(d))
        return raise_fault(d, EXC_MF);
    core_park(d);
    x87_execute(op_of(in), d->cpu.xsave);
    exec_x87_pointers(d, in);
    park_changed(d);
    return DONE;
}

HELPER(fbld)
{
    u8 digits[10];
    if (fpu_pending(d))
        return raise_fault(d, EXC_MF);
    TRY(mem_read(d, in->seg, insn_offset(d, in), sizeof(digits), digits));
    for (unsigned i = 0; i < sizeof(digits) - 1; i++) {
        u8 low = digits[i] & 15, high = digits[i] >> 4;
        d->bounce_raw[i] = (u8)((low > 9 ? 9 : low) | (high > 9 ? 9 : high) << 4);
    }
    d->bounce_raw[9] = digits[9];
    d->ptr = d->bounce_raw;
    TRY(core_native(d, in));
    exec_x87_pointers(d, in);
    return DONE;
}
