/*
 * String instructions. Each REP iteration is a position of its own, so a REP stops exactly where
 * it is told to; runs of iterations inside pages go at memory speed. SDM vol. 2, "REP".
 */
#include "cpu/x86/core.h"

#include <Zydis/Mnemonic.h>

#include "cpu/x86/except.h"
#include "cpu/x86/exec.h"
#include "cpu/x86/flags.h"
#include "cpu/x86/memory.h"
#include "cpu/x86/mode.h"
#include "cpu/x86/park.h"
#include "cpu/x86/sys.h"
#include "cpu/x86/tlb.h"
#include "cpu/x86/trace.h"

enum op { MOVS, STOS, LODS, SCAS, CMPS };

static u64 addr_mask(const struct insn *in)
{
    return low_bytes(~0ull, in->addrsize);
}

static enum op op_of(const struct insn *in)
{
    switch (in->opcode & 0xfe) {
    case 0xa4: return MOVS;
    case 0xa6: return CMPS;
    case 0xaa: return STOS;
    case 0xac: return LODS;
    default: return SCAS;
    }
}

static unsigned size_of(const struct insn *in)
{
    return in->opcode & 1 ? in->opsize : 1;
}

/* RSI, RDI, RCX with the address size's wrap: a 32-bit write clears the upper half. */
static void advance(struct core *d, const struct insn *in, int r, i64 by)
{
    d->cpu.gpr[r] = reg_written(d->cpu.gpr[r], d->cpu.gpr[r] + (u64)by, in->addrsize);
}

/* Flags of CMP a, b at this size, by the CPU itself. */
static void compare(struct core *d, u64 a, u64 b, unsigned size)
{
    u64 f;
    switch (size) {
    case 1: __asm__("cmpb %b2, %b1; pushfq; popq %0" : "=r"(f) : "q"(a), "q"(b) : "cc"); break;
    case 2: __asm__("cmpw %w2, %w1; pushfq; popq %0" : "=r"(f) : "r"(a), "r"(b) : "cc"); break;
    case 4: __asm__("cmpl %k2, %k1; pushfq; popq %0" : "=r"(f) : "r"(a), "r"(b) : "cc"); break;
    default: __asm__("cmpq %2, %1; pushfq; popq %0" : "=r"(f) : "r"(a), "r"(b) : "cc"); break;
    }
    d->flags = f & FL_ARITH;
}

/* `before`: of a comparison, the flags as the CPU has them until the last iteration; its loads may
 * have made the dead ones visible. */
static int once(struct core *d, const struct insn *in, enum op op, unsigned size, u64 *before)
{
    u64 m = addr_mask(in), si = d->cpu.gpr[RSI] & m, di = d->cpu.gpr[RDI] & m;
    i64 by = d->cpu.rflags & FL_DF ? -(i64)size : (i64)size;
    u64 a = 0, b = 0;
    switch (op) {
    case MOVS:
        TRY(mem_read(d, in->seg, si, size, &a));
        TRY(mem_write(d, SEG_ES, di, size, &a));
        advance(d, in, RSI, by);
        advance(d, in, RDI, by);
        break;
    case STOS:
        a = d->cpu.gpr[RAX];
        TRY(mem_write(d, SEG_ES, di, size, &a));
        advance(d, in, RDI, by);
        break;
    case LODS:
        TRY(mem_read(d, in->seg, si, size, &a));
        d->cpu.gpr[RAX] = reg_written(d->cpu.gpr[RAX], a, size);
        advance(d, in, RSI, by);
        break;
    case SCAS:
        TRY(mem_read(d, SEG_ES, di, size, &b));
        *before = d->flags;
        compare(d, d->cpu.gpr[RAX], b, size);
        advance(d, in, RDI, by);
        break;
    case CMPS:
        TRY(mem_read(d, SEG_ES, di, size, &b)); /* this order shows in CR2 */
        TRY(mem_read(d, in->seg, si, size, &a));
        *before = d->flags;
        compare(d, a, b, size);
        advance(d, in, RSI, by);
        advance(d, in, RDI, by);
        break;
    }
    return DONE;
}

/* Host address if [va, va + n) of one page may be accessed directly. */
static u8 *direct(struct core *d, u64 va, enum access acc)
{
    struct tlb_entry *t = &d->tlb[d->idx][tlb_slot(va)];
    u64 tag = acc == ACC_W ? t->wtag : t->rtag;
    return tag == (va & ~(u64)(PAGE_SIZE - 1)) ? t->host + (va & (PAGE_SIZE - 1)) : NULL;
}

/* Does the element at va lie in a page that holds the instruction itself? The next iteration is a
 * position of its own and must see the new bytes, as it would after a stop; and so it is with what
 * a device wrote that it asked, and with accessed bits among its own bytes (walk.c). */
static bool own_code(struct core *d, u64 va, unsigned size)
{
    for (int k = 0; k < 2; k++, va += size - 1) {
        struct tlb_entry *t = &d->tlb[d->idx][tlb_slot(va)];
        if (t->rtag == (va & ~(u64)(PAGE_SIZE - 1)) &&
            (tlb_gpa(d, t) == d->code_page || tlb_gpa(d, t) == d->code_page2))
            return true;
    }
    return false;
}

/* REPE or REPNE, SCAS or CMPS of n elements at most, by the host's own: how many it did. */
#define SCAN(name, insn)                                                                           \
    static u64 name(u64 a, const void *si, const void *di, u64 n)                                  \
    {                                                                                              \
        u64 left = n;                                                                              \
        __asm__ volatile(insn : "+c"(left), "+D"(di), "+S"(si) : "a"(a) : "memory", "cc");         \
        return n - left;                                                                           \
    }
#define SCANS(size, x)                                                                             \
    SCAN(scas_e##size, "repe scas" x)                                                              \
    SCAN(scas_ne##size, "repne scas" x)                                                            \
    SCAN(cmps_e##size, "repe cmps" x)                                                              \
    SCAN(cmps_ne##size, "repne cmps" x)
SCANS(1, "b")
SCANS(2, "w")
SCANS(4, "l")
SCANS(8, "q")

/* How many of n elements may be done at once: forwards, inside the pages of the operands. */
static u64 together(const struct core *d, const struct insn *in, unsigned size, u64 n, u64 di,
                    const u64 *si)
{
    u32 open = MODE_FLAT & mode_open(in->seg); /* of ES, and of the other one */
    bool whole = is_64bit(d) ? in->addrsize == 8 : in->addrsize == 4 && (d->mode & open);
    if ((d->cpu.rflags & FL_DF) || d->dr_active || d->ac_check || !whole)
        return 0;
    n = MIN(n, (PAGE_SIZE - (di & (PAGE_SIZE - 1))) / size);
    if (si)
        n = MIN(n, (PAGE_SIZE - (*si & (PAGE_SIZE - 1))) / size);
    return n;
}

/* Iterations of SCAS or CMPS at once, up to the one that ends it. */
static u64 scan(struct core *d, const struct insn *in, enum op op, unsigned size, u64 n)
{
    typedef u64 scan_fn(u64 a, const void *si, const void *di, u64 n);
    static scan_fn *const fn[2][2][4] = {
        {{scas_ne1, scas_ne2, scas_ne4, scas_ne8}, {scas_e1, scas_e2, scas_e4, scas_e8}},
        {{cmps_ne1, cmps_ne2, cmps_ne4, cmps_ne8}, {cmps_e1, cmps_e2, cmps_e4, cmps_e8}}};
    u64 di = linear(d, SEG_ES, d->cpu.gpr[RDI]), si = linear(d, in->seg, d->cpu.gpr[RSI]);
    u64 rax = d->cpu.gpr[RAX], a = 0, b = 0;
    n = together(d, in, size, n, di, op == CMPS ? &si : NULL);
    const u8 *to = direct(d, di, ACC_R), *from = op == CMPS ? direct(d, si, ACC_R) : to;
    if (n < 2 || !to || !from)
        return 0;
    n = fn[op == CMPS][in->rep == 0xf3][__builtin_ctz(size)](rax, from, to, n);
    u64 bytes = n * size;
    for (unsigned k = 0; k < size; k++) {
        a |= (u64)from[bytes - size + k] << 8 * k;
        b |= (u64)to[bytes - size + k] << 8 * k;
    }
    compare(d, op == CMPS ? a : rax, b, size);
    note_access(d, di, bytes, to, false);
    if (op == CMPS) {
        note_access(d, si, bytes, from, false);
        advance(d, in, RSI, (i64)bytes);
    }
    advance(d, in, RDI, (i64)bytes);
    return n;
}

/*
 * Many iterations of MOVS or STOS at once, not overlapping in a way that a block copy would show.
 * Returns how many were done.
 */
static u64 run(struct core *d, const struct insn *in, enum op op, unsigned size, u64 n)
{
    u64 di = linear(d, SEG_ES, d->cpu.gpr[RDI]), si = linear(d, in->seg, d->cpu.gpr[RSI]);
    n = together(d, in, size, n, di, op == MOVS ? &si : NULL);
    if (n < 2)
        return 0;
    u8 *to = direct(d, di, ACC_W);
    if (!to || own_code(d, di, size))
        return 0;
    u64 bytes = n * size;
    void *dst = to;
    if (op == MOVS) {
        const u8 *from = direct(d, si, ACC_R);
        if (!from)
            return 0;
        const void *src = from;
        u64 gap = (u64)(to - from);
        if (gap < size || -gap < size)
            return 0; /* elements overlap themselves */
        if (gap < bytes) {
            /* Overlapping upwards: element by element, as the CPU does. */
            switch (size) {
            case 1:
                __asm__ volatile("rep movsb" : "+D"(dst), "+S"(src), "+c"(n) : : "memory");
                break;
            case 2:
                __asm__ volatile("rep movsw" : "+D"(dst), "+S"(src), "+c"(n) : : "memory");
                break;
            case 4:
                __asm__ volatile("rep movsl" : "+D"(dst), "+S"(src), "+c"(n) : : "memory");
                break;
            default:
                __asm__ volatile("rep movsq" : "+D"(dst), "+S"(src), "+c"(n) : : "memory");
                break;
            }
        } else {
            u64 c = bytes;
            __asm__ volatile("rep movsb" : "+D"(dst), "+S"(src), "+c"(c) : : "memory");
        }
        note_access(d, si, bytes, to, false);
        advance(d, in, RSI, (i64)bytes);
    } else {
        u64 a = d->cpu.gpr[RAX], c = bytes / size;
        switch (size) {
        case 1: __asm__ volatile("rep stosb" : "+D"(dst), "+c"(c) : "a"(a) : "memory"); break;
        case 2: __asm__ volatile("rep stosw" : "+D"(dst), "+c"(c) : "a"(a) : "memory"); break;
        case 4: __asm__ volatile("rep stosl" : "+D"(dst), "+c"(c) : "a"(a) : "memory"); break;
        default: __asm__ volatile("rep stosq" : "+D"(dst), "+c"(c) : "a"(a) : "memory"); break;
        }
    }
    note_access(d, di, bytes, to, true);
    advance(d, in, RDI, (i64)bytes);
    return bytes / size;
}

HELPER(string)
{
    enum op op = op_of(in);
    unsigned size = size_of(in);
    u64 flags = d->flags;
    if (!in->rep)
        return once(d, in, op, size, &flags);
    u64 m = addr_mask(in);
    if (in->addrsize == 4 && is_64bit(d)) {
        /* The CPU's own first step, seen when no iteration follows or the first one faults. */
        d->cpu.gpr[RCX] &= m;
        if (op == MOVS)
            d->cpu.gpr[RSI] &= m;
        if (op == MOVS || op == STOS)
            d->cpu.gpr[RDI] &= m;
    }
    if (!(d->cpu.gpr[RCX] & m))
        return DONE; /* the one position of a REP without iterations */
    bool tf = d->cpu.rflags & FL_TF;
    /*
     * CMPS and SCAS: RFLAGS stay as they were until the last iteration, so that a fault, a stop or
     * an interrupt shows what it was before the instruction (SDM vol. 2, REP): `flags`.
     */
    for (;;) {
        u64 rcx = d->cpu.gpr[RCX] & m;
        /* After STI or MOV SS a wanted interrupt comes after the first iteration, not where a slice
         * happens to end. */
        u64 left = d->want && d->shadow_pos == position(d) ? 1 : (u64)d->budget; /* >= 1 */
        u64 done = 0;
        if ((op == MOVS || op == STOS) && !tf)
            done = run(d, in, op, size, MIN(rcx, left));
        else if ((op == SCAS || op == CMPS) && !tf)
            done = scan(d, in, op, size, MIN(rcx, left));
        bool restart = false;
        if (!done) {
            u64 di = linear(d, SEG_ES, d->cpu.gpr[RDI] & m), asked = d->st.mmio;
            TRY(once(d, in, op, size, &flags));
            restart = ((op == MOVS || op == STOS) && own_code(d, di, size)) || d->st.mmio != asked;
            done = 1;
        }
        bool zf = d->flags & FL_ZF;
        d->cpu.rflags &= ~(u64)FL_RF;
        rcx -= done;
        advance(d, in, RCX, -(i64)done);
        bool stop = rcx == 0;
        if (op == SCAS || op == CMPS)
            stop = stop || zf != (in->rep == 0xf3);
        if (stop) {
            d->budget -= (i64)done - 1; /* the last one is counted by the caller */
            d->pmu.not_insns += done - 1;
            return DONE;
        }
        if (op == SCAS || op == CMPS)
            d->flags = flags;
        d->cpu.rep_resume = 1; /* the same whether it goes on here or after a stop */
        d->budget -= (i64)done;
        d->pmu.not_insns += done;
        if (d->budget <= 0 || tf || d->db_pending || d->attention || d->stale || d->kicked ||
            d->debug.hit || restart || (d->want && core_takes_wanted(d)))
            return RESTART;
    }
}

/*
 * INS and OUTS: one iteration a call, since a device may want attention after each. But KVM fetches
 * up to a kilobyte of the same page for a REP INS before anybody else has a say, and a recording
 * that a CPU made has that.
 */
static u64 io_together(const struct core *d, const struct insn *in, unsigned size, u64 m)
{
    u64 at = linear(d, SEG_ES, d->cpu.gpr[RDI] & m) & (PAGE_SIZE - 1);
    u64 left = d->cpu.rflags & FL_DF ? at : PAGE_SIZE - at;
    u64 n = MIN(left, 1024u) / size;
    return counts_branches(d) && in->rep && in->opcode < 0x6e && n ? n : 1;
}

static int io_once(struct core *d, const struct insn *in, unsigned size, u64 m)
{
    u16 port = (u16)d->cpu.gpr[RDX];
    i64 by = d->cpu.rflags & FL_DF ? -(i64)size : (i64)size;
    u32 v = 0;
    if (in->opcode < 0x6e) {
        u64 di = d->cpu.gpr[RDI] & m;
        TRY(mem_check(d, SEG_ES, di, size, ACC_W));
        core_set_aside(d);
        flags_make_visible(d); /* devices may write this page */
        v = d->env->pio_read(d->env->cpu, port, size);
        TRY(mem_write(d, SEG_ES, di, size, &v));
        advance(d, in, RDI, by);
    } else {
        TRY(mem_read(d, in->seg, d->cpu.gpr[RSI] & m, size, &v));
        core_set_aside(d);
        flags_make_visible(d);
        d->env->pio_write(d->env->cpu, port, size, v);
        advance(d, in, RSI, by);
    }
    d->st.pio++;
    count_events(d, 1);
    return DONE;
}

HELPER(string_io)
{
    u64 m = addr_mask(in);
    unsigned size = in->opcode & 1 ? (in->opsize == 2 ? 2 : 4) : 1;
    TRY(check_io(d, (u16)d->cpu.gpr[RDX], size));
    if (in->rep && !(d->cpu.gpr[RCX] & m))
        return DONE;
    for (u64 n = io_together(d, in, size, m); n; n--) {
        TRY(io_once(d, in, size, m));
        if (!in->rep)
            return DONE;
        advance(d, in, RCX, -1);
        if (!(d->cpu.gpr[RCX] & m))
            return DONE;
        d->budget--;
        d->pmu.not_insns++;
    }
    return RESTART;
}
