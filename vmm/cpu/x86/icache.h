/* icache.c: decoded instructions by their bytes. */
#ifndef REPRISE_X86_ICACHE_H
#define REPRISE_X86_ICACHE_H

#include "base/bytes.h"
#include "cpu/x86/core.h"
#include "cpu/x86/insn.h"

size_t icache_bytes(void);
/* The key of the instruction at `bytes` of which `avail` can be read, 15 at most: those bytes,
 * zeros, and in the last byte their number and what code they are. */
static inline void icache_key(enum code_size code, const u8 *bytes, unsigned avail, u8 key[16])
{
    if (LIKELY(avail == 15)) {
        put64(key, get64(bytes));
        put64(key + 7, get64(bytes + 7));
    } else {
        for (unsigned i = 0; i < 15; i++)
            key[i] = i < avail ? bytes[i] : 0;
    }
    key[15] = (u8)(avail | (unsigned)code << 4);
}
/* The instruction that is executed now: it stays until another is got. */
struct insn *icache_get(struct core *d, const u8 key[16]);
/* One that is only looked at: it stays until another is looked at. */
const struct insn *icache_look(struct core *d, const u8 key[16]);
/* Does the instruction at that offset of a page go on in the next one? */
bool icache_crosses(struct core *d, const u8 *page, unsigned offset);
/* The liveness rule stops here: branches and what may not be looked beyond. */
bool ends_scan(const struct insn *in);

#endif
