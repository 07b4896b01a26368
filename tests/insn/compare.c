/*
 * Whether two outcomes are the same, and if not, in what. What may differ: in fault frames,
 * arithmetic flags that the following code proves dead (they are pushed as zero: rule.c); FIP, FDP
 * and FOP, which CPUs keep in different ways, but never as an address of the host's.
 */
#include <stdarg.h>
#include <stdio.h>
#include "tests/insn/insn.h"

static PRINTF(2, 3) void say(struct difference *d, const char *fmt, ...)
{
    va_list ap;
    int n;

    if (d->used > sizeof d->text - 100)
        return;
    va_start(ap, fmt);
    n = vsnprintf(d->text + d->used, sizeof d->text - d->used, fmt, ap);
    va_end(ap);
    d->used = MIN(d->used + (size_t)n, sizeof d->text - 1);
}

static void word(struct difference *d, const char *name, u64 want, u64 got)
{
    if (want != got)
        say(d, "    %-8s expected %016llx got %016llx\n", name, (unsigned long long)want,
            (unsigned long long)got);
}

static const char *const gpr_names[] = {"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
                                        "r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15"};

/* A component whose XSTATE_BV bit is clear is in its initial state whatever its bytes say. */
static void canonical(const u8 *in, u8 out[XSAVE_SIZE])
{
    memcpy(out, in, XSAVE_SIZE);
    if (!(in[512] & 1)) {
        memset(out, 0, 24);
        memset(out + 32, 0, 128);
        out[0] = 0x7f;
        out[1] = 0x03;
    }
    if (!(in[512] & 2))
        memset(out + 160, 0, 256);
    if (!(in[512] & 4))
        memset(out + 576, 0, 256);
}

static void bytes(struct difference *d, const char *name, unsigned index, const u8 *want,
                  const u8 *got, unsigned len)
{
    if (memcmp(want, got, len) == 0)
        return;
    say(d, "    %s%u expected ", name, index);
    for (unsigned i = len; i-- > 0;)
        say(d, "%02x", want[i]);
    say(d, " got ");
    for (unsigned i = len; i-- > 0;)
        say(d, "%02x", got[i]);
    say(d, "\n");
}

static bool host_address(u64 v)
{
    return v >> 32 != 0 && v >> 47 == 0;
}

/*
 * FIP is exact. FDP and FOP follow our rule, that of CPUs without FDP_EXCPTN_ONLY and with every
 * opcode kept: they may differ from what a newer CPU has, but are never something only the host
 * could know.
 */
static void pointers(struct difference *d, const struct icase *c, const u8 *want, const u8 *got)
{
    u64 w[2], g[2], b[2];

    if (memcmp(want + 6, got + 6, 18) == 0)
        return;
    memcpy(w, want + 8, 16);
    memcpy(g, got + 8, 16);
    memcpy(b, c->st.xsave + 8, 16);
    /* FXRSTOR of a random one: CPUs sign-extend it from their linear-address width, we keep it. */
    if (!host_is(Q_FIP) || want[2] & 0x80)
        word(d, "FIP", w[0] << 16, g[0] << 16);
    for (unsigned i = 1; i < 2; i++)
        if (g[i] != w[i] && g[i] != b[i] && g[i] != c->image_ea && host_address(g[i]))
            say(d, "    %s holds %llx: an address of the host's?\n", i ? "FDP" : "FIP",
                (unsigned long long)g[i]);
    d->soft++;
}

/*
 * What Intel's CPUs leave behind of an instruction whose memory access faults, though a fault
 * should leave nothing: we do not imitate it.
 */
enum leftover {
    LEFT_NOTHING,
    LEFT_MMX,   /* MMX stores have made the x87 registers theirs: TOP, tags */
    LEFT_CR2,   /* masked stores over a page's end: which byte CR2 names varies */
    LEFT_M80,   /* FSTP and FBSTP have stored the first eight bytes */
    LEFT_STATE, /* XRSTOR has loaded components before it found MXCSR bad: SDM vol. 1, 13.8 */
    /* Only where host.c has found that they are not left as on Intel's: */
    LEFT_POPPED, /* POPA's registers, as far as it came */
    LEFT_GATHER, /* elements and their part of the mask */
    LEFT_MXCSR,  /* flags of a conversion whose store faults */
    LEFT_PUSHED, /* CALL's return address */
    LEFT_UPPER,  /* a gather has cleared what is above its 128 or 256 bits */
};

struct faulting {
    ZydisDecodedInstruction in;
    ZydisDecodedOperand ops[ZYDIS_MAX_OPERAND_COUNT];
};

/* The instruction at `rip`, if it is one of the case's. */
static bool decode_at(const struct icase *c, u64 rip, struct faulting *f)
{
    ZydisDecoder dec;
    u64 off = rip - c->address;

    if (off >= c->len)
        return false;
    feature_decoder(CPU_X86_64_V3, &dec);
    return ZYAN_SUCCESS(ZydisDecoderDecodeFull(&dec, c->code + off, c->len - off, &f->in, f->ops));
}

static bool xrstor(const struct faulting *f)
{
    return f->in.mnemonic == ZYDIS_MNEMONIC_XRSTOR || f->in.mnemonic == ZYDIS_MNEMONIC_XRSTOR64;
}

/* By one of k1 to k7. */
static bool masked(const struct faulting *f)
{
    return f->in.encoding == ZYDIS_INSTRUCTION_ENCODING_EVEX &&
           f->in.avx.mask.reg != ZYDIS_REGISTER_NONE && f->in.avx.mask.reg != ZYDIS_REGISTER_K0;
}

static enum leftover left_by(const struct icase *c, const struct outcome *n, struct faulting *f)
{
    const ZydisDecodedOperand *ops = f->ops;

    if (n->kind != OUT_EXCEPTION || n->vector < EXC_SS || n->vector > EXC_AC ||
        !decode_at(c, n->st.rip, f))
        return LEFT_NOTHING;
    const ZydisDecodedInstruction in = f->in;

    if ((in.meta.isa_set == ZYDIS_ISA_SET_AVX2GATHER || in.meta.category == ZYDIS_CATEGORY_GATHER ||
         in.meta.category == ZYDIS_CATEGORY_SCATTER) &&
        host_is(Q_GATHER))
        return LEFT_GATHER;
    if ((in.meta.isa_set == ZYDIS_ISA_SET_AVX2GATHER ||
         in.meta.category == ZYDIS_CATEGORY_GATHER) &&
        host_is(Q_MASKED))
        return LEFT_UPPER;
    if (in.mnemonic == ZYDIS_MNEMONIC_VCVTPS2PH &&
        (host_is(Q_CVTPS2PH) || (host_is(Q_MASKED) && masked(f))))
        return LEFT_MXCSR;
    if (in.mnemonic == ZYDIS_MNEMONIC_POPA || in.mnemonic == ZYDIS_MNEMONIC_POPAD)
        return LEFT_POPPED;
    if (in.mnemonic == ZYDIS_MNEMONIC_CALL && n->vector == EXC_GP && host_is(Q_CALL))
        return LEFT_PUSHED;
    if ((in.mnemonic == ZYDIS_MNEMONIC_MASKMOVDQU || in.mnemonic == ZYDIS_MNEMONIC_VMASKMOVDQU) &&
        host_is(Q_MASKMOV))
        return LEFT_CR2;
    if (in.meta.isa_set == ZYDIS_ISA_SET_XSAVE && !(n->st.gpr[RAX] & 7) && host_is(Q_XSAVE))
        return LEFT_CR2;
    if (xrstor(f) && n->vector == EXC_GP)
        return LEFT_STATE;
    if (xrstor(f) && host_is(Q_XRSTOR))
        return LEFT_CR2;
    if (in.mnemonic == ZYDIS_MNEMONIC_VMASKMOVPS || in.mnemonic == ZYDIS_MNEMONIC_VMASKMOVPD ||
        in.mnemonic == ZYDIS_MNEMONIC_VPMASKMOVD || in.mnemonic == ZYDIS_MNEMONIC_VPMASKMOVQ)
        return LEFT_CR2;
    if ((in.mnemonic == ZYDIS_MNEMONIC_FSTP || in.mnemonic == ZYDIS_MNEMONIC_FBSTP) &&
        ops[0].size == 80)
        return LEFT_M80;
    for (unsigned i = 0; i < in.operand_count; i++)
        if (ops[i].type == ZYDIS_OPERAND_TYPE_MEMORY &&
            (ops[i].actions & ZYDIS_OPERAND_ACTION_MASK_WRITE))
            for (unsigned j = 0; j < in.operand_count; j++)
                if (ops[j].type == ZYDIS_OPERAND_TYPE_REGISTER &&
                    ZydisRegisterGetClass(ops[j].reg.value) == ZYDIS_REGCLASS_MMX)
                    return LEFT_MMX;
    return LEFT_NOTHING;
}

/* Takes a vector from the other side, from byte `first` on, or with all of it a mask register. */
static void forgive(struct cpu_state *w, struct cpu_state *g, const ZydisDecodedOperand *op,
                    unsigned first)
{
    unsigned id = (unsigned)ZydisRegisterGetId(op->reg.value);

    if (op->type != ZYDIS_OPERAND_TYPE_REGISTER)
        return;
    if (ZydisRegisterGetClass(op->reg.value) == ZYDIS_REGCLASS_MASK)
        w->mask[id] = first ? w->mask[id] : g->mask[id];
    else
        for (unsigned b = first; b < 64; b++)
            *state_vector(w, id, b) = *state_vector(g, id, b);
}

/* A state with its components as canonical() has them. */
static void take_state(struct cpu_state *out, const struct cpu_state *in)
{
    *out = *in;
    canonical(in->xsave, out->xsave);
    if (!(in->xsave[512] & 0x20))
        memset(out->mask, 0, sizeof out->mask);
    if (!(in->xsave[512] & 0x40))
        memset(out->zmm_high, 0, sizeof out->zmm_high);
    if (!(in->xsave[512] & 0x80))
        memset(out->zmm_above, 0, sizeof out->zmm_above);
}

static void vectors(struct difference *d, const struct icase *c, enum leftover left,
                    const struct faulting *f, const struct cpu_state *want,
                    const struct cpu_state *got)
{
    static struct cpu_state ws, gs;
    u8 *w = ws.xsave, *g = gs.xsave;

    take_state(&ws, want);
    take_state(&gs, got);
    if (left == LEFT_MMX) {
        memcpy(w + 2, g + 2, 3);
        memcpy(w + 32, g + 32, 128);
    }
    if (left == LEFT_STATE)
        memcpy(w, g, XSAVE_SIZE);
    if (left == LEFT_GATHER || left == LEFT_UPPER) {
        unsigned first = left == LEFT_GATHER ? 0 : f->in.avx.vector_length / 8;
        for (unsigned i = 0; i < 3; i++)
            forgive(&ws, &gs, &f->ops[i], first);
    }
    if (left == LEFT_MXCSR)
        w[24] = (u8)((w[24] & ~0x3f) | (g[24] & 0x3f));
    if (c->st.xsave[512] & XSAVE_AVX512) {
        for (unsigned i = 0; i < 8; i++) {
            char name[4] = {'k', (char)('0' + i), 0, 0};
            word(d, name, ws.mask[i], gs.mask[i]);
        }
        for (unsigned i = 0; i < 16; i++)
            bytes(d, "zmmh", i, ws.zmm_high + 32 * i, gs.zmm_high + 32 * i, 32);
        for (unsigned i = 0; i < 16; i++)
            bytes(d, "zmm", 16 + i, ws.zmm_above + 64 * i, gs.zmm_above + 64 * i, 64);
    }
    if (memcmp(w, g, 512 - 96) == 0 && memcmp(w + 576, g + 576, 256) == 0)
        return;
    word(d, "FCW", w[0] | w[1] << 8, g[0] | g[1] << 8);
    word(d, "FSW", w[2] | w[3] << 8, g[2] | g[3] << 8);
    word(d, "FTW", w[4], g[4]);
    word(d, "MXCSR", (u64)(w[24] | w[25] << 8), (u64)(g[24] | g[25] << 8));
    pointers(d, c, w, g);
    for (unsigned i = 0; i < 8; i++)
        bytes(d, "st", i, w + 32 + 16 * i, g + 32 + 16 * i, 10);
    for (unsigned i = 0; i < 16; i++)
        bytes(d, "xmm", i, w + 160 + 16 * i, g + 160 + 16 * i, 16);
    if (c->st.xsave[512] & 4)
        for (unsigned i = 0; i < 16; i++)
            bytes(d, "ymmh", i, w + 576 + 16 * i, g + 576 + 16 * i, 16);
}

/* Bytes of a state image in memory that need not be equal. */
static bool image_slack(const struct icase *c, u64 at)
{
    u64 off = at - c->image_ea;

    if (c->image != IMG_X87 && off >= 28 && off < 32 && host_is(Q_MXCSR))
        return c->image != IMG_NONE;
    switch (c->image) {
    case IMG_FX: return (off >= 6 && off < 24) || (off >= 416 && off < 512);
    case IMG_XSAVE: /* the header's XSTATE_BV: "in use" on hardware, "differs from init" for us */
        return (off >= 6 && off < 24) || (off >= 416 && off < 513);
    case IMG_X87: return off >= 12 && off < 28;
    default: return false;
    }
}

/* `slack`: eight bytes here need not be equal. */
static void memory(struct difference *d, const struct icase *c, u64 slack, const u8 *want,
                   const u8 *got)
{
    unsigned shown = 0;

    for (unsigned p = 0; p < DATA_PAGES; p++) {
        if (!(DATA_RW >> p & 1) ||
            memcmp(want + p * PAGE_SIZE, got + p * PAGE_SIZE, PAGE_SIZE) == 0)
            continue;
        for (unsigned i = p * PAGE_SIZE; i < (p + 1) * PAGE_SIZE; i++) {
            if (want[i] == got[i])
                continue;
            if (T_DATA + i - slack < 8)
                continue;
            if (image_slack(c, T_DATA + i)) {
                d->soft++;
                continue;
            }
            if (shown++ < 12)
                say(d, "    [%llx] expected %02x got %02x\n", (unsigned long long)(T_DATA + i),
                    want[i], got[i]);
        }
    }
    if (shown > 12)
        say(d, "    ... %u bytes of memory differ\n", shown);
}

/* What the manual leaves undefined, and not the hardware but the engine decides: they stay. */
static u64 undefined_flags(const struct icase *c)
{
    if (!c->decoded || c->sequence || c->insn.meta.category != ZYDIS_CATEGORY_DECIMAL ||
        !c->insn.cpu_flags)
        return 0;
    return c->insn.cpu_flags->undefined & FL_ARITH;
}

static void flags(struct difference *d, const struct icase *c, const struct outcome *n,
                  const struct outcome *e)
{
    u64 w = n->st.rflags & (~(u64)FL_ARITH | e->live), g = e->st.rflags;
    u64 open = undefined_flags(c);

    w &= ~open;
    g &= ~open;

    if (w != g)
        say(d, "    rflags   expected %08llx got %08llx (live: %03x)\n", (unsigned long long)w,
            (unsigned long long)g, e->live);
}

static void state(struct difference *d, const struct icase *c, const struct outcome *n,
                  const struct outcome *e)
{
    static const char *const seg[] = {"es", "cs", "ss", "ds", "fs", "gs"};
    struct faulting f;
    enum leftover left = left_by(c, n, &f);

    for (unsigned i = 0; i < 16; i++)
        if (left != LEFT_POPPED || n->st.gpr[i] != c->st.gpr[i])
            word(d, gpr_names[i], n->st.gpr[i], e->st.gpr[i]);
    word(d, "rip", n->st.rip, e->st.rip);
    word(d, "fs_base", n->st.fs_base, e->st.fs_base);
    word(d, "gs_base", n->st.gs_base, e->st.gs_base);
    /* The way through the host's kernel clears null selectors whose RPL is not 0. */
    for (unsigned i = 0; i < 6; i++)
        word(d, seg[i], n->st.sel[i] & ~3u ? n->st.sel[i] : 0,
             e->st.sel[i] & ~3u ? e->st.sel[i] : 0);
    vectors(d, c, left, &f, &n->st, &e->st);
    if (left != LEFT_M80)
        memory(d, c, left == LEFT_PUSHED ? n->st.gpr[RSP] - 8 : 0, n->mem, e->mem);
}

/* Is that in the state image that the case saves or loads? */
static bool in_image(const struct icase *c, u64 va)
{
    u64 off = va - c->image_ea;

    return (test_code == CODE_64 ? off : (u32)off) < XSAVE_SIZE;
}

static bool ended_same(struct difference *d, const struct icase *c, const struct outcome *n,
                       const struct outcome *e)
{
    static const char *const kind[] = {"?", "exception", "hang", "unsupported", "odd"};

    if (n->kind != e->kind || n->kind == OUT_ODD) {
        say(d, "    expected %s %u, got %s %u %s\n", kind[n->kind], n->vector, kind[e->kind],
            e->vector, e->note);
        return false;
    }
    if (n->kind != OUT_EXCEPTION)
        return true;
    /* How much of an undefined instruction is fetched before #UD is the CPU's business. */
    if (!c->decoded && n->vector == EXC_PF && (n->err & 0x10) && e->vector == EXC_UD)
        return false;
    if (n->vector != e->vector) {
        say(d, "    vector   expected %u err %x cr2 %llx, got %u err %x cr2 %llx\n", n->vector,
            n->err, (unsigned long long)n->cr2, e->vector, e->err, (unsigned long long)e->cr2);
        return true;
    }
    if (n->vector == EXC_PF) {
        struct faulting f;
        /* Linux hides from user code whether a kernel page is present. */
        u32 mask = n->cr2 >= 0x7ffffffff000 ? ~1u : ~0u;

        bool varies =
            left_by(c, n, &f) == LEFT_CR2 || (host_is(Q_MASKMOV) && decode_at(c, n->st.rip, &f) &&
                                              f.in.mnemonic == ZYDIS_MNEMONIC_MASKMOVQ);

        /* In which order a state image is looked at is the CPU's business. */
        bool image = decode_at(c, n->st.rip, &f) && f.in.meta.isa_set == ZYDIS_ISA_SET_XSAVE &&
                     in_image(c, n->cr2) && in_image(c, e->cr2);

        if (!image && (!varies || (n->cr2 ^ e->cr2) >> 12))
            word(d, "cr2", n->cr2, e->cr2);
        word(d, "error", n->err & mask, e->err & mask);
    } else {
        word(d, "error", n->err, e->err);
    }
    return true;
}

static bool stack_or_general(const struct outcome *o)
{
    return o->vector == EXC_SS || o->vector == EXC_GP;
}

static bool beyond_48(u64 address)
{
    return address >> 47 && address >> 47 != 0x1ffff;
}

static bool sets_base(const struct icase *c)
{
    return c->decoded && c->insn.meta.category == ZYDIS_CATEGORY_RDWRFSGS;
}

static bool loads_mxcsr(const struct faulting *f)
{
    switch (f->in.mnemonic) {
    case ZYDIS_MNEMONIC_LDMXCSR:
    case ZYDIS_MNEMONIC_VLDMXCSR:
    case ZYDIS_MNEMONIC_FXRSTOR:
    case ZYDIS_MNEMONIC_FXRSTOR64:
    case ZYDIS_MNEMONIC_XRSTOR:
    case ZYDIS_MNEMONIC_XRSTOR64: return true;
    default: return false;
    }
}

static bool masked_move(const struct faulting *f)
{
    switch (f->in.mnemonic) {
    case ZYDIS_MNEMONIC_MASKMOVQ:
    case ZYDIS_MNEMONIC_MASKMOVDQU:
    case ZYDIS_MNEMONIC_VMASKMOVDQU:
    case ZYDIS_MNEMONIC_VMASKMOVPS:
    case ZYDIS_MNEMONIC_VMASKMOVPD:
    case ZYDIS_MNEMONIC_VPMASKMOVD:
    case ZYDIS_MNEMONIC_VPMASKMOVQ: return true;
    default: return false;
    }
}

static bool locked(const struct faulting *f)
{
    return (f->in.attributes & ZYDIS_ATTRIB_HAS_LOCK) || f->in.mnemonic == ZYDIS_MNEMONIC_XCHG;
}

static bool has_66(const struct faulting *f)
{
    for (unsigned i = 0; i < f->in.raw.prefix_count; i++)
        if (f->in.raw.prefixes[i].value == 0x66)
            return true;
    return false;
}

static bool state_image(const struct faulting *f)
{
    return f->in.meta.isa_set == ZYDIS_ISA_SET_FXSAVE ||
           f->in.meta.isa_set == ZYDIS_ISA_SET_FXSAVE64 ||
           f->in.meta.isa_set == ZYDIS_ISA_SET_XSAVE;
}

/* FLDENV, FNSTENV, FNSAVE, FRSTOR: of several words. */
static bool x87_image(const struct faulting *f)
{
    switch (f->in.mnemonic) {
    case ZYDIS_MNEMONIC_FLDENV:
    case ZYDIS_MNEMONIC_FNSTENV:
    case ZYDIS_MNEMONIC_FNSAVE:
    case ZYDIS_MNEMONIC_FRSTOR: return true;
    default: return false;
    }
}

/*
 * Why these two cannot be compared: what differs between CPUs as SDM and APM allow it, chiefly in
 * which of two exceptions comes first. NULL if nothing is known.
 */
static const char *excuse(const struct icase *c, const struct outcome *n, const struct outcome *e)
{
    bool ac = c->st.rflags & FL_AC, at, same;
    struct faulting f;
    const char *why = host_undecoded(c, n, e);

    if (why || n->kind != OUT_EXCEPTION || e->kind != OUT_EXCEPTION)
        return why;
    if (host_is(Q_LA57) && ((n->vector == EXC_PF && beyond_48(n->cr2)) ||
                            (stack_or_general(e) && (beyond_48(c->image_ea) || sets_base(c)))))
        return host_text(Q_LA57);
    if (host_is(Q_LASS) && stack_or_general(n) && e->vector == EXC_PF && e->cr2 >> 63)
        return host_text(Q_LASS);
    if (host_is(Q_MXCSR) && e->vector == EXC_GP && n->st.rip != e->st.rip &&
        decode_at(c, e->st.rip, &f) && loads_mxcsr(&f))
        return host_text(Q_MXCSR);
    if (host_is(Q_MOVBE) && e->vector >= EXC_SS && e->vector <= EXC_AC &&
        decode_at(c, e->st.rip, &f) && f.in.mnemonic == ZYDIS_MNEMONIC_MOVBE && has_66(&f) &&
        f.in.operand_width == 64)
        return host_text(Q_MOVBE);
    if (host_is(Q_SHA) && stack_or_general(e) && decode_at(c, e->st.rip, &f) &&
        f.in.meta.isa_set == ZYDIS_ISA_SET_SHA)
        return host_text(Q_SHA);
    if (ac && host_is(Q_MASKED) && e->vector == EXC_AC && decode_at(c, e->st.rip, &f) && masked(&f))
        return host_text(Q_MASKED);
    at = decode_at(c, n->st.rip, &f);
    same = n->st.rip == e->st.rip;
    if (!at)
        return NULL;
    if (ac && host_is(Q_MASKED) && n->vector == EXC_AC && masked(&f))
        return host_text(Q_MASKED);
    if (same && host_is(Q_MASKED) && masked(&f) && n->vector >= EXC_SS && n->vector <= EXC_AC &&
        e->vector >= EXC_SS && e->vector <= EXC_AC && (n->vector != e->vector || n->cr2 != e->cr2))
        return host_text(Q_MASKED);
    if (same && ac && host_is(Q_AC_LATE) && e->vector == EXC_AC && stack_or_general(n))
        return host_text(Q_AC_LATE);
    /* SDM vol. 3, 6.3: with a limit of 4 GiB the CPU may see one, or none. */
    if (same && host_is(Q_END) && stack_or_general(n) && e->vector == EXC_PF &&
        (e->cr2 > UINT32_MAX - 64 || e->cr2 < 64)) /* the part of it that wraps around, too */
        return host_text(Q_END);
    /* FXSAVE and its kin: SDM vol. 2 lets the CPU choose. */
    if (same && ac && (e->vector == EXC_AC) != (n->vector == EXC_AC) &&
        (e->vector == EXC_GP || n->vector == EXC_GP) && state_image(&f))
        return "#AC or #GP for an unaligned state image";
    if (same && ac && e->vector == EXC_AC && stack_or_general(n) && x87_image(&f))
        return "#AC or #GP for an x87 image that is unaligned and beyond a limit";
    if (same && stack_or_general(n) && stack_or_general(e) && n->vector != e->vector &&
        state_image(&f))
        return "#SS or #GP for a state image that is unaligned and not canonical";
    if (n->vector == EXC_AC && !ac && locked(&f))
        return "the host's kernel forbids split locks";
    if (host_is(Q_X87_STORE) && n->vector >= EXC_SS && n->vector <= EXC_AC &&
        f.in.meta.category == ZYDIS_CATEGORY_X87_ALU &&
        f.ops[0].type == ZYDIS_OPERAND_TYPE_MEMORY &&
        (f.ops[0].actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) && !same &&
        (c->sequence || e->st.xsave[2] & 0x80))
        return host_text(Q_X87_STORE);
    if (host_is(Q_OFFSET) && same && stack_or_general(n) && e->vector == EXC_PF &&
        (f.in.attributes & (ZYDIS_ATTRIB_HAS_SEGMENT_FS | ZYDIS_ATTRIB_HAS_SEGMENT_GS)) &&
        e->cr2 >> 47 == 0x1ffff)
        return host_text(Q_OFFSET);
    if (host_is(Q_POP) && f.in.mnemonic == ZYDIS_MNEMONIC_POP &&
        f.ops[0].type == ZYDIS_OPERAND_TYPE_REGISTER && f.ops[0].reg.value >= ZYDIS_REGISTER_ES &&
        f.ops[0].reg.value <= ZYDIS_REGISTER_GS && n->vector >= EXC_SS && n->vector <= EXC_AC)
        return host_text(Q_POP);
    if (host_is(Q_UD) && same && n->vector == EXC_UD && e->vector == EXC_PF && (e->err & 0x10) &&
        (f.in.mnemonic == ZYDIS_MNEMONIC_UD0 || f.in.mnemonic == ZYDIS_MNEMONIC_UD1))
        return host_text(Q_UD);
    if (host_is(Q_CMPS) && same && f.in.meta.category == ZYDIS_CATEGORY_STRINGOP &&
        f.in.opcode >= 0xa6 && f.in.opcode <= 0xa7 && n->vector >= EXC_SS && n->vector <= EXC_AC &&
        e->vector >= EXC_SS && e->vector <= EXC_AC && (n->vector != e->vector || n->cr2 != e->cr2))
        return host_text(Q_CMPS);
    /* Of several bytes that fault for different reasons, which is first. */
    if (host_is(Q_MASKMOV) && same && masked_move(&f) && n->vector == EXC_PF && stack_or_general(e))
        return host_text(Q_MASKMOV);
    if (host_is(Q_MASKMOV) && same && masked_move(&f) && n->vector == EXC_PF &&
        e->vector == EXC_PF && e->cr2 - n->cr2 < 32)
        return host_text(Q_MASKMOV);
    /* Which address a part of an operand has that lies around the end of 64 KiB. */
    if (host_is(Q_END) && same && f.in.address_width == 16 && n->vector == EXC_PF &&
        e->vector == EXC_PF && e->cr2 - n->cr2 == 0x10000)
        return host_text(Q_END);
    if (host_is(Q_END) && same && f.in.address_width == 16 &&
        ((masked_move(&f) && stack_or_general(n) && e->vector == EXC_PF) ||
         (n->vector == EXC_PF && stack_or_general(e) && f.in.avx.vector_length == 512)))
        return host_text(Q_END);
    /* Which of its elements an access around the last address meets first. */
    if (same && f.in.meta.category == ZYDIS_CATEGORY_COMPRESS && n->vector == EXC_PF &&
        stack_or_general(e))
        return "a compressed store around the end of an address space";
    if (host_is(Q_BOUND) && same && f.in.mnemonic == ZYDIS_MNEMONIC_BOUND && e->vector == EXC_BR &&
        n->vector >= EXC_SS && n->vector <= EXC_AC)
        return host_text(Q_BOUND);
    if (same && xrstor(&f) && n->vector == EXC_PF &&
        (stack_or_general(e) || (host_is(Q_XRSTOR) && e->vector == EXC_PF && n->cr2 < e->cr2)))
        return host_text(Q_XRSTOR);
    if (host_is(Q_XSAVE) && f.in.meta.isa_set == ZYDIS_ISA_SET_XSAVE && !xrstor(&f) && !same &&
        !(n->st.gpr[RAX] & 7) && n->vector == EXC_PF)
        return host_text(Q_XSAVE);
    if (host_is(Q_MASKED) && same && masked(&f) && f.in.mnemonic == ZYDIS_MNEMONIC_VCVTPS2PH &&
        n->vector == EXC_XM && e->vector >= EXC_SS && e->vector <= EXC_AC)
        return host_text(Q_MASKED);
    if (host_is(Q_CVTPS2PH) && same && f.in.mnemonic == ZYDIS_MNEMONIC_VCVTPS2PH &&
        e->vector == EXC_XM && n->vector >= EXC_SS && n->vector <= EXC_AC)
        return host_text(Q_CVTPS2PH);
    return NULL;
}

static bool repeated(const struct faulting *f)
{
    return f->in.attributes &
           (ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE | ZYDIS_ATTRIB_HAS_REPNE);
}

/* What a quirk makes different in a few places only is taken from the other side there. */
static const struct outcome *mend(const struct icase *c, const struct outcome *n,
                                  const struct outcome *e)
{
    static struct outcome out;
    bool int1, trap, flags, a32;
    struct faulting f;

    if (n->kind != OUT_EXCEPTION)
        return n;
    /* To a stack of 16 bits the host's kernel returns by one of its own (Linux's espfix, in the
     * half terabyte at ffffff00_00000000), and some CPUs leave that in the half of RSP that such
     * code cannot see. */
    if (test_code != CODE_64 && n->st.gpr[RSP] >> 39 == 0xffffff0000000000 >> 39) {
        memcpy(&out, n, sizeof out);
        out.st.gpr[RSP] = (u32)n->st.gpr[RSP] | (c->st.gpr[RSP] >> 32 << 32);
        n = &out;
    }
    /* In code of 32 bits the upper halves are nobody's (SDM vol. 1, 3.4.1.1): REP clears them on
     * Intel's CPUs, whatever it does. */
    for (unsigned i = 0; test_code != CODE_64 && !host_is(Q_REP_A32) && i < 16; i++) {
        bool counts = i == RCX || i == RSI || i == RDI;
        if (!counts || n->st.gpr[i] == e->st.gpr[i] || n->st.gpr[i] != (u32)e->st.gpr[i])
            continue;
        if (n != &out)
            memcpy(&out, n, sizeof out);
        n = &out;
        out.st.gpr[i] = e->st.gpr[i];
    }
    if (!c->decoded || c->sequence)
        return n;
    f.in = c->insn;
    int1 = host_is(Q_INT1) && f.in.mnemonic == ZYDIS_MNEMONIC_INT1 && n->vector == EXC_DB &&
           n->st.rip == c->address;
    trap = host_is(Q_REP_RF) && repeated(&f) && n->vector == EXC_DB && n->st.rip == c->address;
    flags = host_is(Q_REP_FLAGS) && repeated(&f) && n->vector != EXC_BP && n->vector != EXC_UD &&
            n->st.rip == c->address;
    a32 = host_is(Q_REP_A32) && repeated(&f) && f.in.address_width == 32;
    if (!int1 && !trap && !flags && !a32)
        return n;
    if (n != &out)
        memcpy(&out, n, sizeof out);
    if (int1)
        out.st.rip += f.in.length;
    if (trap)
        out.st.rflags |= FL_RF;
    if (flags) /* the last iteration's there, as before it all here */
        out.st.rflags = (out.st.rflags & ~(u64)FL_ARITH) | (e->st.rflags & FL_ARITH);
    for (unsigned i = 0; a32 && i < 16; i++)
        if ((i == RCX || i == RSI || i == RDI) && (u32)out.st.gpr[i] == (u32)e->st.gpr[i])
            out.st.gpr[i] = e->st.gpr[i];
    return &out;
}

enum verdict compare_native(const struct icase *c, const struct outcome *host,
                            const struct outcome *e, struct difference *d)
{
    const struct outcome *n = mend(c, host, e);

    if (ended_same(d, c, n, e) && n->kind == OUT_EXCEPTION) {
        state(d, c, n, e);
        flags(d, c, n, e);
    }
    if (d->used && (d->excused = excuse(c, n, e)) != NULL)
        return EXCUSED;
    return d->used ? DIFFERENT : d->soft ? SOFT : SAME;
}

enum verdict compare_engine(const struct icase *c, const struct outcome *a, const struct outcome *b,
                            struct difference *d)
{
    if (ended_same(d, c, a, b) && a->kind == OUT_EXCEPTION) {
        state(d, c, a, b);
        word(d, "rflags", a->st.rflags, b->st.rflags);
    }
    if (d->soft)
        say(d, "    FIP, FDP or FOP depend on the way of running\n");
    return d->used ? DIFFERENT : SAME;
}

enum verdict compare_ud(const struct icase *c, const u8 *mem, const struct outcome *e,
                        struct difference *d)
{
    struct outcome n = {.kind = OUT_EXCEPTION, .vector = EXC_UD, .st = c->st};

    /* What is not fetched cannot be #UD. */
    if (e->kind == OUT_EXCEPTION && e->vector == EXC_PF && (e->err & 0x10) &&
        e->cr2 == T_CODE + CODE_SIZE)
        return SAME;
    n.st.rflags |= FL_RF;
    memcpy(n.mem, mem, DATA_SIZE);
    return compare_native(c, &n, e, d);
}

void print_case(const struct icase *c, enum cpu_model model)
{
    ZydisDecoder dec;
    ZydisFormatter fmt;
    unsigned off = 0;

    feature_decoder(model, &dec);
    ZydisFormatterInit(&fmt, ZYDIS_FORMATTER_STYLE_INTEL);
    printf("  case %llu at %llx, %s\n", (unsigned long long)c->number,
           (unsigned long long)c->address, c->category);
    while (off < c->len) {
        ZydisDecodedInstruction in;
        ZydisDecodedOperand ops[ZYDIS_MAX_OPERAND_COUNT];
        char text[128] = "(not decoded)";
        unsigned len = c->len - off;

        if (ZYAN_SUCCESS(ZydisDecoderDecodeFull(&dec, c->code + off, len, &in, ops))) {
            len = in.length;
            ZydisFormatterFormatInstruction(&fmt, &in, ops, in.operand_count_visible, text,
                                            sizeof text, c->address + off, NULL);
        }
        printf("    ");
        for (unsigned i = 0; i < len; i++)
            printf("%02x ", c->code[off + i]);
        printf(" %s\n", text);
        off += len;
    }
    for (unsigned i = 0; i < 16; i++)
        printf("    %-3s %016llx%s", gpr_names[i], (unsigned long long)c->st.gpr[i],
               i % 4 == 3 ? "\n" : " ");
    printf("    rflags %llx fs_base %llx gs_base %llx fcw %02x%02x fsw %02x%02x mxcsr %02x%02x\n",
           (unsigned long long)c->st.rflags, (unsigned long long)c->st.fs_base,
           (unsigned long long)c->st.gs_base, c->st.xsave[1], c->st.xsave[0], c->st.xsave[3],
           c->st.xsave[2], c->st.xsave[25], c->st.xsave[24]);
    if (c->image_ea)
        printf("    operand at %llx\n", (unsigned long long)c->image_ea);
    for (unsigned i = 0; i < c->npatches; i++) {
        printf("    [%llx]:", (unsigned long long)(T_DATA + c->patches[i].off));
        for (unsigned j = 0; j < MIN(c->patches[i].len, 32u); j++)
            printf(" %02x", c->patch_data[c->patches[i].at + j]);
        printf("\n");
    }
}
