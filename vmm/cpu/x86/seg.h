/* seg.c: descriptors and segment loads. */
#ifndef REPRISE_X86_SEG_H
#define REPRISE_X86_SEG_H

#include "cpu/x86/core.h"

struct desc {
    u64 base;
    u32 limit;
    u16 attr;
    u64 raw[2];
    u64 addr;
};
/* A gate of an IDT or of a descriptor table (SDM vol. 3, 5.8.3.1, 6.14.1). */
struct gate {
    u64 offset;
    u16 sel;
    u8 type, dpl, ist;
    u8 count; /* of a call gate's parameters */
    bool present;
};
/* Of 16 bytes, as IA-32e mode has them; of 8, raw[1] is 0. Gates of 16 bits have offsets of 16. */
void parse_gate(const u64 raw[2], struct gate *out);
#define GATE_INTERRUPT 0xe
#define GATE_TRAP      0xf
#define GATE_CALL      0xc
/* The gate that is entry `vector` of the IDT; what is wrong with its place faults with `error`. */
int read_idt_gate(struct core *d, unsigned vector, struct gate *out, u32 error);
int read_desc(struct core *d, u16 sel, struct desc *out, unsigned vector, u32 error);
void load_seg_cache(struct core *d, unsigned seg, u16 sel, const struct desc *desc);
/* May SS or a data segment be loaded with it at that CPL? If not: `vector`, or #SS and #NP if it is
 * only absent, with `error`. */
int check_data_segment(struct core *d, unsigned seg, u16 sel, const struct desc *desc, unsigned cpl,
                       unsigned vector, u32 error);
/* What MOV and POP do: of SS, the next instruction is in its shadow. */
int load_seg_insn(struct core *d, unsigned seg, u16 sel);
/* Attributes of what SYSCALL and its like load: code of 64 or 32 bits, and data. */
static inline u16 flat_code(unsigned dpl, bool wide)
{
    return (u16)(ATTR_P | ATTR_S | (wide ? ATTR_L : ATTR_DB) | ATTR_G | dpl << 5 | 0xb);
}
static inline u16 flat_data(unsigned dpl)
{
    return (u16)(ATTR_P | ATTR_S | ATTR_DB | ATTR_G | dpl << 5 | 3);
}
#define SYSRET_FLAGS 0x3c7fd7u /* of RFLAGS, that SYSRET takes from R11 */
/* Without a descriptor: base 0, no limit; attr 0: a null selector. */
void set_flat(struct core *d, unsigned seg, u16 sel, u16 attr);
/* The stack pointer at that offset of the TSS. */
int tss_stack(struct core *d, unsigned offset, u64 *rsp);
/* IRET and far RET: loads CS:RIP (into d->next) and, when `stack`, SS:RSP. */
int return_far(struct core *d, u16 cs_sel, u64 rip, u16 ss_sel, u64 rsp, bool stack);

#endif
