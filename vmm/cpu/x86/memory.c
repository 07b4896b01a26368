/*
 * Guest memory from C: every access that translated code does not make itself. Exact in the order
 * and kind of faults; writes go through one function that invalidates translations and tracked
 * page tables; what is not RAM goes to the machine. SDM vol. 3, chapters 4 and 6.
 */
#include "cpu/x86/memory.h"

#include "cpu/x86/debug.h"
#include "cpu/x86/flags.h"
#include "cpu/x86/mode.h"
#include "cpu/x86/park.h"
#include "cpu/x86/tlb.h"
#include "cpu/x86/trace.h"
#include "cpu/x86/run.h"

static void copy(u8 *to, const u8 *from, unsigned n)
{
    while (n >= 8) {
        *(u64 *)to = *(const u64 *)from;
        to += 8;
        from += 8;
        n -= 8;
    }
    while (n--)
        *to++ = *from++;
}

/* Non-canonical addresses and alignment checks; then data breakpoints. */
static int check_linear(struct core *d, u64 va, unsigned len, unsigned seg)
{
    if (UNLIKELY(!linear_ok(va, len)))
        return raise_segment(d, seg);
    return DONE;
}

/* DR0-3 data breakpoints (SDM vol. 3, 17.2.4): reported as traps after the instruction. And the
 * debugger's, which the guest does not see. */
static void watch(struct core *d, u64 va, unsigned len, const gpa_t gpa[2], bool write)
{
    static const u8 lengths[4] = {1, 2, 8, 4};
    u64 dr7 = d->cpu.dr[7];
    if (d->debug.nwatch)
        debug_access(d, va, len, gpa, write);
    if (!d->dr_active)
        return;
    for (unsigned i = 0; i < 4; i++) {
        if (!(dr7 >> (2 * i) & 3))
            continue;
        unsigned rw = dr7 >> (16 + 4 * i) & 3, l = lengths[dr7 >> (18 + 4 * i) & 3];
        u64 at = d->cpu.dr[i] & ~(u64)(l - 1);
        if (((rw == 1 && write) || rw == 3) && at < va + len && va < at + l)
            d->db_pending |= 1u << i;
    }
}

/* Where the second part of an access begins: linear addresses end at 4 GiB outside 64-bit mode. */
static u64 second_page(const struct core *d, u64 va)
{
    u64 page = (va | (PAGE_SIZE - 1)) + 1;
    return is_64bit(d) || va >> 32 ? page : (u32)page;
}

/* One part of an access, inside a page: the physical address. Uses and fills the TLB. */
static int translate_part(struct core *d, u64 va, enum access acc, unsigned idx, gpa_t *gpa,
                          u8 **host)
{
    struct tlb_entry *t = &d->tlb[idx][tlb_slot(va)];
    u64 page = va & ~(u64)(PAGE_SIZE - 1);
    if ((acc == ACC_W ? t->wtag : t->rtag) == page) {
        *host = t->host + (va & (PAGE_SIZE - 1));
        *gpa = tlb_gpa(d, t) | (va & (PAGE_SIZE - 1));
        return DONE;
    }
    u8 *p = mmu_fill(d, va, acc, idx, WALK_ANYWHERE);
    if (!p && d->fault.vector)
        return FAULT;
    *host = p;
    if (t->rtag == page) {
        *gpa = tlb_gpa(d, t) | (va & (PAGE_SIZE - 1));
        return DONE;
    }
    return mmu_walk(d, va, acc, idx, gpa); /* not RAM */
}

/* Physical memory that is not RAM, in naturally sized pieces. */
void io_read(struct core *d, gpa_t gpa, unsigned len, u8 *out)
{
    core_set_aside(d);
    if (d->executing)
        flags_make_visible(d);
    while (len) {
        unsigned n = len >= 8 ? 8 : len >= 4 ? 4 : len >= 2 ? 2 : 1;
        u64 v = d->env->mmio_read(d->env->cpu, gpa, n);
        copy(out, (u8 *)&v, n);
        d->st.mmio++;
        count_events(d, 1);
        gpa += n;
        out += n;
        len -= n;
    }
}

void io_write(struct core *d, gpa_t gpa, unsigned len, const u8 *in)
{
    core_set_aside(d);
    while (len) {
        unsigned n = len >= 8 ? 8 : len >= 4 ? 4 : len >= 2 ? 2 : 1;
        u64 v = 0;
        copy((u8 *)&v, in, n);
        d->env->mmio_write(d->env->cpu, gpa, n, v);
        d->st.mmio++;
        count_events(d, 1);
        gpa += n;
        in += n;
        len -= n;
    }
}

/* The CPU's one RAM-write function for everything but the fast path. */
static void page_store(struct core *d, gpa_t gpa, unsigned len, const u8 *in)
{
    if (ram_is_rom(gpa))
        return;
    u8 *host = ram_ptr(d->ram, gpa, len);
    u64 index = ram_page_index(d->ram, gpa);
    struct page *pg = &d->shared->pages[index];
    note_written(d, pg, index);
    if (UNLIKELY(pg->flags & (PG_CODE | PG_PT))) {
        if (pg->flags & PG_PT)
            mmu_write_tracked(d, pg, gpa, len, host, in);
        if (pg->flags & PG_CODE)
            d->translator->page_changed(d, gpa, len);
    }
    copy(host, in, len);
}

/* An instruction is about to write the page it lies in, whose bytes the liveness rule reads, or a
 * table through which that page is mapped, or a device, which may write that page: the dead flags
 * become zero now, in every mode (flags.c). Tables on the path are tracked, because the fetch
 * walked through them. */
static bool own_page(struct core *d, gpa_t gpa)
{
    if (!d->executing)
        return false;
    bool own = (gpa & ~(u64)(PAGE_SIZE - 1)) == d->code_page || !ram_ptr(d->ram, gpa, 1);
    if (!own && (d->shared->pages[ram_page_index(d->ram, gpa)].flags & PG_PT))
        own = mmu_on_path(d, code_linear(d, d->cpu.rip), gpa);
    if (UNLIKELY(own))
        flags_make_visible(d);
    return own;
}

static int store_part(struct core *d, gpa_t gpa, u8 *host, unsigned len, const u8 *in)
{
    if (host)
        copy(host, in, len);
    else if (ram_ptr(d->ram, gpa, len))
        page_store(d, gpa, len, in);
    else
        io_write(d, gpa, len, in);
    return DONE;
}

static void load_part(struct core *d, gpa_t gpa, const u8 *host, unsigned len, u8 *out)
{
    if (host)
        copy(out, host, len);
    else if (ram_ptr(d->ram, gpa, len))
        copy(out, ram_ptr(d->ram, gpa, len), len);
    else
        io_read(d, gpa, len, out);
}

static int read_idx(struct core *d, u64 va, unsigned len, u8 *out, unsigned seg, unsigned idx)
{
    struct tlb_entry *t = &d->tlb[idx][tlb_slot(va)];
    if (LIKELY((va ^ t->rtag) <= PAGE_SIZE - len && !d->dr_active)) {
        copy(out, t->host + (va & (PAGE_SIZE - 1)), len);
        return DONE;
    }
    TRY(check_linear(d, va, len, seg));
    unsigned left = PAGE_SIZE - (va & (PAGE_SIZE - 1));
    unsigned n = MIN(len, left);
    gpa_t gpa[2];
    u8 *host[2];
    TRY(translate_part(d, va, ACC_R, idx, &gpa[0], &host[0]));
    if (n < len)
        TRY(translate_part(d, second_page(d, va), ACC_R, idx, &gpa[1], &host[1]));
    if (UNLIKELY(d->watching))
        watch(d, va, len, gpa, false);
    load_part(d, gpa[0], host[0], n, out);
    if (n < len)
        load_part(d, gpa[1], host[1], len - n, out + n);
    return DONE;
}

static int write_idx(struct core *d, u64 va, unsigned len, const u8 *in, unsigned seg, unsigned idx)
{
    struct tlb_entry *t = &d->tlb[idx][tlb_slot(va)];
    if (LIKELY((va ^ t->wtag) <= PAGE_SIZE - len && !d->dr_active)) {
        own_page(d, tlb_gpa(d, t)); /* it has this path too while none of its code is translated */
        copy(t->host + (va & (PAGE_SIZE - 1)), in, len);
        return DONE;
    }
    TRY(check_linear(d, va, len, seg));
    unsigned left = PAGE_SIZE - (va & (PAGE_SIZE - 1));
    unsigned n = MIN(len, left);
    gpa_t gpa[2];
    u8 *host[2];
    TRY(translate_part(d, va, ACC_W, idx, &gpa[0], &host[0]));
    if (n < len) {
        TRY(translate_part(d, second_page(d, va), ACC_W, idx, &gpa[1], &host[1]));
        /* The second walk may have made the first page a table or code. */
        host[0] = host[1] = NULL;
    }
    if (UNLIKELY(d->watching))
        watch(d, va, len, gpa, true);
    own_page(d, gpa[0]);
    if (n < len)
        own_page(d, gpa[1]);
    store_part(d, gpa[0], host[0], n, in);
    if (n < len)
        store_part(d, gpa[1], host[1], len - n, in + n);
    return DONE;
}

/* EFLAGS.AC (SDM vol. 3, table 6-7). A non-canonical address comes first; its end, if only that is
 * non-canonical, later. Unaligned forms of 16 and 32 bytes are not checked. */
static int align_check(struct core *d, u64 va, unsigned len, unsigned seg)
{
    if (LIKELY(!d->ac_check))
        return DONE;
    if (!is_canonical(va))
        return raise_segment(d, seg);
    unsigned a;
    switch (len) {
    case 2:
    case 4:
    case 8: a = len; break;
    case 10: a = 8; break; /* an x87 register */
    case 14:
    case 94: a = 2; break; /* FNSTENV and FNSAVE images */
    case 28:
    case 108: a = 4; break;
    default: return DONE;
    }
    return va & (a - 1) ? raise_error(d, EXC_AC, 0) : DONE;
}

int mem_read(struct core *d, unsigned seg, u64 off, unsigned len, void *out)
{
    u64 va = linear(d, seg, off);
    TRY(check_segment(d, seg, off, len, ACC_R));
    TRY(align_check(d, va, len, seg));
    TRY(read_idx(d, va, len, out, seg, d->idx));
    note_access(d, va, len, out, false);
    return DONE;
}

static int write_linear(struct core *d, u64 va, unsigned len, const void *in, unsigned seg)
{
    TRY(align_check(d, va, len, seg));
    TRY(write_idx(d, va, len, in, seg, d->idx));
    note_access(d, va, len, in, true);
    return DONE;
}

int mem_write(struct core *d, unsigned seg, u64 off, unsigned len, const void *in)
{
    TRY(check_segment(d, seg, off, len, ACC_W));
    return write_linear(d, linear(d, seg, off), len, in, seg);
}

int user_write(struct core *d, u64 va, unsigned len, const void *in)
{
    return write_linear(d, va, len, in, SEG_DS);
}

/* Would the access fault? Sets accessed and dirty bits as the access would. */
int mem_check(struct core *d, unsigned seg, u64 off, unsigned len, enum access acc)
{
    u64 va = linear(d, seg, off);
    TRY(check_segment(d, seg, off, len, acc));
    TRY(align_check(d, va, len, seg));
    TRY(check_linear(d, va, len, seg));
    gpa_t gpa;
    u8 *host;
    TRY(translate_part(d, va, acc, d->idx, &gpa, &host));
    for (u64 p = (va | (PAGE_SIZE - 1)) + 1; p - va < len; p += PAGE_SIZE)
        TRY(translate_part(d, is_64bit(d) ? p : (u32)p, acc, d->idx, &gpa, &host));
    return DONE;
}

/* A state image: the CPU looks at its first item, then at its last byte. */
int mem_check_image(struct core *d, unsigned seg, u64 off, unsigned len, enum access acc)
{
    TRY(align_check(d, linear(d, seg, off), len, seg));
    TRY(mem_check(d, seg, off, len == 14 || len == 94 ? 2 : 4, acc));
    return mem_check(d, seg, off + len - 1, 1, acc);
}

/* Implicit supervisor accesses (descriptor tables, TSS, interrupt stacks): AC does not matter. */
static unsigned sys_idx(const struct core *d)
{
    return d->cpu.cr4 & CR4_SMAP ? IDX_SUP : IDX_SUPU;
}

int sys_read(struct core *d, u64 va, unsigned len, void *out)
{
    return read_idx(d, long_mode(d) ? va : (u32)va, len, out, SEG_DS, sys_idx(d));
}

int sys_write(struct core *d, u64 va, unsigned len, const void *in)
{
    return write_idx(d, long_mode(d) ? va : (u32)va, len, in, SEG_DS, sys_idx(d));
}

int stack_push(struct core *d, u64 *sp, u64 value, unsigned size)
{
    u64 at = sp_moved(d, *sp, -(i64)size);
    TRY(mem_write(d, SEG_SS, at, size, &value));
    *sp = at;
    return DONE;
}

int stack_pop(struct core *d, u64 *sp, unsigned size, u64 *value)
{
    *value = 0;
    TRY(mem_read(d, SEG_SS, *sp, size, value));
    *sp = sp_moved(d, *sp, size);
    return DONE;
}

int stack_push_inner(struct core *d, u64 *sp, u64 value, unsigned size)
{
    u64 at = *sp - size;
    if (!is_canonical(at))
        return raise_error(d, EXC_SS, 0);
    TRY(sys_write(d, at, size, &value));
    *sp = at;
    return DONE;
}

/* What the access would meet: faults, page walks with their accessed and dirty bits, breakpoints.
 * host[]: where its parts are if they have a fast path. */
static int operand_look(struct core *d, struct operand *op, u8 *host[2])
{
    u64 va = op->va = linear(d, op->seg, op->off);
    unsigned len = op->len;
    host[0] = host[1] = NULL;
    unsigned first = len == 10 ? 8 : len; /* significand, then exponent */
    TRY(check_segment(d, op->seg, op->off, first, op->acc));
    TRY(align_check(d, va, len, op->seg));
    TRY(check_linear(d, va, first, op->seg));
    unsigned left = PAGE_SIZE - (va & (PAGE_SIZE - 1));
    op->part = MIN(len, left);
    TRY(translate_part(d, va, op->acc, d->idx, &op->gpa[0], &host[0]));
    if (len == 10) {
        TRY(check_segment(d, op->seg, op->off, len, op->acc));
        TRY(check_linear(d, va, len, op->seg));
    }
    if (op->part < len)
        TRY(translate_part(d, second_page(d, va), op->acc, d->idx, &op->gpa[1], &host[1]));
    if (UNLIKELY(d->watching)) {
        if (op->read || op->acc != ACC_W)
            watch(d, va, len, op->gpa, false);
        if (op->acc == ACC_W)
            watch(d, va, len, op->gpa, true);
    }
    op->shows = op->acc == ACC_W && own_page(d, op->gpa[0]);
    if (op->acc == ACC_W && op->part < len && own_page(d, op->gpa[1]))
        op->shows = true;
    op->bounced = !host[0] || op->part < len;
    return DONE;
}

int operand_check(struct core *d, struct operand *op)
{
    u8 *host[2];
    return operand_look(d, op, host);
}

/*
 * Opens an operand for a native instruction. If it lies in one page of RAM with a fast path, the
 * instruction works on it directly; else in a bounce buffer with the same low six address bits,
 * so that alignment faults are the hardware's own.
 */
int operand_open(struct core *d, struct operand *op)
{
    unsigned len = op->len;
    u8 *host[2];
    TRY(operand_look(d, op, host));
    u64 va = op->va;
    bool read = op->read || op->acc == ACC_R;
    if (!op->bounced) {
        d->ptr = host[0];
        if (read)
            note_access(d, va, len, d->ptr, false);
        return DONE;
    }
    u8 *b = d->bounce_raw + 64 + (va & 63);
    d->ptr = b;
    if (read) {
        load_part(d, op->gpa[0], NULL, op->part, b);
        if (op->part < len)
            load_part(d, op->gpa[1], NULL, len - op->part, b + op->part);
        note_access(d, va, len, b, false);
    }
    return DONE;
}

int operand_close(struct core *d, struct operand *op)
{
    if (op->acc == ACC_W)
        note_access(d, op->va, op->len, d->ptr, true);
    if (!op->bounced || op->acc != ACC_W)
        return DONE;
    store_part(d, op->gpa[0], NULL, op->part, d->ptr);
    if (op->part < op->len)
        store_part(d, op->gpa[1], NULL, op->len - op->part, d->ptr + op->part);
    return DONE;
}

/* The RAM page of gpa has other bytes, behind the back of page_store(). */
static void page_changed(struct core *d, gpa_t gpa)
{
    u64 index = ram_page_index(d->ram, gpa);
    struct page *pg = &d->shared->pages[index];
    note_written(d, pg, index);
    if (pg->flags & PG_CODE)
        d->translator->page_changed(d, gpa, PAGE_SIZE);
    if (pg->flags & PG_PT) {
        mmu_flush_everywhere(d);
        pg->flags &= (u8) ~(PG_PT | PG_PTMULTI);
    }
}

void operand_stored(struct core *d, const struct operand *op)
{
    if (op->acc != ACC_W || !op->bounced)
        return;
    if (ram_ptr(d->ram, op->gpa[0], 1))
        page_changed(d, op->gpa[0]);
    if (op->part < op->len && ram_ptr(d->ram, op->gpa[1], 1))
        page_changed(d, op->gpa[1]);
}

void core_ram_writing(struct engine *e)
{
    struct core *d = core_of(e);
    if (!d->executing) /* else the instruction that had a device do it has seen to it */
        flags_make_visible(d);
}

void core_ram_written(struct engine *e, gpa_t gpa, u64 len)
{
    struct core *d = core_of(e);
    while (len) {
        u64 n = MIN(len, PAGE_SIZE - (gpa & (PAGE_SIZE - 1)));
        if (ram_ptr(d->ram, gpa, n))
            page_changed(d, gpa);
        if (d->debug.nwatch)
            debug_dma(d, gpa, n);
        gpa += n;
        len -= n;
    }
}

bool core_peek(struct engine *e, gva_t va, void *out, size_t len)
{
    struct core *d = core_of(e);
    u8 *to = out;
    while (len) {
        unsigned n = (unsigned)MIN(len, PAGE_SIZE - (va & (PAGE_SIZE - 1)));
        gpa_t gpa;
        if (!mmu_peek(d, va, &gpa))
            return false;
        const u8 *p = ram_ptr(d->ram, gpa, n);
        if (!p)
            return false;
        copy(to, p, n);
        to += n;
        va += n;
        len -= n;
    }
    return true;
}
