/* real.c: segments, far branches and interrupts of real-address and virtual-8086 mode. */
#ifndef REPRISE_X86_REAL_H
#define REPRISE_X86_REAL_H

#include "cpu/x86/core.h"

void real_load_seg(struct core *d, unsigned seg, u16 sel);
/* Far branches, of `size` bytes each on the stack; RIP is left in d->next. */
int real_jump(struct core *d, u16 sel, u64 rip);
int real_call(struct core *d, u16 sel, u64 rip, unsigned size);
int real_return(struct core *d, unsigned size, unsigned skip);
int real_iret(struct core *d, unsigned size);
/* Through the table at IDTR, in real-address mode; the pushed RIP is cpu.rip. There are no error
 * codes. */
int real_deliver(struct core *d, unsigned vector);

#endif
