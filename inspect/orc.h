/*
 * ORC, the tables by which a Linux kernel unwinds its own stack (arch/x86/kernel/unwind_orc.c): for
 * ranges of code, where the previous stack pointer and RBP are. Read out of a guest's memory and
 * kept with its symbols; cfi.h makes DWARF of them.
 */
#ifndef REPRISE_ORC_H
#define REPRISE_ORC_H

#include "inspect/guest_linux.h"

#define ORC_MAX (4u << 20) /* rows, of the kernel and its modules */

/* Also: from what the previous stack pointer or RBP is computed. */
enum orc_register {
    ORC_UNDEFINED,   /* RBP: unchanged */
    ORC_PREVIOUS_SP, /* RBP only */
    ORC_DX,
    ORC_DI,
    ORC_BP,
    ORC_SP,
    ORC_R10,
    ORC_R13,
    ORC_BP_INDIRECT,
    ORC_SP_INDIRECT,
    ORC_AX, /* compilers of late */
};

/* What lies at the previous stack pointer. */
enum orc_kind {
    ORC_NONE, /* nothing is known, or there is no code */
    ORC_CALL, /* the return address, below it */
    ORC_REGS, /* all registers: struct pt_regs */
    ORC_IRET, /* what the CPU pushed: RIP, CS, RFLAGS, RSP, SS */
    ORC_END,  /* nothing: the stack ends */
};

/* What a PUSH in front of the row saves; unknown where the code is not one that pushes: it is gone,
 * as the kernel's initialisation is. */
enum orc_push {
    ORC_PUSH_OTHER,
    ORC_PUSH_BX,
    ORC_PUSH_R12,
    ORC_PUSH_R13,
    ORC_PUSH_R14,
    ORC_PUSH_R15,
    ORC_PUSH_UNKNOWN,
};

/* In the words of 64 bits; of kernels of 32 bits SP and BP are ESP and EBP, and what the CPU pushed
 * is EIP, CS, EFLAGS, and of a program ESP and SS. From `address` up to that of the next row. */
struct orc_row {
    u64 address;
    i16 sp_offset, bp_offset;
    u8 sp_reg : 4, bp_reg : 4; /* enum orc_register, as the kind and the register allow */
    u8 kind : 3;               /* enum orc_kind */
    u8 signal : 1;             /* the address found is not after a CALL */
    u8 push : 3;               /* enum orc_push */
    /* Of kernels of 32 bits (frames.h), instead of `push`: where EBX, ESI and EDI are saved, five
     * bits each, in words below the previous stack pointer; 0: they are not. */
    u16 saved;
};
#define ORC_SAVED 3u

/* Adds the kernel's rows to a finished table. 0 also where there are none that we understand: they
 * are extra. -ENOMEM with a text. */
int orc_read(struct symbols *s, const struct guest_linux *g, struct err *err);
/* Adds a module's: `count` offsets, and as many entries. After orc_read. */
int orc_add(struct symbols *s, const struct guest_linux *g, u64 offsets, u64 entries, u32 count,
            struct err *err);
/* After the last. */
void orc_finish(struct symbols *s);

/* Row `i` in a function that begins at `start`, as an unwinder is to take it: the kernel says that
 * the stack ends in thunks of indirect calls, and nothing of the padding after a function's last
 * instruction. */
struct orc_row orc_row_in(const struct symbols *s, u32 i, const char *function, u64 start);

#endif
