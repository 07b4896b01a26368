/*
 * Every instruction form there is: the one-, two- and three-byte maps and the VEX maps are swept
 * opcode by opcode, prefix by prefix, ModRM by ModRM; Zydis says what each is, and those that
 * differ in more than the numbers of their registers become a form. Nothing is listed by hand, so
 * nothing can be forgotten by hand.
 */
#include <stdio.h>
#include <stdlib.h>
#include "tests/insn/insn.h"

struct sweep {
    struct forms *out;
    size_t cap;
    u64 *seen; /* open hash table of signatures */
    size_t mask;
    ZydisDecoder dec;
    ZydisMnemonic only;
    bool all;
};

static u64 mix(u64 h, u64 v)
{
    h = (h ^ v) * 0x9fb21c651e98df25ull;
    return h ^ (h >> 29);
}

static bool add_seen(struct sweep *s, u64 sig)
{
    size_t i = sig & s->mask;

    sig |= 1;
    while (s->seen[i]) {
        if (s->seen[i] == sig)
            return false;
        i = (i + 1) & s->mask;
    }
    s->seen[i] = sig;
    return true;
}

/* Bytes of a form with all free fields zero; returns the length up to and including ModRM. */
static unsigned skeleton(const struct form *f, u8 *b)
{
    static const u8 pp_byte[] = {0, 0x66, 0xf3, 0xf2};
    unsigned n = 0;

    if (f->enc == ENC_VEX) {
        b[n++] = 0xc4;
        b[n++] = 0xe0 | f->map;
        b[n++] = (u8)(f->w << 7 | 0x78 | f->l << 2 | f->pp);
    } else if (f->enc == ENC_EVEX) {
        b[n++] = 0x62;
        b[n++] = 0xf0 | f->map;
        b[n++] = (u8)(f->w << 7 | 0x7c | f->pp);
        b[n++] = (u8)(f->l << 5 | f->b << 4 | 8 | f->masked);
    } else {
        if (f->pp)
            b[n++] = pp_byte[f->pp];
        if (f->w)
            b[n++] = 0x48;
        if (f->map)
            b[n++] = 0x0f;
        if (f->map > 1)
            b[n++] = f->map == 2 ? 0x38 : 0x3a;
    }
    b[n++] = f->opcode;
    b[n++] = f->modrm;
    return n;
}

/* Returns false when the opcode has no ModRM, so that there is nothing more to sweep. */
static bool try_form(struct sweep *s, struct form f)
{
    u8 buf[24];
    ZydisDecodedInstruction in;
    ZydisDecodedOperand ops[ZYDIS_MAX_OPERAND_COUNT];
    u64 sig = 0;
    unsigned vvvv;

    /* A vvvv that is not used must be ones, and of a gather's three registers none may be equal. */
    for (vvvv = 0; vvvv < 4; vvvv++) {
        f.masked = vvvv >= 2;
        unsigned n = skeleton(&f, buf);

        memset(buf + n, 0x11, sizeof buf - n);
        if (f.enc && (vvvv & 1))
            buf[2] &= (u8) ~(4 << 3);
        if (ZYAN_SUCCESS(ZydisDecoderDecodeFull(&s->dec, buf, sizeof buf, &in, ops)))
            break;
        if (f.enc == ENC_LEGACY || (f.enc == ENC_VEX && vvvv == 1))
            return true;
    }
    if (vvvv == 4)
        return true;
    f.has_modrm = (in.attributes & ZYDIS_ATTRIB_HAS_MODRM) != 0;
    f.mnemonic = (u16)in.mnemonic;
    sig = mix(sig, in.mnemonic | f.map << 16 | f.opcode << 20 | f.enc << 30);
    sig = mix(sig, f.pp | f.w << 2 | f.l << 3 | f.mem << 5 | f.b << 6);
    for (unsigned i = 0; i < in.operand_count; i++) {
        sig = mix(sig, ops[i].type | ops[i].size << 4 | ops[i].encoding << 16);
        f.reg_free |= ops[i].encoding == ZYDIS_OPERAND_ENCODING_MODRM_REG;
        f.rm_free |= ops[i].encoding == ZYDIS_OPERAND_ENCODING_MODRM_RM;
    }
    if (f.has_modrm) {
        if (!f.reg_free)
            sig = mix(sig, 0x100 | (f.modrm >> 3 & 7));
        if (!f.mem && !f.rm_free)
            sig = mix(sig, 0x200 | (f.modrm & 7));
    }
    if ((s->all || in.mnemonic == s->only) && add_seen(s, sig)) {
        if (s->out->n == s->cap) {
            s->cap = s->cap ? s->cap * 2 : 1024;
            s->out->v = realloc(s->out->v, s->cap * sizeof *s->out->v);
        }
        s->out->v[s->out->n++] = f;
    }
    return f.has_modrm;
}

static void sweep_opcode(struct sweep *s, struct form f)
{
    for (unsigned reg = 0; reg < 8; reg++) {
        f.mem = true;
        f.modrm = (u8)(reg << 3 | 4); /* with a SIB of 11: the forms that insist on one */
        if (!try_form(s, f))
            return;
    }
    f.mem = false;
    for (unsigned modrm = 0xc0; modrm < 0x100; modrm++) {
        f.modrm = (u8)modrm;
        if (!try_form(s, f))
            return;
    }
}

void forms_build(struct forms *out, enum cpu_model model, const char *only)
{
    struct sweep s = {.out = out, .mask = (1u << 16) - 1, .all = !only};

    memset(out, 0, sizeof *out);
    s.seen = calloc(s.mask + 1, sizeof *s.seen);
    feature_decoder(model, &s.dec);
    for (unsigned m = 1; only && m <= ZYDIS_MNEMONIC_MAX_VALUE; m++)
        if (strcasecmp(only, ZydisMnemonicGetString((ZydisMnemonic)m)) == 0)
            s.only = (ZydisMnemonic)m;
    /* Bits 0 and 1: l; 2: b. */
    static const u8 last[] = {[ENC_LEGACY] = 0, [ENC_VEX] = 1, [ENC_EVEX] = 7};
    for (unsigned enc = ENC_LEGACY; enc <= (feature_avx512(model) ? ENC_EVEX : ENC_VEX); enc++)
        for (unsigned map = enc != ENC_LEGACY; map < 4; map++)
            for (unsigned op = 0; op < 256; op++)
                for (unsigned pp = 0; pp < 4; pp++)
                    for (unsigned w = 0; w < (test_code == CODE_64 || enc ? 2u : 1u); w++)
                        for (unsigned l = 0; l <= last[enc]; l++)
                            sweep_opcode(&s, (struct form){.enc = (u8)enc,
                                                           .map = (u8)map,
                                                           .opcode = (u8)op,
                                                           .pp = (u8)pp,
                                                           .w = (u8)w,
                                                           .l = l & 3,
                                                           .b = (u8)(l >> 2)});
    free(s.seen);
}

static unsigned put_prefixes(struct rng *r, const struct form *f, bool simple, u8 *b)
{
    static const u8 seg[] = {0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65};
    static const u8 pp_byte[] = {0, 0x66, 0xf3, 0xf2};
    u8 p[6];
    unsigned n = 0;

    if (f->enc == ENC_LEGACY && f->pp)
        p[n++] = pp_byte[f->pp];
    if (rng_chance(r, simple ? 3 : 8))
        p[n++] = seg[rng_below(r, sizeof seg)];
    if (!simple && rng_chance(r, test_code == CODE_16 ? 50 : 7))
        p[n++] = 0x67;
    if (f->enc == ENC_LEGACY && !simple) {
        if (f->mem && rng_chance(r, f->map < 2 ? 10 : 1))
            p[n++] = 0xf0;
        if (rng_chance(r, 2))
            p[n++] = 0x66;
        if (rng_chance(r, 2))
            p[n++] = (u8)(0xf2 + rng_below(r, 2));
    }
    for (unsigned i = n; i > 1; i--) { /* any order is the same instruction, nearly */
        unsigned j = (unsigned)rng_below(r, i);
        u8 t = p[i - 1];

        p[i - 1] = p[j];
        p[j] = t;
    }
    memcpy(b, p, n);
    return n;
}

void form_encode(struct rng *r, const struct form *f, bool simple, u8 out[32])
{
    u8 modrm = f->modrm;
    u8 rex = (u8)rng_below(r, 8); /* R, X, B */
    unsigned n = put_prefixes(r, f, simple, out);

    if (f->enc == ENC_VEX) {
        u8 vvvv = rng_chance(r, 50) ? (u8)rng_below(r, 16) : 15; /* inverted: 15 is "none" */

        if (test_code != CODE_64) { /* else it is LDS or LES */
            rex &= 1;
            vvvv |= 8;
        }

        if (f->map == 1 && !f->w && !(rex & 3) && rng_chance(r, 50)) {
            out[n++] = 0xc5;
            out[n++] = (u8)((rex & 4 ? 0 : 0x80) | vvvv << 3 | f->l << 2 | f->pp);
        } else {
            out[n++] = 0xc4;
            out[n++] = (u8)((~rex & 7) << 5 | f->map);
            out[n++] = (u8)(f->w << 7 | vvvv << 3 | f->l << 2 | f->pp);
        }
    } else if (f->enc == ENC_EVEX) {
        u8 vvvv = rng_chance(r, 50) ? (u8)rng_below(r, 32) : 31, high = (u8)rng_below(r, 2);
        u8 mask = f->masked || rng_chance(r, 60) ? (u8)rng_below(r, 8) : 0;

        if (test_code != CODE_64) { /* else it is BOUND */
            rex &= 1;
            vvvv |= 0x18;
        }
        out[n++] = 0x62;
        out[n++] = (u8)((~rex & 7) << 5 | high << 4 | f->map);
        out[n++] = (u8)(f->w << 7 | (vvvv & 15) << 3 | 4 | f->pp);
        out[n++] = (u8)((mask && rng_chance(r, 40)) << 7 | f->l << 5 | f->b << 4 |
                        (vvvv & 16) >> 1 | mask);
    } else {
        if (test_code == CODE_64 && (f->w || rng_chance(r, 50)))
            out[n++] = (u8)(0x40 | f->w << 3 | rex);
        if (!simple && n && rng_chance(r, 1)) /* a REX that does not stand last does nothing */
            out[n++] = 0x66;
        if (f->map)
            out[n++] = 0x0f;
        if (f->map > 1)
            out[n++] = f->map == 2 ? 0x38 : 0x3a;
    }
    out[n++] = f->opcode;
    for (unsigned i = n; i < 32; i++)
        out[i] = (u8)rng_u64(r);
    if (rng_chance(r, 50)) { /* immediates and displacements near the edges */
        u64 v = value_int(r);
        memcpy(out + 32 - 8, &v, 8);
        memcpy(out + n + 2, &v, 8);
    }
    if (!f->has_modrm)
        return;
    if (f->mem)
        modrm = (u8)((rng_below(r, 3) << 6) | (f->modrm & 0x38) |
                     (rng_chance(r, 25) ? 4 : rng_below(r, 8)));
    if (f->reg_free)
        modrm = (u8)((modrm & 0xc7) | rng_below(r, 8) << 3);
    if (!f->mem && f->rm_free)
        modrm = (u8)((modrm & 0xf8) | rng_below(r, 8));
    out[n] = modrm;
}
