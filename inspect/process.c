/* See process.h. Page tables are walked by hand (SDM vol. 3, 4.5): in ring 3 under page table
 * isolation CR3 leads to tables that lack the kernel, and the others are one page below. */
#define _GNU_SOURCE /* strsignal */
#include "inspect/process.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "cpu/vcpu.h"
#include "inspect/kernel_code.h"
#include "machine/machine.h"

#define ROOT_MASK     0x000ffffffffff000ull
#define ISOLATION_BIT 0x1000ull
#define CR4_LA57      (1ull << 12)
#define PAGE_PRESENT  1u
#define PAGE_LARGE    0x80u
#define ROOT_PAE      0xffffffe0ull /* of 32 bits: not a whole page */
#define PAGE_OFFSET   0xc0000000ull /* of most kernels of 32 bits */
#define LOOK_AGAIN    50000000u     /* positions */

static bool is_narrow(const struct vcpu *c)
{
    return !(c->efer & EFER_LMA);
}

enum page_state process_page_state(struct machine *m, u64 root, u64 va, gpa_t *page)
{
    bool five = machine_vcpu(m)->cr4 & CR4_LA57;
    u64 table = root;
    for (int shift = five ? 48 : 39; shift >= 12; shift -= 9) {
        u64 entry;
        if (!machine_peek_physical(m, table + (va >> shift & 511) * 8, &entry, 8))
            return PAGE_AWAY;
        if (!(entry & PAGE_PRESENT))
            return entry ? PAGE_AWAY : PAGE_UNTOUCHED;
        u64 offset = shift > 12 && entry & PAGE_LARGE ? (1ull << shift) - 1 : PAGE_SIZE - 1;
        table = entry & ROOT_MASK & ~offset;
        if (shift == 12 || (shift <= 30 && entry & PAGE_LARGE)) {
            *page = table + (va & offset & ~(u64)(PAGE_SIZE - 1));
            return PAGE_THERE;
        }
    }
    return PAGE_AWAY;
}

bool process_page(struct machine *m, u64 root, u64 va, gpa_t *page)
{
    return process_page_state(m, root, va, page) == PAGE_THERE;
}

/* Within one page. */
static bool read_part(const struct process_layout *l, struct machine *m, u64 va, void *out,
                      size_t len)
{
    const struct vcpu *c = machine_vcpu(m);
    u64 page;
    if (!l->where.isolated || !(c->cr3 & ISOLATION_BIT))
        return machine_peek(m, va, out, len);
    return process_page(m, c->cr3 & ROOT_MASK & ~ISOLATION_BIT, va, &page) &&
           machine_peek_physical(m, page | (va & (PAGE_SIZE - 1)), out, len);
}

bool process_kernel_bytes(const struct process_layout *l, struct machine *m, u64 va, void *out,
                          size_t len)
{
    size_t first = MIN(len, PAGE_SIZE - (size_t)(va & (PAGE_SIZE - 1)));
    return va >= l->floor && read_part(l, m, va, out, first) &&
           (first == len || read_part(l, m, va + first, (u8 *)out + first, len - first));
}

bool process_due(struct process_layout *l, pos_t now)
{
    pos_t far = now > l->looked_at ? now - l->looked_at : l->looked_at - now;
    if (l->known || (l->looked && far < LOOK_AGAIN))
        return false;
    l->looked = true;
    l->looked_at = now;
    return true;
}

bool process_learn(struct process_layout *l, struct machine *m, const struct symbols *s)
{
    struct guest_memory mem;
    struct guest_linux g;
    struct err ignored;
    l->known = false;
    guest_memory_init(&mem, m);
    if (guest_linux_open(&g, &mem, &ignored))
        return false;
    l->known = !guest_current_find(&l->where, &g, s, &ignored);
    l->floor = s->floor;
    guest_linux_close(&g);
    return l->known;
}

/* Where the per-CPU variables begin. */
static bool read_base(const struct process_layout *l, struct machine *m, u64 *base)
{
    u8 descriptor[8];
    if (!l->where.narrow)
        return process_kernel_bytes(l, m, l->where.offsets + 8 * machine_seen(m), base, 8);
    if (!is_narrow(machine_vcpu(m)) ||
        !process_kernel_bytes(l, m, machine_vcpu(m)->gdt_base + KERNEL_CODE_PERCPU, descriptor, 8))
        return false;
    *base = kernel_code_base(descriptor);
    return true;
}

static void read_task(const struct process_layout *l, struct machine *m, struct process *out)
{
    const struct guest_current *w = &l->where;
    u64 base, task = 0, mm = 0;
    size_t word = w->narrow ? 4 : 8;
    if (!read_base(l, m, &base) ||
        !process_kernel_bytes(l, m, w->narrow ? (u32)(base + w->variable) : base + w->variable,
                              &task, word) ||
        !process_kernel_bytes(l, m, task + w->pid, &out->pid, 4) ||
        !process_kernel_bytes(l, m, task + w->tgid, &out->tgid, 4) ||
        !process_kernel_bytes(l, m, task + w->comm, out->comm, sizeof(out->comm))) {
        out->pid = out->tgid = 0;
        return;
    }
    out->task = task;
    out->comm[sizeof(out->comm) - 1] = 0;
    text_ascii(out->comm);
    if (!w->has_space || !process_kernel_bytes(l, m, task + w->mm, &mm, 8) || !mm ||
        !process_kernel_bytes(l, m, mm + w->space, &out->space, 8))
        out->space = 0;
}

void process_read(const struct process_layout *l, struct machine *m, struct process *out)
{
    const struct vcpu *c = machine_vcpu(m);
    *out = (struct process){.user = (c->seg_sel[SEG_CS] & 3) == 3,
                            .root = c->cr3 & ROOT_MASK,
                            .fs_base = c->seg_base[SEG_FS],
                            .kernel = SYMBOLS_FLOOR};
    if (is_narrow(c)) {
        out->kernel = l->floor && l->where.narrow ? l->floor : PAGE_OFFSET;
        if (c->cr4 & CR4_PAE)
            out->root = c->cr3 & ROOT_PAE;
    }
    if (l->where.isolated)
        out->root &= ~ISOLATION_BIT;
    if (l->known)
        read_task(l, m, out);
}

bool process_same_space(const struct process *a, const struct process *b)
{
    return a->root == b->root && (!a->space || !b->space || a->space == b->space);
}

bool process_same_thread(const struct process *a, const struct process *b, bool fs_base)
{
    if (a->task && b->task)
        return a->task == b->task && a->pid == b->pid;
    return a->root == b->root && (!fs_base || a->fs_base == b->fs_base);
}

void process_end_sentence(const struct process *p, struct machine *m, char *text, size_t size)
{
    const struct vcpu *c = machine_vcpu(m);
    u64 code = is_narrow(c) ? c->gpr[RAX] : c->gpr[RDI];
    int signal = code & 0x7f;
    int len = snprintf(text, size, "%s (pid %d) ends here, ", p->comm, p->pid);
    size_t at = MIN((size_t)MAX(len, 0), size);
    if (signal)
        snprintf(text + at, size - at, "by signal %d (%s).", signal, strsignal(signal));
    else
        snprintf(text + at, size - at, "with status %d.", (int)(code >> 8 & 0xff));
}
