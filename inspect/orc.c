/*
 * ORC tables out of a guest's memory (orc.h).
 *
 * Two arrays of equal length, ascending by address: 32-bit offsets of code from where they stand,
 * and entries of 6 bytes: two offsets, then bit fields: 4 bits sp_reg, 4 bits bp_reg and, by the
 * kernel's version,
 *   up to 6.2   2 bits type (call, regs, iret), 1 bit end
 *   6.3         2 bits type, 1 bit signal, 1 bit end
 *   from 6.4    3 bits type (undefined, end, call, regs, iret), 1 bit signal
 * Where many entries do not look as at the entry of a function, it is yet another form.
 */
#include "inspect/orc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define UPPER_HALF 0xffff800000000000ull
#define ENTRY_SIZE 6u
#define ENTRY_SP   8 /* the return address alone is on the stack */

/* ---- entries ---- */

static enum orc_form form_of(const char *release)
{
    char *end;
    unsigned long major = strtoul(release, &end, 10);
    if (release[0] < '0' || release[0] > '9' || *end != '.' || end[1] < '0' || end[1] > '9')
        return ORC_FORM_NONE;
    unsigned long minor = strtoul(end + 1, NULL, 10);
    if (major < 4 || (major == 4 && minor < 14))
        return ORC_FORM_NONE;
    if (major < 6 || (major == 6 && minor < 3))
        return ORC_FORM_END;
    return major == 6 && minor == 3 ? ORC_FORM_SIGNAL : ORC_FORM_TYPES;
}

/* By the types of Linux 6.4. */
static const u8 kinds[8] = {ORC_NONE, ORC_END, ORC_CALL, ORC_REGS, ORC_IRET};

static struct orc_row decode(enum orc_form form, u64 address, const u8 *entry)
{
    u16 flags;
    struct orc_row r = {.address = address};
    memcpy(&r.sp_offset, entry, 2);
    memcpy(&r.bp_offset, entry + 2, 2);
    memcpy(&flags, entry + 4, 2);
    unsigned bits = flags >> 8;
    r.sp_reg = flags & 15u;
    r.bp_reg = flags >> 4 & 15u;
    r.kind = kinds[form == ORC_FORM_TYPES ? bits & 7 : (bits & 3) + 2] & 7u;
    r.signal = (form == ORC_FORM_TYPES    ? bits >> 3
                : form == ORC_FORM_SIGNAL ? bits >> 2
                                          : r.kind != ORC_CALL) &
               1u;
    bool ends = form == ORC_FORM_TYPES    ? r.kind == ORC_END
                : form == ORC_FORM_SIGNAL ? bits >> 3 & 1
                                          : bits >> 2 & 1;
    if (r.kind == ORC_NONE || r.kind == ORC_END || r.sp_reg < ORC_DX || r.sp_reg > ORC_AX ||
        (r.bp_reg != ORC_UNDEFINED && r.bp_reg != ORC_PREVIOUS_SP && r.bp_reg != ORC_BP))
        r = (struct orc_row){.address = address, .kind = ends ? ORC_END : ORC_NONE};
    return r;
}

static bool at_entry(const struct orc_row *r)
{
    return r->kind == ORC_CALL && r->sp_reg == ORC_SP && r->sp_offset == ENTRY_SP &&
           r->bp_reg == ORC_UNDEFINED;
}

/* Every function begins so, and most return so. */
static bool makes_sense(const struct orc_row *rows, u32 count)
{
    u32 entries = 0;
    for (u32 i = 0; i < count; i++)
        entries += at_entry(&rows[i]);
    return entries >= count / 16;
}

/* ---- pushes ---- */

#define LOOK 7u /* bytes, the longest PUSH */

struct code {
    const struct guest_linux *g;
    u64 page; /* in bytes; 0: none */
    bool there;
    u8 bytes[PAGE_SIZE];
};

/* The `len` bytes in front of `at`, the last one first. */
static bool code_before(struct code *c, u64 at, size_t len, u8 out[LOOK])
{
    for (size_t i = 0; i < len; i++) {
        u64 page = --at & ~(u64)(PAGE_SIZE - 1);
        if (page != c->page) {
            c->page = page;
            c->there = guest_linux_read(c->g, page, c->bytes, sizeof(c->bytes));
        }
        if (!c->there)
            return false;
        out[i] = c->bytes[at - page];
    }
    return true;
}

/* ORC tells only of RBP where it was saved; of the others, the PUSH itself. Or it is one of a
 * constant, of memory (RSP or RBP with a displacement, any register with 8 bits), SUB $8,%rsp. */
static u8 push_before(struct code *c, u64 at, u64 room)
{
    u8 b[LOOK] = {0};
    if (!code_before(c, at, MIN(room, (u64)LOOK), b))
        return ORC_PUSH_UNKNOWN;
    if (b[1] == 0x41 && (b[0] & 0xf8) == 0x50)
        return b[0] >= 0x54 ? (u8)(ORC_PUSH_R12 + b[0] - 0x54) : ORC_PUSH_OTHER;
    if ((b[0] & 0xf8) == 0x50)
        return b[0] == 0x53 ? ORC_PUSH_BX : ORC_PUSH_OTHER;
    if (b[1] == 0x6a || b[4] == 0x68 || (b[2] == 0x83 && b[1] == 0xec && b[0] == 8) ||
        (b[1] == 0xff && (b[0] & 0x38) == 0x30) || (b[2] == 0xff && (b[1] & 0x38) == 0x30) ||
        (b[3] == 0xff && (b[2] & 0x3f) == 0x34) || (b[5] == 0xff && (b[4] & 0x38) == 0x30) ||
        (b[6] == 0xff && (b[5] & 0x3f) == 0x34))
        return ORC_PUSH_OTHER;
    return ORC_PUSH_UNKNOWN;
}

static void find_pushes(struct orc_row *rows, u32 count, struct code *c)
{
    for (u32 i = 1; i < count; i++) {
        const struct orc_row *a = &rows[i - 1], *b = &rows[i];
        if (a->kind == ORC_CALL && b->kind == ORC_CALL && a->sp_reg == ORC_SP &&
            b->sp_reg == ORC_SP && b->sp_offset == a->sp_offset + 8 && b->bp_reg == a->bp_reg)
            rows[i].push = push_before(c, b->address, b->address - a->address) & 7u;
    }
}

/* ---- tables ---- */

/* Of two at one address the one that ends a piece of code comes first: the other holds. */
static int compare(const void *x, const void *y)
{
    const struct orc_row *a = x, *b = y;
    if (a->address != b->address)
        return a->address < b->address ? -1 : 1;
    return (a->kind != ORC_NONE) - (b->kind != ORC_NONE);
}

/* Ascending by address, one for each. Returns how many are left. */
static u32 order(struct orc_row *rows, u32 count)
{
    u32 n = 0;
    bool sorted = true;
    for (u32 i = 1; sorted && i < count; i++)
        sorted = compare(&rows[i - 1], &rows[i]) <= 0;
    if (!sorted)
        qsort(rows, count, sizeof(*rows), compare);
    for (u32 i = 0; i < count; i++) {
        if (n && rows[n - 1].address == rows[i].address)
            n--;
        rows[n++] = rows[i];
    }
    return n;
}

static int no_memory(struct err *err)
{
    return err_set(err, -ENOMEM, "no memory for the guest's unwind tables");
}

static int read_rows(struct symbols *s, const struct guest_linux *g, u64 offsets, u64 entries,
                     u32 count, u8 *buffer, struct err *err)
{
    if (!guest_linux_read(g, offsets, buffer, 4ull * count) ||
        !guest_linux_read(g, entries, buffer + 4ull * count, (size_t)ENTRY_SIZE * count))
        return 0;
    struct orc_row *rows = realloc(s->orc, ((size_t)s->norc + count) * sizeof(*rows));
    struct code *code = malloc(sizeof(*code));
    if (rows)
        s->orc = rows;
    if (!rows || !code) {
        free(code);
        return no_memory(err);
    }
    u32 n = 0;
    rows += s->norc;
    for (u32 i = 0; i < count; i++) {
        i32 offset;
        memcpy(&offset, buffer + 4ull * i, 4);
        u64 address = offsets + 4 * (u64)i + (u64)(i64)offset;
        if (address >= UPPER_HALF)
            rows[n++] =
                decode(s->orc_form, address, buffer + 4ull * count + (size_t)ENTRY_SIZE * i);
    }
    if (makes_sense(rows, n)) {
        n = order(rows, n);
        code->g = g;
        code->page = 0;
        find_pushes(rows, n, code);
        s->norc += n;
    }
    free(code);
    return 0;
}

int orc_add(struct symbols *s, const struct guest_linux *g, u64 offsets, u64 entries, u32 count,
            struct err *err)
{
    if (s->orc_form == ORC_FORM_NONE || !count || count > s->orc_budget)
        return 0;
    s->orc_budget -= count;
    u8 *buffer = malloc((4ull + ENTRY_SIZE) * count);
    if (!buffer)
        return no_memory(err);
    int code = read_rows(s, g, offsets, entries, count, buffer, err);
    free(buffer);
    return code;
}

/* ---- what the tables do not say ---- */

/*
 * The kernel's entries call error_entry() or paranoid_entry(), which save all registers below the
 * CPU's frame and leave them there: they return with another stack pointer than they were called
 * with, and a return address has one row: that of when it has returned. So while the callee has
 * pushed nothing its rows lead to what was interrupted, and once it has pushed all and its return
 * address again, they lead to its caller.
 */
#define CALLEES    4u
#define CALL_SIZE  5u
#define ERROR_CODE 8 /* bytes: on the stack of such a call, above its return address */

struct callees {
    u64 entry[CALLEES];
    u32 count;
};

/* The target of the CALL that ends at `at`, 0: there is none. */
static u64 call_before(struct code *c, u64 at)
{
    u8 b[LOOK];
    i32 distance = 0;
    if (!code_before(c, at, CALL_SIZE, b) || b[CALL_SIZE - 1] != 0xe8)
        return 0;
    for (unsigned i = 0; i < 4; i++)
        distance |= (i32)((u32)b[i] << (24 - 8 * i));
    return at + (u64)(i64)distance;
}

static void note_callee(struct callees *l, u64 entry)
{
    for (u32 i = 0; i < l->count; i++)
        if (l->entry[i] == entry)
            return;
    if (l->count < CALLEES)
        l->entry[l->count++] = entry;
}

/* `row` is where all registers are saved, after rows where the CPU's frame alone is. From Linux
 * 5.19 on MOV %rax,%rsp follows the call, and ORC says nothing of the place between. */
static void mend_call(struct orc_row *row, u64 room, struct code *c, struct callees *l)
{
    static const u8 mov[] = {0xc4, 0x89, 0x48}; /* the last byte first */
    u8 b[LOOK];
    bool moves = room >= CALL_SIZE + sizeof(mov) && code_before(c, row->address, sizeof(mov), b) &&
                 !memcmp(b, mov, sizeof(mov));
    u64 after = row->address - (moves ? sizeof(mov) : 0), callee = call_before(c, after);
    if (!callee)
        return;
    row->address = after;
    note_callee(l, callee);
}

static void mend_callee(struct orc_row *r)
{
    if (r->sp_reg != ORC_SP || r->sp_offset > INT16_MAX - ERROR_CODE)
        return;
    if (r->kind == ORC_CALL) {
        r->kind = ORC_IRET;
        r->signal = 1;
        r->push = 0;
        r->sp_offset = (i16)(r->sp_offset + ERROR_CODE);
    } else if (r->kind == ORC_REGS && r->sp_offset == ENTRY_SP) {
        r->kind = ORC_CALL;
        r->signal = 0;
    }
}

/* Its caller is its caller's, who has left all registers at the stack pointer. */
static void mend_tail(struct orc_row *r)
{
    if (r->kind != ORC_CALL || r->sp_reg != ORC_SP)
        return;
    r->kind = ORC_REGS;
    r->signal = 1;
}

/* The rows of the function that begins there. */
static void mend_function(struct symbols *s, u64 entry, void (*mend)(struct orc_row *r))
{
    u64 offset;
    const char *name = symbols_find(s, entry, &offset);
    for (u32 i = 0; name && !offset && i < s->norc; i++) {
        struct orc_row *r = &s->orc[i];
        if (r->address < entry)
            continue;
        if (symbols_find(s, r->address, &offset) != name)
            return;
        offset = 0;
        mend(r);
    }
}

#define ENTRY_MAX 1024u /* bytes of code */

/* Where a function jumps to the other, the latter's caller is the former's. */
static bool jumps_to(const struct guest_linux *g, u64 entry, u64 target)
{
    u8 text[ENTRY_MAX];
    bool jumps = false;
    if (!guest_linux_read(g, entry, text, sizeof(text)))
        return false;
    for (u32 i = 0; i + 5 <= sizeof(text) && !jumps; i++) {
        i32 distance;
        memcpy(&distance, text + i + 1, 4);
        jumps = text[i] == 0xe9 && entry + i + 5 + (u64)(i64)distance == target;
    }
    return jumps;
}

static int mend_entries(struct symbols *s, const struct guest_linux *g, struct err *err)
{
    struct callees l = {.count = 0};
    struct code *c = malloc(sizeof(*c));
    u64 sync;
    if (!c)
        return no_memory(err);
    c->g = g;
    c->page = 0;
    for (u32 i = 1; i < s->norc; i++) {
        const struct orc_row *a = &s->orc[i - 1];
        struct orc_row *b = &s->orc[i];
        if (a->kind == ORC_IRET && a->sp_reg == ORC_SP && a->sp_offset == ERROR_CODE &&
            b->kind == ORC_REGS && b->sp_reg == ORC_SP && !b->sp_offset &&
            b->address - a->address >= CALL_SIZE)
            mend_call(b, b->address - a->address, c, &l);
    }
    free(c);
    for (u32 i = 0; i < l.count; i++) {
        mend_function(s, l.entry[i], mend_callee);
        if (symbols_address(s, "sync_regs", &sync) && jumps_to(g, l.entry[i], sync))
            mend_function(s, sync, mend_tail);
    }
    return 0;
}

int orc_read(struct symbols *s, const struct guest_linux *g, struct err *err)
{
    u64 offsets, offsets_end, entries, entries_end;
    s->orc_form = form_of(s->release);
    s->orc_budget = ORC_MAX;
    if (!symbols_address(s, "__start_orc_unwind_ip", &offsets) ||
        !symbols_address(s, "__stop_orc_unwind_ip", &offsets_end) ||
        !symbols_address(s, "__start_orc_unwind", &entries) ||
        !symbols_address(s, "__stop_orc_unwind", &entries_end) || offsets_end <= offsets ||
        (offsets_end - offsets) / 4 > ORC_MAX || entries_end <= entries ||
        (offsets_end - offsets) / 4 != (entries_end - entries) / ENTRY_SIZE) {
        s->orc_form = ORC_FORM_NONE;
        return 0;
    }
    int code = orc_add(s, g, offsets, entries, (u32)((offsets_end - offsets) / 4), err);
    if (!s->norc) /* modules' would be no better */
        s->orc_form = ORC_FORM_NONE;
    return code || !s->norc ? code : mend_entries(s, g, err);
}

struct orc_row orc_row_in(const struct symbols *s, u32 i, const char *function, u64 start)
{
    static const char indirect[] = "__x86_indirect_";
    const struct orc_row *r = &s->orc[i];
    bool padding = r->kind == ORC_NONE && r->address > start && i && r[-1].kind == ORC_CALL;
    /* Padding goes with what is in front of it; a thunk of an indirect call returns to a
     * function's first byte, which makes a debugger look there. */
    if (padding || !strncmp(function, indirect, sizeof(indirect) - 1))
        return (struct orc_row){
            .address = r->address, .sp_offset = 8, .sp_reg = ORC_SP, .kind = ORC_CALL};
    return *r;
}

void orc_finish(struct symbols *s)
{
    if (s->norc)
        s->norc = order(s->orc, s->norc);
}
