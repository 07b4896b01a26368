/* x87 and state instructions: FNINIT, FXSAVE, XSAVE and their like (SDM vol. 1, chapters 8, 10,
 * 13). */
#include "cpu/x86/fpu.h"

#include "cpu/x86/exec.h"
#include "cpu/x86/memory.h"
#include "cpu/x86/mode.h"
#include "cpu/x86/park.h"
#include "cpu/x86/tlb.h"
#include "cpu/x86/xsave_image.h"
/* The image holds the registers from ST0 on: they move when TOP does. */
static void set_fsw(u8 *x, u16 fsw)
{
    u64 old[16];
    unsigned by = ((fsw >> 11) - (*(u16 *)(x + 2) >> 11)) & 7;
    for (unsigned i = 0; i < 16; i++)
        old[i] = get64(x + 32 + 8 * i);
    for (unsigned i = 0; i < 16; i++)
        put64(x + 32 + 8 * i, old[(i + 2 * by) & 15]);
    put16(x + 2, fsw);
}

/* FNINIT and FNSAVE empty the registers but leave what is in them. */
static void reset_x87(struct core *d)
{
    u8 *x = d->cpu.xsave;
    set_fsw(x, 0);
    put64(x, 0x037f);
    put64(x + 8, 0);
    put64(x + 16, 0);
    d->fip = d->fdp = 0;
    d->fop = 0;
}

/* What is live stays so. */
static void settle(struct core *d)
{
    if (d->vectors == VECTORS_ASIDE)
        core_park(d);
}

bool fpu_pending(struct core *d)
{
    settle(d);
    u16 fsw = *(u16 *)(d->cpu.xsave + 2);
    if (d->vectors == VECTORS_LIVE)
        __asm__ volatile("fnstsw %0" : "=a"(fsw));
    return fsw & 0x80;
}

unsigned fpu_unmasked(struct core *d)
{
    settle(d);
    u16 fcw = *(u16 *)d->cpu.xsave, fsw = *(u16 *)(d->cpu.xsave + 2);
    if (d->vectors == VECTORS_LIVE)
        __asm__ volatile("fnstsw %0; fnstcw %1" : "=a"(fsw), "=m"(fcw));
    return fsw & ~(unsigned)fcw & 0x3f;
}

/* CR0.EM/TS checks of the state instructions; SDM vol. 3, 2.5. */
static int check_fpu(struct core *d)
{
    return d->cpu.cr0 & (CR0_EM | CR0_TS) ? raise_fault(d, EXC_NM) : DONE;
}

HELPER(ldmxcsr)
{
    u32 v;
    TRY(mem_read(d, in->seg, insn_offset(d, in), 4, &v));
    if (v & 0xffff0000u)
        return raise_error(d, EXC_GP, 0);
    core_park(d);
    put32(d->cpu.xsave + 24, v);
    return DONE;
}

HELPER(stmxcsr)
{
    core_park(d);
    u32 v = *(u32 *)(d->cpu.xsave + 24);
    return mem_write(d, in->seg, insn_offset(d, in), 4, &v);
}

HELPER(fninit)
{
    core_park(d);
    reset_x87(d);
    park_changed(d);
    return DONE;
}

/* Full tag word from FXSAVE's abridged one (SDM vol. 1, 10.5.1.1). */
static u16 full_tags(const u8 *x)
{
    u16 fsw = *(const u16 *)(x + 2), tags = 0;
    unsigned top = fsw >> 11 & 7;
    for (unsigned phys = 0; phys < 8; phys++) {
        unsigned tag = 3;
        if (x[4] >> phys & 1) {
            const u8 *r = x + 32 + 16 * ((phys - top) & 7);
            u64 m = get64(r);
            unsigned e = *(const u16 *)(r + 8) & 0x7fff;
            if (e == 0x7fff)
                tag = 2;
            else if (e == 0)
                tag = m == 0 ? 1 : 2;
            else
                tag = m >> 63 ? 0 : 2;
        }
        tags |= (u16)(tag << 2 * phys);
    }
    return tags;
}

/* FNSTENV, FLDENV, FNSAVE, FRSTOR: protected-mode formats of 16 and 32 bits (SDM vol. 1, 8.1.10).
 * Long mode has no 64-bit form; pointers are truncated. */
HELPER(x87_env)
{
    bool op16 = in->opsize == 2;
    bool store = in->mem & MEM_W;
    unsigned env = op16 ? 14 : 28;
    bool all = in->opcode == 0xdd;
    u8 buf[108];
    u64 ea = insn_offset(d, in);
    if (!store && fpu_pending(d))
        return raise_fault(d, EXC_MF);
    core_park(d);
    u8 *x = d->cpu.xsave;
    unsigned size = all ? env + 80 : env;
    if (store) {
        u16 fcw = *(u16 *)x, fsw = *(u16 *)(x + 2), tags = full_tags(x);
        if (op16) {
            put16(buf, fcw);
            put16(buf + 2, fsw);
            put16(buf + 4, tags);
            put16(buf + 6, (u16)d->fip);
            put16(buf + 8, 0);
            put16(buf + 10, (u16)d->fdp);
            put16(buf + 12, 0);
        } else {
            put32(buf, 0xffff0000u | fcw);
            put32(buf + 4, 0xffff0000u | fsw);
            put32(buf + 8, 0xffff0000u | tags);
            put32(buf + 12, (u32)d->fip);
            put32(buf + 16, (u32)(d->fop & 0x7ff) << 16);
            put32(buf + 20, (u32)d->fdp);
            put32(buf + 24, 0xffff0000u);
        }
        if (all)
            for (unsigned r = 0; r < 8; r++)
                for (unsigned i = 0; i < 10; i += 2)
                    put16(buf + env + 10 * r + i, *(u16 *)(x + 32 + 16 * r + i));
        TRY(mem_check_image(d, in->seg, ea, size, ACC_W));
        TRY(mem_write(d, in->seg, ea, size, buf));
        if (all) {
            reset_x87(d);
        } else {
            put16(x, fcw | 0x3f); /* FNSTENV masks all exceptions afterwards */
            put16(x + 2, fsw & (u16)~0x8080);
        }
    } else {
        TRY(mem_check_image(d, in->seg, ea, size, ACC_R));
        TRY(mem_read(d, in->seg, ea, size, buf));
        unsigned step = op16 ? 2 : 4;
        u16 fcw = *(u16 *)buf, fsw = *(u16 *)(buf + step), tags = *(u16 *)(buf + 2 * step);
        u8 abridged = 0;
        for (unsigned i = 0; i < 8; i++)
            if ((tags >> 2 * i & 3) != 3)
                abridged |= (u8)(1u << i);
        put16(x, (fcw & 0x1f7f) | 0x40);
        /* ES and B follow the unmasked exceptions. */
        fsw &= 0x7f7f;
        if (fsw & ~fcw & 0x3f)
            fsw |= 0x8080;
        set_fsw(x, fsw);
        put16(x + 4, abridged);
        d->fip = op16 ? *(u16 *)(buf + 6) : *(u32 *)(buf + 12);
        d->fop = op16 ? 0 : *(u16 *)(buf + 18) & 0x7ff;
        d->fdp = op16 ? *(u16 *)(buf + 10) : *(u32 *)(buf + 20);
        if (all)
            for (unsigned r = 0; r < 8; r++) {
                put64(x + 32 + 16 * r + 8, 0);
                for (unsigned i = 0; i < 10; i += 2)
                    put16(x + 32 + 16 * r + i, *(u16 *)(buf + env + 10 * r + i));
            }
    }
    put16(x + 6, d->fop & 0x7ff);
    put64(x + 8, d->fip);
    put64(x + 16, d->fdp);
    park_changed(d);
    return DONE;
}

/* What instructions see of XMM, or of the upper halves of YMM: outside 64-bit code eight of them.
 */
static unsigned vector_bytes(const struct core *d)
{
    return is_64bit(d) ? 256 : 128;
}

/* The legacy region as FXSAVE/XSAVE store it: 64-bit pointers with REX.W, else 32-bit ones. */
static void legacy_image(const struct core *d, const struct insn *in, u8 *out)
{
    const u8 *x = d->cpu.xsave;
    for (unsigned i = 0; i < 416; i += 8)
        put64(out + i, get64(x + i));
    if (!(in->rex & 8)) {
        put64(out + 8, (u32)d->fip);
        put64(out + 16, (u32)d->fdp);
    }
}

/* Where alignment is checked (EFLAGS.AC), words of four bytes are; else, and beyond, #GP. */
static int check_alignment(struct core *d, u64 va, unsigned mask, unsigned seg)
{
    if (d->ac_check && is_canonical(va) && (va & 3))
        return raise_error(d, EXC_AC, 0);
    /* A misaligned address comes before one that is not canonical with XSAVE, after it with
     * FXSAVE. */
    if (!is_canonical(va) && seg == SEG_SS && !(mask == 63 && (va & mask)))
        return raise_segment(d, seg);
    return va & mask ? raise_error(d, EXC_GP, 0) : DONE;
}

HELPER(fxsave)
{
    TRY(check_fpu(d));
    u64 ea = insn_offset(d, in);
    TRY(check_alignment(d, insn_linear(d, in), 15, in->seg));
    core_park(d);
    u8 img[416];
    legacy_image(d, in, img);
    TRY(mem_check(d, in->seg, ea + 511, 1, ACC_W));
    TRY(mem_check(d, in->seg, ea, 512, ACC_W));
    if (d->cpu.cr4 & CR4_OSFXSR)
        return mem_write(d, in->seg, ea, 160 + vector_bytes(d), img);
    return mem_write(d, in->seg, ea, 160, img);
}

static void load_x87(struct core *d, const u8 *in, bool wide)
{
    u8 *x = d->cpu.xsave;
    for (unsigned i = 0; i < 8; i += 8)
        put64(x + i, get64(in + i));
    put16(x, (*(u16 *)x & 0x1f7f) | 0x40);
    x[5] = 0;
    put16(x + 6, *(u16 *)(x + 6) & 0x7ff);
    u16 fsw = *(u16 *)(x + 2) & 0x7f7f;
    if (fsw & ~*(u16 *)x & 0x3f)
        fsw |= 0x8080;
    put16(x + 2, fsw);
    u64 fip = get64(in + 8), fdp = get64(in + 16);
    if (!wide) {
        fip = (u32)fip;
        fdp = (u32)fdp;
    }
    put64(x + 8, fip);
    put64(x + 16, fdp);
    for (unsigned i = 32; i < 160; i += 8)
        put64(x + i, get64(in + i));
    for (unsigned r = 0; r < 8; r++)
        put64(x + 32 + 16 * r + 8, get64(x + 32 + 16 * r + 8) & 0xffff);
    d->fip = fip;
    d->fdp = fdp;
    d->fop = *(u16 *)(x + 6);
}

HELPER(fxrstor)
{
    TRY(check_fpu(d));
    u64 ea = insn_offset(d, in);
    TRY(check_alignment(d, insn_linear(d, in), 15, in->seg));
    u8 img[512];
    TRY(mem_check(d, in->seg, ea + 511, 1, ACC_R));
    TRY(mem_read(d, in->seg, ea, 512, img));
    bool sse = d->cpu.cr4 & CR4_OSFXSR;
    if (sse && (*(u32 *)(img + 24) & 0xffff0000u))
        return raise_error(d, EXC_GP, 0);
    core_park(d);
    load_x87(d, img, in->rex & 8);
    u8 *x = d->cpu.xsave;
    if (sse) {
        put32(x + 24, *(u32 *)(img + 24));
        for (unsigned i = 160; i < 160 + vector_bytes(d); i += 8)
            put64(x + i, get64(img + i));
    }
    park_changed(d);
    return DONE;
}

static int check_xsave(struct core *d)
{
    if (!(d->cpu.cr4 & CR4_OSXSAVE))
        return raise_fault(d, EXC_UD);
    return d->cpu.cr0 & CR0_TS ? raise_fault(d, EXC_NM) : DONE;
}

/* What instructions see of AVX-512's component 5, 6 or 7 of `rfbm`: outside 64-bit code half of the
 * upper halves, and no register above the 16th. */
static unsigned avx512_bytes(const struct core *d, u64 rfbm, unsigned component)
{
    unsigned n = rfbm >> component & 1 ? cpu_xsave_part(component).size : 0;
    return is_64bit(d) || component == 5 ? n : component == 6 ? n / 2 : 0;
}

/* Up to the last component: what the segment has to have. */
static unsigned xsave_bytes(const struct core *d, u64 rfbm)
{
    for (unsigned i = 7; i >= 5; i--)
        if (avx512_bytes(d, rfbm, i))
            return cpu_xsave_part(i).at + avx512_bytes(d, rfbm, i);
    return 576 + (rfbm & XF_AVX ? vector_bytes(d) : 0);
}

/* XSAVE, standard format (SDM vol. 1, 13.7). */
HELPER(xsave)
{
    TRY(check_xsave(d));
    u64 ea = insn_offset(d, in);
    TRY(check_alignment(d, insn_linear(d, in), 63, in->seg));
    u64 *r = d->cpu.gpr;
    u64 rfbm = ((u32)r[RAX] | r[RDX] << 32) & d->cpu.xcr0;
    unsigned n = vector_bytes(d);
    core_park(d);
    const u8 *x = d->cpu.xsave;
    u8 img[416];
    legacy_image(d, in, img);
    u64 bv;
    TRY(check_segment(d, in->seg, ea, xsave_bytes(d, rfbm), ACC_W));
    TRY(mem_check(d, in->seg, ea + 575, 1, ACC_W)); /* this order shows in CR2 */
    if (rfbm & XF_X87)
        TRY(mem_check(d, in->seg, ea, 160, ACC_W));
    if (rfbm & (XF_SSE | XF_AVX))
        TRY(mem_check(d, in->seg, ea + 24, 8, ACC_W));
    if (rfbm & XF_SSE)
        TRY(mem_check(d, in->seg, ea + 160, n, ACC_W));
    TRY(mem_check(d, in->seg, ea + 512, 8, ACC_W));
    if (rfbm & XF_AVX)
        TRY(mem_check(d, in->seg, ea + 576, n, ACC_W));
    for (unsigned i = 5; i < 8; i++)
        if (avx512_bytes(d, rfbm, i))
            TRY(mem_check(d, in->seg, ea + cpu_xsave_part(i).at, avx512_bytes(d, rfbm, i), ACC_W));
    TRY(mem_read(d, in->seg, ea + 512, 8, &bv));
    if (rfbm & XF_X87) {
        TRY(mem_write(d, in->seg, ea, 24, img));
        TRY(mem_write(d, in->seg, ea + 32, 128, img + 32));
    }
    if (rfbm & (XF_SSE | XF_AVX))
        TRY(mem_write(d, in->seg, ea + 24, 8, img + 24));
    if (rfbm & XF_SSE)
        TRY(mem_write(d, in->seg, ea + 160, n, img + 160));
    if (rfbm & XF_AVX)
        TRY(mem_write(d, in->seg, ea + 576, n, x + 576));
    for (unsigned i = 5; i < 8; i++)
        if (avx512_bytes(d, rfbm, i))
            TRY(mem_write(d, in->seg, ea + cpu_xsave_part(i).at, avx512_bytes(d, rfbm, i),
                          avx512_part(&d->cpu, i)));
    bv = (bv & ~rfbm) | (get64(x + 512) & rfbm);
    return mem_write(d, in->seg, ea + 512, 8, &bv);
}

/* XRSTOR, standard format (SDM vol. 1, 13.8.1). */
HELPER(xrstor)
{
    TRY(check_xsave(d));
    u64 ea = insn_offset(d, in);
    TRY(check_alignment(d, insn_linear(d, in), 63, in->seg));
    u64 *r = d->cpu.gpr;
    u64 rfbm = ((u32)r[RAX] | r[RDX] << 32) & d->cpu.xcr0;
    u8 head[64], img[416], avx[256], wide[3][1024];
    unsigned n = vector_bytes(d);
    TRY(check_segment(d, in->seg, ea, xsave_bytes(d, rfbm), ACC_R));
    TRY(mem_check(d, in->seg, ea + 520, 8, ACC_R)); /* XCOMP_BV first: CR2 */
    TRY(mem_read(d, in->seg, ea + 512, 64, head));
    u64 bv = get64(head);
    if (!all_zero(head + 8, 16))
        return raise_error(d, EXC_GP, 0);
    if (rfbm & (XF_SSE | XF_AVX))
        TRY(mem_read(d, in->seg, ea + 24, 4, img + 24));
    if (rfbm & bv & XF_X87) {
        TRY(mem_read(d, in->seg, ea, 24, img));
        TRY(mem_read(d, in->seg, ea + 32, 128, img + 32));
    }
    if (bv & ~d->cpu.xcr0)
        return raise_error(d, EXC_GP, 0);
    if (UNLIKELY((rfbm & bv & XF_512) && core_host_lacks_avx512(d)))
        return host_lacks_it(d, "AVX-512", "its registers are loaded by xrstor");
    if (rfbm & bv & XF_SSE)
        TRY(mem_read(d, in->seg, ea + 160, n, img + 160));
    if (rfbm & bv & XF_AVX)
        TRY(mem_read(d, in->seg, ea + 576, n, avx));
    for (unsigned i = 5; i < 8; i++)
        if (avx512_bytes(d, rfbm & bv, i))
            TRY(mem_read(d, in->seg, ea + cpu_xsave_part(i).at, avx512_bytes(d, rfbm, i),
                         wide[i - 5]));
    if ((rfbm & (XF_SSE | XF_AVX)) && (*(u32 *)(img + 24) & 0xffff0000u))
        return raise_error(d, EXC_GP, 0);
    core_park(d);
    u8 *x = d->cpu.xsave;
    if (rfbm & XF_X87) {
        if (bv & XF_X87) {
            load_x87(d, img, in->rex & 8);
        } else {
            init_x87(x);
            d->fip = d->fdp = 0;
            d->fop = 0;
        }
    }
    if (rfbm & (XF_SSE | XF_AVX))
        put32(x + 24, *(u32 *)(img + 24));
    if (rfbm & XF_SSE) {
        if (bv & XF_SSE)
            for (unsigned i = 0; i < n; i += 8)
                put64(x + 160 + i, get64(img + 160 + i));
        else
            zero(x + 160, n);
    }
    if (rfbm & XF_AVX) {
        if (bv & XF_AVX)
            for (unsigned i = 0; i < n; i += 8)
                put64(x + 576 + i, get64(avx + i));
        else
            zero(x + 576, n);
    }
    for (unsigned i = 5; i < 8; i++) {
        if (bv >> i & 1)
            copy64(avx512_part(&d->cpu, i), wide[i - 5], avx512_bytes(d, rfbm, i));
        else
            zero(avx512_part(&d->cpu, i), avx512_bytes(d, rfbm, i));
    }
    park_changed(d);
    return DONE;
}

HELPER(xgetbv)
{
    if (!(d->cpu.cr4 & CR4_OSXSAVE))
        return raise_fault(d, EXC_UD);
    if ((u32)d->cpu.gpr[RCX] != 0)
        return raise_error(d, EXC_GP, 0);
    d->cpu.gpr[RAX] = (u32)d->cpu.xcr0;
    d->cpu.gpr[RDX] = d->cpu.xcr0 >> 32;
    return DONE;
}

HELPER(xsetbv)
{
    u64 *r = d->cpu.gpr;
    if (!(d->cpu.cr4 & CR4_OSXSAVE))
        return raise_fault(d, EXC_UD);
    u64 v = (u32)r[RAX] | r[RDX] << 32;
    u64 allowed = cpu_words_xcr0(d->words);
    if (d->cpl != 0 || (u32)r[RCX] != 0 || !(v & 1) || (v & ~allowed) ||
        ((v & XF_AVX) && !(v & XF_SSE)) ||
        ((v & XF_512) && ((v & XF_512) != XF_512 || !(v & XF_AVX))))
        return raise_error(d, EXC_GP, 0);
    if (UNLIKELY((v & XF_AVX) && core_host_lacks_avx(d)))
        return host_lacks_it(d, "AVX", "its registers are enabled by xsetbv");
    d->cpu.xcr0 = v;
    mmu_mode_changed(d);
    return DONE;
}
