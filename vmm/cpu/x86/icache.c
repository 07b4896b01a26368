/*
 * Decoded instructions, keyed by their bytes: never stale. Two direct-mapped tables: of what is
 * executed one at a time, which comes back for long; and, small enough for the host's cache, of
 * what the translator and the liveness rule look at, which do so two or three times in a row and
 * then never again.
 */
#include "cpu/x86/icache.h"

#include "cpu/x86/heads.h"
#include "cpu/x86/mode.h"
#include "cpu/x86/park.h"

#define ICACHE_BITS 16
#define AHEAD_BITS  11

static u64 hash_key(const u8 key[16])
{
    u64 a = ((const u64 *)(const void *)key)[0], b = ((const u64 *)(const void *)key)[1];
    return (a ^ (b * 0x9e3779b97f4a7c15ull)) * 0xff51afd7ed558ccdull;
}

size_t icache_bytes(void)
{
    return (sizeof(struct insn) << ICACHE_BITS) + (sizeof(struct insn) << AHEAD_BITS);
}

/* What it came with is on the list of what this host does not execute. */
static bool host_lacks(const struct core *d, const struct insn *in)
{
    return (in->feature < CPU_WORDS * 32 && cpu_words_have(d->missing, in->feature)) ||
           (in->needs == N_AVX && cpu_words_have(d->missing, FEAT_AVX)) ||
           (in->needs == N_AVX512 && (cpu_words_have(d->missing, FEAT_AVX512F) ||
                                      cpu_words_have(d->missing, FEAT_AVX512VL)));
}

/* For tests: is it what Zydis says? */
static void compare(struct core *d, const struct insn *in)
{
    struct insn want;
    core_set_aside(d);
    insn_decode(d->words, (enum code_size)in->code, d->rules, in->bytes, in->bytes[15] & 15, &want);
    want.host_lacks = d->host_lacks && host_lacks(d, &want);
    want.bytes[15] = in->bytes[15];
    want.valid = 1;
    const u8 *a = (const void *)in, *b = (const void *)&want;
    for (size_t i = 0; i < offsetof(struct insn, snippet); i++)
        CHECK(a[i] == b[i], "%02x %02x %02x %02x...: byte %zu is %02x, not %02x", in->bytes[0],
              in->bytes[1], in->bytes[2], in->bytes[3], i, a[i], b[i]);
}

static struct insn *get(struct core *d, struct insn *in, const u8 key[16])
{
    const u64 *k = (const void *)key, *have = (const void *)in->bytes;
    if (LIKELY(have[0] == k[0] && have[1] == k[1] && in->valid))
        return in;
    if (heads_find(d->shared->heads, (enum code_size)(key[15] >> 4), key, key[15] & 15, in)) {
        in->bytes[15] = key[15];
        if (UNLIKELY(d->shared->test_heads))
            compare(d, in);
        return in;
    }
    core_set_aside(d);
    insn_decode(d->words, (enum code_size)(key[15] >> 4), d->rules, key, key[15] & 15, in);
    in->host_lacks = d->host_lacks && host_lacks(d, in);
    in->bytes[15] = key[15];
    in->valid = 1;
    heads_keep(d->shared->heads, in);
    return in;
}

struct insn *icache_get(struct core *d, const u8 key[16])
{
    return get(d, &d->shared->icache[hash_key(key) >> (64 - ICACHE_BITS)], key);
}

const struct insn *icache_look(struct core *d, const u8 key[16])
{
    return get(d, &d->shared->icache[(1u << ICACHE_BITS) + (hash_key(key) >> (64 - AHEAD_BITS))],
               key);
}

bool icache_crosses(struct core *d, const u8 *page, unsigned offset)
{
    u8 key[16] __attribute__((aligned(8)));
    unsigned avail = PAGE_SIZE - offset;
    if (avail >= 15)
        return false;
    icache_key(code_size(d), page + offset, avail, key);
    return !icache_look(d, key)->len;
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
