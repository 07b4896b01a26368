/*
 * Frames of kernels of 32 bits (frames.h). Each function is read once, from its first byte to its
 * last. A state says where the CFA is, the stack pointer's value in front of the call: by ESP, or
 * by EBP once the function has set that. It goes along with PUSH, POP and their like, and with
 * jumps forwards to where they lead. What follows a RET or JMP and is jumped to from nowhere before
 * is of the function's body, which had its frame.
 *
 * In the kernel's entries (between __entry_text_start and __entry_text_end) the CFA is where the
 * CPU's frame begins, until the macro SAVE_ALL has completed struct pt_regs below it: PUSH %ecx,
 * PUSH %ebx. Exits take it down again with POPs; what they took stays in memory.
 */
#include "inspect/frames.h"

#include <Zydis/Zydis.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/orc.h"

#define FUNCTION_MAX (64u << 10) /* bytes; of a longer one its end is not looked at */
#define TEXT_MAX     (64u << 20) /* of all */
#define FAR          (64u << 10) /* slots for jumps into other functions; a power of two */
#define WORD         4
#define CPU_ERROR    (2 * WORD) /* what handle_exception has on the stack above the CPU's frame */
#define REGISTERS    48         /* bytes of struct pt_regs in front of the CPU's frame */

enum { EAX, ECX, EDX, EBX, ESP, EBP, ESI, EDI };

struct state {
    bool known;
    u8 kind;     /* enum orc_kind */
    bool by_bp;  /* the CFA is EBP's, else ESP's */
    bool saved;  /* EBP is on the stack, at bp */
    i16 cfa, bp; /* from the register to the CFA; from that to where EBP is */
    i16 depth;   /* from ESP to the CFA */
    u8 slot[3];  /* where EBX, ESI, EDI are, in words below the CFA; 0: in the register */
};

struct far_jump {
    u64 to; /* 0: free */
    struct state state;
};

struct reader {
    const struct guest_linux *g;
    struct symbols *s;
    ZydisDecoder decoder;
    u8 *code;
    struct state *at; /* of each byte of the function: known where a jump leads to it */
    struct far_jump *far_jumps;
    u64 entries, entries_end; /* the kernel's entries */
    u64 budget;
    u32 room; /* of s->orc */
    /* The function. */
    u64 start;
    size_t size;
    bool entry, cold, stubs;
    u8 before; /* the register that the last instruction pushed, or EAX */
    struct state now, body, first;
    struct err *err;
};

static const struct state at_call = {.known = true, .kind = ORC_CALL, .cfa = WORD, .depth = WORD};

/* ---- rows ---- */

static u16 pack_saved(const struct state *t)
{
    unsigned packed = 0;
    for (unsigned i = 0; i < ARRAY_SIZE(t->slot); i++)
        packed |= (t->slot[i] < 32 ? t->slot[i] : 0u) << 5 * i;
    return (u16)packed;
}

static struct orc_row row_of(const struct state *t, u64 address)
{
    struct orc_row r = {.address = address, .kind = t->known ? t->kind & 7u : ORC_NONE};
    if (r.kind == ORC_NONE || r.kind == ORC_END)
        return r;
    r.sp_reg = t->by_bp ? ORC_BP : ORC_SP;
    r.sp_offset = t->cfa;
    r.bp_reg = t->saved ? ORC_PREVIOUS_SP : ORC_UNDEFINED;
    r.bp_offset = t->saved ? t->bp : 0;
    r.signal = t->kind != ORC_CALL;
    r.saved = t->kind == ORC_CALL ? pack_saved(t) : 0;
    return r;
}

static int add_row(struct reader *d, u64 address)
{
    struct symbols *s = d->s;
    struct orc_row r = row_of(&d->now, address);
    const struct orc_row *last = s->norc ? &s->orc[s->norc - 1] : NULL;
    if (last && last->address >= d->start && last->kind == r.kind && last->sp_reg == r.sp_reg &&
        last->sp_offset == r.sp_offset && last->bp_reg == r.bp_reg &&
        last->bp_offset == r.bp_offset && last->saved == r.saved)
        return 0;
    if (s->norc == ORC_MAX)
        return 0;
    if (s->norc == d->room) {
        u32 room = MAX(2 * d->room, 65536u);
        struct orc_row *rows = realloc(s->orc, room * sizeof(*rows));
        if (!rows)
            return err_set(d->err, -ENOMEM, "no memory for the guest's unwind tables");
        s->orc = rows;
        d->room = room;
    }
    s->orc[s->norc++] = r;
    return 0;
}

/* ---- jumps ---- */

static struct far_jump *far_slot(struct reader *d, u64 to)
{
    u32 i = (u32)(to * 0x9e3779b97f4a7c15ull >> 48) & (FAR - 1);
    for (unsigned n = 0; n < 16; n++, i = (i + 1) & (FAR - 1))
        if (!d->far_jumps[i].to || d->far_jumps[i].to == to)
            return &d->far_jumps[i];
    return NULL;
}

/* A jump leads there, with this state. */
static void note_jump(struct reader *d, u64 to, const struct state *t)
{
    if (to - d->start < d->size) {
        if (!d->at[to - d->start].known)
            d->at[to - d->start] = *t;
        return;
    }
    struct far_jump *f = t->by_bp ? far_slot(d, to) : NULL; /* else it is a tail call */
    if (f && !f->to)
        *f = (struct far_jump){to, *t};
}

/* Where no instruction goes on. In an entry's code what is jumped over is what the kernel patches
 * in. */
static void end_flow(struct reader *d)
{
    if (!d->entry || d->stubs)
        d->now = d->body.known ? d->body : d->first;
}

/* ---- instructions ---- */

/* ESP goes down by that many bytes. */
static void move_sp(struct state *t, i64 bytes)
{
    i64 depth = t->depth + bytes, cfa = t->cfa + bytes;
    if (depth > INT16_MAX || depth < INT16_MIN / 2 || (!t->by_bp && cfa > INT16_MAX)) {
        t->known = t->by_bp; /* a stack of that size is none */
        return;
    }
    t->depth = (i16)depth;
    if (!t->by_bp)
        t->cfa = (i16)cfa;
}

static void push(struct reader *d, u8 reg)
{
    static const u8 slots[8] = {[EBX] = 1, [ESI] = 2, [EDI] = 3};
    struct state *t = &d->now;
    move_sp(t, WORD);
    if (d->entry && t->known && t->kind == ORC_IRET && reg == EBX && d->before == ECX)
        *t = (struct state){.known = true, .kind = ORC_REGS};
    if (t->kind != ORC_CALL)
        return;
    if (reg == EBP && !t->saved && !t->by_bp) {
        t->saved = true;
        t->bp = (i16)-t->depth;
    }
    if (slots[reg] && !t->slot[slots[reg] - 1] && t->depth / WORD < 32)
        t->slot[slots[reg] - 1] = (u8)(t->depth / WORD);
    if (t->by_bp)
        d->body = *t;
}

static void pop(struct reader *d, u8 reg)
{
    struct state *t = &d->now;
    move_sp(t, -WORD);
    if (reg == ESP) {
        t->known = false;
    } else if (reg == EBP && t->kind == ORC_CALL && t->saved && t->by_bp) {
        t->by_bp = t->saved = false;
        t->cfa = t->depth = WORD;
        memset(t->slot, 0, sizeof(t->slot));
    } else if (reg == EBP && t->kind == ORC_CALL && t->saved && t->depth == -t->bp - WORD) {
        t->saved = false;
    }
}

static void leave(struct reader *d)
{
    struct state *t = &d->now;
    if (t->by_bp)
        *t = at_call;
}

/* ESP has a value of its own. */
static void set_sp(struct reader *d)
{
    struct state *t = &d->now;
    if (!t->by_bp && !(d->entry && t->kind == ORC_REGS && !t->cfa))
        t->known = false;
}

static void frame_pointer(struct reader *d)
{
    struct state *t = &d->now;
    if (t->kind != ORC_CALL || !t->saved || t->by_bp || t->depth != -t->bp)
        return;
    t->by_bp = true;
    t->cfa = t->depth;
    d->body = *t;
}

/* ADD, SUB, AND with ESP; LEA of it; MOV to it. */
static bool stack_arithmetic(struct reader *d, const ZydisDecodedInstruction *in)
{
    struct state *t = &d->now;
    u8 mod = in->raw.modrm.mod, reg = in->raw.modrm.reg, rm = in->raw.modrm.rm;
    switch (in->opcode) {
    case 0x81:
    case 0x83:
        if (mod != 3 || rm != ESP)
            return true;
        if (reg == 5 || reg == 0)
            move_sp(t, reg ? in->raw.imm[0].value.s : -in->raw.imm[0].value.s);
        else
            set_sp(d);
        /* SAVE_ALL's are behind it: the CPU's frame is all that is left. */
        if (d->entry && t->known && t->kind == ORC_REGS && t->cfa == -REGISTERS)
            *t = (struct state){.known = true, .kind = ORC_IRET};
        return true;
    case 0x8d:
        if (reg != ESP)
            return true;
        if (mod != 3 && rm == EBP && mod && t->by_bp && in->raw.disp.value > -INT16_MAX &&
            in->raw.disp.value < 0)
            t->depth = (i16)(t->cfa - in->raw.disp.value);
        else if (mod != 3 && rm == 4 && in->raw.sib.base == ESP && in->raw.sib.index == 4)
            move_sp(t, -in->raw.disp.value);
        else
            set_sp(d);
        return true;
    case 0x89:
        if (mod == 3 && rm == EBP && reg == ESP)
            frame_pointer(d);
        else if (mod == 3 && rm == ESP)
            set_sp(d);
        return true;
    case 0x8b:
        if (mod == 3 && reg == EBP && rm == ESP)
            frame_pointer(d);
        else if (reg == ESP)
            set_sp(d);
        return true;
    default: return false;
    }
}

static void two_bytes(struct reader *d, const ZydisDecodedInstruction *in, u64 next)
{
    switch (in->opcode) {
    case 0xa0:
    case 0xa8: push(d, EAX); return;
    case 0xa1:
    case 0xa9: pop(d, EAX); return;
    case 0xb2: /* LSS: the two words that were pushed for it are gone */
        if (d->entry)
            move_sp(&d->now, -2 * WORD);
        return;
    case 0x0b: end_flow(d); return;
    default:
        if (in->opcode >> 4 == 8)
            note_jump(d, (u32)(next + (u64)in->raw.imm[0].value.s), &d->now);
    }
}

static void jump(struct reader *d, const ZydisDecodedInstruction *in, u64 next)
{
    note_jump(d, (u32)(next + (u64)in->raw.imm[0].value.s), &d->now);
    end_flow(d);
}

static void call(struct reader *d, const ZydisDecodedInstruction *in, u64 next)
{
    u64 to = (u32)(next + (u64)in->raw.imm[0].value.s);
    struct state inside = d->now;
    if (to - d->start < d->size && to > d->start && !d->entry) { /* it takes its address */
        move_sp(&inside, WORD);
        note_jump(d, to, &inside);
    }
}

static void execute(struct reader *d, const ZydisDecodedInstruction *in, u64 next)
{
    u8 before = EAX, op = in->opcode, reg = in->raw.modrm.reg;
    if (in->opcode_map == ZYDIS_OPCODE_MAP_0F) {
        two_bytes(d, in, next);
    } else if (in->opcode_map != ZYDIS_OPCODE_MAP_DEFAULT) {
        /* nothing that has to do with the stack */
    } else if (op >= 0x50 && op <= 0x57) {
        push(d, op & 7);
        before = op & 7;
    } else if (op >= 0x58 && op <= 0x5f) {
        pop(d, op & 7);
    } else if (op >= 0x70 && op <= 0x7f) {
        note_jump(d, (u32)(next + (u64)in->raw.imm[0].value.s), &d->now);
    } else if (!stack_arithmetic(d, in)) {
        switch (op) {
        case 0x06:
        case 0x0e:
        case 0x16:
        case 0x1e:
        case 0x68:
        case 0x6a:
        case 0x9c: push(d, EAX); break;
        case 0x07:
        case 0x17:
        case 0x1f:
        case 0x9d:
        case 0x8f: pop(d, EAX); break;
        case 0xc9: leave(d); break;
        case 0xe8: call(d, in, next); break;
        case 0xe9:
        case 0xeb: jump(d, in, next); break;
        case 0xff:
            if (reg == 6)
                push(d, EAX);
            if (reg != 4)
                break;
            end_flow(d);
            break;
        case 0xc2:
        case 0xc3:
        case 0xcf:
        case 0xf4: end_flow(d); break;
        }
    }
    d->before = before;
}

/* ---- functions ---- */

static bool begins_with(const char *name, const char *what)
{
    return !strncmp(name, what, strlen(what));
}

/* What an entry's stub has pushed when it jumps to handle_exception, which wants CPU_ERROR. */
static i16 stub_offset(const struct reader *d)
{
    ZydisDecodedInstruction in;
    i16 pushed = 0;
    for (size_t at = 0; at < d->size && at < 32; at += in.length) {
        if (!ZYAN_SUCCESS(
                ZydisDecoderDecodeInstruction(&d->decoder, NULL, d->code + at, d->size - at, &in)))
            return 0;
        if (in.opcode == 0x68 || in.opcode == 0x6a)
            pushed += WORD;
        else if (in.opcode == 0xe9 || in.opcode == 0xeb)
            return (i16)MAX(CPU_ERROR - pushed, 0);
    }
    return 0;
}

static struct state first_state(const struct reader *d, const char *name)
{
    static const char *const ends[] = {"startup_32", "ret_from_fork", "rewind_stack_and_make_dead"};
    static const char *const whole[] = {"restore_all", "handle_exception_return", "ret_to_user"};
    struct state t = at_call;
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
        if (begins_with(name, ends[i]))
            return (struct state){.known = true, .kind = ORC_END};
    if (d->cold)
        t = (struct state){.known = true,
                           .kind = ORC_CALL,
                           .by_bp = true,
                           .saved = true,
                           .cfa = 2 * WORD,
                           .depth = 2 * WORD,
                           .bp = -2 * WORD};
    if (!d->entry || begins_with(name, "paravirt") || begins_with(name, "_paravirt"))
        return t;
    for (size_t i = 0; i < ARRAY_SIZE(whole); i++)
        if (begins_with(name, whole[i]))
            return (struct state){.known = true, .kind = ORC_REGS};
    t = (struct state){.known = true, .kind = ORC_IRET};
    if (begins_with(name, "handle_exception"))
        t.cfa = t.depth = CPU_ERROR;
    else if (!strcmp(name, "asm_common_interrupt") || !strcmp(name, "asm_spurious_interrupt"))
        t.cfa = t.depth = WORD;
    else if (begins_with(name, "asm_"))
        t.cfa = t.depth = stub_offset(d);
    else if (begins_with(name, "entry_SYSENTER"))
        t.cfa = t.depth = 5 * WORD; /* it pushes the frame itself */
    else if (!begins_with(name, "entry_INT80") && !d->stubs)
        t.known = false;
    return t;
}

/* SYSENTER has no frame; its entry pushes one, of five words, on the stack that it then takes. */
static bool makes_frame(const struct reader *d, const ZydisDecodedInstruction *in)
{
    return d->entry && in->opcode_map == ZYDIS_OPCODE_MAP_DEFAULT && in->opcode == 0x8b &&
           in->raw.modrm.reg == ESP && d->now.kind == ORC_IRET && d->now.cfa == 5 * WORD;
}

static int read_function(struct reader *d, const char *name)
{
    ZydisDecodedInstruction in;
    int code = 0;
    memset(d->at, 0, d->size * sizeof(*d->at));
    d->body = (struct state){0};
    d->before = EAX;
    d->first = first_state(d, name);
    d->now = d->first;
    bool ends = d->first.known && d->first.kind == ORC_END;
    for (size_t at = 0; !code && at < d->size; at += in.length) {
        struct far_jump *f = d->cold ? far_slot(d, d->start + at) : NULL;
        if (f && f->to)
            d->now = f->state;
        if (d->at[at].known)
            d->now = d->at[at];
        if (!ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&d->decoder, NULL, d->code + at,
                                                        d->size - at, &in))) {
            d->now.known = false;
            return add_row(d, d->start + at);
        }
        if (d->entry && in.opcode == 0xcf && in.opcode_map == ZYDIS_OPCODE_MAP_DEFAULT)
            d->now = (struct state){.known = true, .kind = ORC_IRET};
        code = add_row(d, d->start + at);
        if (ends)
            break;
        if (makes_frame(d, &in))
            d->now.cfa = d->now.depth = 0;
        else
            execute(d, &in, d->start + at + in.length);
    }
    return code;
}

static bool is_function(const struct symbol *y)
{
    return !y->absolute && strchr("TtWw", y->type);
}

static int read_functions(struct reader *d)
{
    const struct symbols *s = d->s;
    int code = 0;
    for (u32 i = s->absolutes; !code && i < s->count; i++) {
        const struct symbol *y = &s->list[i];
        const char *name = s->names + y->name;
        if (!is_function(y) || !symbols_in_kernel(s, y->address) ||
            (i > s->absolutes && y[-1].address == y->address && is_function(&y[-1]) &&
             !begins_with(name, "irq_entries") && !begins_with(name, "entry_")))
            continue;
        d->start = y->address;
        d->size = MIN(MIN(y->size, (u64)FUNCTION_MAX), d->budget);
        d->budget -= d->size;
        d->entry = y->address >= d->entries && y->address < d->entries_end;
        d->cold = strstr(name, ".cold");
        d->stubs = strstr(name, "_entries_start");
        if (d->size && guest_linux_read(d->g, d->start, d->code, d->size))
            code = read_function(d, name);
    }
    return code;
}

int frames_read(struct symbols *s, const struct guest_linux *g, struct err *err)
{
    struct reader d = {.g = g, .s = s, .budget = TEXT_MAX, .err = err};
    ZydisDecoderInit(&d.decoder, ZYDIS_MACHINE_MODE_LEGACY_32, ZYDIS_STACK_WIDTH_32);
    ZydisDecoderEnableMode(&d.decoder, ZYDIS_DECODER_MODE_MPX, ZYAN_FALSE);
    if (!symbols_address(s, "__entry_text_start", &d.entries) ||
        !symbols_address(s, "__entry_text_end", &d.entries_end))
        d.entries = d.entries_end = 0;
    d.code = malloc(FUNCTION_MAX);
    d.at = malloc(FUNCTION_MAX * sizeof(*d.at));
    d.far_jumps = calloc(FAR, sizeof(*d.far_jumps));
    int code = d.code && d.at && d.far_jumps
                   ? read_functions(&d)
                   : err_set(err, -ENOMEM, "no memory for the guest's unwind tables");
    free(d.code);
    free(d.at);
    free(d.far_jumps);
    return code;
}
