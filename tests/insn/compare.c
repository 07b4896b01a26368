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
    LEFT_MMX, /* MMX stores have made the x87 registers theirs: TOP, tags */
    LEFT_CR2, /* masked stores over a page's end: which byte CR2 names varies */
    LEFT_M80, /* FSTP and FBSTP have stored the first eight bytes */
};

static enum leftover left_by(const struct icase *c, const struct outcome *n)
{
    ZydisDecoder dec;
    ZydisDecodedInstruction in;
    ZydisDecodedOperand ops[ZYDIS_MAX_OPERAND_COUNT];
    u64 off = n->st.rip - c->address;

    if (n->kind != OUT_EXCEPTION || n->vector < EXC_SS || n->vector > EXC_AC || off >= c->len)
        return LEFT_NOTHING;
    feature_decoder(CPU_X86_64_V3, &dec);
    if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&dec, c->code + off, c->len - off, &in, ops)))
        return LEFT_NOTHING;
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

static void vectors(struct difference *d, const struct icase *c, enum leftover left,
                    const u8 *want_raw, const u8 *got_raw)
{
    u8 w[XSAVE_SIZE], g[XSAVE_SIZE];

    canonical(want_raw, w);
    canonical(got_raw, g);
    if (left == LEFT_MMX) {
        memcpy(w + 2, g + 2, 3);
        memcpy(w + 32, g + 32, 128);
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

    switch (c->image) {
    case IMG_FX: return (off >= 6 && off < 24) || (off >= 416 && off < 512);
    case IMG_XSAVE: /* the header's XSTATE_BV: "in use" on hardware, "differs from init" for us */
        return (off >= 6 && off < 24) || (off >= 416 && off < 513);
    case IMG_X87: return off >= 12 && off < 28;
    default: return false;
    }
}

static void memory(struct difference *d, const struct icase *c, const u8 *want, const u8 *got)
{
    unsigned shown = 0;

    for (unsigned p = 0; p < DATA_PAGES; p++) {
        if (!(DATA_RW >> p & 1) ||
            memcmp(want + p * PAGE_SIZE, got + p * PAGE_SIZE, PAGE_SIZE) == 0)
            continue;
        for (unsigned i = p * PAGE_SIZE; i < (p + 1) * PAGE_SIZE; i++) {
            if (want[i] == got[i])
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

static void flags(struct difference *d, const struct outcome *n, const struct outcome *e)
{
    u64 w = n->st.rflags & (~(u64)FL_ARITH | e->live), g = e->st.rflags;

    if (w != g)
        say(d, "    rflags   expected %08llx got %08llx (live: %03x)\n", (unsigned long long)w,
            (unsigned long long)g, e->live);
}

static void state(struct difference *d, const struct icase *c, const struct outcome *n,
                  const struct outcome *e)
{
    static const char *const seg[] = {"es", "cs", "ss", "ds", "fs", "gs"};
    enum leftover left = left_by(c, n);

    for (unsigned i = 0; i < 16; i++)
        word(d, gpr_names[i], n->st.gpr[i], e->st.gpr[i]);
    word(d, "rip", n->st.rip, e->st.rip);
    word(d, "fs_base", n->st.fs_base, e->st.fs_base);
    word(d, "gs_base", n->st.gs_base, e->st.gs_base);
    /* The way through the host's kernel clears null selectors whose RPL is not 0. */
    for (unsigned i = 0; i < 6; i++)
        word(d, seg[i], n->st.sel[i] & ~3u ? n->st.sel[i] : 0,
             e->st.sel[i] & ~3u ? e->st.sel[i] : 0);
    vectors(d, c, left, n->st.xsave, e->st.xsave);
    if (left != LEFT_M80)
        memory(d, c, n->mem, e->mem);
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
        /* Linux hides from user code whether a kernel page is present. */
        u32 mask = n->cr2 >= 0x7ffffffff000 ? ~1u : ~0u;

        if (left_by(c, n) != LEFT_CR2 || (n->cr2 ^ e->cr2) >> 12)
            word(d, "cr2", n->cr2, e->cr2);
        word(d, "error", n->err & mask, e->err & mask);
    } else {
        word(d, "error", n->err, e->err);
    }
    return true;
}

enum verdict compare_native(const struct icase *c, const struct outcome *n, const struct outcome *e,
                            struct difference *d)
{
    if (ended_same(d, c, n, e) && n->kind == OUT_EXCEPTION) {
        state(d, c, n, e);
        flags(d, n, e);
    }
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
