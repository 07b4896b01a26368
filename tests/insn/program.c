/*
 * Random programs: loops, branches, REP strings, faults that a handler skips, stores into their own
 * code, and plain instructions in between. Used by stops.c and counters.c.
 */
#include "tests/insn/insn.h"

#define P_BODY 48u /* instructions between loop head and tail */

static u8 *put_wide(u8 *p)
{
    if (test_code == CODE_64)
        *p++ = 0x48;
    return p;
}

/* dec r14d; jnz back, or ebx. Returns how many bytes. */
static unsigned loop_tail(u8 *out, unsigned len, unsigned head)
{
    static const u8 tail[] = {0x41, 0xff, 0xce, 0x75}, tail32[] = {0x4b, 0x75};
    unsigned n = test_code == CODE_64 ? sizeof tail : sizeof tail32;

    memcpy(out + len, test_code == CODE_64 ? tail : tail32, n);
    out[len + n] = (u8)(head - (len + n) - 1);
    return n + 1;
}

/*
 * What goes over arrays: operands of two registers at a few distances, and registers that move by a
 * constant; words that are pushed and popped. Translated, such loops look memory up once for
 * several instructions (dbt/guard.c).
 */
static unsigned array_insn(struct rng *r, u8 *out)
{
    const u8 base[] = {test_code == CODE_64 ? RBX : RBP, RSI, RDI, RBP};
    static const u8 op[] = {0x8b, 0x89, 0x03, 0x01, 0x33, 0x29, 0x39, 0x8a, 0x88, 0x87};
    u8 b = base[rng_below(r, 4)], reg = (u8)rng_below(r, 8);
    u8 *p = out;
    bool wide = rng_chance(r, 70) && test_code == CODE_64;

    if (reg == RSP || rng_chance(r, 80))
        reg = RAX;
    switch (rng_below(r, 10)) {
    case 8: /* push, pop reg */ *p++ = (u8)((rng_chance(r, 50) ? 0x50 : 0x58) | reg); break;
    case 9: /* push, or seldom call [b + disp8], which ends the way that is looked up for */
        *p++ = 0xff;
        *p++ = (u8)((rng_chance(r, 70) ? 0x70 : 0x50) | b);
        *p++ = (u8)rng_below(r, 64);
        break;
    case 0: /* add, sub b, imm8 */
        p = put_wide(p);
        *p++ = 0x83;
        *p++ = (u8)((rng_chance(r, 50) ? 0xc0 : 0xe8) | b);
        *p++ = (u8)rng_below(r, 40);
        break;
    case 1: /* inc, dec b */
        p = put_wide(p);
        *p++ = 0xff;
        *p++ = (u8)((rng_chance(r, 50) ? 0xc0 : 0xc8) | b);
        break;
    case 2: /* lea b, [b + disp8]; mov b, another; mov rdx, rsp, from then on the index */
        p = put_wide(p);
        if (rng_chance(r, 70)) {
            *p++ = 0x8d;
            *p++ = (u8)(0x40 | b << 3 | b);
            *p++ = (u8)rng_below(r, 256);
        } else if (rng_chance(r, 70)) {
            *p++ = 0x89;
            *p++ = (u8)(0xc0 | base[rng_below(r, 4)] << 3 | b);
        } else {
            *p++ = 0x89;
            *p++ = 0xc0 | RSP << 3 | RDX;
        }
        break;
    default: /* op reg, [b + disp8] or [b + rdx * scale + disp8] */
        if (rng_chance(r, 5))
            *p++ = 0xf0; /* LOCK, mostly #UD */
        if (wide)
            *p++ = 0x48;
        *p++ = op[rng_below(r, sizeof op)];
        if (rng_chance(r, 70)) {
            *p++ = (u8)(0x40 | reg << 3 | b);
        } else {
            *p++ = (u8)(0x44 | reg << 3);
            *p++ = (u8)(rng_below(r, 4) << 6 | RDX << 3 | b);
        }
        *p++ = (u8)rng_below(r, 64);
    }
    return (unsigned)(p - out);
}

static unsigned array_loop(struct rng *r, u8 *out)
{
    static const u8 count[] = {0x41, 0x83, 0xe6, 0x3f}; /* and r14d, 63 */
    static const u8 count32[] = {0x90, 0x83, 0xe3, 0x3f};
    unsigned len = 0, n = 1 + (unsigned)rng_below(r, rng_chance(r, 80) ? 8 : 24);
    bool crowded = rng_chance(r, 40);

    memcpy(out, test_code == CODE_64 ? count : count32, sizeof count);
    len += sizeof count;
    unsigned head = len;
    /* All registers are used: what is looked up finds none that is free. */
    for (u8 reg = R8; reg <= R13 && test_code == CODE_64 && crowded; reg++) {
        out[len++] = 0x4d; /* mov reg, reg */
        out[len++] = 0x89;
        out[len++] = (u8)(0xc0 | (reg & 7) << 3 | (reg & 7));
    }
    while (n--)
        len += array_insn(r, out + len);
    return len + loop_tail(out, len, head);
}

/* REP STOS over this program's own code, which `here` is in: PUSHF, often, shows flags that were
 * dead as long as other bytes stood there. */
static unsigned over_itself(struct rng *r, u32 here, u8 *out)
{
    static const u8 fill[] = {0x9c, 0x9c, 0x90, 0xf5}; /* pushf, nop, cmc */
    i32 d = (i32)rng_below(r, 64) - 16;
    u8 *p = out;

    if (test_code == CODE_64) { /* lea rdi, [rip + d]; mov edi, where that is */
        *p++ = 0x48;
        *p++ = 0x8d;
        *p++ = 0x3d;
    } else {
        *p++ = 0xbf;
        d += (i32)here;
    }
    memcpy(p, &d, 4);
    p += 4;
    *p++ = 0xb8; /* mov eax, imm32; mov cl, imm8; movzx ecx, cl */
    for (unsigned i = 0; i < 4; i++)
        *p++ = rng_chance(r, 80) ? fill[rng_below(r, sizeof fill)] : (u8)rng_below(r, 256);
    *p++ = 0xb1;
    *p++ = (u8)(1 + rng_below(r, 12));
    *p++ = 0x0f;
    *p++ = 0xb6;
    *p++ = 0xc9;
    *p++ = rng_chance(r, 50) ? 0xfd : 0xfc; /* std, cld */
    *p++ = 0xf3;
    *p++ = rng_chance(r, 50) ? 0xaa : 0xab;
    return (unsigned)(p - out);
}

/*
 * A store or a load through an entry of the table that is also this program's page (guest.c), and
 * then the entry, which it turns into other instructions: accessed and dirty, ADD, of one byte, is
 * MOVSXD.
 */
static unsigned over_table(struct rng *r, u32 here, u8 *out)
{
    static const u8 next[] = {0x9c, 0x11, 0x14, 0x1c}; /* pushf, adc, adc, sbb */
    u32 entry = ((here & (PAGE_SIZE - 1)) + 7 + 7) / 8, store = entry * 8 - 7;
    u8 *p = out;

    for (u32 at = here & (PAGE_SIZE - 1); at < store; at++)
        *p++ = 0x90;
    u64 how = rng_below(r, 100);
    u32 va = (u32)T_TABLED + entry % 512 * PAGE_SIZE;
    if (how < 75) {
        *p++ = how < 50 ? 0x88 : 0x8a; /* mov [abs], al, or the other way */
        *p++ = 0x04;
        *p++ = 0x25;
    } else {
        *p++ = 0xbf; /* mov edi, abs; repne scasb */
    }
    memcpy(p, &va, 4);
    p += 4;
    if (how >= 75) {
        *p++ = 0xf2;
        *p++ = 0xae;
    }
    *p++ = 0x03; /* add r32, r32: present, writable */
    *p++ = (u8)(0xc0 | rng_below(r, 64));
    *p++ = next[rng_below(r, sizeof next)];
    memset(p, 0, 5);
    p[5] = 0xc0; /* of the last zero: add al, al */
    return (unsigned)(p + 6 - out);
}

/* rdtsc; rdtscp; rdpid; mov from a segment register; in or out imm8, al; op with the device and al;
 * mov edi, the device; repne scasb. Which of the last it is follows from bits that do not say how
 * the device writes (guest.c). */
static unsigned asking(struct rng *r, u8 *out)
{
    static const u8 op[] = {0x88, 0x00, 0x86};

    if (rng_chance(r, 30)) {
        memcpy(out, "\x0f\x31", 2);
        return 2;
    }
    if (rng_chance(r, 15)) {
        memcpy(out, "\x0f\x01\xf9", 3);
        return 3;
    }
    if (rng_chance(r, 30)) {
        static const u8 before[] = {0x66, 0x48, 0x41, 0x49};
        u8 *p = out;
        if (rng_chance(r, 70))
            *p++ = before[rng_below(r, test_code == CODE_64 ? sizeof before : 1)];
        u8 reg = (u8)rng_below(r, 7);
        *p++ = 0x8c;
        *p++ = (u8)(0xc0 | rng_below(r, 6) << 3 | (reg == 4 ? 7 : reg)); /* not RSP */
        return (unsigned)(p - out);
    }
    if (rng_chance(r, 50)) {
        out[1] = (u8)rng_below(r, 256);
        if ((out[1] & 15) == 5) {
            u8 reg = out[1] >> 4 & 7;
            memcpy(out, "\xf3\x0f\xc7", 3);
            out[3] = 0xf8 | (reg == RSP ? RDI : reg);
            return 4;
        }
        out[0] = out[1] & 0x40 ? 0xe4 : 0xe6;
        return 2;
    }
    u32 va = (u32)T_DEVICE + (u32)rng_below(r, PAGE_SIZE);
    if ((va >> 6 & 7) == 7) {
        out[0] = 0xbf;
        memcpy(out + 1, &va, 4);
        memcpy(out + 5, "\xf2\xae", 2);
        return 7;
    }
    out[0] = op[rng_below(r, sizeof op)] | (va & 0x40 ? 2 : 0);
    out[1] = 0x04;
    out[2] = 0x25;
    memcpy(out + 3, &va, 4);
    return 7;
}

/*
 * A load that faults, so that what its handler makes of it jumps over 64 bytes of which nothing
 * ever runs. Whether CF is live at the load follows from the first two of them, which change each
 * time.
 */
static unsigned never_run(u32 here, u8 *out)
{
    static const u8 text[] = {0x80, 0x35, 0, 0, 0, 0, 0x9c, /* xor byte [there], 0x9c */
                              0xf9,                         /* stc */
                              /* lgdt [...]; then add [...], edx; adc al, imm8; jmp */
                              0x0f, 0x01, 0x14, 0x25, 0xeb, 0x42, 0, 0x70};
    const unsigned chunk = 64; /* what is written is known so exactly (dbt/cache.c) */
    unsigned pad = (unsigned)(-here - sizeof text) % chunk;
    i32 d = test_code == CODE_64 ? (i32)sizeof text - 7 : (i32)(here + pad + sizeof text);

    memset(out, 0x90, pad);
    memcpy(out + pad, text, sizeof text);
    memcpy(out + pad + 2, &d, 4);
    memset(out + pad + sizeof text, 0xc0, chunk);
    out[pad + sizeof text] = 0x9c; /* pushf, or add al, al */
    return pad + (unsigned)sizeof text + chunk;
}

static bool has_debug_register(const ZydisDecodedOperand *ops, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (ops[i].type == ZYDIS_OPERAND_TYPE_REGISTER &&
            ZydisRegisterGetClass(ops[i].reg.value) == ZYDIS_REGCLASS_DEBUG)
            return true;
    return false;
}

/* The same bytes for all three; they follow from (seed, number) alone. `own`: an address in it. */
static unsigned make_program(struct rng *r, const struct program_kind *k, u32 own, u8 *out,
                             unsigned room)
{
    ZydisDecoder dec;
    unsigned len = 0, n = 0, head[4], heads = 0;

    feature_decoder(k->model, &dec);
    for (unsigned attempt = 0; n < P_BODY && attempt < 4000 && len + 64 < room; attempt++) {
        ZydisDecodedInstruction in;
        ZydisDecodedOperand ops[ZYDIS_MAX_OPERAND_COUNT];
        u8 b[32];
        if (k->extra && rng_chance(r, k->percent)) {
            len += k->extra(k->opaque, r, out + len);
            n++;
            continue;
        }
        unsigned kind = (unsigned)rng_below(r, 100);

        if (!n && rng_chance(r, 10)) /* later it is seldom come to */
            kind = 29;

        if (kind < 6 && heads < 4) {
            head[heads++] = len;
            continue;
        }
        if (kind == 25 && len + 256 < room) {
            len += array_loop(r, out + len);
            n += 4;
            continue;
        }
        if (kind == 26) {
            len += over_itself(r, own + len, out + len);
            n += 4;
            continue;
        }
        if (kind == 28) {
            len += asking(r, out + len);
            n += 2;
            continue;
        }
        if (kind == 29 && len + 256 < room) {
            len += never_run(own + len, out + len);
            n += 2;
            continue;
        }
        if (kind == 27 && test_code == CODE_64) {
            len += over_table(r, own + len, out + len);
            n += 4;
            continue;
        }
        if (kind < 14) { /* a short branch forwards, over what follows */
            out[len++] = (u8)(0x70 | rng_below(r, 16));
            out[len++] = (u8)rng_below(r, 3); /* into the middle, perhaps */
            n++;
            continue;
        }
        if (kind < 20 && heads && len - head[heads - 1] < 110) { /* a loop of a few rounds */
            heads--;
            len += loop_tail(out, len, head[heads]);
            n += 2;
            continue;
        }
        if (kind < 23) { /* REP with a small count */
            static const u8 op[] = {0xa4, 0xa5, 0xaa, 0xab, 0xac, 0xa6, 0xae, 0xa7};

            out[len++] = 0x83; /* and ecx, 31 */
            out[len++] = 0xe1;
            out[len++] = 31;
            out[len++] = (u8)(0xf2 + rng_below(r, 2));
            out[len++] = op[rng_below(r, sizeof op)];
            n += 2;
            continue;
        }
        if (kind < 25) { /* a store into this program's own code, through r15: mov [r15+d], cl */
            if (test_code == CODE_64)
                out[len++] = 0x41;
            out[len++] = 0x88;
            out[len++] = test_code == CODE_64 ? 0x4f : 0x0d;
            u32 to = (u32)rng_below(r, rng_chance(r, 50) ? 16 : 128);

            if (test_code == CODE_64) {
                out[len++] = (u8)to;
            } else { /* or where it is */
                to += own;
                memcpy(out + len, &to, 4);
                len += 4;
            }
            n++;
            continue;
        }
        form_encode(r, &k->forms->v[rng_below(r, k->forms->n)], rng_chance(r, 90), b);
        if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&dec, b, sizeof b, &in, ops)) ||
            (!rng_chance(r, 10) && !case_fits_sequence(&in, ops, k->model)))
            continue;
        if (k->extra && has_debug_register(ops, in.operand_count))
            continue;
        if (in.raw.disp.size > 8) {
            i32 d = (i32)rng_below(r, 512) - 256;
            memcpy(b + in.raw.disp.offset, &d, 4);
        }
        memcpy(out + len, b, in.length);
        len += in.length;
        n++;
    }
    out[len++] = 0xe9; /* again, for ever */
    i32 d = -(i32)(len + 4);
    memcpy(out + len, &d, 4);
    return len + 4;
}

void program_draw(struct program *p, const struct program_kind *k, u64 seed, u64 number,
                  struct rng *rest)
{
    struct icase c = {.number = number};
    struct rng place, r;

    rng_seed(&place, ~seed, number);
    u64 at = SLOT_FIRST + rng_below(&place, 8000);
    rng_seed(&r, seed, number);
    bool over = rng_chance(&place, 15); /* over the end of a page, into which it stores */
    if (over)
        at = PAGE_SIZE - rng_below(&place, 160);
    p->len = make_program(&r, k, (u32)T_CODE + (over ? PAGE_SIZE - 8 : (u32)at), p->code,
                          sizeof p->code);
    case_random_state(&r, &c, k->model);
    for (unsigned i = 0; i < 16; i++)
        if (i != R14 && i != RSP && i != R15)
            c.st.gpr[i] =
                rng_chance(&r, 70) ? T_DATA + PAGE_SIZE + 512 + rng_below(&r, 6144) : value_int(&r);
    if (test_code != CODE_64 && !rng_chance(&r, 5)) /* else it runs by hand */
        for (unsigned i = 0; i < 8; i++)
            c.st.gpr[i] = (u32)c.st.gpr[i];
    c.st.gpr[test_code == CODE_64 ? R14 : RBX] = rng_below(&r, 12);
    for (unsigned i = 0; i < 6 && test_code != CODE_64; i++)
        if (i != SEG_CS && rng_chance(&r, 90))
            c.st.sel[i] = 0x2b;
    if (test_code != CODE_64) {
        c.st.fs_base = test_base(c.st.sel[SEG_FS]);
        c.st.gs_base = test_base(c.st.sel[SEG_GS]);
    }
    c.st.gpr[R15] = T_CODE + at + rng_below(&r, p->len);
    if (over)
        c.st.gpr[R15] = T_CODE + PAGE_SIZE - 8;
    c.st.gpr[RSP] = T_DATA + 4 * PAGE_SIZE + 2048;
    if (rng_chance(&place, 20)) /* a stack over the end of a page, perhaps not aligned */
        c.st.gpr[RSP] = T_DATA + 4 * PAGE_SIZE + rng_below(&place, 80);
    c.st.rip = T_CODE + at;
    if (!rng_chance(&r, 3))
        c.st.rflags &= ~(u64)(FL_TF | FL_AC);
    if (k->often)
        c.st.rflags |= FL_IF;
    value_vector(&r, p->data, sizeof p->data);
    p->kernel = rng_chance(&r, 30);
    p->at = at;
    p->st = c.st;
    *rest = r;
}
