/*
 * Canonical results: what the manuals leave open, and CPUs do in ways of their own, made the same
 * on every host (docs/determinism.md has the table; canon.def, approx.h, x87_own.h the parts).
 * Machines of revision 4 and later whose positions are instructions have them; before, it is what
 * the host's CPU leaves, and a replay needs one by the same maker.
 */
#ifndef REPRISE_X86_CANON_H
#define REPRISE_X86_CANON_H

#include "base/err.h"
#include "cpu/x86/approx.h"
#include "cpu/x86/insn.h"

/*
 * For tests (REPRISE_TEST_OTHER_MAKER): results as another maker's CPU might have them. Undefined
 * flags are set before they get their value, and approximations are looked up; RAW leaves such
 * flags as they are, so that a comparison can be seen to fail.
 */
enum other_maker { OTHER_NOT, OTHER_FAKED, OTHER_RAW };

/* The rules that instructions of a canonical machine are read by on this host, and the tables of
 * approximations. */
u32 canon_rules(u8 *other_maker, struct approx *a);
/* Are this host's approximations those of approx.h? */
bool canon_host_approximates(const struct approx *a);
/* Part of insn_decode(): what of a decoded instruction is undefined. */
void canon_take(struct insn *in);
/* Flags that an instruction with a `canon` leaves undefined, from what RCX was before it. */
u32 canon_undefined(const struct insn *in, u64 rcx);
/* SHLD or SHRD of 16 bits by more than 16: all of it is undefined. */
bool canon_shifts_too_far(const struct insn *in, u64 rcx);
/* Some things no manual defines, and every CPU so far does the same; translated code relies on it.
 * <0 with a text: this host's CPU does not. */
int canon_host_check(struct err *err);

#endif
