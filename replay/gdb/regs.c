/*
 * See regs.h. Writes keep the vCPU's state canonical (vcpu.h, cpu/x86/park.c): reserved bits are
 * refused, XSTATE_BV says what differs from its init value, ES and B of the x87 status word follow
 * from its exceptions and their masks. SDM vol. 1, 8.1 and 10.5.1, vol. 1, 13.6.
 */
#include "replay/gdb/regs.h"

#include <errno.h>
#include <string.h>

#include "machine/machine.h"

#define XSAVE_FCW       0
#define XSAVE_FSW       2
#define XSAVE_FTW       4
#define XSAVE_FOP       6
#define XSAVE_FIP       8
#define XSAVE_FDP       16
#define XSAVE_MXCSR     24
#define XSAVE_ST0       32
#define XSAVE_XMM0      160
#define XSAVE_XSTATE_BV 512
#define XSAVE_YMM0H     576

/* FCW: bits 0-5 masks, 8-9 precision, 10-11 rounding, 12 infinity; bit 6 reads as one. */
#define FCW_DEFINED 0x1f7fu
#define FCW_ONE     0x0040u
#define FCW_INIT    0x037fu
#define FSW_ES      0x0080u
#define FSW_B       0x8000u
#define FOP_DEFINED 0x07ffu

#define FL_ONE 2u
/* VM, VIF and VIP mean nothing in 64-bit mode: they stay as they are. */
#define FL_WRITABLE (FL_ARITH | FL_TF | FL_IF | FL_DF | FL_IOPL | FL_NT | FL_RF | FL_AC | FL_ID)

enum { FCTRL, FSTAT, FTAG, FISEG, FIOFF, FOSEG, FOOFF, FOP };

/* clang-format off */
#define REG(name, type, group, bits, feature, field, access)                                       \
    {name, type, group, bits, sizeof(((struct vcpu *)0)->field), offsetof(struct vcpu, field),     \
     feature, access}
#define AT(name, type, bits, feature, at, access)                                                  \
    {name, type, NULL, bits, (bits) / 8, (u16)(offsetof(struct vcpu, xsave) + (at)), feature, access}
#define GPR(name, type, n)  REG(name, type, NULL, 64, FEATURE_CORE, gpr[n], REG_ANY)
#define SEL(name, n)        REG(name, "int32", NULL, 32, FEATURE_CORE, seg_sel[n], REG_READ_ONLY)
#define ST(name, n)         AT(name, "i387_ext", 80, FEATURE_CORE, XSAVE_ST0 + 16 * (n), REG_ANY)
#define X87(name, which)    {name, "int", "float", 32, 4, which, FEATURE_CORE, REG_X87}
#define XMM(name, n)        AT(name, "vec128", 128, FEATURE_SSE, XSAVE_XMM0 + 16 * (n), REG_ANY)
#define YMMH(name, n)       AT(name, "uint128", 128, FEATURE_AVX, XSAVE_YMM0H + 16 * (n), REG_ANY)
#define ABOVE(name, type, bits, at)                                                                \
    {name, type, NULL, bits, (bits) / 8, (u16)(offsetof(struct vcpu, zmm_above) + (at)),            \
     FEATURE_AVX512, REG_ANY}
#define XMM_ABOVE(name, n)  ABOVE(name, "vec128", 128, 64 * ((n) - 16))
#define YMMH_ABOVE(name, n) ABOVE(name, "uint128", 128, 64 * ((n) - 16) + 16)
#define ZMMH_ABOVE(name, n) ABOVE(name, "v2ui128", 256, 64 * ((n) - 16) + 32)
#define ZMMH(name, n)                                                                              \
    {name, "v2ui128", NULL, 256, 32, (u16)(offsetof(struct vcpu, zmm_high) + 32 * (n)),             \
     FEATURE_AVX512, REG_ANY}
#define MASK(name, n)       REG(name, "uint64", NULL, 64, FEATURE_AVX512, mask[n], REG_ANY)
#define BASE(name, n)       REG(name, "int64", NULL, 64, FEATURE_SEGMENTS, seg_base[n], REG_CANONICAL)
#define SYS(name, type, bits, field, access)                                                       \
    REG(name, type, "system", bits, FEATURE_SYSTEM, field, access)
#define WHERE(name, field)                                                                         \
    REG(name, "int64", "system", 64, FEATURE_BASES, field, REG_READ_ONLY)
#define PROC(name, type, bits, field)                                                              \
    {name, type, "general", bits, sizeof(((struct gdb_process *)0)->field),                        \
     offsetof(struct gdb_process, field), FEATURE_PROCESS, REG_PROCESS}

static const struct gdb_reg table[GDB_REGISTERS] = {
    GPR("rax", "int64", RAX), GPR("rbx", "int64", RBX), GPR("rcx", "int64", RCX),
    GPR("rdx", "int64", RDX), GPR("rsi", "int64", RSI), GPR("rdi", "int64", RDI),
    GPR("rbp", "data_ptr", RBP), GPR("rsp", "data_ptr", RSP),
    GPR("r8", "int64", R8), GPR("r9", "int64", R9), GPR("r10", "int64", R10),
    GPR("r11", "int64", R11), GPR("r12", "int64", R12), GPR("r13", "int64", R13),
    GPR("r14", "int64", R14), GPR("r15", "int64", R15),
    REG("rip", "code_ptr", NULL, 64, FEATURE_CORE, rip, REG_RIP),
    REG("eflags", "i386_eflags", NULL, 32, FEATURE_CORE, rflags, REG_EFLAGS),
    SEL("cs", SEG_CS), SEL("ss", SEG_SS), SEL("ds", SEG_DS), SEL("es", SEG_ES),
    SEL("fs", SEG_FS), SEL("gs", SEG_GS),
    ST("st0", 0), ST("st1", 1), ST("st2", 2), ST("st3", 3),
    ST("st4", 4), ST("st5", 5), ST("st6", 6), ST("st7", 7),
    X87("fctrl", FCTRL), X87("fstat", FSTAT), X87("ftag", FTAG), X87("fiseg", FISEG),
    X87("fioff", FIOFF), X87("foseg", FOSEG), X87("fooff", FOOFF), X87("fop", FOP),
    XMM("xmm0", 0), XMM("xmm1", 1), XMM("xmm2", 2), XMM("xmm3", 3),
    XMM("xmm4", 4), XMM("xmm5", 5), XMM("xmm6", 6), XMM("xmm7", 7),
    XMM("xmm8", 8), XMM("xmm9", 9), XMM("xmm10", 10), XMM("xmm11", 11),
    XMM("xmm12", 12), XMM("xmm13", 13), XMM("xmm14", 14), XMM("xmm15", 15),
    {"mxcsr", "i386_mxcsr", "vector", 32, 4, offsetof(struct vcpu, xsave) + XSAVE_MXCSR,
     FEATURE_SSE, REG_MXCSR},
    YMMH("ymm0h", 0), YMMH("ymm1h", 1), YMMH("ymm2h", 2), YMMH("ymm3h", 3),
    YMMH("ymm4h", 4), YMMH("ymm5h", 5), YMMH("ymm6h", 6), YMMH("ymm7h", 7),
    YMMH("ymm8h", 8), YMMH("ymm9h", 9), YMMH("ymm10h", 10), YMMH("ymm11h", 11),
    YMMH("ymm12h", 12), YMMH("ymm13h", 13), YMMH("ymm14h", 14), YMMH("ymm15h", 15),
    BASE("fs_base", SEG_FS), BASE("gs_base", SEG_GS),
    SYS("k_gs_base", "int64", 64, kernel_gs_base, REG_CANONICAL),
    SYS("cr0", "x86_cr0", 64, cr0, REG_READ_ONLY),
    SYS("cr2", "data_ptr", 64, cr2, REG_ANY),
    SYS("cr3", "int64", 64, cr3, REG_READ_ONLY),
    SYS("cr4", "x86_cr4", 64, cr4, REG_READ_ONLY),
    {"cr8", "int64", "system", 64, 0, 0, FEATURE_SYSTEM, REG_READ_ONLY},
    SYS("efer", "x86_efer", 64, efer, REG_READ_ONLY),
    SYS("xcr0", "x86_xcr0", 64, xcr0, REG_READ_ONLY),
    SYS("dr0", "data_ptr", 64, dr[0], REG_READ_ONLY),
    SYS("dr1", "data_ptr", 64, dr[1], REG_READ_ONLY),
    SYS("dr2", "data_ptr", 64, dr[2], REG_READ_ONLY),
    SYS("dr3", "data_ptr", 64, dr[3], REG_READ_ONLY),
    SYS("dr6", "int64", 64, dr[6], REG_READ_ONLY),
    SYS("dr7", "int64", 64, dr[7], REG_READ_ONLY),
    SYS("gdtr_base", "data_ptr", 64, gdt_base, REG_READ_ONLY),
    SYS("gdtr_limit", "uint16", 16, gdt_limit, REG_READ_ONLY),
    SYS("idtr_base", "data_ptr", 64, idt_base, REG_READ_ONLY),
    SYS("idtr_limit", "uint16", 16, idt_limit, REG_READ_ONLY),
    SYS("ldtr", "uint16", 16, seg_sel[SEG_LDTR], REG_READ_ONLY),
    SYS("ldtr_base", "data_ptr", 64, seg_base[SEG_LDTR], REG_READ_ONLY),
    SYS("ldtr_limit", "uint32", 32, seg_limit[SEG_LDTR], REG_READ_ONLY),
    SYS("tr", "uint16", 16, seg_sel[SEG_TR], REG_READ_ONLY),
    SYS("tr_base", "data_ptr", 64, seg_base[SEG_TR], REG_READ_ONLY),
    SYS("tr_limit", "uint32", 32, seg_limit[SEG_TR], REG_READ_ONLY),
    PROC("pgd", "data_ptr", 64, pgd),
    PROC("pid", "int32", 32, pid),
    PROC("comm", "comm", 128, comm),
    WHERE("ip", rip), WHERE("cs_base", seg_base[SEG_CS]), WHERE("ss_base", seg_base[SEG_SS]),
    WHERE("ds_base", seg_base[SEG_DS]), WHERE("es_base", seg_base[SEG_ES]),
    WHERE("fs_base", seg_base[SEG_FS]), WHERE("gs_base", seg_base[SEG_GS]),
    {"orig_rax", "int64", "system", 64, 0, 0, FEATURE_LINUX, REG_READ_ONLY},
    XMM_ABOVE("xmm16", 16), XMM_ABOVE("xmm17", 17), XMM_ABOVE("xmm18", 18), XMM_ABOVE("xmm19", 19),
    XMM_ABOVE("xmm20", 20), XMM_ABOVE("xmm21", 21), XMM_ABOVE("xmm22", 22), XMM_ABOVE("xmm23", 23),
    XMM_ABOVE("xmm24", 24), XMM_ABOVE("xmm25", 25), XMM_ABOVE("xmm26", 26), XMM_ABOVE("xmm27", 27),
    XMM_ABOVE("xmm28", 28), XMM_ABOVE("xmm29", 29), XMM_ABOVE("xmm30", 30), XMM_ABOVE("xmm31", 31),
    YMMH_ABOVE("ymm16h", 16), YMMH_ABOVE("ymm17h", 17), YMMH_ABOVE("ymm18h", 18), YMMH_ABOVE("ymm19h", 19),
    YMMH_ABOVE("ymm20h", 20), YMMH_ABOVE("ymm21h", 21), YMMH_ABOVE("ymm22h", 22), YMMH_ABOVE("ymm23h", 23),
    YMMH_ABOVE("ymm24h", 24), YMMH_ABOVE("ymm25h", 25), YMMH_ABOVE("ymm26h", 26), YMMH_ABOVE("ymm27h", 27),
    YMMH_ABOVE("ymm28h", 28), YMMH_ABOVE("ymm29h", 29), YMMH_ABOVE("ymm30h", 30), YMMH_ABOVE("ymm31h", 31),
    MASK("k0", 0), MASK("k1", 1), MASK("k2", 2), MASK("k3", 3),
    MASK("k4", 4), MASK("k5", 5), MASK("k6", 6), MASK("k7", 7),
    ZMMH("zmm0h", 0), ZMMH("zmm1h", 1), ZMMH("zmm2h", 2), ZMMH("zmm3h", 3),
    ZMMH("zmm4h", 4), ZMMH("zmm5h", 5), ZMMH("zmm6h", 6), ZMMH("zmm7h", 7),
    ZMMH("zmm8h", 8), ZMMH("zmm9h", 9), ZMMH("zmm10h", 10), ZMMH("zmm11h", 11),
    ZMMH("zmm12h", 12), ZMMH("zmm13h", 13), ZMMH("zmm14h", 14), ZMMH("zmm15h", 15),
    ZMMH_ABOVE("zmm16h", 16), ZMMH_ABOVE("zmm17h", 17), ZMMH_ABOVE("zmm18h", 18), ZMMH_ABOVE("zmm19h", 19),
    ZMMH_ABOVE("zmm20h", 20), ZMMH_ABOVE("zmm21h", 21), ZMMH_ABOVE("zmm22h", 22), ZMMH_ABOVE("zmm23h", 23),
    ZMMH_ABOVE("zmm24h", 24), ZMMH_ABOVE("zmm25h", 25), ZMMH_ABOVE("zmm26h", 26), ZMMH_ABOVE("zmm27h", 27),
    ZMMH_ABOVE("zmm28h", 28), ZMMH_ABOVE("zmm29h", 29), ZMMH_ABOVE("zmm30h", 30), ZMMH_ABOVE("zmm31h", 31),
};
/* clang-format on */

/* clang-format off */
/* What an i386 has of other width; the others are as in the table, but for eight of each kind. */
static const struct gdb_reg narrow[] = {
    [0] = {"eax", "int32", NULL, 32, 4, 0, FEATURE_CORE, REG_ANY},
    {"ebx", "int32", NULL, 32, 4, 0, FEATURE_CORE, REG_ANY},
    {"ecx", "int32", NULL, 32, 4, 0, FEATURE_CORE, REG_ANY},
    {"edx", "int32", NULL, 32, 4, 0, FEATURE_CORE, REG_ANY},
    {"esi", "int32", NULL, 32, 4, 0, FEATURE_CORE, REG_ANY},
    {"edi", "int32", NULL, 32, 4, 0, FEATURE_CORE, REG_ANY},
    [GDB_RBP] = {"ebp", "data_ptr", NULL, 32, 4, 0, FEATURE_CORE, REG_ANY},
    [GDB_RSP] = {"esp", "data_ptr", NULL, 32, 4, 0, FEATURE_CORE, REG_ANY},
    [GDB_RIP] = {"eip", "code_ptr", NULL, 32, 4, 0, FEATURE_CORE, REG_RIP},
};
/* clang-format on */

static const struct gdb_reg orig_eax = {"orig_eax", "int32", "system",      32,
                                        0,          0,       FEATURE_LINUX, REG_READ_ONLY};
static const struct gdb_reg long_eip = {"eip", "int64", NULL, 64, 8, 0, FEATURE_CORE, REG_RIP};

unsigned gdb_view(const struct vcpu *c, unsigned vectors)
{
    static const unsigned views[VCPU_MODES] = {
        [VCPU_REAL] = GDB_VIEW_32 | GDB_VIEW_16,         [VCPU_V86] = GDB_VIEW_32 | GDB_VIEW_16,
        [VCPU_PROTECTED_16] = GDB_VIEW_32 | GDB_VIEW_16, [VCPU_PROTECTED_32] = GDB_VIEW_32,
        [VCPU_COMPAT_16] = GDB_VIEW_32 | GDB_VIEW_16,    [VCPU_COMPAT_32] = GDB_VIEW_32};
    unsigned view = vectors | views[vcpu_mode(c)];
    return view | (view & GDB_VIEW_32 && c->efer & EFER_LMA ? GDB_VIEW_LONG : 0);
}

const struct gdb_reg *gdb_reg_find(u64 number, unsigned view)
{
    if (number >= GDB_REGISTERS ||
        (table[number].feature == FEATURE_AVX && !(view & GDB_VIEW_AVX)) ||
        (table[number].feature == FEATURE_AVX512 && !(view & GDB_VIEW_AVX512)))
        return NULL;
    if ((view & GDB_VIEW_PROCESS) &&
        ((table[number].feature >= FEATURE_SYSTEM && number != GDB_ORIG_RAX) ||
         number == GDB_K_GS_BASE))
        return NULL;
    if (number == GDB_ORIG_RAX)
        return !(view & GDB_VIEW_PROCESS) ? NULL : view & GDB_VIEW_32 ? &orig_eax : &table[number];
    if (!(view & GDB_VIEW_32))
        return number == GDB_NARROW_FS_BASE || number == GDB_NARROW_FS_BASE + 1 ? NULL
                                                                                : &table[number];
    if (number == GDB_RIP && view & GDB_VIEW_LONG)
        return &long_eip;
    if (number < ARRAY_SIZE(narrow) && narrow[number].name)
        return &narrow[number];
    bool beyond = number < GDB_RIP || (number >= GDB_XMM0 + 8 && number < GDB_MXCSR) ||
                  (number >= GDB_YMM0H + 8 && number < GDB_FS_BASE) ||
                  (number >= GDB_XMM16 && number < GDB_K0) || number >= GDB_ZMM0H + 8 ||
                  table[number].feature == FEATURE_SEGMENTS;
    return beyond ? NULL : &table[number];
}

bool gdb_reg_is_fpu(unsigned number)
{
    return (number >= GDB_ST0 && number < GDB_FS_BASE) || number >= GDB_XMM16;
}

unsigned gdb_cpl(const struct vcpu *c)
{
    return c->seg_attr[SEG_SS] ? ATTR_DPL(c->seg_attr[SEG_SS]) : c->seg_sel[SEG_CS] & 3u;
}

static u64 get(const u8 *p, unsigned size)
{
    u64 v = 0;
    memcpy(&v, p, size);
    return v;
}

static void put(u8 *p, u64 v, unsigned size)
{
    memcpy(p, &v, size);
}

static bool all_zero(const u8 *p, size_t len)
{
    while (len > 0 && !p[len - 1])
        len--;
    return len == 0;
}

/* ---- x87 ---- */

/* Two bits a physical register; FXSAVE keeps only whether it is empty. */
static u64 full_tags(const u8 *x)
{
    unsigned top = get(x + XSAVE_FSW, 2) >> 11 & 7;
    u64 tags = 0;
    for (unsigned physical = 0; physical < 8; physical++) {
        const u8 *st = x + XSAVE_ST0 + 16 * ((physical - top) & 7);
        u64 mantissa = get(st, 8), exponent = get(st + 8, 2) & 0x7fff, tag;
        if (!(x[XSAVE_FTW] >> physical & 1))
            tag = 3; /* empty */
        else if (exponent == 0 && mantissa == 0)
            tag = 1; /* zero */
        else if (exponent != 0 && exponent != 0x7fff && mantissa >> 63)
            tag = 0; /* valid */
        else
            tag = 2; /* special */
        tags |= tag << 2 * physical;
    }
    return tags;
}

static u8 short_tags(u64 tags)
{
    u8 used = 0;
    for (unsigned physical = 0; physical < 8; physical++)
        if ((tags >> 2 * physical & 3) != 3)
            used |= (u8)(1u << physical);
    return used;
}

/* gdb's "segments" of the last instruction and operand are the upper halves of FIP and FDP. */
static u64 x87_read(const u8 *x, unsigned which)
{
    switch (which) {
    case FCTRL: return get(x + XSAVE_FCW, 2);
    case FSTAT: return get(x + XSAVE_FSW, 2);
    case FTAG: return full_tags(x);
    case FISEG: return get(x + XSAVE_FIP + 4, 4);
    case FIOFF: return get(x + XSAVE_FIP, 4);
    case FOSEG: return get(x + XSAVE_FDP + 4, 4);
    case FOOFF: return get(x + XSAVE_FDP, 4);
    default: return get(x + XSAVE_FOP, 2);
    }
}

static bool x87_write(u8 *x, unsigned which, u64 v)
{
    static const u32 defined[] = {
        [FCTRL] = FCW_DEFINED, [FSTAT] = 0xffff, [FTAG] = 0xffff, [FISEG] = ~0u,
        [FIOFF] = ~0u,         [FOSEG] = ~0u,    [FOOFF] = ~0u,   [FOP] = FOP_DEFINED};
    if (v & ~(u64)defined[which])
        return false;
    switch (which) {
    case FCTRL: put(x + XSAVE_FCW, v | FCW_ONE, 2); break;
    case FSTAT: put(x + XSAVE_FSW, v, 2); break;
    case FTAG: x[XSAVE_FTW] = short_tags(v); break;
    case FISEG: put(x + XSAVE_FIP + 4, v, 4); break;
    case FIOFF: put(x + XSAVE_FIP, v, 4); break;
    case FOSEG: put(x + XSAVE_FDP + 4, v, 4); break;
    case FOOFF: put(x + XSAVE_FDP, v, 4); break;
    case FOP: put(x + XSAVE_FOP, v, 2); break;
    }
    u64 fsw = get(x + XSAVE_FSW, 2) & ~(u64)(FSW_ES | FSW_B);
    if (fsw & ~get(x + XSAVE_FCW, 2) & 0x3f)
        fsw |= FSW_ES | FSW_B;
    put(x + XSAVE_FSW, fsw, 2);
    return true;
}

static void set_xstate_bv(struct vcpu *c)
{
    u8 *x = c->xsave;
    bool x87 = get(x, 6) != FCW_INIT || !all_zero(x + XSAVE_FOP, XSAVE_MXCSR - XSAVE_FOP) ||
               !all_zero(x + XSAVE_ST0, 128);
    u64 bv = (x87 ? 1 : 0) | (all_zero(x + XSAVE_XMM0, 256) ? 0 : 2) |
             (all_zero(x + XSAVE_YMM0H, 256) ? 0 : 4) |
             (all_zero((u8 *)c->mask, sizeof(c->mask)) ? 0 : 0x20) |
             (all_zero(c->zmm_high, sizeof(c->zmm_high)) ? 0 : 0x40) |
             (all_zero(c->zmm_above, sizeof(c->zmm_above)) ? 0 : 0x80);
    put(x + XSAVE_XSTATE_BV, bv, 8);
}

/* ---- all of them ---- */

void gdb_beside_read(struct gdb_beside *out, const struct gdb_target *target, unsigned number)
{
    bool process = number == GDB_REGISTERS || table[number].access == REG_PROCESS;
    *out = (struct gdb_beside){.cr8 = machine_cr8(target->machine(target->opaque)), .call = ~0ull};
    if (process && target->process)
        target->process(target->opaque, &out->process);
}

static bool is_known(const struct gdb_process *p, unsigned number)
{
    return p->known || (number == GDB_PGD && p->pgd);
}

/* To gdb the program counter is a linear address: by it gdb disassembles, and knows its
 * breakpoints. */
static u64 linear_pc(const struct vcpu *c)
{
    return vcpu_mode(c) == VCPU_64 ? c->rip : (u32)(c->rip + c->seg_base[SEG_CS]);
}

bool gdb_reg_read(const struct vcpu *c, const struct gdb_beside *beside, unsigned number, u8 *out)
{
    const struct gdb_reg *r = &table[number];
    unsigned bytes = r->bits / 8;
    if (r->access == REG_X87) {
        put(out, x87_read(c->xsave, r->offset), bytes);
    } else if (number == GDB_CR8) {
        put(out, beside->cr8, bytes);
    } else if (number == GDB_ORIG_RAX) {
        put(out, beside->call, bytes);
    } else if (number == GDB_RIP) {
        put(out, linear_pc(c), bytes);
    } else if (r->access == REG_PROCESS) {
        bool known = is_known(&beside->process, number);
        memset(out, 0, bytes);
        if (known)
            memcpy(out, (const u8 *)&beside->process + r->offset, bytes);
        return known;
    } else {
        memset(out, 0, bytes);
        memcpy(out, (const u8 *)c + r->offset, MIN((unsigned)r->size, bytes));
    }
    return true;
}

static bool is_canonical(u64 v)
{
    return (u64)((i64)(v << 16) >> 16) == v;
}

static int refuse(struct err *err, const struct gdb_reg *r, const char *why)
{
    return err_set(err, -EINVAL, "%s %s", r->name, why);
}

int gdb_reg_write(struct vcpu *c, const struct gdb_beside *beside, unsigned number, const u8 *in,
                  struct err *err)
{
    const struct gdb_reg *r = &table[number];
    unsigned bytes = r->bits / 8;
    u8 *field = (u8 *)c + r->offset, old[GDB_REG_SIZE];
    u64 v = get(in, MIN(bytes, 8u));
    gdb_reg_read(c, beside, number, old);
    if (!memcmp(old, in, bytes))
        return 0;
    switch (r->access) {
    case REG_PROCESS:
    case REG_READ_ONLY: return refuse(err, r, "cannot be changed");
    case REG_RIP:
        if (vcpu_mode(c) != VCPU_64) {
            if (v >> 32)
                return refuse(err, r, "takes addresses of 32 bits here");
            v = (u32)(v - c->seg_base[SEG_CS]);
            if (v > c->seg_limit[SEG_CS])
                return refuse(err, r, "takes addresses within CS only");
        } else if (!is_canonical(v)) {
            return refuse(err, r, "takes canonical addresses only");
        }
        c->rip = v;
        /* What the CPU kept about the instruction at RIP does not hold elsewhere. */
        c->halted = c->shadow = c->rep_resume = 0;
        return 0;
    case REG_CANONICAL:
        if (!is_canonical(v))
            return refuse(err, r, "takes canonical addresses only");
        break;
    case REG_EFLAGS:
        v |= FL_ONE;
        if ((v ^ c->rflags) & ~(u64)FL_WRITABLE)
            return refuse(err, r, "has bits that cannot be changed (VM, VIF, VIP, reserved)");
        c->rflags = v;
        return 0;
    case REG_MXCSR:
        if (v >> 16)
            return refuse(err, r, "has reserved bits that must be 0 (16 to 31)");
        break;
    case REG_X87:
        if (!x87_write(c->xsave, r->offset, v))
            return refuse(err, r, "has reserved bits that must be 0");
        set_xstate_bv(c);
        return 0;
    }
    memcpy(field, in, bytes);
    if (gdb_reg_is_fpu(number))
        set_xstate_bv(c);
    if (r->offset == offsetof(struct vcpu, gpr[RCX]))
        c->rep_resume = 0;
    return 0;
}

int gdb_reg_write_view(struct vcpu *c, const struct gdb_beside *beside, unsigned number,
                       unsigned view, const u8 *in, struct err *err)
{
    unsigned bytes = gdb_reg_find(number, view)->bits / 8;
    u8 old[GDB_REG_SIZE], new_[GDB_REG_SIZE] = {0};
    gdb_reg_read(c, beside, number, old);
    if (!memcmp(old, in, bytes))
        return 0;
    memcpy(new_, in, bytes);
    return gdb_reg_write(c, beside, number, new_, err);
}
