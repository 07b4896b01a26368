/* See running.h. */
#include "inspect/running.h"

#include <string.h>

#include "board/ram.h"
#include "cpu/vcpu.h"
#include "inspect/kernel_code.h"
#include "machine/machine.h"

bool running_learn(struct running *r, struct machine *m, const struct symbols *s)
{
    struct guest_memory mem;
    struct guest_linux g;
    struct err ignored;
    *r = (struct running){0};
    guest_memory_init(&mem, m);
    if (!guest_linux_open(&g, &mem, &ignored))
        r->known = !guest_current_find(&r->where, &g, s, &ignored);
    guest_linux_close(&g);
    return r->known;
}

/* The bytes at a linear address, if they are in RAM and side by side. */
static const void *bytes_at(struct machine *m, gva_t va, u64 len, gpa_t *gpa)
{
    gpa_t first, last;
    if (!machine_linear_to_physical(m, va, &first) ||
        !machine_linear_to_physical(m, va + len - 1, &last) || last - first != len - 1)
        return NULL;
    if (gpa)
        *gpa = first;
    return ram_ptr(machine_ram(m), first, len);
}

/* Where the per-CPU variables begin. */
static bool look_base(struct running *r, struct machine *m, u64 *base)
{
    if (r->where.narrow && machine_vcpu(m)->gdt_base != r->gdt) {
        r->gdt = machine_vcpu(m)->gdt_base;
        r->offsets = NULL;
    }
    if (machine_seen(m) != r->cpu) {
        r->cpu = machine_seen(m);
        r->offsets = NULL;
    }
    gva_t offsets = r->where.narrow ? r->gdt + KERNEL_CODE_PERCPU : r->where.offsets + 8 * r->cpu;
    if (!r->offsets)
        r->offsets = bytes_at(m, offsets, 8, NULL);
    if (!r->offsets)
        return false;
    memcpy(base, r->offsets, 8);
    if (r->where.narrow)
        *base = kernel_code_base(r->offsets);
    return true;
}

bool running_look(struct running *r, struct machine *m, struct running_task *out)
{
    u64 base, task = 0, word = r->where.narrow ? 4 : 8;
    if (!r->known || !look_base(r, m, &base))
        return false;
    if (base != r->base || !r->variable) {
        u64 at = base + r->where.variable;
        r->variable = bytes_at(m, r->where.narrow ? (u32)at : at, word, &r->variable_at);
        r->base = base;
        r->comm = NULL;
    }
    if (!r->variable)
        return false;
    memcpy(&task, r->variable, word);
    if (task != r->task || !r->comm) {
        r->task = task;
        r->pid = bytes_at(m, task + r->where.pid, 4, NULL);
        r->tgid = bytes_at(m, task + r->where.tgid, 4, NULL);
        r->comm = bytes_at(m, task + r->where.comm, sizeof(out->comm), &r->comm_at);
    }
    if (!r->pid || !r->tgid || !r->comm) {
        r->comm = NULL;
        return false;
    }
    memcpy(&out->pid, r->pid, 4);
    memcpy(&out->tgid, r->tgid, 4);
    memcpy(out->comm, r->comm, sizeof(out->comm));
    out->comm[sizeof(out->comm) - 1] = 0;
    return true;
}
