/*
 * The part of machine.h that the gdb stub uses, on a toy: a vCPU, four pages of RAM at physical 0,
 * which are at linear 0x1000. Included once in a program, so that machine.o is not pulled in.
 */
#ifndef REPRISE_TEST_GDB_FAKE_H
#define REPRISE_TEST_GDB_FAKE_H

#include <string.h>

#include "cpu/vcpu.h"
#include "machine/machine.h"
#include "replay/gdb/gdb.h"

#define FAKE_RAM    0x4000u
#define FAKE_LINEAR 0x1000u

struct machine {
    struct vcpu cpu;
    u8 ram[FAKE_RAM];
    enum cpu_model model;
    unsigned edits;
};

static inline struct machine *fake_machine(enum cpu_model model)
{
    static struct machine m;
    memset(&m, 0, sizeof(m));
    vcpu_reset(&m.cpu);
    m.model = model;
    for (unsigned i = 0; i < FAKE_RAM; i++)
        m.ram[i] = (u8)(i * 7 + (i >> 8));
    m.cpu.cr0 |= CR0_PE;
    m.cpu.efer = EFER_LME | EFER_LMA;
    m.cpu.seg_attr[SEG_CS] = ATTR_P | ATTR_S | ATTR_L | 0xb;
    return &m;
}

const struct vcpu *machine_vcpu(struct machine *m)
{
    return &m->cpu;
}

struct vcpu *machine_vcpu_edit(struct machine *m)
{
    return &m->cpu;
}

void machine_vcpu_edited(struct machine *m)
{
    m->edits++;
}

u64 machine_cr8(struct machine *m)
{
    return 7;
}

enum cpu_model machine_cpu_model(const struct machine *m)
{
    return m->model;
}

bool machine_peek_physical(struct machine *m, gpa_t gpa, void *out, size_t len)
{
    if (gpa > FAKE_RAM || len > FAKE_RAM - gpa)
        return false;
    memcpy(out, m->ram + gpa, len);
    return true;
}

bool machine_poke_physical(struct machine *m, gpa_t gpa, const void *in, size_t len)
{
    if (gpa > FAKE_RAM || len > FAKE_RAM - gpa)
        return false;
    memcpy(m->ram + gpa, in, len);
    return true;
}

bool machine_peek(struct machine *m, gva_t va, void *out, size_t len)
{
    return machine_peek_physical(m, va - FAKE_LINEAR, out, len);
}

bool machine_poke(struct machine *m, gva_t va, const void *in, size_t len)
{
    return machine_poke_physical(m, va - FAKE_LINEAR, in, len);
}

#endif
