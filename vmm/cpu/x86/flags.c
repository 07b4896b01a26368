/*
 * Which arithmetic flags are live in front of an instruction: read by the code that follows before
 * they are overwritten. One frozen function of the guest's code bytes (flags rule version 1):
 *
 *   going forward from the instruction, within its page and up to the first branch, a flag is dead
 *   if it is surely overwritten before an instruction reads it; at the page's end, at a branch, at
 *   an instruction that crosses the page or is undefined, all flags not yet overwritten are live.
 *
 * Translated code may lose a dead flag. So that nobody can tell, wherever RFLAGS becomes visible
 * (exceptions, interrupts, digests) the dead ones read as zero, in every mode. Changing this
 * changes what guests see: it needs a new rule version in the recording.
 *
 * Where positions count branches (cpu/unit.h) the recording comes from a CPU, which has no such
 * rule: there all flags are live everywhere.
 *
 * A store into the page being executed, or into a table through which it is mapped, changes the
 * bytes the rule reads, so it makes the flags visible first (memory.c): dead ones become zero at
 * that instruction in every mode. So do an access to a device, which may write there, and accessed
 * and dirty bits that a walk sets there (walk.c). A device that writes at a boundary comes to
 * core_ram_writing(). A block knows how far the rule has looked for it (dbt/cache.c).
 */
#include "cpu/x86/flags.h"
#include "cpu/x86/icache.h"
#include "cpu/x86/mode.h"
#include "cpu/x86/tlb.h"

static const struct insn *looked_at(struct core *d, const u8 *page, unsigned offset)
{
    u8 buf[16] __attribute__((aligned(8)));
    icache_key(code_size(d), page + offset, MIN(15u, PAGE_SIZE - offset), buf);
    return icache_look(d, buf);
}

u32 flags_live(struct core *d, const u8 *page, unsigned offset, unsigned *end)
{
    u32 live = 0, unknown = FL_ARITH;
    *end = offset;
    if (counts_branches(d))
        return FL_ARITH;
    while (unknown && offset < PAGE_SIZE) {
        const struct insn *in = looked_at(d, page, offset);
        offset += in->len;
        *end = MIN(in->len ? offset : offset + 15, PAGE_SIZE);
        if (in->len == 0 || offset > PAGE_SIZE || ends_scan(in))
            break;
        live |= in->test & unknown;
        unknown &= ~(u32)(in->test | in->kill);
    }
    return live | unknown;
}

u32 flags_live_at(struct core *d, u64 lin)
{
    gpa_t gpa;
    u32 live;
    if (counts_branches(d) || !is_canonical(lin))
        return FL_ARITH;
    if (!d->by_hand && d->translator->live_at(d, lin, &live))
        return live;
    if (!mmu_peek(d, lin, &gpa))
        return FL_ARITH;
    const u8 *page = ram_ptr(d->ram, gpa & ~(u64)(PAGE_SIZE - 1), PAGE_SIZE);
    unsigned end;
    return page ? flags_live(d, page, gpa & (PAGE_SIZE - 1), &end) : FL_ARITH;
}

void flags_make_visible(struct core *d)
{
    if (d->flags)
        d->flags &= flags_live_at(d, code_linear(d, d->cpu.rip));
}
