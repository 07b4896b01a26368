/*
 * Call frame information (cfi.h). The kinds of frames (enum orc_kind) differ in where the return
 * address and the registers are: a CIE each, twice, for an address found by a frame is after a
 * CALL or ("S", a signal frame) is where something was interrupted. A function has an FDE for each
 * run of rows with one CIE. In it change the CFA (the previous stack pointer), where RBP is, and
 * where the other registers are that a callee saves, as far as its PUSHes tell. Where an entry of
 * the kernel was interrupted, or has saved all registers, the CFA is where the CPU's frame is: the
 * same before and after they were saved, since debuggers know a frame by its CFA.
 */
#include "inspect/cfi.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/orc.h"

enum {
    CFA_ADVANCE = 0x40,
    CFA_OFFSET = 0x80,
    CFA_RESTORE = 0xc0,
    CFA_ADVANCE1 = 2,
    CFA_ADVANCE2 = 3,
    CFA_ADVANCE4 = 4,
    CFA_UNDEFINED = 7,
    CFA_SAME = 8,
    CFA_DEF = 0xc,
    CFA_DEF_OFFSET = 0xe,
    CFA_DEF_EXPRESSION = 0xf,
    CFA_EXPRESSION = 0x10,
    CFA_OFFSET_SF = 0x11,
    CFA_VALUE_EXPRESSION = 0x16,
    OP_DEREF = 6,
    OP_CONST4U = 0xc,
    OP_CONSTS = 0x11,
    OP_DUP = 0x12,
    OP_AND = 0x1a,
    OP_PLUS = 0x22,
    OP_PLUS_CONST = 0x23,
    OP_BRA = 0x28,
    OP_SKIP = 0x2f,
    OP_BREG = 0x70,
};

enum { RAX, RDX, RCX, RBX, RSI, RDI, RBP, RSP, R8, R12 = 12, RIP = 16, RFLAGS = 49, CS = 51, SS };
enum { EAX, ECX, EDX, EBX, ESP, EBP, ESI, EDI, EIP, EFLAGS, CS_32 = 41, SS_32 };

#define CIES  10u /* by kind and signal */
#define PIECE 160u
#define SAVED 5u /* registers that a callee saves, but for RBP */
#define PUSHES                                                                                     \
    9u /* words below the CFA that PUSHes are looked at for, the return address's being 1 */
#define UNKNOWN 0xffu
#define NONE    0xffu

/* Registers are DWARF's numbers, lists end with NONE. */
struct cfi_width {
    u8 word, bp, sp, pc;
    u8 pt_regs[16]; /* struct pt_regs from its beginning; what is no such register is left out */
    u8 registers;   /* its bytes in front of what the CPU pushed */
    u8 frame[6];    /* what that is */
    u8 saved[SAVED + 1], changed[12];
};

static const struct cfi_width width64 = {
    8,
    RBP,
    RSP,
    RIP,
    {15, 14, 13, 12, RBP, RBX, 11, 10, 9, 8, RAX, RCX, RDX, RSI, RDI, NONE},
    128,
    {RIP, CS, RFLAGS, RSP, SS, NONE},
    {RBX, R12, R12 + 1, R12 + 2, R12 + 3, NONE},
    {RAX, RDX, RCX, RSI, RDI, R8, R8 + 1, R8 + 2, R8 + 3, RFLAGS, NONE}};

static const struct cfi_width width32 = {4,
                                         EBP,
                                         ESP,
                                         EIP,
                                         {EBX, ECX, EDX, ESI, EDI, EBP, EAX, NONE},
                                         48,
                                         {EIP, CS_32, EFLAGS, ESP, SS_32, NONE},
                                         {EBX, ESI, EDI, NONE},
                                         {EAX, EDX, ECX, EFLAGS, NONE}};

/* ---- bytes ---- */

/* Room for one more piece: an FDE's head, a row, an end. */
static int make_room(struct cfi *c, struct err *err)
{
    if (c->size + PIECE <= c->room)
        return 0;
    size_t room = MAX(2 * c->room, (size_t)1 << 20);
    u8 *data = realloc(c->data, room);
    if (!data)
        return err_set(err, -ENOMEM, "no memory for the guest's unwind tables");
    c->data = data;
    c->room = room;
    return 0;
}

static void put(struct cfi *c, u8 byte)
{
    c->data[c->size++] = byte;
}

static void put_word(struct cfi *c, u64 value, size_t size)
{
    memcpy(c->data + c->size, &value, size);
    c->size += size;
}

static void put_uleb(struct cfi *c, u32 value)
{
    for (; value > 127; value >>= 7)
        put(c, (u8)value | 0x80);
    put(c, (u8)value);
}

static void put_sleb(struct cfi *c, i32 value)
{
    for (; value > 63 || value < -64; value = (value - (value & 127)) / 128)
        put(c, (u8)((value & 127) | 0x80));
    put(c, (u8)(value & 127));
}

/* A length first, which end() fills in. */
static size_t begin(struct cfi *c)
{
    size_t at = c->size;
    put_word(c, 0, 4);
    return at;
}

static void end(struct cfi *c, size_t at)
{
    while ((c->size - at) % c->of->word)
        put(c, 0); /* DW_CFA_nop */
    u32 length = (u32)(c->size - at - 4);
    memcpy(c->data + at, &length, 4);
}

/* A block's length is a byte in front: no expression here is long. */
static void end_block(struct cfi *c, size_t at)
{
    c->data[at] = (u8)(c->size - at - 1);
}

/* ---- CIEs ---- */

static void put_at(struct cfi *c, u8 reg, int offset)
{
    put(c, CFA_OFFSET_SF);
    put_uleb(c, reg);
    put_sleb(c, offset / -(int)c->of->word);
}

static void put_each(struct cfi *c, u8 rule, const u8 *regs)
{
    for (; *regs != NONE; regs++) {
        put(c, rule);
        put(c, *regs);
    }
}

/* From the stack pointer to the CFA at first. */
static u8 first_offset(const struct cfi *c, enum orc_kind kind)
{
    return kind == ORC_REGS ? c->of->registers : kind == ORC_IRET ? 0 : c->of->word;
}

/* Of 32 bits: the CPU pushes ESP of programs only (CS & 3); the kernel's entries do where they say
 * so in the upper half of CS (CS_FROM_KERNEL). Elsewhere it is behind what was pushed. */
static void put_narrow_sp(struct cfi *c)
{
    put(c, CFA_VALUE_EXPRESSION);
    put(c, ESP);
    size_t block = c->size;
    put(c, 0);
    put(c, OP_PLUS_CONST);
    put_uleb(c, 12);
    put(c, OP_DUP);
    put(c, OP_CONSTS);
    put_sleb(c, -8);
    put(c, OP_PLUS);
    put(c, OP_DEREF);
    put(c, OP_CONST4U);
    put_word(c, 3 | 1u << 29, 4);
    put(c, OP_AND);
    put(c, OP_BRA);
    put_word(c, 3, 2);
    put(c, OP_SKIP);
    put_word(c, 1, 2);
    put(c, OP_DEREF);
    end_block(c, block);
}

/* What the CPU pushed is at the CFA. */
static void put_frame(struct cfi *c)
{
    const struct cfi_width *w = c->of;
    for (int i = 0; w->frame[i] != NONE; i++) {
        if (w->frame[i] == w->sp && w == &width32)
            put_narrow_sp(c);
        else
            put_at(c, w->frame[i], w->word * i);
    }
}

static void put_rules(struct cfi *c, enum orc_kind kind)
{
    const struct cfi_width *w = c->of;
    const u8 bp[] = {w->bp, NONE}, pc[] = {w->pc, NONE};
    put(c, CFA_DEF);
    put(c, w->sp);
    put_uleb(c, first_offset(c, kind));
    switch (kind) {
    case ORC_NONE:
    case ORC_END: put_each(c, CFA_UNDEFINED, pc); break;
    case ORC_CALL:
        put_at(c, w->pc, -w->word);
        put_each(c, CFA_UNDEFINED, w->changed);
        put_each(c, CFA_SAME, bp);
        put_each(c, CFA_SAME, w->saved);
        break;
    case ORC_REGS:
        for (int i = 0; w->pt_regs[i] != NONE; i++)
            put_at(c, w->pt_regs[i], w->word * i - w->registers);
        put_frame(c);
        break;
    case ORC_IRET:
        put_each(c, CFA_SAME, bp);
        put_each(c, CFA_SAME, w->saved);
        for (int i = 0; w->changed[i + 1] != NONE; i++) /* the flags are the last */
            put_each(c, CFA_SAME, (const u8[]){w->changed[i], NONE});
        put_frame(c);
        break;
    }
}

static void put_cie(struct cfi *c, enum orc_kind kind, bool signal)
{
    size_t at = begin(c);
    put_word(c, UINT32_MAX, 4);
    put(c, 3); /* version */
    if (signal)
        put(c, 'S');
    put(c, 0);
    put(c, 1);
    put_sleb(c, -c->of->word);
    put(c, c->of->pc);
    put_rules(c, kind);
    end(c, at);
}

/* ---- rows ---- */

/* The rules in force. */
struct rules {
    u8 cfa, bp; /* enum orc_register */
    i16 cfa_offset, bp_offset;
    u8 saved[SAVED]; /* slot, 0: not saved, UNKNOWN */
};

static u8 dwarf_register(const struct cfi *c, u8 reg)
{
    static const u8 others[] = {
        [ORC_DX] = RDX, [ORC_DI] = RDI, [ORC_R10] = 10, [ORC_R13] = 13, [ORC_AX] = RAX};
    switch (reg) {
    case ORC_BP:
    case ORC_BP_INDIRECT: return c->of->bp;
    case ORC_SP:
    case ORC_SP_INDIRECT: return c->of->sp;
    default: return reg < sizeof(others) ? others[reg] : 0;
    }
}

static bool is_plain(u8 cfa, i16 offset)
{
    return (cfa == ORC_SP || cfa == ORC_BP) && offset >= 0;
}

static void put_cfa(struct cfi *c, const struct rules *now, const struct orc_row *r)
{
    u8 reg = dwarf_register(c, r->sp_reg);
    i16 offset = r->sp_offset;
    if (now->cfa == r->sp_reg && now->cfa_offset == offset)
        return;
    if (is_plain(r->sp_reg, offset)) {
        bool same = now->cfa == r->sp_reg && is_plain(now->cfa, now->cfa_offset);
        put(c, same ? CFA_DEF_OFFSET : CFA_DEF);
        if (!same)
            put(c, reg);
        put_uleb(c, (u16)offset);
        return;
    }
    put(c, CFA_DEF_EXPRESSION);
    size_t block = c->size;
    put(c, 0);
    put(c, OP_BREG + reg);
    put_sleb(c, r->sp_reg == ORC_SP || r->sp_reg == ORC_BP || r->sp_reg == ORC_BP_INDIRECT ? offset
                                                                                           : 0);
    if (r->sp_reg == ORC_BP_INDIRECT || r->sp_reg == ORC_SP_INDIRECT)
        put(c, OP_DEREF);
    if (r->sp_reg == ORC_SP_INDIRECT) {
        put(c, OP_CONSTS);
        put_sleb(c, offset);
        put(c, OP_PLUS);
    }
    if (r->kind == ORC_REGS && r->sp_reg != ORC_SP && r->sp_reg != ORC_BP) {
        put(c, OP_PLUS_CONST);
        put_uleb(c, c->of->registers);
    }
    end_block(c, block);
}

static void put_bp(struct cfi *c, const struct rules *now, const struct orc_row *r)
{
    int offset = r->bp_offset;
    if (now->bp == r->bp_reg && now->bp_offset == offset)
        return;
    if (r->bp_reg == ORC_UNDEFINED) {
        put(c, CFA_RESTORE + c->of->bp);
    } else if (r->bp_reg == ORC_PREVIOUS_SP && offset % c->of->word == 0) {
        if (offset > 0) {
            put_at(c, c->of->bp, offset);
            return;
        }
        put(c, CFA_OFFSET + c->of->bp);
        put_uleb(c, (u32)(-offset / c->of->word));
    } else { /* the CFA is on the expression's stack */
        bool bp = r->bp_reg == ORC_BP;
        put(c, CFA_EXPRESSION);
        put(c, c->of->bp);
        size_t block = c->size;
        put(c, 0);
        put(c, bp ? OP_BREG + c->of->bp : OP_CONSTS);
        put_sleb(c, offset);
        if (!bp)
            put(c, OP_PLUS);
        end_block(c, block);
    }
}

static void put_saved(struct cfi *c, const struct rules *now, const u8 saved[SAVED])
{
    for (unsigned i = 0; i < SAVED; i++) {
        u8 reg = c->of->saved[i];
        if (now->saved[i] == saved[i])
            continue;
        if (saved[i] == UNKNOWN) {
            put(c, CFA_UNDEFINED);
            put(c, reg);
        } else if (saved[i]) {
            put(c, CFA_OFFSET + reg);
            put(c, saved[i]);
        } else {
            put(c, CFA_RESTORE + reg);
        }
    }
}

static void put_advance(struct cfi *c, u64 distance)
{
    if (!distance)
        return;
    if (distance < 64) {
        put(c, (u8)(CFA_ADVANCE + distance));
    } else if (distance <= UINT8_MAX) {
        put(c, CFA_ADVANCE1);
        put(c, (u8)distance);
    } else if (distance <= UINT16_MAX) {
        put(c, CFA_ADVANCE2);
        put_word(c, distance, 2);
    } else {
        put(c, CFA_ADVANCE4);
        put_word(c, distance, 4);
    }
}

/* ---- functions ---- */

struct writer {
    struct cfi *out;
    const struct symbols *s;
    u32 cie[CIES];      /* where it is */
    u8 slots[PUSHES];   /* enum orc_push: what this function saves where */
    bool slots_unknown; /* it has them from elsewhere */
    u32 *pushes;        /* of each symbol: slots, 3 bits each */
    struct rules now;   /* of the FDE */
    size_t fde;         /* where it begins */
    u8 open;            /* its CIE, or CIES: no FDE has begun */
    u64 start, at;      /* its code; where the rules hold from */
    struct err *err;
};

/* What the function has saved at a row. */
static void saved_at(const struct writer *w, const struct orc_row *r, u8 saved[SAVED])
{
    memset(saved, 0, SAVED);
    if (r->kind != ORC_CALL)
        return;
    if (w->s->narrow) {
        for (unsigned i = 0; i < ORC_SAVED; i++)
            saved[i] = r->saved >> 5 * i & 31;
        return;
    }
    if (w->slots_unknown || (r->sp_reg != ORC_SP && r->sp_reg != ORC_SP_INDIRECT)) {
        memset(saved, UNKNOWN, SAVED);
        return;
    }
    for (u8 i = PUSHES; i-- > 2;) /* a later one is an argument */
        if (w->slots[i] && 8 * i <= r->sp_offset)
            saved[w->slots[i] - ORC_PUSH_BX] = i;
}

static void close_fde(struct writer *w, u64 stop)
{
    struct cfi *c = w->out;
    if (w->open == CIES)
        return;
    u64 length = stop - w->start;
    memcpy(c->data + w->fde + 8 + c->of->word, &length, c->of->word);
    end(c, w->fde);
    w->open = CIES;
}

static void open_fde(struct writer *w, u8 cie, u64 start)
{
    struct cfi *c = w->out;
    enum orc_kind kind = cie / 2;
    w->fde = begin(c);
    put_word(c, w->cie[cie], 4);
    put_word(c, start, c->of->word);
    put_word(c, 0, c->of->word);
    w->open = cie;
    w->start = w->at = start;
    w->now = (struct rules){.cfa = ORC_SP, .cfa_offset = first_offset(c, kind)};
}

/* The same row with the CFA after struct pt_regs. */
static struct orc_row beyond_registers(const struct cfi *c, struct orc_row r)
{
    int size = c->of->registers;
    bool direct = r.sp_reg == ORC_SP || r.sp_reg == ORC_BP;
    if (r.kind != ORC_REGS)
        return r;
    if (r.sp_offset > INT16_MAX - size || r.bp_offset < INT16_MIN + size)
        return (struct orc_row){.address = r.address};
    r.sp_offset = (i16)(r.sp_offset + (direct ? size : 0));
    r.bp_offset = (i16)(r.bp_offset - (r.bp_reg == ORC_PREVIOUS_SP ? size : 0));
    return r;
}

static int put_row(struct writer *w, const struct orc_row *r, u64 start)
{
    int code = make_room(w->out, w->err);
    if (code)
        return code;
    u8 cie = (u8)(2 * r->kind + r->signal), saved[SAVED];
    if (w->open != cie) {
        close_fde(w, start);
        open_fde(w, cie, start);
    }
    if (r->kind == ORC_NONE || r->kind == ORC_END)
        return 0;
    saved_at(w, r, saved);
    if (w->now.cfa == r->sp_reg && w->now.cfa_offset == r->sp_offset && w->now.bp == r->bp_reg &&
        w->now.bp_offset == r->bp_offset && !memcmp(w->now.saved, saved, SAVED))
        return 0;
    put_advance(w->out, start - w->at);
    w->at = start;
    put_cfa(w->out, &w->now, r);
    put_bp(w->out, &w->now, r);
    put_saved(w->out, &w->now, saved);
    w->now = (struct rules){r->sp_reg, r->bp_reg, r->sp_offset, r->bp_offset, {0}};
    memcpy(w->now.saved, saved, SAVED);
    return 0;
}

static bool is_function(const struct symbol *y)
{
    return y->type == 'T' || y->type == 't' || y->type == 'W' || y->type == 'w';
}

/* The address of the function after the i-th symbol. */
static u64 next_function(const struct symbols *s, u32 i)
{
    u64 address = s->list[i].address;
    while (i < s->count && (!is_function(&s->list[i]) || s->list[i].address == address))
        i++;
    return i < s->count ? s->list[i].address : UINT64_MAX;
}

/* The only symbol whose name are these bytes; the count if there is none. */
static u32 only_symbol(const struct symbols *s, const char *name, size_t len)
{
    u32 low = 0, high = s->count;
    while (low < high) { /* the first that is not below */
        u32 mid = low + (high - low) / 2;
        if (strncmp(s->names + s->list[s->by_name[mid]].name, name, len) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    u32 n = 0;
    for (u32 i = low; i < s->count && i < low + 2; i++) {
        const char *there = s->names + s->list[s->by_name[i]].name;
        n += !strncmp(there, name, len) && !there[len];
    }
    return n == 1 ? s->by_name[low] : s->count;
}

/* What is known to be saved at a function's begin: nothing; of a cold part, what its function
 * saves; of a label within a function, what was. */
static void begin_function(struct writer *w, const struct symbol *y, const struct orc_row *first)
{
    const char *name = w->s->names + y->name, *cold = strstr(name, ".cold");
    bool entry = first->kind != ORC_CALL || (first->sp_reg == ORC_SP && first->sp_offset <= 8);
    if (!entry && !cold)
        return;
    memset(w->slots, 0, sizeof(w->slots));
    w->slots_unknown = false;
    if (!cold)
        return;
    u32 parent = only_symbol(w->s, name, (size_t)(cold - name));
    u32 pushes = parent < w->s->count ? w->pushes[parent] : 0;
    w->slots_unknown = !(pushes >> 31);
    for (unsigned i = 0; i < PUSHES; i++)
        w->slots[i] = pushes >> 3 * i & 7;
}

static u32 pack_slots(const struct writer *w)
{
    u32 pushes = w->slots_unknown ? 0 : 1u << 31;
    for (unsigned i = 0; i < PUSHES; i++)
        pushes |= (u32)w->slots[i] << 3 * i;
    return pushes;
}

/* The rows from `row` on that meet [start, stop). */
static int put_function(struct writer *w, u32 symbol, u32 row, u64 start, u64 stop)
{
    const struct symbol *y = &w->s->list[symbol];
    const struct orc_row *rows = w->s->orc;
    int code = 0;
    w->open = CIES;
    begin_function(w, y, &rows[row]);
    for (u32 i = row; !code && i < w->s->norc && rows[i].address < stop; i++) {
        const struct orc_row *r = &rows[i];
        unsigned slot = (u16)r->sp_offset / 8u;
        if (r->push && r->address > start && slot > 1 && slot < PUSHES && !w->slots[slot]) {
            w->slots_unknown = w->slots_unknown || r->push == ORC_PUSH_UNKNOWN;
            w->slots[slot] = w->slots_unknown ? ORC_PUSH_OTHER : r->push;
        }
        struct orc_row in =
            beyond_registers(w->out, orc_row_in(w->s, i, w->s->names + y->name, start));
        code = put_row(w, &in, MAX(in.address, start));
    }
    if (!code)
        close_fde(w, stop);
    w->pushes[symbol] = pack_slots(w);
    return code;
}

static int put_functions(struct writer *w)
{
    const struct symbols *s = w->s;
    u64 done = s->orc[0].address;
    u32 row = 0;
    int code = 0;
    for (u32 i = s->absolutes; !code && i < s->count; i++) {
        u64 start = s->list[i].address, stop = start + s->list[i].size;
        if (!is_function(&s->list[i]) || start < done || stop <= start)
            continue;
        while (row + 1 < s->norc && s->orc[row + 1].address <= start)
            row++;
        done = MIN(stop, next_function(s, i));
        code = put_function(w, i, row, start, done);
        for (u32 k = i + 1; k < s->count && s->list[k].address == start; k++)
            w->pushes[k] = w->pushes[i]; /* its other names */
    }
    return code;
}

int cfi_make(struct cfi *c, const struct symbols *s, struct err *err)
{
    struct writer w = {.out = c, .s = s, .err = err, .open = CIES};
    *c = (struct cfi){.of = s->narrow ? &width32 : &width64};
    if (!s->norc)
        return 0;
    w.pushes = calloc(s->count + 1, sizeof(*w.pushes));
    int code = w.pushes ? 0 : err_set(err, -ENOMEM, "no memory for the guest's unwind tables");
    for (u8 i = 0; !code && i < CIES; i++) {
        w.cie[i] = (u32)c->size;
        code = make_room(c, err);
        if (!code)
            put_cie(c, i / 2, i % 2);
    }
    if (!code)
        code = put_functions(&w);
    free(w.pushes);
    if (code)
        cfi_free(c);
    return code;
}

void cfi_free(struct cfi *c)
{
    free(c->data);
    *c = (struct cfi){0};
}
