/* memory.c: guest memory from C. mem_: by segment and offset, as instructions do (x86/mode.h);
 * sys_: by linear address, as the CPU itself does. */
#ifndef REPRISE_X86_MEMORY_H
#define REPRISE_X86_MEMORY_H

#include "cpu/x86/core.h"

int mem_read(struct core *d, unsigned seg, u64 off, unsigned len, void *out);
int mem_write(struct core *d, unsigned seg, u64 off, unsigned len, const void *in);
/* By linear address, with the rights of the code that runs. */
int user_write(struct core *d, u64 va, unsigned len, const void *in);
int mem_check(struct core *d, unsigned seg, u64 off, unsigned len, enum access acc);
int mem_check_image(struct core *d, unsigned seg, u64 off, unsigned len, enum access acc);
/* Onto and from the stack of SS at *sp, which moves if nothing faults; RSP is the caller's. */
int stack_push(struct core *d, u64 *sp, u64 value, unsigned size);
int stack_pop(struct core *d, u64 *sp, unsigned size, u64 *value);
/* Onto a stack of 64-bit code that is about to be SS's, with the rights of the CPU itself. */
int stack_push_inner(struct core *d, u64 *sp, u64 value, unsigned size);
int sys_read(struct core *d, u64 va, unsigned len, void *out);
int sys_write(struct core *d, u64 va, unsigned len, const void *in);
/* Prepares a memory operand for a native instruction; d->ptr is where it may operate. */
struct operand {
    u64 off;
    unsigned len, seg;
    enum access acc; /* ACC_W: read-modify-write if `read` */
    bool read, bounced;
    bool shows; /* it made dead flags visible: a store into the own page, a device (flags.c) */
    u64 va;     /* its linear address, once it was looked at */
    gpa_t gpa[2];
    unsigned part;
    u8 before[64];
};
int operand_open(struct core *d, struct operand *op);
int operand_close(struct core *d, struct operand *op);
/* The same for an instruction that somebody else executes: all that may stop it, before; what its
 * store has made stale, after it. */
int operand_check(struct core *d, struct operand *op);
void operand_stored(struct core *d, const struct operand *op);
/* Physical memory that is not RAM, in naturally sized pieces. */
void io_read(struct core *d, gpa_t gpa, unsigned len, u8 *out);
void io_write(struct core *d, gpa_t gpa, unsigned len, const u8 *in);

#endif
