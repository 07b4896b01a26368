/* See trace_line.h. Lines are put together here, without printf: that took most of the time. */
#include "cmd/trace_line.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <Zydis/Zydis.h>

#include "cmd/cmd.h"
#include "cpu/engine.h"
#include "cpu/vcpu.h"

#define SHAPES (1u << 15)
#define LINE   16384u /* a line has less: at most 170 numbers of registers, 16 accesses */
#define BUFFER 65536u

/* What an instruction looks like wherever it runs again. */
struct shape {
    u64 rip;
    u8 bytes[15];
    u8 fetched; /* of them; 0: the slot is empty */
    u8 mode;    /* CS.L and CS.D */
    bool rep;
    /* Of its line: from the address up to what it changed; its symbol. */
    u16 head_size, tail_size;
    char head[240], tail[152];
};

struct tracer {
    FILE *out;
    bool json;
    const struct symbols *symbols;
    struct running *running;
    bool (*wants)(void *opaque, const struct running_task *task);
    void *opaque;
    u64 lines;
    /* The instruction that runs now. */
    bool open, by_branch, has_task;
    pos_t position;
    u32 cpu, cpus; /* whose it is, of how many */
    const struct shape *shape;
    struct shape unkept; /* of bytes that are not in memory */
    struct running_task task;
    char task_text[96]; /* the line's end for that task */
    size_t task_size;
    struct vcpu before;
    /* A REP that stopped between iterations: it may only be that the run was cut there. */
    bool held;
    struct vcpu at_cut;
    struct engine_accesses accesses;
    char *p, *limit, buffer[BUFFER + LINE];
    ZydisFormatter formatter;
    struct shape shapes[SHAPES];
};

struct tracer *tracer_create(FILE *out, bool json, const struct symbols *symbols,
                             struct running *running)
{
    struct tracer *t = calloc(1, sizeof(*t));
    if (!t)
        return NULL;
    t->out = out;
    t->json = json;
    t->symbols = symbols;
    t->running = running;
    t->p = t->buffer;
    /* Who looks on sees each line when it is there. */
    t->limit = isatty(fileno(out)) ? t->buffer + 1 : t->buffer + BUFFER;
    ZydisFormatterInit(&t->formatter, ZYDIS_FORMATTER_STYLE_INTEL);
    return t;
}

static void flush(struct tracer *t)
{
    fwrite(t->buffer, 1, (size_t)(t->p - t->buffer), t->out);
    t->p = t->buffer;
}

void tracer_set_wants(struct tracer *t,
                      bool (*wants)(void *opaque, const struct running_task *task), void *opaque)
{
    t->wants = wants;
    t->opaque = opaque;
}

u64 tracer_lines(const struct tracer *t)
{
    return t->lines + t->held;
}

/* ---- text ---- */

static void put_bytes(struct tracer *t, const char *text, size_t n)
{
    memcpy(t->p, text, n);
    t->p += n;
}

static void put(struct tracer *t, const char *text)
{
    put_bytes(t, text, strlen(text));
}

static void put_decimal(struct tracer *t, u64 v)
{
    char digits[20];
    unsigned n = 0;
    do
        digits[n++] = (char)('0' + v % 10);
    while (v /= 10);
    while (n)
        *t->p++ = digits[--n];
}

static const char hex_digits[] = "0123456789abcdef";

/* At least `width` digits. */
static void put_hex(struct tracer *t, u64 v, unsigned width)
{
    unsigned n = v ? (67 - (unsigned)__builtin_clzll(v)) / 4 : 1;
    for (n = MAX(n, width); n;)
        *t->p++ = hex_digits[v >> 4 * --n & 15];
}

/* Names of the guest: what would control a terminal, or end a JSON string, is left out. */
static void plain_name(char *name)
{
    for (; *name; name++)
        *name = *name < ' ' || *name > '~' || *name == '"' || *name == '\\' ? '?' : *name;
}

/* ---- the instruction ---- */

/* The bytes at RIP: fewer than 15 when the next page is not there. */
static u8 fetch(struct machine *m, gva_t rip, u8 out[15])
{
    size_t in_page = PAGE_SIZE - (rip & (PAGE_SIZE - 1));
    if (machine_peek(m, rip, out, 15))
        return 15;
    if (in_page < 15 && machine_peek(m, rip, out, in_page))
        return (u8)in_page;
    return 0;
}

static void decode(struct tracer *t, struct shape *s)
{
    ZydisDecoder decoder;
    ZydisDecodedInstruction insn;
    ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
    bool wide = s->mode & 1, big = s->mode & 2;
    size_t len = s->fetched;
    char text[97], hex[31], where[129] = "";
    u64 offset;
    strcpy(text, len ? "(no instruction)" : "(not in memory)");
    s->rep = false;
    ZydisDecoderInit(&decoder,
                     wide  ? ZYDIS_MACHINE_MODE_LONG_64
                     : big ? ZYDIS_MACHINE_MODE_LEGACY_32
                           : ZYDIS_MACHINE_MODE_LEGACY_16,
                     wide  ? ZYDIS_STACK_WIDTH_64
                     : big ? ZYDIS_STACK_WIDTH_32
                           : ZYDIS_STACK_WIDTH_16);
    if (len && ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder, s->bytes, len, &insn, operands))) {
        len = insn.length;
        ZydisFormatterFormatInstruction(&t->formatter, &insn, operands, insn.operand_count_visible,
                                        text, sizeof(text), s->rip, NULL);
        s->rep = insn.attributes &
                 (ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE | ZYDIS_ATTRIB_HAS_REPNE);
    }
    for (size_t i = 0; i < len; i++)
        snprintf(hex + 2 * i, 3, "%02x", s->bytes[i]);
    hex[2 * len] = 0;
    if (t->symbols && symbols_in_kernel(t->symbols, s->rip) &&
        symbols_find(t->symbols, s->rip, &offset))
        plain_name(symbols_format(t->symbols, s->rip, where, sizeof(where)));
    s->head_size =
        (u16)snprintf(s->head, sizeof(s->head),
                      t->json ? "\"rip\":\"%" PRIx64 "\",\"bytes\":\"%s\",\"text\":\"%s\""
                              : "%016" PRIx64 " %-20s %-36s  ;",
                      s->rip, hex, text);
    s->tail_size = (u16)snprintf(s->tail, sizeof(s->tail),
                                 t->json  ? ",\"symbol\":\"%s\""
                                 : *where ? " @%s"
                                          : "%s",
                                 where);
}

static const struct shape *shape_at(struct tracer *t, struct machine *m, const struct vcpu *c)
{
    struct shape now = {.rip = c->rip};
    u16 cs = c->seg_attr[SEG_CS];
    bool wide = cs & ATTR_L && c->efer & EFER_LMA;
    now.mode = (u8)(wide | (cs & ATTR_DB ? 2 : 0));
    now.fetched = fetch(m, wide ? c->rip : (u32)(c->rip + c->seg_base[SEG_CS]), now.bytes);
    struct shape *s = &t->shapes[(now.rip ^ now.rip >> 15) & (SHAPES - 1)];
    if (!now.fetched)
        s = &t->unkept;
    else if (s->rip == now.rip && s->fetched == now.fetched && s->mode == now.mode &&
             !memcmp(s->bytes, now.bytes, sizeof(now.bytes)))
        return s;
    *s = now;
    decode(t, s);
    return s;
}

/* ---- what it did ---- */

static const char *const gpr_names[16] = {"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
                                          "r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15"};

static void put_change(struct tracer *t, const char *name, int index, u64 value, bool *first)
{
    put(t, !t->json ? " " : *first ? "\"" : ",\"");
    put(t, name);
    if (index >= 0) {
        *t->p++ = '[';
        put_decimal(t, (u64)index);
        *t->p++ = ']';
    }
    put(t, t->json ? "\":\"" : "=");
    put_hex(t, value, 1);
    if (t->json)
        *t->p++ = '"';
    *first = false;
}

/* What every instruction changes, only the machine sees, or is printed already, is left out. */
static bool hidden(const char *field)
{
    static const char *const names[] = {"position", "rip",    "shadow", "rep_resume",
                                        "gpr",      "rflags", "xsave",  "perf"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (!strcmp(field, names[i]))
            return true;
    return false;
}

/* The fields that seldom change: every element that differs. */
static void put_others(struct tracer *t, const struct vcpu *now, bool *first)
{
    const struct state_desc *desc = &vcpu_state_desc;
    for (size_t i = 0; i < desc->nfields; i++) {
        const struct state_field *f = &desc->fields[i];
        const u8 *a = (const u8 *)&t->before + f->offset, *b = (const u8 *)now + f->offset;
        if (!memcmp(a, b, (size_t)f->elem * f->count) || hidden(f->name))
            continue;
        for (unsigned k = 0; k < f->count; k++, a += f->elem, b += f->elem) {
            u64 v = 0;
            memcpy(&v, b, f->elem);
            if (memcmp(a, b, f->elem))
                put_change(t, f->name, f->count > 1 ? (int)k : -1, v, first);
        }
    }
}

/* Of AVX-512: each mask, and where the registers begin to differ. */
static void put_avx512(struct tracer *t, const struct vcpu *old, const struct vcpu *now,
                       bool *first)
{
    for (unsigned i = 0; i < ARRAY_SIZE(now->mask); i++)
        if (old->mask[i] != now->mask[i])
            put_change(t, "mask", (int)i, now->mask[i], first);
    for (unsigned component = 6; component < 8; component++) {
        const u8 *a = vcpu_avx512_part(old, component), *b = vcpu_avx512_part(now, component);
        unsigned i = 0, n = cpu_xsave_part(component).size;
        if (!memcmp(a, b, n))
            continue;
        while (a[i] == b[i])
            i++;
        put_change(t, component == 6 ? "zmm_high" : "zmm_above", (int)i, b[i], first);
    }
}

static void put_changes(struct tracer *t, const struct vcpu *now)
{
    const struct vcpu *old = &t->before;
    const size_t from = offsetof(struct vcpu, cr0), to = offsetof(struct vcpu, xsave);
    bool first = true;
    for (unsigned i = 0; i < ARRAY_SIZE(gpr_names); i++)
        if (old->gpr[i] != now->gpr[i])
            put_change(t, gpr_names[i], -1, now->gpr[i], &first);
    if (old->rflags != now->rflags)
        put_change(t, "rflags", -1, now->rflags, &first);
    if (memcmp((const u8 *)old + from, (const u8 *)now + from, to - from))
        put_others(t, now, &first);
    /* The XSAVE image: only where it begins to differ. */
    for (unsigned i = 0; memcmp(old->xsave, now->xsave, XSAVE_SIZE) && i < XSAVE_SIZE; i++)
        if (old->xsave[i] != now->xsave[i]) {
            put_change(t, "xsave", (int)i, now->xsave[i], &first);
            break;
        }
    put_avx512(t, old, now, &first);
}

/* Up to 8 bytes are a number; more are bytes as they lie in memory. */
static void put_value(struct tracer *t, const struct engine_access *a)
{
    u64 v = 0;
    if (a->size <= 8) {
        memcpy(&v, a->value, a->size);
        put_hex(t, v, 1);
    } else {
        for (u64 i = 0; i < a->size; i++)
            put_hex(t, a->value[i], 2);
    }
}

static void put_accesses_json(struct tracer *t, const struct engine_accesses *all)
{
    put(t, ",\"memory\":[");
    for (u32 i = 0; i < all->n; i++) {
        const struct engine_access *a = &all->list[i];
        put(t, i ? ",{\"write\":" : "{\"write\":");
        put(t, a->write ? "true,\"address\":\"" : "false,\"address\":\"");
        put_hex(t, a->address, 1);
        put(t, "\",\"size\":");
        put_decimal(t, a->size);
        if (a->size <= ENGINE_ACCESS_BYTES) {
            put(t, ",\"value\":\"");
            put_value(t, a);
            *t->p++ = '"';
        }
        *t->p++ = '}';
    }
    *t->p++ = ']';
    if (all->lost) {
        put(t, ",\"memory_more\":");
        put_decimal(t, all->lost);
    }
}

static void put_accesses(struct tracer *t, const struct engine_accesses *all)
{
    for (u32 i = 0; i < all->n; i++) {
        const struct engine_access *a = &all->list[i];
        put(t, a->write ? " w" : " r");
        put_decimal(t, a->size);
        *t->p++ = '[';
        put_hex(t, a->address, 1);
        *t->p++ = ']';
        if (a->size <= ENGINE_ACCESS_BYTES) {
            *t->p++ = '=';
            put_value(t, a);
        }
    }
    if (all->lost) {
        put(t, " (and ");
        put_decimal(t, all->lost);
        put(t, " more)");
    }
}

/* ---- lines ---- */

/* The end of the lines of the task that runs. */
static void look_at_task(struct tracer *t, struct machine *m)
{
    struct running_task now = {0};
    char comm[sizeof(now.comm)], thread[16] = "";
    bool has = running_look(t->running, m, &now);
    if (has == t->has_task && !memcmp(&now, &t->task, sizeof(now)))
        return;
    t->has_task = has;
    t->task = now;
    memcpy(comm, now.comm, sizeof(comm));
    plain_name(comm);
    t->task_size = 0;
    if (!has)
        return;
    if (now.pid != now.tgid)
        snprintf(thread, sizeof(thread), "/%d", now.pid);
    t->task_size = (size_t)(t->json ? snprintf(t->task_text, sizeof(t->task_text),
                                               ",\"pid\":%d,\"tid\":%d,\"comm\":\"%s\"", now.tgid,
                                               now.pid, comm)
                                    : snprintf(t->task_text, sizeof(t->task_text), " [%s %d%s]",
                                               comm, now.tgid, thread));
}

static void put_line(struct tracer *t, const struct vcpu *now, pos_t last,
                     const struct engine_accesses *all)
{
    const struct shape *s = t->shape;
    if (t->json)
        put(t, "{\"position\":");
    put_decimal(t, t->position);
    if (t->json || last != t->position) {
        put(t, t->json ? ",\"last\":" : "-");
        put_decimal(t, last);
    }
    if (t->cpus > 1) {
        put(t, t->json ? ",\"cpu\":" : " cpu");
        put_decimal(t, t->cpu);
    }
    put(t, t->json ? ",\"cpl\":" : " ");
    put_decimal(t, t->before.seg_sel[SEG_CS] & 3);
    *t->p++ = t->json ? ',' : ' ';
    put_bytes(t, s->head, s->head_size);
    put(t, t->json ? ",\"changed\":{" : "");
    put_changes(t, now);
    put(t, t->json ? "}" : "");
    (t->json ? put_accesses_json : put_accesses)(t, all);
    put_bytes(t, s->tail, s->tail_size);
    put_bytes(t, t->task_text, t->task_size);
    put(t, t->json ? "}\n" : "\n");
}

/* REP instructions count one position an iteration, and one if there is none. */
static pos_t last_position(const struct tracer *t, const struct vcpu *now)
{
    u64 iterations = t->shape->rep && !t->by_branch ? t->before.gpr[1] - now->gpr[1] : 1;
    return t->position + (iterations ? iterations - 1 : 0);
}

static void print(struct tracer *t, const struct vcpu *now, const struct engine_accesses *all)
{
    put_line(t, now, last_position(t, now), all);
    t->lines++;
    if (t->p >= t->limit)
        flush(t);
}

/* Prints what is held. */
static void finish(struct tracer *t)
{
    if (t->held)
        print(t, &t->at_cut, &t->accesses);
    t->held = false;
}

static bool goes_on(const struct tracer *t, const struct vcpu *now)
{
    return now->rep_resume && now->rip == t->at_cut.rip && now->position == t->at_cut.position;
}

void tracer_before(void *opaque, struct machine *m)
{
    struct tracer *t = opaque;
    if (t->held && goes_on(t, machine_vcpu(m))) {
        t->held = false;
        t->open = true;
        return;
    }
    finish(t);
    look_at_task(t, m);
    if (t->wants && !t->wants(t->opaque, t->has_task ? &t->task : NULL))
        return;
    const struct vcpu *c = machine_vcpu(m);
    t->accesses.n = t->accesses.lost = 0;
    t->by_branch = machine_by_branch(m);
    t->shape = shape_at(t, m, c);
    t->position = machine_position(m);
    t->cpu = machine_turn(m);
    t->cpus = machine_cpus(m);
    t->before = *c;
    t->open = true;
}

void tracer_after(void *opaque, struct machine *m)
{
    struct tracer *t = opaque;
    if (!t->open)
        return;
    t->open = false;
    const struct vcpu *now = machine_vcpu(m);
    const struct engine_accesses *all = machine_accesses(m);
    if (!now->rep_resume && !t->accesses.n) {
        print(t, now, all);
        return;
    }
    for (u32 i = 0; i < all->n; i++)
        engine_add_access(&t->accesses, &all->list[i], all->list[i].value);
    t->accesses.lost += all->lost;
    t->at_cut = *now;
    t->held = true;
    if (!now->rep_resume)
        finish(t);
}

void tracer_free(struct tracer *t)
{
    if (t) {
        finish(t);
        flush(t);
    }
    free(t);
}
