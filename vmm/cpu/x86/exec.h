/* exec.c: one instruction; helpers of the other files by insn.def. */
#ifndef REPRISE_X86_EXEC_H
#define REPRISE_X86_EXEC_H

#include "cpu/x86/core.h"
#include "cpu/x86/insn.h"

int exec(struct core *d, struct insn *in);
static inline int core_native(struct core *d, struct insn *in)
{
    return d->translator->native(d, in);
}
/* Offset of the memory operand in its segment; and its linear address. */
u64 insn_offset(struct core *d, const struct insn *in);
u64 insn_linear(struct core *d, const struct insn *in);
/* exec()'s part in front of the instruction proper: sets d->next; #UD, #NM and the like. */
int exec_begin(struct core *d, struct insn *in);
/* x87 pointers after an x87 instruction at RIP. */
void exec_x87_pointers(struct core *d, struct insn *in);

/* Helpers named by insn.def */
#define HELPER(name)                                                                               \
    helper_fn help_##name;                                                                         \
    int help_##name(struct core *d, struct insn *in)

/* RCPPS, RSQRTPS and their like as they are written. */
struct approx_form {
    bool vex; /* zeros above what is written */
    bool root;
    u8 n;        /* elements */
    u8 dst, src; /* src: unless it is in memory */
    u8 rest;     /* of one element: where the others of 128 bits come from */
};
struct approx_form approx_form(const struct insn *in);

#endif
