/* x87 instructions of which CPUs have results of their own, on a parked image: x87_own.c. */
#ifndef REPRISE_X86_X87_OWN_H
#define REPRISE_X86_X87_OWN_H

#include "cpu/x86/x87_math.h"

enum x87_op {
    X87_OP_F2XM1,
    X87_OP_FSIN,
    X87_OP_FCOS,
    X87_OP_FSINCOS,
    X87_OP_FPTAN,
    X87_OP_FPATAN,
    X87_OP_FYL2X,
    X87_OP_FYL2XP1,
    X87_OP_FPREM,
    X87_OP_FPREM1,
};

/* Executes it on the legacy region of an XSAVE image: registers, FSW, tags; not the pointers. */
void x87_execute(enum x87_op op, u8 *image);

#endif
