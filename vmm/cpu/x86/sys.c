/*
 * System instructions: control and debug registers, descriptor-table registers, flags, ports,
 * time, CPUID and the small rest. MSRs are in msr.c. SDM vol. 2; vol. 3, chapter 2.
 */
#include "cpu/x86/sys.h"

#include <Zydis/Mnemonic.h>

#include "cpu/x86/debug.h"
#include "cpu/x86/exec.h"
#include "cpu/x86/flags.h"
#include "cpu/x86/memory.h"
#include "cpu/x86/mode.h"
#include "cpu/x86/park.h"
#include "cpu/x86/pmu.h"
#include "cpu/x86/seg.h"
#include "cpu/x86/tlb.h"
#include "cpu/x86/walk.h"
#include "guest-agent/reprise-mark.h"

static int need_cpl0(struct core *d)
{
    return d->cpl ? raise_error(d, EXC_GP, 0) : DONE;
}

static void set_reg(struct core *d, const struct insn *in, u64 v)
{
    d->cpu.gpr[in->reg0] = reg_written(d->cpu.gpr[in->reg0], v, in->opsize);
}

/* Paging goes on: with EFER.LME into long mode (SDM vol. 3, 10.8.5). */
static int paging_on(struct core *d)
{
    struct vcpu *c = &d->cpu;
    bool wide = c->efer & EFER_LME, pae = c->cr4 & CR4_PAE;
    if (wide && (!pae || (c->seg_attr[SEG_CS] & ATTR_L) || !(c->seg_attr[SEG_TR] & 8)))
        return raise_error(d, EXC_GP, 0);
    if (!wide && pae && !mmu_pdptes_ok(d, c->cr3))
        return raise_error(d, EXC_GP, 0);
    if (wide)
        c->efer |= EFER_LMA;
    return DONE;
}

/* And off: out of long mode, from compatibility mode only. */
static int paging_off(struct core *d)
{
    struct vcpu *c = &d->cpu;
    if (is_64bit(d) || (c->cr4 & CR4_PCIDE))
        return raise_error(d, EXC_GP, 0);
    c->efer &= ~(u64)EFER_LMA;
    return DONE;
}

static int write_cr0(struct core *d, u64 v)
{
    struct vcpu *c = &d->cpu;
    v = (v & (CR0_PE | CR0_MP | CR0_EM | CR0_TS | CR0_NE | CR0_WP | CR0_AM | CR0_NW | CR0_CD |
              (u64)CR0_PG)) |
        CR0_ET | (v & 0xffffffff00000000ull);
    if ((v >> 32) || ((v & CR0_NW) && !(v & CR0_CD)) || ((v & CR0_PG) && !(v & CR0_PE)))
        return raise_error(d, EXC_GP, 0);
    u64 changed = c->cr0 ^ v;
    if (changed & CR0_PG)
        TRY(v & CR0_PG ? paging_on(d) : paging_off(d));
    c->cr0 = v;
    if (changed & (CR0_WP | CR0_PG | CR0_PE))
        mmu_flush_all(d);
    mmu_mode_changed(d);
    return DONE;
}

static int write_cr3(struct core *d, u64 v)
{
    struct vcpu *c = &d->cpu;
    if (c->cr4 & CR4_PCIDE)
        v &= ~(1ull << 63); /* "do not flush": there is no TLB */
    if (v & ~d->phys_mask)
        return raise_error(d, EXC_GP, 0);
    if (!long_mode(d) && (c->cr0 & CR0_PG) && (c->cr4 & CR4_PAE) && !mmu_pdptes_ok(d, v))
        return raise_error(d, EXC_GP, 0);
    u64 old = c->cr3;
    c->cr3 = v;
    mmu_set_cr3(d, old, v);
    return DONE;
}

static int write_cr4(struct core *d, u64 v)
{
    struct vcpu *c = &d->cpu;
    if ((v & ~d->cr4_bits) || (!(v & CR4_PAE) && long_mode(d)))
        return raise_error(d, EXC_GP, 0);
    if ((v & CR4_PCIDE) && !(c->cr4 & CR4_PCIDE) && ((c->cr3 & 0xfff) || !long_mode(d)))
        return raise_error(d, EXC_GP, 0);
    u64 changed = c->cr4 ^ v;
    if (!long_mode(d) && (c->cr0 & CR0_PG) && (v & changed & CR4_PAE) && !mmu_pdptes_ok(d, c->cr3))
        return raise_error(d, EXC_GP, 0);
    c->cr4 = v;
    if (changed & (CR4_SMEP | CR4_SMAP | CR4_PAE | CR4_PSE))
        mmu_flush_all(d);
    mmu_mode_changed(d);
    return DONE;
}

void load_cr8(struct core *d, u64 v)
{
    core_set_aside(d);
    bool lowered = v < d->env->get_cr8(d->env->cpu);
    d->env->set_cr8(d->env->cpu, v);
    count_events(d, lowered);
}

static int move_cr(struct core *d, const struct insn *in, bool load)
{
    struct vcpu *c = &d->cpu;
    int gpr = load ? in->reg1 : in->reg0;
    unsigned n = in->sreg;
    if (n != 0 && n != 2 && n != 3 && n != 4 && n != 8)
        return raise_fault(d, EXC_UD);
    TRY(need_cpl0(d));
    unsigned width = is_64bit(d) ? 8 : 4;
    u64 v = low_bytes(c->gpr[gpr], width);
    if (!load) {
        switch (n) {
        case 0: v = c->cr0; break;
        case 2: v = c->cr2; break;
        case 3: v = c->cr3; break;
        case 4: v = c->cr4; break;
        default:
            core_set_aside(d);
            v = d->env->get_cr8(d->env->cpu);
            break;
        }
        c->gpr[gpr] = low_bytes(v, width);
        return DONE;
    }
    switch (n) {
    case 0: return write_cr0(d, v);
    case 2: c->cr2 = v; return DONE;
    case 3: return write_cr3(d, v);
    case 4: return write_cr4(d, v);
    default:
        if (v & ~15ull)
            return raise_error(d, EXC_GP, 0);
        load_cr8(d, v);
        return DONE;
    }
}

static int move_dr(struct core *d, const struct insn *in, bool load)
{
    struct vcpu *c = &d->cpu;
    unsigned n = in->sreg;
    if (n >= 8)
        return raise_fault(d, EXC_UD);
    TRY(need_cpl0(d));
    if (n == 4 || n == 5) {
        if (c->cr4 & CR4_DE)
            return raise_fault(d, EXC_UD);
        n += 2;
    }
    if (c->dr[7] & 0x2000) {
        c->dr[6] |= 0x2000;
        return raise_fault(d, EXC_DB);
    }
    if (!load) {
        c->gpr[in->reg0] = low_bytes(c->dr[n], is_64bit(d) ? 8 : 4);
        return DONE;
    }
    u64 v = low_bytes(c->gpr[in->reg1], is_64bit(d) ? 8 : 4);
    if (n >= 6 && (v >> 32))
        return raise_error(d, EXC_GP, 0);
    if (n == 6)
        v = (v & 0xe00f) | 0xffff0ff0;
    if (n == 7)
        v = (v & 0xffff23ff) | 0x400;
    c->dr[n] = v;
    mmu_mode_changed(d);
    return DONE;
}

HELPER(mov_system)
{
    if (in->op0_kind == OP_CR || in->op1_kind == OP_CR)
        return move_cr(d, in, in->op0_kind == OP_CR);
    if (in->op0_kind == OP_DR || in->op1_kind == OP_DR)
        return move_dr(d, in, in->op0_kind == OP_DR);
    if (in->op0_kind == OP_SREG) {
        u16 sel;
        if (in->mem)
            TRY(mem_read(d, in->seg, insn_offset(d, in), 2, &sel));
        else
            sel = (u16)d->cpu.gpr[in->reg1];
        return load_seg_insn(d, in->sreg, sel);
    }
    u64 sel = d->cpu.seg_sel[in->sreg];
    if (in->mem)
        return mem_write(d, in->seg, insn_offset(d, in), 2, &sel);
    set_reg(d, in, sel);
    return DONE;
}

HELPER(lmsw)
{
    TRY(need_cpl0(d));
    u16 v;
    if (in->mem)
        TRY(mem_read(d, in->seg, insn_offset(d, in), 2, &v));
    else
        v = (u16)d->cpu.gpr[in->reg0];
    /* PE can be set, not cleared. */
    d->cpu.cr0 = (d->cpu.cr0 & ~0xeull) | (v & 0xf);
    mmu_mode_changed(d);
    return DONE;
}

HELPER(clts)
{
    TRY(need_cpl0(d));
    d->cpu.cr0 &= ~(u64)CR0_TS;
    mmu_mode_changed(d);
    return DONE;
}

HELPER(lgdt)
{
    TRY(need_cpl0(d));
    u64 ea = insn_offset(d, in), base = 0;
    u16 limit;
    TRY(mem_read(d, in->seg, ea, 2, &limit));
    TRY(mem_read(d, in->seg, ea + 2, is_64bit(d) ? 8 : 4, &base));
    if (!is_64bit(d) && in->opsize == 2)
        base &= 0xffffff;
    if (!is_canonical(base))
        return raise_error(d, EXC_GP, 0);
    if (in->mnemonic == ZYDIS_MNEMONIC_LGDT) {
        d->cpu.gdt_base = base;
        d->cpu.gdt_limit = limit;
    } else {
        d->cpu.idt_base = base;
        d->cpu.idt_limit = limit;
    }
    return DONE;
}

static int check_umip(struct core *d)
{
    return (d->cpu.cr4 & CR4_UMIP) && d->cpl ? raise_error(d, EXC_GP, 0) : DONE;
}

HELPER(sgdt)
{
    TRY(check_umip(d));
    bool gdt = in->mnemonic == ZYDIS_MNEMONIC_SGDT;
    u8 buf[10];
    *(u16 *)(void *)buf = gdt ? d->cpu.gdt_limit : d->cpu.idt_limit;
    *(u64 *)(void *)(buf + 2) = gdt ? d->cpu.gdt_base : d->cpu.idt_base;
    return mem_write(d, in->seg, insn_offset(d, in), is_64bit(d) ? 10 : 6, buf);
}

/* SLDT, STR, SMSW */
HELPER(store_sys)
{
    TRY(check_umip(d));
    u64 v = in->mnemonic == ZYDIS_MNEMONIC_SLDT  ? d->cpu.seg_sel[SEG_LDTR]
            : in->mnemonic == ZYDIS_MNEMONIC_STR ? d->cpu.seg_sel[SEG_TR]
                                                 : d->cpu.cr0;
    if (in->mem)
        return mem_write(d, in->seg, insn_offset(d, in), 2, &v);
    set_reg(d, in, v);
    return DONE;
}

HELPER(wbinvd)
{
    return need_cpl0(d);
}

/* The guest has no TLB (tlb.c): nothing to invalidate. */
HELPER(invlpg)
{
    return need_cpl0(d);
}

HELPER(invpcid)
{
    TRY(need_cpl0(d));
    u64 desc[2], type = low_bytes(d->cpu.gpr[in->reg0], is_64bit(d) ? 8 : 4);
    TRY(mem_read(d, in->seg, insn_offset(d, in), 16, desc));
    bool pcide = d->cpu.cr4 & CR4_PCIDE;
    if (type > 3 || (desc[0] >> 12) || (type == 0 && !is_canonical(desc[1])) ||
        (type < 2 && !pcide && (desc[0] & 0xfff)))
        return raise_error(d, EXC_GP, 0);
    return DONE;
}

HELPER(hlt)
{
    TRY(need_cpl0(d));
    d->cpu.halted = 1;
    return STOP_HALT;
}

static bool iopl_ok(const struct core *d)
{
    return d->cpl <= (d->cpu.rflags & FL_IOPL) >> 12;
}

HELPER(cli)
{
    if (!iopl_ok(d))
        return raise_error(d, EXC_GP, 0);
    d->cpu.rflags &= ~(u64)FL_IF;
    return DONE;
}

HELPER(sti)
{
    if (!iopl_ok(d))
        return raise_error(d, EXC_GP, 0);
    if (!(d->cpu.rflags & FL_IF)) {
        d->cpu.rflags |= FL_IF;
        d->shadow_pos = position(d) + 1;
        d->mov_ss = false;
    }
    return DONE;
}

HELPER(cld)
{
    d->cpu.rflags &= ~(u64)FL_DF;
    return DONE;
}

HELPER(std)
{
    d->cpu.rflags |= FL_DF;
    return DONE;
}

static int set_ac(struct core *d, bool on)
{
    if (d->cpl)
        return raise_fault(d, EXC_UD);
    d->cpu.rflags = on ? d->cpu.rflags | FL_AC : d->cpu.rflags & ~(u64)FL_AC;
    mmu_mode_changed(d);
    return DONE;
}

HELPER(stac)
{
    return set_ac(d, true);
}

HELPER(clac)
{
    return set_ac(d, false);
}

HELPER(pushf)
{
    u64 sp = get_sp(d);
    TRY(check_v86_iopl(d));
    TRY(stack_push(d, &sp, get_rflags(d) & ~(u64)(FL_RF | FL_VM), in->stack));
    set_sp(d, sp);
    return DONE;
}

HELPER(popf)
{
    unsigned size = in->stack;
    u64 v, sp = get_sp(d), change = FL_ARITH | FL_TF | FL_DF | FL_NT;
    TRY(check_v86_iopl(d));
    TRY(stack_pop(d, &sp, size, &v));
    set_sp(d, sp);
    if (size > 2)
        change |= FL_AC | FL_ID;
    if (iopl_ok(d))
        change |= FL_IF;
    if (d->cpl == 0)
        change |= FL_IOPL;
    u64 old = d->cpu.rflags;
    set_rflags(d, (get_rflags(d) & ~change & ~(u64)FL_RF) | (v & change));
    if ((old ^ d->cpu.rflags) & (FL_AC | FL_TF))
        mmu_mode_changed(d);
    return DONE;
}

/* IOPL, else the I/O permission bitmap of the TSS (SDM vol. 1, 19.5). */
int check_io(struct core *d, u16 port, unsigned size)
{
    if (iopl_ok(d) && !virtual_8086(d))
        return DONE;
    const struct vcpu *c = &d->cpu;
    u16 base, bits;
    if (!(c->seg_sel[SEG_TR] & ~3u) || !(c->seg_attr[SEG_TR] & 8) || c->seg_limit[SEG_TR] < 103)
        return raise_error(d, EXC_GP, 0);
    TRY(sys_read(d, c->seg_base[SEG_TR] + 102, 2, &base));
    u32 at = base + port / 8u;
    if (at + 1 > c->seg_limit[SEG_TR])
        return raise_error(d, EXC_GP, 0);
    TRY(sys_read(d, c->seg_base[SEG_TR] + at, 2, &bits));
    if (bits >> (port & 7) & ((1u << size) - 1))
        return raise_error(d, EXC_GP, 0);
    return DONE;
}

static unsigned io_size(const struct insn *in)
{
    return in->opcode & 1 ? (in->opsize == 2 ? 2 : 4) : 1;
}

static u16 io_port(const struct core *d, const struct insn *in, u64 imm)
{
    return in->opcode & 8 ? (u16)d->cpu.gpr[RDX] : (u8)imm;
}

HELPER(in)
{
    unsigned size = io_size(in);
    u16 port = io_port(d, in, in->imm2);
    TRY(check_io(d, port, size));
    core_set_aside(d);
    flags_make_visible(d); /* devices may write this page */
    u32 v = d->env->pio_read(d->env->cpu, port, size);
    d->st.pio++;
    count_events(d, 1);
    d->cpu.gpr[RAX] = reg_written(d->cpu.gpr[RAX], v, size);
    return DONE;
}

HELPER(out)
{
    unsigned size = io_size(in);
    u16 port = io_port(d, in, (u64)in->imm);
    TRY(check_io(d, port, size));
    u32 v = (u32)d->cpu.gpr[RAX];
    if (size < 4)
        v &= (1u << 8 * size) - 1;
    core_set_aside(d);
    flags_make_visible(d);
    d->env->pio_write(d->env->cpu, port, size, v);
    d->st.pio++;
    count_events(d, 1);
    return DONE;
}

HELPER(rdtsc)
{
    if ((d->cpu.cr4 & CR4_TSD) && d->cpl)
        return raise_error(d, EXC_GP, 0);
    core_set_aside(d);
    u64 t = d->env->now(d->env->cpu) + d->cpu.tsc_adjust;
    d->cpu.gpr[RAX] = (u32)t;
    d->cpu.gpr[RDX] = t >> 32;
    if (in->mnemonic == ZYDIS_MNEMONIC_RDTSCP)
        d->cpu.gpr[RCX] = (u32)d->cpu.tsc_aux;
    return DONE;
}

HELPER(rdpmc)
{
    u64 v;
    bool may = d->cpl == 0 || (d->cpu.cr4 & CR4_PCE);
    if (!may || !pmu_rdpmc(d, (u32)d->cpu.gpr[RCX], &v))
        return raise_error(d, EXC_GP, 0);
    d->cpu.gpr[RAX] = (u32)v;
    d->cpu.gpr[RDX] = v >> 32;
    return DONE;
}

/* There is always a number: CF is set, the other five flags are clear. */
HELPER(rdrand)
{
    core_set_aside(d);
    u64 v = d->env->random(d->env->cpu, in->mnemonic == ZYDIS_MNEMONIC_RDSEED);
    d->cpu.gpr[in->reg0] = reg_written(d->cpu.gpr[in->reg0], v, in->opsize);
    d->flags = FL_CF;
    return DONE;
}

HELPER(rdpid)
{
    d->cpu.gpr[in->reg0] = (u32)d->cpu.tsc_aux;
    return DONE;
}

HELPER(cpuid)
{
    u64 *r = d->cpu.gpr;
    if ((d->cpu.features & FEATURES_CPUID_FAULT) && d->cpl)
        return raise_error(d, EXC_GP, 0);
    if (UNLIKELY((u32)r[RAX] == REPRISE_MARK_LEAF && (u32)r[RCX] == REPRISE_MARK_WORD))
        debug_mark(d);
    struct cpuid_live live = core_cpuid_live(d);
    struct cpuid_result out;
    core_set_aside(d);
    u64 base = 0;
    d->env->rdmsr(d->env->cpu, 0x1b, &base);
    live.apic_enabled = base >> 11 & 1;
    cpu_model_cpuid(d->model, (u32)r[RAX], (u32)r[RCX], &live, &out);
    r[RAX] = out.eax;
    r[RBX] = out.ebx;
    r[RCX] = out.ecx;
    r[RDX] = out.edx;
    return DONE;
}

HELPER(fsgsbase)
{
    if (!(d->cpu.cr4 & CR4_FSGSBASE))
        return raise_fault(d, EXC_UD);
    bool write = in->mnemonic == ZYDIS_MNEMONIC_WRFSBASE || in->mnemonic == ZYDIS_MNEMONIC_WRGSBASE;
    bool fs = in->mnemonic == ZYDIS_MNEMONIC_WRFSBASE || in->mnemonic == ZYDIS_MNEMONIC_RDFSBASE;
    u64 *base = &d->cpu.seg_base[fs ? SEG_FS : SEG_GS];
    bool wide = in->rex & 8; /* 66h does not count */
    if (!write) {
        d->cpu.gpr[in->reg0] = wide ? *base : (u32)*base;
        return DONE;
    }
    u64 v = d->cpu.gpr[in->reg0];
    if (!wide)
        v = (u32)v;
    if (!is_canonical(v))
        return raise_error(d, EXC_GP, 0);
    *base = v;
    return DONE;
}

HELPER(swapgs)
{
    TRY(need_cpl0(d));
    u64 v = d->cpu.seg_base[SEG_GS];
    d->cpu.seg_base[SEG_GS] = d->cpu.kernel_gs_base;
    d->cpu.kernel_gs_base = v;
    return DONE;
}
