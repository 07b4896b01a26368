/* gate.c: gates of protected mode outside long mode; the IDT's, and call gates. */
#ifndef REPRISE_X86_GATE_H
#define REPRISE_X86_GATE_H

#include "cpu/x86/seg.h"

/* Delivers `vector` through the IDT; the pushed RIP is cpu.rip. `soft`: by INT n, INT3 or INTO. */
int gate_deliver(struct core *d, unsigned vector, bool has_error, u32 error, bool soft);
/* CALL and JMP to a selector of a system segment: a call gate, a task gate or a TSS. RIP is left in
 * d->next. */
int gate_branch(struct core *d, u16 sel, const struct desc *desc, bool call);
/* IRET to virtual-8086 mode: what is left on the stack at `sp` after EFLAGS. */
int gate_return_v86(struct core *d, u64 sp, u64 rip, u16 cs, u64 flags);

#endif
