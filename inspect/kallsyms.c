/* kallsyms out of a guest's memory (kallsyms.h). */
#include "inspect/kallsyms.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "board/ram.h"

#define TOKEN_TABLE (65536u + SYMBOL_NAME_MAX)

/* All that is needed to take one name after the other. */
struct decoder {
    const struct guest_linux *g;
    const struct kallsyms *t;
    char tokens[TOKEN_TABLE];
    u16 index[KALLSYMS_TOKENS];
    u64 at; /* the next name */
    u8 buffer[PAGE_SIZE];
    u64 start; /* of the buffer */
    size_t filled;
    struct err *err;
};

static bool fetch(const struct guest_linux *g, const struct kallsyms *t, u64 at, void *out,
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
    const struct kallsyms *t = d->t;
    if (!fetch(d->g, t, t->token_index, d->index, sizeof(d->index)))
        return bad(d->err, "its token index is not in memory");
    size_t size = d->index[KALLSYMS_TOKENS - 1];
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
    for (unsigned i = 0; i + 1 < KALLSYMS_TOKENS; i++)
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

unsigned kallsyms_word_size(const struct kallsyms *t)
{
    return t->narrow ? 4 : 8;
}

size_t kallsyms_addresses_size(const struct kallsyms *t)
{
    return (size_t)t->count * (t->wide ? kallsyms_word_size(t) : 4);
}

bool kallsyms_has_negative(const u8 *table, u32 count)
{
    bool any = false;
    for (u32 i = 0; i < count; i++)
        any = any || table[4 * (size_t)i + 3] & 0x80;
    return any;
}

u64 kallsyms_address(const struct kallsyms *t, const u8 *table, bool percpu, u32 i, bool *absolute)
{
    u64 wide = 0;
    i32 value;
    *absolute = false;
    if (t->wide) {
        memcpy(&wide, table + kallsyms_word_size(t) * (size_t)i, kallsyms_word_size(t));
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
    bool percpu = !d->t->wide && kallsyms_has_negative(table, d->t->count), absolute;
    d->at = d->t->names;
    for (u32 i = 0; i < d->t->count; i++) {
        int code = next_name(d, name);
        if (code)
            return code;
        u64 address = kallsyms_address(d->t, table, percpu, i, &absolute);
        code = symbols_add(out, address, 0, name[0], absolute, name + 1, d->err);
        if (code)
            return code;
    }
    return symbols_finish(out, d->err);
}

int kallsyms_decode(const struct guest_linux *g, const struct kallsyms *t, struct symbols *out,
                    struct err *err)
{
    u64 text;
    if (!t->count || t->count > SYMBOLS_MAX)
        return err_set(err, -EINVAL,
                       "the kernel's symbol table in the guest's memory says that it has %u "
                       "symbols: damaged, or of an unknown form",
                       t->count);
    size_t size = kallsyms_addresses_size(t);
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

bool kallsyms_by_name(const struct guest_linux *g, struct kallsyms *t)
{
    u64 count, base;
    *t = (struct kallsyms){.narrow = g->narrow};
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
