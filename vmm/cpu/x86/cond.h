/* Whether a conditional branch jumps: by the flags, and by RCX (SDM vol. 2, Jcc and LOOPcc). */
#ifndef REPRISE_X86_COND_H
#define REPRISE_X86_COND_H

#include <Zydis/Mnemonic.h>

#include "cpu/x86/mode.h"

/* Does the Jcc jump? By the flags, before it and after. */
static inline bool jcc_jumps(const struct core *d, const struct insn *in)
{
    u64 f = d->flags;
    bool cf = f & FL_CF, zf = f & FL_ZF, sf = f & FL_SF, of = f & FL_OF, pf = f & FL_PF, v;
    switch (in->cond >> 1) {
    case 0: v = of; break;
    case 1: v = cf; break;
    case 2: v = zf; break;
    case 3: v = cf || zf; break;
    case 4: v = sf; break;
    case 5: v = pf; break;
    case 6: v = sf != of; break;
    default: v = zf || sf != of; break;
    }
    return v != (bool)(in->cond & 1);
}

/* LOOP, LOOPE, LOOPNE; the others only look at RCX: JRCXZ and its like. */
static inline bool loop_counts(const struct insn *in)
{
    return in->mnemonic == ZYDIS_MNEMONIC_LOOP || in->mnemonic == ZYDIS_MNEMONIC_LOOPE ||
           in->mnemonic == ZYDIS_MNEMONIC_LOOPNE;
}

/* Does it jump, with RCX as it is once it was counted down? */
static inline bool loop_jumps(const struct core *d, const struct insn *in, u64 rcx)
{
    bool zf = d->flags & FL_ZF;
    rcx = low_bytes(rcx, in->addrsize);
    switch (in->mnemonic) {
    case ZYDIS_MNEMONIC_LOOP: return rcx;
    case ZYDIS_MNEMONIC_LOOPE: return rcx && zf;
    case ZYDIS_MNEMONIC_LOOPNE: return rcx && !zf;
    default: return !rcx;
    }
}

#endif
