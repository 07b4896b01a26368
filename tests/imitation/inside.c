/*
 * Functions of the engine that the linker brings here (mk/imitation.mk), for what the hardware does
 * otherwise than the engine: the program's own engine in the same process goes straight through.
 * Vector registers hold the guest's here (vmm/cpu/dbt/README.md).
 */
#include "imitation.h"
#include "cpu/dbt/cache.h"

#include "cpu/x86/mode.h"

struct block *__real_cache_find(struct dbt *d, u64 lin, u64 phys, u64 phys2, u32 mode);
int __real_exec(struct core *d, struct insn *in);
int __real_deliver_fault(struct core *d);
int __real_mem_write(struct core *d, unsigned seg, u64 off, unsigned len, const void *in);
int __real_operand_close(struct core *d, struct operand *op);
int __wrap_mem_write(struct core *d, unsigned seg, u64 off, unsigned len, const void *in);
int __wrap_operand_close(struct core *d, struct operand *op);
void __real_mmu_flush_all(struct core *d);
void __wrap_mmu_flush_all(struct core *d);
helper_fn __real_help_invlpg, __real_help_invpcid, __real_help_mov_system;
helper_fn __wrap_help_invlpg, __wrap_help_invpcid, __wrap_help_mov_system;
helper_fn __real_help_rdmsr, __real_help_wrmsr, __real_help_cpuid, __real_help_hlt;
struct block *__wrap_cache_find(struct dbt *d, u64 lin, u64 phys, u64 phys2, u32 mode);
int __wrap_exec(struct core *d, struct insn *in);
int __wrap_deliver_fault(struct core *d);
helper_fn __wrap_help_rdmsr, __wrap_help_wrmsr, __wrap_help_cpuid, __wrap_help_hlt;

/* A page with translated code that somebody else may have written since the last exit. */
static void look_at(struct im_vcpu *v, u64 phys)
{
    u64 index = ram_page_index(&v->ram, phys);
    if (v->looked[index] == v->epoch)
        return;
    struct page *pg = &v->hw->shared->pages[index];
    const u64 *now = (const u64 *)(v->ram.host + index * PAGE_SIZE);
    const u64 *then = (const u64 *)(v->shadow + index * PAGE_SIZE);
    bool same = true;
    for (unsigned i = 0; i < PAGE_SIZE / 64 && same && (pg->flags & PG_CODE); i++)
        for (unsigned k = 8 * i; k < 8 * i + 8 && (dbt_of(v->hw)->code->pages[index].map >> i & 1);
             k++)
            same = same && now[k] == then[k];
    if (!same)
        cache_invalidate_page(dbt_of(v->hw), index);
    v->looked[index] = v->epoch;
    v->pages[v->npages++] = (u32)index;
}

/* Every way into a page leads through here once, as im_run() forgets the jump cache. */
struct block *__wrap_cache_find(struct dbt *d, u64 lin, u64 phys, u64 phys2, u32 mode)
{
    if (im_is_hw(&d->c)) {
        look_at(im_of(&d->c), phys);
        if (phys2)
            look_at(im_of(&d->c), phys2);
    }
    return __real_cache_find(d, lin, phys, phys2, mode);
}

/* Instructions by hand take their time. */
int __wrap_exec(struct core *d, struct insn *in)
{
    if (!im_is_hw(d))
        return __real_exec(d, in);
    im_of(d)->executed = in;
    int r = __real_exec(d, in);
    if ((d->st.careful & 127) == 0 && im_cycles() > im_of(d)->until)
        d->attention = true;
    return r;
}

int __wrap_deliver_fault(struct core *d)
{
    bool trap = d->fault.trap || d->fault.code_bp;
    if (!im_is_hw(d))
        return __real_deliver_fault(d);
    struct im_vcpu *v = im_of(d);
    if (d->fault.vector == EXC_DB &&
        (v->debug_control & (KVM_GUESTDBG_SINGLESTEP | KVM_GUESTDBG_USE_HW_BP))) {
        v->dr6 = d->cpu.dr[6];
        d->cpu.dr[6] &= ~0xe00full;
        v->debugged = true;
        d->attention = true;
        return DONE;
    }
    int r = __real_deliver_fault(d);
    /* What an exit by a triple fault leaves is what the fault would have pushed. */
    if (r == STOP_SHUTDOWN && !trap)
        d->cpu.rflags |= FL_RF;
    return r;
}

int __wrap_help_rdmsr(struct core *d, struct insn *in)
{
    if (!im_is_hw(d))
        return __real_help_rdmsr(d, in);
    core_park(d);
    return d->cpl ? raise_error(d, EXC_GP, 0) : im_msr_insn(im_of(d), false);
}

int __wrap_help_wrmsr(struct core *d, struct insn *in)
{
    if (!im_is_hw(d))
        return __real_help_wrmsr(d, in);
    core_park(d);
    return d->cpl ? raise_error(d, EXC_GP, 0) : im_msr_insn(im_of(d), true);
}

int __wrap_help_cpuid(struct core *d, struct insn *in)
{
    struct cpuid_result out;
    u64 *r = d->cpu.gpr;
    if (!im_is_hw(d))
        return __real_help_cpuid(d, in);
    if ((d->cpu.features & FEATURES_CPUID_FAULT) && d->cpl)
        return raise_error(d, EXC_GP, 0);
    core_park(d);
    im_cpuid(im_of(d), (u32)r[RAX], (u32)r[RCX], &out);
    r[RAX] = out.eax;
    r[RBX] = out.ebx;
    r[RCX] = out.ecx;
    r[RDX] = out.edx;
    return DONE;
}

/* KVM_EXIT_HLT comes before what a single step has to say. */
int __wrap_help_hlt(struct core *d, struct insn *in)
{
    int r = __real_help_hlt(d, in);
    if (im_is_hw(d) && r == STOP_HALT)
        im_of(d)->halted = true;
    return r;
}

/* A store to read-only memory goes to the program, where the engine drops it. */
static void rom(struct core *d, gpa_t gpa, unsigned len, const u8 *in)
{
    while (len && ram_is_rom(gpa)) {
        unsigned n = len >= 8 ? 8 : len >= 4 ? 4 : len >= 2 ? 2 : 1;
        struct im_write w = {.gpa = gpa, .len = n};
        for (unsigned i = 0; i < n; i++)
            w.value |= (u64)in[i] << 8 * i;
        core_park(d);
        im_hw_post(im_of(d), &w);
        gpa += n;
        in += n;
        len -= n;
    }
}

static bool has_rom(struct core *d)
{
    return im_is_hw(d) && im_of(d)->has_rom;
}

int __wrap_mem_write(struct core *d, unsigned seg, u64 off, unsigned len, const void *in)
{
    u64 va = linear(d, seg, off);
    unsigned left = PAGE_SIZE - (unsigned)(va & (PAGE_SIZE - 1)), n = MIN(len, left);
    gpa_t gpa;
    int r = __real_mem_write(d, seg, off, len, in);
    if (r || !has_rom(d) || d->tlb[d->idx][tlb_slot(va)].wtag == (va & ~(u64)(PAGE_SIZE - 1)))
        return r;
    if (mmu_peek(d, va, &gpa))
        rom(d, gpa, n, in);
    if (n < len && mmu_peek(d, va + n, &gpa))
        rom(d, gpa, len - n, (const u8 *)in + n);
    return r;
}

int __wrap_operand_close(struct core *d, struct operand *op)
{
    const u8 *from = d->ptr;
    int r = __real_operand_close(d, op);
    if (r || !has_rom(d) || !op->bounced || op->acc != ACC_W)
        return r;
    rom(d, op->gpa[0], op->part, from);
    if (op->part < op->len)
        rom(d, op->gpa[1], op->len - op->part, from + op->part);
    return r;
}

/* With the option `tlb` only the guest empties its TLB, and KVM where it is told to: what others
 * write to page tables is not seen, as on a CPU. */
void __wrap_mmu_flush_all(struct core *d)
{
    if (im_is_hw(d) && im_of(d)->keeps_tlb)
        d->translator->forget(d, 0, 0);
    else
        __real_mmu_flush_all(d);
}

static int flushing(struct core *d, int r)
{
    if (im_is_hw(d) && r == DONE)
        __real_mmu_flush_all(d);
    return r;
}

int __wrap_help_invlpg(struct core *d, struct insn *in)
{
    return flushing(d, __real_help_invlpg(d, in));
}

int __wrap_help_invpcid(struct core *d, struct insn *in)
{
    return flushing(d, __real_help_invpcid(d, in));
}

int __wrap_help_mov_system(struct core *d, struct insn *in)
{
    int r = __real_help_mov_system(d, in);
    return in->op0_kind == OP_CR && in->sreg != 8 && in->sreg != 2 ? flushing(d, r) : r;
}
