/*
 * VMCOREINFO and kallsyms out of a guest's memory (guest_linux.h).
 *
 * kallsyms, as the kernel keeps it: `count` names, each a length and that many bytes, each byte an
 * index in a table of 256 tokens; the tokens' texts one after the other are nm's type letter and
 * the name. A length of 128 and more takes two bytes (from Linux 6.1). An address is a 64-bit word,
 * or a 32-bit offset: with per-CPU symbols kept absolute, v >= 0 is the value itself and v < 0
 * means base - 1 - v; without, base + v. In a kernel of 32 bits all words are of 32 bits and
 * aligned to as many.
 *
 * VMCOREINFO names these tables from Linux 6.0 on. Before, and before the kernel has written it,
 * the tables are found by their shape: the tokens of the digits are the digits, so "0\0" to "9\0"
 * stand in a row; the index of the tokens after them must agree; the markers (where in the names
 * each 256th one begins) in front of them must agree with the names, and these with their count.
 */
#define _GNU_SOURCE /* memmem */
#include "inspect/guest_linux.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "board/ram.h"
#include "machine/machine.h"
#include "inspect/btf.h"
#include "inspect/frames.h"
#include "inspect/orc.h"

#define KERNEL_MAP     0xffffffff80000000ull /* __START_KERNEL_map */
#define NARROW_RESERVE (128u << 20)          /* of a kernel of 32 bits, above its direct map */
#define REGION         (2u << 20) /* RAM is searched in pieces; one that was never touched, not */
#define TOKENS         256u
#define TOKEN_TABLE    (65536u + SYMBOL_NAME_MAX)
#define GROUP          256u /* names from marker to marker */
#define MAX_CANDIDATES 1000u
/* Words and names that the search by shape looks at: a hostile guest could make it last for ever.
 */
#define SEARCH_BUDGET 1000000000ull

/* ---- memory ---- */

static bool peek_machine(void *opaque, gva_t va, void *out, size_t len)
{
    return machine_peek(opaque, va, out, len);
}

void guest_memory_init(struct guest_memory *mem, struct machine *m)
{
    *mem = (struct guest_memory){.ram = machine_ram(m), .peek = peek_machine, .opaque = m};
}

/* Within one page. */
static bool read_page(const struct guest_linux *g, gva_t va, void *out, size_t len)
{
    if (g->narrow && va >> 32)
        return false;
    if (g->memory.peek(g->memory.opaque, va, out, len))
        return true;
    if (!g->has_phys_base || va < g->map || (g->narrow && va >= (1ull << 32) - NARROW_RESERVE))
        return false;
    const void *p = ram_ptr(g->memory.ram, va - g->map + g->phys_base, len);
    if (p)
        memcpy(out, p, len);
    return p;
}

bool guest_linux_read(const struct guest_linux *g, gva_t va, void *out, size_t len)
{
    u8 *to = out;
    if (va + len < va)
        return false;
    while (len) {
        size_t n = MIN(len, PAGE_SIZE - (va & (PAGE_SIZE - 1)));
        if (!read_page(g, va, to, n))
            return false;
        to += n;
        va += n;
        len -= n;
    }
    return true;
}

bool guest_linux_word(const struct guest_linux *g, gva_t va, u64 *out)
{
    *out = 0;
    return guest_linux_read(g, va, out, g->narrow ? 4 : 8);
}

/* ---- VMCOREINFO ---- */

/* The value of a line KEY=VALUE of VMCOREINFO, copied with a NUL; false if missing or too long. */
static bool guest_linux_value(const struct guest_linux *g, const char *key, char *out, size_t size)
{
    size_t len = strlen(key);
    for (const char *line = g->vmcoreinfo; line && *line;) {
        size_t n = strcspn(line, "\n");
        if (n > len && !memcmp(line, key, len) && line[len] == '=') {
            size_t value = n - len - 1;
            if (value >= size)
                return false;
            memcpy(out, line + len + 1, value);
            out[value] = 0;
            return true;
        }
        line += n + (line[n] == '\n');
    }
    return false;
}

/* The value of such a line as a number in that base. */
static bool guest_linux_number(const struct guest_linux *g, const char *key, int base, u64 *out)
{
    char text[32], *end;
    if (!guest_linux_value(g, key, text, sizeof(text)))
        return false;
    errno = 0;
    *out = text[0] == '-' ? (u64)strtoll(text, &end, base) : strtoull(text, &end, base);
    return !errno && end != text && !*end;
}

/* Lines of text up to a NUL or the page's end, in a page of its own. */
static size_t vmcoreinfo_length(const char *page)
{
    size_t n = strnlen(page, PAGE_SIZE);
    for (size_t i = 0; i < n; i++)
        if (page[i] != '\n' && (page[i] < ' ' || page[i] > '~'))
            return 0;
    return n;
}

/* Where the direct map of a kernel of 32 bits may begin (CONFIG_PAGE_OFFSET). */
static const u32 page_offsets[] = {0xc0000000, 0xb0000000, 0x80000000, 0x78000000, 0x40000000};

/* The one by which these bytes of the kernel's image are at `va`. */
static void find_page_offset(struct guest_linux *g, gva_t va, const void *bytes, size_t len)
{
    for (size_t i = 0; i < ARRAY_SIZE(page_offsets) && !g->has_phys_base; i++) {
        const void *p =
            va < page_offsets[i] ? NULL : ram_ptr(g->memory.ram, va - page_offsets[i], len);
        g->has_phys_base = p && !memcmp(p, bytes, len);
        g->map = page_offsets[i];
    }
}

/* The release stands in init_uts_ns. */
static bool has_release(const struct guest_linux *g, u64 uts, const char *release)
{
    char name[1024];
    return guest_linux_read(g, uts, name, sizeof(name)) &&
           memmem(name, sizeof(name), release, strlen(release) + 1);
}

/* The text is about the kernel that is in memory. */
static bool vmcoreinfo_is_true(struct guest_linux *g)
{
    char release[128], name[1024];
    u64 uts, page, list;
    g->narrow = guest_linux_number(g, "OFFSET(list_head.prev)", 10, &list) && list == 4;
    g->has_phys_base = !g->narrow && guest_linux_number(g, "NUMBER(phys_base)", 10, &g->phys_base);
    g->map = KERNEL_MAP;
    if (!guest_linux_number(g, "PAGESIZE", 10, &page) || page != PAGE_SIZE ||
        !guest_linux_value(g, "OSRELEASE", release, sizeof(release)) || !release[0] ||
        !guest_linux_number(g, "SYMBOL(init_uts_ns)", 16, &uts))
        return false;
    g->phys_base = g->has_phys_base ? g->phys_base : 0;
    if (!g->narrow)
        return has_release(g, uts, release);
    if (guest_linux_read(g, uts, name, sizeof(name)))
        find_page_offset(g, uts, name, sizeof(name));
    for (size_t i = 0; i < ARRAY_SIZE(page_offsets) && !g->has_phys_base; i++) {
        g->map = page_offsets[i];
        g->has_phys_base = true;
        g->has_phys_base = has_release(g, uts, release);
    }
    return has_release(g, uts, release);
}

/* Takes the page if it is VMCOREINFO. */
static int try_page(struct guest_linux *g, const char *page, bool *found, struct err *err)
{
    size_t len = vmcoreinfo_length(page);
    if (!len)
        return 0;
    char *text = malloc(len + 1);
    if (!text)
        return err_set(err, -ENOMEM, "no memory for the guest's VMCOREINFO");
    memcpy(text, page, len);
    text[len] = 0;
    free(g->vmcoreinfo);
    g->vmcoreinfo = text;
    g->vmcoreinfo_size = len;
    *found = vmcoreinfo_is_true(g);
    return 0;
}

int guest_linux_open(struct guest_linux *g, const struct guest_memory *mem, struct err *err)
{
    static const char first[] = "OSRELEASE=";
    const struct ram *ram = mem->ram;
    unsigned candidates = 0;
    bool found = false;
    int code = 0;
    *g = (struct guest_linux){.memory = *mem};
    for (u64 at = 0; !code && !found && at < ram->size; at += REGION) {
        u64 end = MIN(at + REGION, ram->size);
        if (ram_untouched(ram, at, end - at))
            continue;
        for (u64 page = at; !code && !found && page + PAGE_SIZE <= end; page += PAGE_SIZE)
            if (!memcmp(ram->host + page, first, sizeof(first) - 1) &&
                candidates++ < MAX_CANDIDATES)
                code = try_page(g, (const char *)ram->host + page, &found, err);
    }
    if (!code && !found) {
        free(g->vmcoreinfo);
        g->vmcoreinfo = strdup("");
        g->vmcoreinfo_size = 0;
        g->has_phys_base = g->narrow = false;
        g->map = KERNEL_MAP;
        if (!g->vmcoreinfo)
            code = err_set(err, -ENOMEM, "no memory for the guest's VMCOREINFO");
    }
    if (code)
        guest_linux_close(g);
    return code;
}

void guest_linux_close(struct guest_linux *g)
{
    free(g->vmcoreinfo);
    *g = (struct guest_linux){0};
}

/* ---- kallsyms ---- */

/* Where the tables are: linear addresses, or offsets in RAM's host memory when `found` by shape. */
struct tables {
    bool found, wide; /* wide: whole addresses, no base */
    bool narrow;      /* of a kernel of 32 bits */
    u32 count;
    u64 names, token_table, token_index, addresses;
    u64 base;
};

/* All that is needed to take one name after the other. */
struct decoder {
    const struct guest_linux *g;
    const struct tables *t;
    char tokens[TOKEN_TABLE];
    u16 index[TOKENS];
    u64 at; /* the next name */
    u8 buffer[PAGE_SIZE];
    u64 start; /* of the buffer */
    size_t filled;
    struct err *err;
};

static bool fetch(const struct guest_linux *g, const struct tables *t, u64 at, void *out,
                  size_t len)
{
    if (!t->found)
        return guest_linux_read(g, at, out, len);
    if (at > g->memory.ram->size || len > g->memory.ram->size - at)
        return false;
    memcpy(out, g->memory.ram->host + at, len);
    return true;
}

static int bad(struct err *err, const char *what)
{
    return err_set(err, -EINVAL,
                   "the kernel's symbol table in the guest's memory is damaged or of an unknown "
                   "form: %s",
                   what);
}

static int read_tokens(struct decoder *d)
{
    const struct tables *t = d->t;
    if (!fetch(d->g, t, t->token_index, d->index, sizeof(d->index)))
        return bad(d->err, "its token index is not in memory");
    size_t size = d->index[TOKENS - 1];
    if (!fetch(d->g, t, t->token_table, d->tokens, size))
        return bad(d->err, "its tokens are not in memory");
    /* The last one's length stands nowhere. */
    for (size_t i = size; i < size + SYMBOL_NAME_MAX; i++) {
        if (!fetch(d->g, t, t->token_table + i, &d->tokens[i], 1))
            return bad(d->err, "its tokens are not in memory");
        if (!d->tokens[i])
            break;
    }
    if (d->index[0])
        return bad(d->err, "its first token is not at 0");
    for (unsigned i = 0; i + 1 < TOKENS; i++)
        if (d->index[i] >= d->index[i + 1] || strnlen(d->tokens + d->index[i], SYMBOL_NAME_MAX) !=
                                                  (size_t)(d->index[i + 1] - d->index[i] - 1))
            return bad(d->err, "token index and tokens do not agree");
    return 0;
}

static bool next_byte(struct decoder *d, u8 *out)
{
    if (d->at - d->start >= d->filled) {
        /* Not beyond the page, which may be the last one. */
        d->start = d->at;
        d->filled = PAGE_SIZE - (d->at & (PAGE_SIZE - 1));
        if (!fetch(d->g, d->t, d->at, d->buffer, d->filled)) {
            d->filled = 0;
            return false;
        }
    }
    *out = d->buffer[d->at++ - d->start];
    return true;
}

/* The next name's length in bytes. */
static bool next_length(struct decoder *d, unsigned *len)
{
    u8 low, high = 0;
    if (!next_byte(d, &low) || (low & 0x80 && !next_byte(d, &high)))
        return false;
    *len = (low & 0x7f) | (unsigned)high << 7;
    return *len;
}

/* The next name with its type letter in front. */
static int next_name(struct decoder *d, char out[SYMBOL_NAME_MAX + 1])
{
    unsigned len, n = 0;
    u8 token;
    if (!next_length(d, &len))
        return bad(d->err, "its names end early");
    while (len--) {
        if (!next_byte(d, &token))
            return bad(d->err, "its names end early");
        for (const char *p = d->tokens + d->index[token]; *p; p++) {
            if (*p < ' ' || *p > '~')
                return bad(d->err, "a name is no text");
            if (n == SYMBOL_NAME_MAX)
                return bad(d->err, "a name is too long");
            out[n++] = *p;
        }
    }
    out[n] = 0;
    return n >= 2 ? 0 : bad(d->err, "a name is empty");
}

/* Bytes of a long, and of what is aligned as one. */
static unsigned word_size(const struct tables *t)
{
    return t->narrow ? 4 : 8;
}

static size_t addresses_size(const struct tables *t)
{
    return (size_t)t->count * (t->wide ? word_size(t) : 4);
}

/* Values are offsets: absolute ones are there if any is negative (a kernel is less than 2 GiB). */
static bool has_negative(const u8 *table, u32 count)
{
    bool any = false;
    for (u32 i = 0; i < count; i++)
        any = any || table[4 * (size_t)i + 3] & 0x80;
    return any;
}

static u64 address_of(const struct tables *t, const u8 *table, bool percpu, u32 i, bool *absolute)
{
    u64 wide = 0;
    i32 value;
    *absolute = false;
    if (t->wide) {
        memcpy(&wide, table + word_size(t) * (size_t)i, word_size(t));
        *absolute = wide < (t->narrow ? SYMBOLS_FLOOR_32 : SYMBOLS_FLOOR);
        return wide;
    }
    memcpy(&value, table + 4 * (size_t)i, 4);
    if (!percpu)
        return t->narrow ? (u32)t->base + (u32)value : t->base + (u32)value;
    *absolute = value >= 0;
    u64 address = value >= 0 ? (u64)value : t->base - 1 - (u64)(i64)value;
    return t->narrow ? (u32)address : address;
}

static int decode_names(struct decoder *d, const u8 *table, struct symbols *out)
{
    char name[SYMBOL_NAME_MAX + 1];
    bool percpu = !d->t->wide && has_negative(table, d->t->count), absolute;
    d->at = d->t->names;
    for (u32 i = 0; i < d->t->count; i++) {
        int code = next_name(d, name);
        if (code)
            return code;
        u64 address = address_of(d->t, table, percpu, i, &absolute);
        code = symbols_add(out, address, 0, name[0], absolute, name + 1, d->err);
        if (code)
            return code;
    }
    return symbols_finish(out, d->err);
}

/* Reads the tables into *out; *out is the caller's to free, also on failure. */
static int decode(const struct guest_linux *g, const struct tables *t, struct symbols *out,
                  struct err *err)
{
    u64 text;
    if (!t->count || t->count > SYMBOLS_MAX)
        return err_set(err, -EINVAL,
                       "the kernel's symbol table in the guest's memory says that it has %u "
                       "symbols: damaged, or of an unknown form",
                       t->count);
    size_t size = addresses_size(t);
    u64 floor = t->narrow ? SYMBOLS_FLOOR_32 : SYMBOLS_FLOOR;
    struct decoder *d = malloc(sizeof(*d));
    u8 *table = malloc(size);
    int code = 0;
    if (!d || !table) {
        code = err_set(err, -ENOMEM, "no memory for the guest's symbols");
    } else {
        d->g = g;
        d->t = t;
        d->err = err;
        d->start = d->filled = 0;
        code = read_tokens(d);
        if (!code && !fetch(g, t, t->addresses, table, size))
            code = bad(err, "its addresses are not in memory");
        if (!code)
            code = decode_names(d, table, out);
    }
    free(d);
    free(table);
    if (!code && (!symbols_address(out, "_text", &text) || text < floor) &&
        (!symbols_address(out, "_stext", &text) || text < floor))
        code = bad(err, "it has no _text");
    out->narrow = t->narrow;
    out->floor = floor;
    return code;
}

/* Where VMCOREINFO says they are. */
static bool tables_by_name(const struct guest_linux *g, struct tables *t)
{
    u64 count, base;
    *t = (struct tables){.narrow = g->narrow};
    if (!guest_linux_number(g, "SYMBOL(kallsyms_names)", 16, &t->names) ||
        !guest_linux_number(g, "SYMBOL(kallsyms_token_table)", 16, &t->token_table) ||
        !guest_linux_number(g, "SYMBOL(kallsyms_token_index)", 16, &t->token_index) ||
        !guest_linux_number(g, "SYMBOL(kallsyms_num_syms)", 16, &count) ||
        !guest_linux_read(g, count, &t->count, sizeof(t->count)))
        return false;
    if (guest_linux_number(g, "SYMBOL(kallsyms_offsets)", 16, &t->addresses))
        return guest_linux_number(g, "SYMBOL(kallsyms_relative_base)", 16, &base) &&
               guest_linux_word(g, base, &t->base);
    t->wide = true;
    return guest_linux_number(g, "SYMBOL(kallsyms_addresses)", 16, &t->addresses);
}

/* ---- kallsyms by its shape ---- */

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
    u16 offset[TOKENS] = {0}, there[TOKENS];
    u64 second, at;
    if (!second_token(s, zero, &second))
        return false;
    at = second;
    for (unsigned i = 1; i < TOKENS; i++) {
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
    for (unsigned i = 1; i < TOKENS; i++)
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
        if (i % GROUP == 0 && at - names != word(s, markers + i / GROUP * 4))
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
static bool find_names(const struct span *s, u64 markers, u32 n, u32 count, struct tables *t)
{
    u32 last = word(s, markers + 4 * (n - 1));
    u64 longest = (u64)GROUP * (SYMBOL_NAME_MAX + 2) + 8;
    if (last > markers)
        return false;
    u64 high = (markers - last) & ~(u64)(s->align - 1);
    u64 low = high > longest ? high - longest : 8;
    spend(s, (high - low) / s->align);
    for (u64 at = high; at >= low && at >= 8 && *s->budget; at -= s->align) {
        u32 there = count_before(s, at);
        if (count ? there != count : (there + GROUP - 1) / GROUP != n)
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
static bool names_before(const struct span *s, u64 table, struct tables *t)
{
    u64 at = s->align == 8 && table >= 8 && !word(s, table - 4) ? table - 4 : table;
    u32 n = 0, above = UINT32_MAX;
    while (at >= 4 && n <= SYMBOLS_MAX / GROUP && word(s, at - 4) < above) {
        at -= 4;
        above = word(s, at);
        n++;
    }
    return !above && n >= 2 && at % s->align == 0 && find_names(s, at, n, 0, t);
}

/* Between markers and token table, in Linux 6.2 and 6.3 and late 6.1 ones, stand the names' order:
 * three bytes a symbol. Their number decides where the markers are, so each number is tried. */
static bool names_before_order(const struct span *s, u64 table, struct tables *t)
{
    for (u32 count = GROUP + 1; count <= SYMBOLS_MAX && *s->budget; count++) {
        u32 n = (count + GROUP - 1) / GROUP;
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
static bool addresses_ascend(const struct span *s, const struct tables *t)
{
    u64 size = addresses_size(t), before = 0, lowest = t->narrow ? SYMBOLS_FLOOR_32 : KERNEL_MAP;
    if (t->addresses > s->size || size > s->size - t->addresses || (!t->wide && t->base < lowest))
        return false;
    const u8 *table = s->p + t->addresses;
    bool percpu = !t->wide && has_negative(table, t->count), absolute;
    for (u32 i = 0; i < t->count; i++) {
        u64 address = address_of(t, table, percpu, i, &absolute);
        if (address < before)
            return false;
        before = address;
    }
    return before >= lowest;
}

/* Linux up to 6.3 has the addresses in front of the count, later ones after the token index. */
static bool find_addresses(const struct span *s, struct tables *t)
{
    unsigned size = word_size(t);
    u64 four = aligned(s, 4ull * t->count), whole = (u64)size * t->count, count = t->names - size;
    if (count >= size + four) {
        memcpy(&t->base, s->p + count - size, size);
        t->addresses = count - size - four;
        if (addresses_ascend(s, t))
            return true;
    }
    t->addresses = t->token_index + TOKENS * sizeof(u16);
    if (t->addresses + four + size <= s->size) {
        memcpy(&t->base, s->p + t->addresses + four, size);
        if (addresses_ascend(s, t))
            return true;
    }
    t->wide = true;
    t->addresses = count - whole;
    return count >= whole && addresses_ascend(s, t);
}

static bool tables_at(const struct span *s, u64 zero, struct tables *t)
{
    *t = (struct tables){.found = true, .narrow = s->align == 4};
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

static bool tables_around(const struct span *s, u64 zero, struct tables *t)
{
    struct span narrow = *s;
    narrow.align = 4;
    return tables_at(s, zero, t) || tables_at(&narrow, zero, t);
}

static bool search_span(const struct ram *ram, const struct span *s, struct tables *t)
{
    static const char digits[20] = "0\0001\0002\0003\0004\0005\0006\0007\0008\0009";
    unsigned candidates = 0;
    for (u64 at = 0; at < s->size; at += REGION) {
        if (ram_untouched(ram, s->offset + at, MIN((u64)REGION, s->size - at)))
            continue;
        u64 end = MIN(at + REGION + sizeof(digits) - 1, s->size);
        for (u64 from = at; from < end;) {
            const u8 *p = memmem(s->p + from, end - from, digits, sizeof(digits));
            if (!p)
                break;
            if (candidates++ >= MAX_CANDIDATES || !*s->budget)
                return false;
            if (tables_around(s, (u64)(p - s->p), t))
                return true;
            from = (u64)(p - s->p) + 1;
        }
    }
    return false;
}

static bool tables_by_shape(const struct guest_linux *g, struct tables *t)
{
    const struct ram *ram = g->memory.ram;
    u64 budget = SEARCH_BUDGET;
    struct span low = {ram->host, ram->low_size, 0, &budget, 8};
    struct span high = {ram->host + ram->low_size, ram->size - ram->low_size, ram->low_size,
                        &budget, 8};
    return search_span(ram, &low, t) || search_span(ram, &high, t);
}

/* ---- all of it ---- */

/* The one that the kernel's code is not far above. */
static u64 likely_page_offset(const struct symbols *s)
{
    u64 text = 0;
    if (!symbols_address(s, "_text", &text))
        symbols_address(s, "_stext", &text);
    for (size_t i = 0; i < ARRAY_SIZE(page_offsets); i++)
        if (text >= page_offsets[i])
            return page_offsets[i];
    return SYMBOLS_FLOOR_32;
}

/* Release and build ID; where VMCOREINFO does not say it, phys_base, if it is what it is without
 * address randomisation. */
static void describe(struct guest_linux *g, struct symbols *s)
{
    static const char begins[] = "Linux version ";
    char id[2 * sizeof(s->build_id) + 1], banner[sizeof(begins) + 64] = "";
    u64 address;
    unsigned byte;
    if (guest_linux_value(g, "BUILD-ID", id, sizeof(id)))
        for (const char *p = id;
             s->build_id_size < sizeof(s->build_id) && sscanf(p, "%2x", &byte) == 1 && p[1]; p += 2)
            s->build_id[s->build_id_size++] = (u8)byte;
    g->narrow = s->narrow;
    if (s->narrow && !g->has_phys_base && symbols_address(s, "_stext", &address) &&
        guest_linux_read(g, address, banner, sizeof(banner) - 1))
        find_page_offset(g, address, banner, sizeof(banner) - 1);
    if (s->narrow)
        s->floor = g->has_phys_base ? g->map : likely_page_offset(s);
    if (guest_linux_value(g, "OSRELEASE", s->release, sizeof(s->release)) ||
        !symbols_address(s, "linux_banner", &address))
        return;
    if (!g->has_phys_base && !g->narrow) {
        const void *p = address < KERNEL_MAP
                            ? NULL
                            : ram_ptr(g->memory.ram, address - KERNEL_MAP, sizeof(banner) - 1);
        g->has_phys_base = p && !memcmp(p, begins, sizeof(begins) - 1);
        g->phys_base = 0;
    }
    if (guest_linux_read(g, address, banner, sizeof(banner) - 1) &&
        !memcmp(banner, begins, sizeof(begins) - 1))
        snprintf(s->release, sizeof(s->release), "%.*s",
                 (int)strcspn(banner + sizeof(begins) - 1, " \n"), banner + sizeof(begins) - 1);
}

int guest_linux_kernel(struct guest_linux *g, struct symbols *out, struct err *err)
{
    struct tables t;
    int code = 0;
    symbols_init(out);
    bool named = tables_by_name(g, &t);
    if (named)
        code = decode(g, &t, out, err);
    if (!named || code == -EINVAL) { /* a forged VMCOREINFO may have come first */
        symbols_free(out);
        if (tables_by_shape(g, &t))
            code = decode(g, &t, out, err);
        else if (!named)
            code = err_set(err, -ENOENT,
                           "no Linux kernel is to be seen in the guest's memory at this position: "
                           "neither VMCOREINFO (kernel not booted far enough?) nor its symbol "
                           "table; try a later point");
    }
    if (code)
        symbols_free(out);
    return code;
}

int guest_linux_symbols(struct guest_linux *g, struct symbols *out, struct err *err)
{
    int code = guest_linux_kernel(g, out, err);
    if (!code) {
        describe(g, out);
        code = out->narrow ? frames_read(out, g, err) : orc_read(out, g, err);
        if (!code)
            code = guest_modules_add(g, out, err);
        orc_finish(out);
    }
    if (code)
        symbols_free(out);
    return code;
}

int guest_symbols_read(struct symbols *out, struct machine *m, struct err *err)
{
    struct guest_memory mem;
    struct guest_linux g;
    symbols_init(out);
    guest_memory_init(&mem, m);
    int code = guest_linux_open(&g, &mem, err);
    if (!code)
        code = guest_linux_symbols(&g, out, err);
    guest_linux_close(&g);
    return code;
}
