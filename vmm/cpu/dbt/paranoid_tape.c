/*
 * What the engine asks of the machine, on its way to a window's tape or from it. Calls come while
 * the vector registers may be the guest's: this file is compiled without them and calls no libc.
 */
#include "paranoid.h"

#include "cpu/x86/park.h"
#include "cpu/x86/run.h"

static struct core *core_in(struct paranoid *p)
{
    return &p->d->c;
}

struct tape_entry *tape_add(struct paranoid *p, enum tape_kind kind, u32 len)
{
    struct window *w = p->tape;
    if (!w || p->following)
        return NULL;
    u64 room = sizeof(w->tape) - w->used;
    len = (len + 7) & ~7u;
    if (room < sizeof(struct tape_entry) || room - sizeof(struct tape_entry) < len) {
        p->overflow = true;
        return NULL;
    }
    struct tape_entry *e = (struct tape_entry *)(void *)((u8 *)w->tape + w->used);
    *e = (struct tape_entry){.kind = (u8)kind, .len = len, .at = position(core_in(p))};
    w->used += sizeof(*e) + len;
    return e;
}

struct tape_entry *tape_next(struct paranoid *p)
{
    if (p->cursor >= p->tape->used)
        return NULL;
    return (struct tape_entry *)(void *)((u8 *)p->tape->tape + p->cursor);
}

void tape_skip(struct paranoid *p, const struct tape_entry *e)
{
    p->cursor += sizeof(*e) + e->len;
}

/* The engine asks for something else than the window did, which is said in words. */
static _Noreturn void other_call(struct paranoid *p, enum tape_kind kind, u64 a, u64 b)
{
    static const char *const names[] = {
        [TAPE_PIO_READ] = "IN",
        [TAPE_PIO_WRITE] = "OUT",
        [TAPE_MMIO_READ] = "MMIO read",
        [TAPE_MMIO_WRITE] = "MMIO write",
        [TAPE_RDMSR] = "RDMSR",
        [TAPE_WRMSR] = "WRMSR",
        [TAPE_GET_CR8] = "CR8 read",
        [TAPE_SET_CR8] = "CR8 write",
        [TAPE_PMI] = "counter's interrupt",
        [TAPE_NOW] = "RDTSC",
        [TAPE_RANDOM] = "RDRAND or RDSEED",
    };
    const struct tape_entry *e = tape_next(p), none = {.kind = TAPE_END};
    e = e ? e : &none;
    const char *had = e->kind < ARRAY_SIZE(names) ? names[e->kind] : NULL;
    core_park(core_in(p));
    follow_left(p, "%s %llx (%llx), where the window had %s %llx (%llx) at position %llu",
                names[kind], (unsigned long long)a, (unsigned long long)b,
                had ? had : "the end of a run", (unsigned long long)e->a, (unsigned long long)e->b,
                (unsigned long long)e->at);
}

/* What the machine did while it was called, up to the next call. */
static void nested(struct paranoid *p)
{
    struct tape_entry *e;
    while ((e = tape_next(p)) && (e->kind == TAPE_ATTENTION || e->kind == TAPE_RAM) &&
           e->at == position(core_in(p))) {
        if (e->kind == TAPE_ATTENTION)
            core_in(p)->attention = true;
        else
            tape_to_ram(p, e);
        tape_skip(p, e);
    }
}

/* The next entry, which has to be this call. */
static const struct tape_entry *expect(struct paranoid *p, enum tape_kind kind, unsigned size,
                                       u64 a, bool writes, u64 b)
{
    struct tape_entry *e = tape_next(p);
    if (!e || e->kind != kind || e->size != size || e->a != a || (writes && e->b != b) ||
        e->at != position(core_in(p)))
        other_call(p, kind, a, b);
    tape_skip(p, e);
    nested(p);
    return e;
}

/* The entry comes before what the device does while it is called. */
static struct tape_entry *begin(struct paranoid *p, enum tape_kind kind, unsigned size, u64 a,
                                u64 b)
{
    struct tape_entry *e = tape_add(p, kind, 0);
    if (e) {
        e->size = (u8)size;
        e->a = a;
        e->b = b;
    }
    return e;
}

static u32 pio_read(void *opaque, u16 port, unsigned size)
{
    struct paranoid *p = opaque;
    if (p->following)
        return (u32)expect(p, TAPE_PIO_READ, size, port, false, 0)->b;
    struct tape_entry *e = begin(p, TAPE_PIO_READ, size, port, 0);
    u32 v = p->real->pio_read(p->real->cpu, port, size);
    if (e)
        e->b = v;
    return v;
}

static void pio_write(void *opaque, u16 port, unsigned size, u32 value)
{
    struct paranoid *p = opaque;
    if (p->following) {
        expect(p, TAPE_PIO_WRITE, size, port, true, value);
        return;
    }
    begin(p, TAPE_PIO_WRITE, size, port, value);
    p->real->pio_write(p->real->cpu, port, size, value);
}

static u64 mmio_read(void *opaque, gpa_t gpa, unsigned size)
{
    struct paranoid *p = opaque;
    if (p->following)
        return expect(p, TAPE_MMIO_READ, size, gpa, false, 0)->b;
    struct tape_entry *e = begin(p, TAPE_MMIO_READ, size, gpa, 0);
    u64 v = p->real->mmio_read(p->real->cpu, gpa, size);
    if (e)
        e->b = v;
    return v;
}

static void mmio_write(void *opaque, gpa_t gpa, unsigned size, u64 value)
{
    struct paranoid *p = opaque;
    if (p->following) {
        expect(p, TAPE_MMIO_WRITE, size, gpa, true, value);
        return;
    }
    begin(p, TAPE_MMIO_WRITE, size, gpa, value);
    p->real->mmio_write(p->real->cpu, gpa, size, value);
}

static bool rdmsr(void *opaque, u32 msr, u64 *value)
{
    struct paranoid *p = opaque;
    if (p->following) {
        const struct tape_entry *e = expect(p, TAPE_RDMSR, 0, msr, false, 0);
        if (e->ok)
            *value = e->b;
        return e->ok;
    }
    struct tape_entry *e = begin(p, TAPE_RDMSR, 0, msr, 0);
    bool ok = p->real->rdmsr(p->real->cpu, msr, value);
    if (e) {
        e->ok = ok;
        e->b = ok ? *value : 0;
    }
    return ok;
}

static bool wrmsr(void *opaque, u32 msr, u64 value)
{
    struct paranoid *p = opaque;
    if (p->following)
        return expect(p, TAPE_WRMSR, 0, msr, true, value)->ok;
    struct tape_entry *e = begin(p, TAPE_WRMSR, 0, msr, value);
    bool ok = p->real->wrmsr(p->real->cpu, msr, value);
    if (e)
        e->ok = ok;
    return ok;
}

static u64 get_cr8(void *opaque)
{
    struct paranoid *p = opaque;
    if (p->following)
        return expect(p, TAPE_GET_CR8, 0, 0, false, 0)->b;
    struct tape_entry *e = begin(p, TAPE_GET_CR8, 0, 0, 0);
    u64 v = p->real->get_cr8(p->real->cpu);
    if (e)
        e->b = v;
    return v;
}

static void set_cr8(void *opaque, u64 value)
{
    struct paranoid *p = opaque;
    if (p->following) {
        expect(p, TAPE_SET_CR8, 0, 0, true, value);
        return;
    }
    begin(p, TAPE_SET_CR8, 0, 0, value);
    p->real->set_cr8(p->real->cpu, value);
}

static void pmi(void *opaque, bool mask)
{
    struct paranoid *p = opaque;
    if (p->following) {
        expect(p, TAPE_PMI, 0, mask, false, 0);
        return;
    }
    begin(p, TAPE_PMI, 0, mask, 0);
    p->real->pmi(p->real->cpu, mask);
}

/* Where instructions are counted time follows from the position, whoever asks: translated code may
 * know it without asking. */
static vns_t now(void *opaque)
{
    struct paranoid *p = opaque;
    if (p->following && core_in(p)->unit == UNIT_INSN)
        return p->time + position(core_in(p));
    if (p->following)
        return expect(p, TAPE_NOW, 0, 0, false, 0)->b;
    vns_t v = p->real->now(p->real->cpu);
    if (core_in(p)->unit != UNIT_INSN)
        begin(p, TAPE_NOW, 0, 0, v);
    return v;
}

static u64 draw(void *opaque, bool seed)
{
    struct paranoid *p = opaque;
    if (p->following)
        return expect(p, TAPE_RANDOM, 0, seed, false, 0)->b;
    u64 v = p->real->random(p->real->cpu, seed);
    begin(p, TAPE_RANDOM, 0, seed, v);
    return v;
}

/* What the machine does is on the tape by itself. */
static void counted(void *opaque)
{
    struct paranoid *p = opaque;
    if (p->following)
        nested(p);
    else
        p->real->counted(p->real->cpu);
}

static void lacking(void *opaque, const char *text, const char *has)
{
    struct paranoid *p = opaque;
    if (!p->following && p->real->lacking)
        p->real->lacking(p->real->cpu, text, has);
}

const struct engine_env paranoid_env = {.pio_read = pio_read,
                                        .pio_write = pio_write,
                                        .mmio_read = mmio_read,
                                        .mmio_write = mmio_write,
                                        .rdmsr = rdmsr,
                                        .wrmsr = wrmsr,
                                        .get_cr8 = get_cr8,
                                        .set_cr8 = set_cr8,
                                        .pmi = pmi,
                                        .now = now,
                                        .random = draw,
                                        .counted = counted,
                                        .lacking = lacking};
