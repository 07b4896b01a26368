/* Random numbers and values that have broken emulators before: edges, NaNs, denormals, unnormals.
 */
#include "tests/insn/insn.h"

static u64 splitmix(u64 *x)
{
    u64 z = *x += 0x9e3779b97f4a7c15ull;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

void rng_seed(struct rng *r, u64 seed, u64 number)
{
    u64 x = seed;

    x = splitmix(&x) ^ (number * 0xd1342543de82ef95ull);
    r->s[0] = splitmix(&x);
    r->s[1] = splitmix(&x) | 1;
}

/* xorshift128+ (Vigna): fast, and good enough to pick operands. */
u64 rng_u64(struct rng *r)
{
    u64 a = r->s[0], b = r->s[1];

    r->s[0] = b;
    a ^= a << 23;
    r->s[1] = a ^ b ^ (a >> 17) ^ (b >> 26);
    return r->s[1] + b;
}

u64 value_int(struct rng *r)
{
    static const u64 edge[] = {0,
                               1,
                               2,
                               3,
                               7,
                               8,
                               0x7f,
                               0x80,
                               0xff,
                               0x100,
                               0x7fff,
                               0x8000,
                               0xffff,
                               0x10000,
                               0x7fffffff,
                               0x80000000,
                               0xffffffff,
                               0x100000000,
                               0x7fffffffffffffff,
                               0x8000000000000000,
                               ~0ull,
                               ~1ull,
                               0xffffffff80000000,
                               0xffffffff00000000,
                               0x8000000080000000,
                               0x5555555555555555,
                               0x0123456789abcdef,
                               0xaaaaaaaaaaaaaaaa,
                               0x00ff00ff00ff00ff};

    switch (rng_below(r, 8)) {
    case 0:
    case 1: return edge[rng_below(r, ARRAY_SIZE(edge))];
    case 2: return rng_below(r, 64);
    case 3: return 1ull << rng_below(r, 64);
    case 4: return (u64)((i64)rng_u64(r) >> rng_below(r, 64));
    default: return rng_u64(r);
    }
}

static u32 value_f32(struct rng *r)
{
    static const u32 edge[] = {0,          0x80000000, 0x3f800000, 0xbf800000, 0x7f800000,
                               0xff800000, 0x7fc00000, 0xffc00000, 0x7f800001, 0xffa12345,
                               0x00000001, 0x807fffff, 0x00800000, 0x7f7fffff, 0x4f000000,
                               0xcf000000, 0x5f000000, 0xdf000000, 0x3f000000, 0x40490fdb};
    u32 sign = (u32)rng_below(r, 2) << 31;

    switch (rng_below(r, 4)) {
    case 0: return edge[rng_below(r, ARRAY_SIZE(edge))];
    case 1: return sign | ((u32)(rng_below(r, 40) + 107) << 23) | ((u32)rng_u64(r) & 0x7fffff);
    case 2: return sign | ((u32)(rng_below(r, 40) + 107) << 23) | ((u32)rng_u64(r) & 0x700000);
    default: return (u32)rng_u64(r);
    }
}

static u64 value_f64(struct rng *r)
{
    static const u64 edge[] = {0,
                               0x8000000000000000,
                               0x3ff0000000000000,
                               0xbff0000000000000,
                               0x7ff0000000000000,
                               0xfff0000000000000,
                               0x7ff8000000000000,
                               0xfff8000000000000,
                               0x7ff0000000000001,
                               0xfff4000000012345,
                               0x0000000000000001,
                               0x800fffffffffffff,
                               0x0010000000000000,
                               0x7fefffffffffffff,
                               0x41dfffffffc00000,
                               0x41e0000000000000,
                               0xc1e0000000000000,
                               0x43e0000000000000,
                               0xc3e0000000000000,
                               0x3fe0000000000000,
                               0x47efffffe0000000,
                               0x3810000000000000,
                               0x36a0000000000000,
                               0x400921fb54442d18};
    u64 sign = rng_below(r, 2) << 63;

    switch (rng_below(r, 4)) {
    case 0: return edge[rng_below(r, ARRAY_SIZE(edge))];
    case 1: return sign | ((rng_below(r, 80) + 983) << 52) | (rng_u64(r) >> 12);
    case 2: return sign | ((rng_below(r, 80) + 983) << 52) | (rng_u64(r) & 0xf000000000000);
    default: return rng_u64(r);
    }
}

void value_vector(struct rng *r, u8 *out, unsigned bytes)
{
    for (unsigned done = 0; done < bytes; done += 16) {
        u8 v[16];
        u64 kind = rng_below(r, 5);

        for (unsigned i = 0; i < 2; i++) {
            u64 x = kind == 0   ? value_f64(r)
                    : kind == 1 ? value_f32(r) | (u64)value_f32(r) << 32
                    : kind == 2 ? value_int(r)
                                : rng_u64(r);
            memcpy(v + 8 * i, &x, 8);
        }
        memcpy(out + done, v, MIN(16u, bytes - done));
    }
}

void value_x87(struct rng *r, u8 out[10])
{
    static const struct {
        u64 m;
        u16 e;
    } edge[] = {
        {0, 0},                       /* zero */
        {0x8000000000000000, 0x3fff}, /* one */
        {0x8000000000000000, 0x7fff}, /* infinity */
        {0xc000000000000000, 0xffff}, /* default NaN */
        {0xa000000000000001, 0x7fff}, /* signalling NaN */
        {0x0000000000000001, 0},      /* denormal */
        {0x8000000000000000, 0},      /* pseudo-denormal */
        {0x4000000000000000, 0x3fff}, /* unnormal: invalid since the 387 */
        {0x0000000000000000, 0x7fff}, /* pseudo-infinity */
        {0x1000000000000000, 0x7fff}, /* pseudo-NaN */
        {0xc90fdaa22168c235, 0x4000}, /* pi */
        {0xffffffffffffffff, 0x7ffe}, /* largest */
        {0x8000000000000000, 0x0001}, /* smallest normal */
        {0x8000000000000000, 0x403e}, /* 2^63: out of int64 */
        {0x8000000000000000, 0x401e}, /* 2^31 */
        {0xde0b6b3a763fffff, 0x403a}, /* near the largest packed decimal */
    };
    u64 m = rng_u64(r) | 0x8000000000000000;
    u16 e = (u16)rng_u64(r);

    switch (rng_below(r, 4)) {
    case 0: {
        size_t i = rng_below(r, ARRAY_SIZE(edge));
        m = edge[i].m;
        e = edge[i].e ^ (u16)(rng_below(r, 2) << 15);
        break;
    }
    case 1:
    case 2: e = (u16)(0x3fff - 40 + rng_below(r, 80)) | (u16)(rng_below(r, 2) << 15); break;
    default: break;
    }
    memcpy(out, &m, 8);
    memcpy(out + 8, &e, 2);
}

void value_xsave(struct rng *r, u8 out[XSAVE_SIZE], bool avx)
{
    u16 fcw = 0x37f, fsw = 0;
    u32 mxcsr = 0x1f80;
    u64 bv = avx ? 7 : 3;

    memset(out, 0, XSAVE_SIZE);
    if (rng_chance(r, 60))
        fcw = (u16)(0x40 | (rng_below(r, 16) << 8) | (rng_chance(r, 70) ? 0x3f : rng_below(r, 64)));
    if (rng_chance(r, 70))
        fsw = (u16)(rng_u64(r) & 0x7f00);
    if (rng_chance(r, 20))
        fsw |= (u16)rng_below(r, 0x80);
    /* ES and B are not free: they say that an unmasked exception is pending. */
    if (fsw & ~fcw & 0x3f)
        fsw |= 0x8080;
    if (rng_chance(r, 60))
        mxcsr = (u32)((rng_chance(r, 70) ? 0x1f80 : rng_below(r, 64) << 7) |
                      (rng_below(r, 4) << 13) | (rng_chance(r, 15) ? 0x8000 : 0) |
                      (rng_chance(r, 15) ? 0x40 : 0) | (rng_chance(r, 20) ? rng_below(r, 64) : 0));
    memcpy(out, &fcw, 2);
    memcpy(out + 2, &fsw, 2);
    out[4] = rng_chance(r, 30) ? 0xff : rng_chance(r, 20) ? 0 : (u8)rng_u64(r);
    memcpy(out + 24, &mxcsr, 4);
    out[28] = out[29] = 0xff; /* MXCSR_MASK */
    for (unsigned i = 0; i < 8; i++)
        value_x87(r, out + 32 + 16 * i);
    value_vector(r, out + 160, 256);
    if (avx)
        value_vector(r, out + 576, 256);
    memcpy(out + 512, &bv, 8);
}

static u64 value_mask(struct rng *r)
{
    switch (rng_below(r, 6)) {
    case 0: return 0;
    case 1: return ~0ull;
    case 2: return 1ull << rng_below(r, 64);
    case 3: return rng_u64(r) & rng_u64(r) & rng_u64(r);
    default: return rng_u64(r);
    }
}

void value_avx512(struct rng *r, struct cpu_state *s)
{
    for (unsigned i = 0; i < 8; i++)
        s->mask[i] = value_mask(r);
    value_vector(r, s->zmm_high, sizeof s->zmm_high);
    value_vector(r, s->zmm_above, sizeof s->zmm_above);
    s->xsave[512] |= XSAVE_AVX512;
}

u8 *state_vector(struct cpu_state *s, unsigned reg, unsigned byte)
{
    return reg >= 16   ? s->zmm_above + 64 * (reg - 16) + byte
           : byte < 16 ? s->xsave + 160 + 16 * reg + byte
           : byte < 32 ? s->xsave + 576 + 16 * reg + byte - 16
                       : s->zmm_high + 32 * reg + byte - 32;
}

enum code_size test_code;
struct cpu_choice test_cpu;

/* All accessed, of ring 3. */
const u64 test_ldt[LDT_SIZE] = {
    0x00cff3000000ffff, /* all of memory */
    0x1040f30800005fff, /* the data window's first six pages */
    0x1040f70800001fff, /* expand-down: without its first two */
    0x00cff1000000ffff, /* read-only */
    0x1000f3080000ffff, /* of 16 bits */
    0x1000f70800000fff, /* expand-down of 16 bits */
    0x00cffb000000ffff, /* code */
    0x008ffb000000ffff, /* code of 16 bits */
};

u32 test_base(u16 sel)
{
    unsigned i = sel >> 3;
    u64 d = (sel & 4) && i < LDT_SIZE ? test_ldt[i] : 0;

    return (u32)((d >> 16 & 0xffffff) | (d >> 32 & 0xff000000));
}
