/*
 * Decoded instructions, keyed by their bytes: never stale, shared by the translator, the liveness
 * rule and single execution. Direct-mapped.
 */
#include "cpu/x86/icache.h"

#include "cpu/x86/park.h"

#define ICACHE_BITS 16

static u32 hash_key(const u8 key[16])
{
    u64 a = ((const u64 *)(const void *)key)[0], b = ((const u64 *)(const void *)key)[1];
    u64 h = (a ^ (b * 0x9e3779b97f4a7c15ull)) * 0xff51afd7ed558ccdull;
    return (u32)(h >> (64 - ICACHE_BITS));
}

size_t icache_bytes(void)
{
    return (sizeof(struct insn) << ICACHE_BITS) + sizeof(struct insn);
}

struct insn *icache_get(struct core *d, const u8 key[16])
{
    struct insn *in = &d->icache[hash_key(key)];
    const u64 *k = (const void *)key, *have = (const void *)in->bytes;
    if (LIKELY(have[0] == k[0] && have[1] == k[1] && in->valid))
        return in;
    if (UNLIKELY(in == d->pinned))
        in = &d->icache[1u << ICACHE_BITS]; /* the liveness rule looks around while this one
                                               executes */
    core_park(d);
    insn_decode(d->model, (enum code_size)(key[15] >> 4), key, key[15] & 15, in);
    in->bytes[15] = key[15];
    in->valid = 1;
    return in;
}

bool ends_scan(const struct insn *in)
{
    switch (in->treat) {
    case T_CALL:
    case T_RET:
    case T_JMP:
    case T_JCC:
    case T_LOOP:
    case T_UD:
    case T_NONE:
    case T_GP_LONG: return true;
    case T_HELP: return in->far || in->ends;
    default: return false;
    }
}
