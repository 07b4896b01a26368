/*
 * kallsyms by its shape (kallsyms.h): before Linux 6.0, and before the kernel has written its
 * VMCOREINFO.
 *
 * The tokens of the digits are the digits, so "0\0" to "9\0" stand in a row; the index of the
 * tokens after them must agree; the markers (where in the names each 256th one begins) in front of
 * them must agree with the names, and these with their count.
 */
#define _GNU_SOURCE /* memmem */
#include <string.h>

#include "board/ram.h"
#include "inspect/kallsyms.h"

/* Words and names that are looked at: a hostile guest could make it last for ever. */
#define SEARCH_BUDGET 1000000000ull

/* A piece of RAM in which a kernel image lies in one piece. */
struct span {
    const u8 *p;
    u64 size;
    u64 offset; /* of p in RAM's host memory */
    u64 *budget;
    u32 align; /* bytes of a long: 8 or 4 */
};

static void spend(const struct span *s, u64 steps)
{
    *s->budget -= MIN(*s->budget, steps);
}

static u32 word(const struct span *s, u64 at)
{
    u32 v;
    memcpy(&v, s->p + at, sizeof(v));
    return v;
}

/* One that is a long: 0 is none that fits. */
static u32 count_before(const struct span *s, u64 at)
{
    return s->align == 8 && word(s, at - 4) ? 0 : word(s, at - s->align);
}

static u64 aligned(const struct span *s, u64 at)
{
    return (at + s->align - 1) & ~(u64)(s->align - 1);
}

/* From the token of '0' back to the second one; false if there is none. What is in front of the
 * first one need not end with a NUL. */
static bool second_token(const struct span *s, u64 zero, u64 *second)
{
    u64 at = zero;
    for (unsigned i = 1; i < '0'; i++) {
        if (!at || s->p[at - 1])
            return false;
        u64 end = --at;
        while (at && s->p[at - 1] && end - at < SYMBOL_NAME_MAX)
            at--;
    }
    *second = at;
    return at && !s->p[at - 1];
}

/* The tokens, and the index after them, which says where the first one begins and must agree with
 * all. */
static bool find_tokens(const struct span *s, u64 zero, u64 *table, u64 *index)
{
    u16 offset[KALLSYMS_TOKENS] = {0}, there[KALLSYMS_TOKENS];
    u64 second, at;
    if (!second_token(s, zero, &second))
        return false;
    at = second;
    for (unsigned i = 1; i < KALLSYMS_TOKENS; i++) {
        if (at >= s->size || at - second > UINT16_MAX)
            return false;
        offset[i] = (u16)(at - second);
        size_t most = (size_t)MIN(s->size - at, (u64)SYMBOL_NAME_MAX);
        size_t len = strnlen((const char *)s->p + at, most);
        if (len == most)
            return false;
        at += len + 1;
    }
    *index = aligned(s, at);
    if (*index > s->size || s->size - *index < sizeof(there))
        return false;
    memcpy(there, s->p + *index, sizeof(there));
    u16 first = there[1]; /* token's length with its NUL */
    *table = second - first;
    if (!first || first > second || *table % s->align || memchr(s->p + *table, 0, first - 1u))
        return false;
    for (unsigned i = 1; i < KALLSYMS_TOKENS; i++)
        if (there[i] != (u16)(offset[i] + first))
            return false;
    return !there[0];
}

/* Markers ascend from 0. */
static bool are_markers(const struct span *s, u64 markers, u32 n)
{
    u32 i = 1;
    if (word(s, markers))
        return false;
    while (i < n && word(s, markers + 4ull * i) > word(s, markers + 4ull * (i - 1)))
        i++;
    spend(s, i);
    return i == n;
}

/* Do `count` names from `names` on agree with the markers, and end at them? */
static bool names_agree(const struct span *s, u64 names, u32 count, u64 markers)
{
    u64 at = names;
    u32 i = 0;
    for (; i < count && at + 2 <= markers; i++) {
        if (i % KALLSYMS_GROUP == 0 && at - names != word(s, markers + i / KALLSYMS_GROUP * 4))
            break;
        unsigned len = s->p[at] & 0x7f;
        if (s->p[at++] & 0x80)
            len |= (unsigned)s->p[at++] << 7;
        at += len;
        if (!len)
            break;
    }
    spend(s, i);
    return i == count && at <= markers && aligned(s, at) == markers;
}

/* The names in front of `n` markers, and their count in front of them: `count`, or 0 for any. */
static bool find_names(const struct span *s, u64 markers, u32 n, u32 count, struct kallsyms *t)
{
    u32 last = word(s, markers + 4 * (n - 1));
    u64 longest = (u64)KALLSYMS_GROUP * (SYMBOL_NAME_MAX + 2) + 8;
    if (last > markers)
        return false;
    u64 high = (markers - last) & ~(u64)(s->align - 1);
    u64 low = high > longest ? high - longest : 8;
    spend(s, (high - low) / s->align);
    for (u64 at = high; at >= low && at >= 8 && *s->budget; at -= s->align) {
        u32 there = count_before(s, at);
        if (count ? there != count : (there + KALLSYMS_GROUP - 1) / KALLSYMS_GROUP != n)
            continue;
        if (names_agree(s, at, there, markers)) {
            t->names = at;
            t->count = there;
            return true;
        }
    }
    return false;
}

/* The markers end at the token table. */
static bool names_before(const struct span *s, u64 table, struct kallsyms *t)
{
    u64 at = s->align == 8 && table >= 8 && !word(s, table - 4) ? table - 4 : table;
    u32 n = 0, above = UINT32_MAX;
    while (at >= 4 && n <= SYMBOLS_MAX / KALLSYMS_GROUP && word(s, at - 4) < above) {
        at -= 4;
        above = word(s, at);
        n++;
    }
    return !above && n >= 2 && at % s->align == 0 && find_names(s, at, n, 0, t);
}

/* Between markers and token table, in Linux 6.2 and 6.3 and late 6.1 ones, stand the names' order:
 * three bytes a symbol. Their number decides where the markers are, so each number is tried. */
static bool names_before_order(const struct span *s, u64 table, struct kallsyms *t)
{
    for (u32 count = KALLSYMS_GROUP + 1; count <= SYMBOLS_MAX && *s->budget; count++) {
        u32 n = (count + KALLSYMS_GROUP - 1) / KALLSYMS_GROUP;
        u64 size = aligned(s, 3ull * count) + aligned(s, 4ull * n);
        if (size > table)
            return false;
        u64 markers = table - size;
        if (!word(s, markers) && are_markers(s, markers, n) && find_names(s, markers, n, count, t))
            return true;
    }
    return false;
}

/* Do the addresses ascend, within the kernel's image? */
static bool addresses_ascend(const struct span *s, const struct kallsyms *t)
{
    u64 size = kallsyms_addresses_size(t), before = 0,
        lowest = t->narrow ? SYMBOLS_FLOOR_32 : KERNEL_MAP;
    if (t->addresses > s->size || size > s->size - t->addresses || (!t->wide && t->base < lowest))
        return false;
    const u8 *table = s->p + t->addresses;
    bool percpu = !t->wide && kallsyms_has_negative(table, t->count), absolute;
    for (u32 i = 0; i < t->count; i++) {
        u64 address = kallsyms_address(t, table, percpu, i, &absolute);
        if (address < before)
            return false;
        before = address;
    }
    return before >= lowest;
}

/* Linux up to 6.3 has the addresses in front of the count, later ones after the token index. */
static bool find_addresses(const struct span *s, struct kallsyms *t)
{
    unsigned size = kallsyms_word_size(t);
    u64 four = aligned(s, 4ull * t->count), whole = (u64)size * t->count, count = t->names - size;
    if (count >= size + four) {
        memcpy(&t->base, s->p + count - size, size);
        t->addresses = count - size - four;
        if (addresses_ascend(s, t))
            return true;
    }
    t->addresses = t->token_index + KALLSYMS_TOKENS * sizeof(u16);
    if (t->addresses + four + size <= s->size) {
        memcpy(&t->base, s->p + t->addresses + four, size);
        if (addresses_ascend(s, t))
            return true;
    }
    t->wide = true;
    t->addresses = count - whole;
    return count >= whole && addresses_ascend(s, t);
}

static bool tables_at(const struct span *s, u64 zero, struct kallsyms *t)
{
    *t = (struct kallsyms){.found = true, .narrow = s->align == 4};
    if (!find_tokens(s, zero, &t->token_table, &t->token_index) ||
        !(names_before(s, t->token_table, t) || names_before_order(s, t->token_table, t)) ||
        !find_addresses(s, t))
        return false;
    t->names += s->offset;
    t->token_table += s->offset;
    t->token_index += s->offset;
    t->addresses += s->offset;
    return true;
}

static bool tables_around(const struct span *s, u64 zero, struct kallsyms *t)
{
    struct span narrow = *s;
    narrow.align = 4;
    return tables_at(s, zero, t) || tables_at(&narrow, zero, t);
}

static bool search_span(const struct ram *ram, const struct span *s, struct kallsyms *t)
{
    static const char digits[20] = "0\0001\0002\0003\0004\0005\0006\0007\0008\0009";
    unsigned candidates = 0;
    for (u64 at = 0; at < s->size; at += GUEST_REGION) {
        if (ram_untouched(ram, s->offset + at, MIN((u64)GUEST_REGION, s->size - at)))
            continue;
        u64 end = MIN(at + GUEST_REGION + sizeof(digits) - 1, s->size);
        for (u64 from = at; from < end;) {
            const u8 *p = memmem(s->p + from, end - from, digits, sizeof(digits));
            if (!p)
                break;
            if (candidates++ >= GUEST_CANDIDATES || !*s->budget)
                return false;
            if (tables_around(s, (u64)(p - s->p), t))
                return true;
            from = (u64)(p - s->p) + 1;
        }
    }
    return false;
}

bool kallsyms_by_shape(const struct guest_linux *g, struct kallsyms *t)
{
    const struct ram *ram = g->memory.ram;
    u64 budget = SEARCH_BUDGET;
    struct span low = {ram->host, ram->low_size, 0, &budget, 8};
    struct span high = {ram->host + ram->low_size, ram->size - ram->low_size, ram->low_size,
                        &budget, 8};
    return search_span(ram, &low, t) || search_span(ram, &high, t);
}
