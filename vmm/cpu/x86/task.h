/* task.c: hardware task switches. */
#ifndef REPRISE_X86_TASK_H
#define REPRISE_X86_TASK_H

#include "cpu/x86/seg.h"

/* TASK_EVENT: an exception, interrupt or INT n through a task gate, which nests as CALL does. */
enum task_way { TASK_JUMP, TASK_CALL, TASK_EVENT, TASK_RETURN };

/*
 * Saves the task that runs, which goes on at `next`, and loads the one of the TSS `desc`; cpu.rip
 * is then its. An error code is pushed on its stack. FAULT: nothing has changed, or the new task is
 * there already, and it is the one that faults.
 */
int task_switch(struct core *d, u16 sel, const struct desc *desc, enum task_way way, u64 next,
                u32 ext, const u32 *error);
/* The same by the selector in a task gate. */
int task_by_gate(struct core *d, u16 sel, enum task_way way, u64 next, u32 ext, const u32 *error);
/* IRET with NT: to the task that this one was called from. */
int task_return(struct core *d);

#endif
