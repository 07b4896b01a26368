/* Along a window's tape, in a process of its own: by single instructions, or translated. */
#include "paranoid.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cpu/x86/mode.h"
#include "cpu/x86/run.h"
#include "cpu/x86/tlb.h"

void follow_left(struct paranoid *p, const char *fmt, ...)
{
    struct outcome *o = p->out;
    va_list args;
    va_start(args, fmt);
    vsnprintf(o->text, sizeof(o->text), fmt, args);
    va_end(args);
    o->position = position(&p->d->c);
    o->left = true;
    _exit(0);
}

void outcome_take(struct paranoid *p, struct outcome *o)
{
    struct core *c = &p->d->c;
    core_ops.sync(&c->base);
    o->position = position(c);
    o->cpu = c->cpu;
    o->ncode = 0;
    while (o->ncode < sizeof(o->code) &&
           core_ops.peek(&c->base, code_linear(c, c->cpu.rip) + o->ncode, o->code + o->ncode, 1))
        o->ncode++;
}

void tape_to_ram(struct paranoid *p, const struct tape_entry *e)
{
    struct core *c = &p->d->c;
    void *to = ram_ptr(c->ram, e->a, e->b);
    CHECK(to, "memory at %llx on the tape", (unsigned long long)e->a);
    core_ops.ram_writing(&c->base);
    memcpy(to, e + 1, e->b);
    core_ops.ram_written(&c->base, e->a, e->b);
}

static void set_by_hand(struct core *c, bool by_hand)
{
    c->by_hand = by_hand;
    mmu_mode_changed(c);
}

/* At most n positions; with pages walked for each instruction if the window is strict. */
static enum engine_exit piece(struct paranoid *p, u64 n, struct err *err)
{
    struct core *c = &p->d->c;
    if (!p->tape->strict || !c->by_hand)
        return core_run_insns(c, n, err);
    enum engine_exit x = ENGINE_STOP;
    for (pos_t end = position(c) + n; x == ENGINE_STOP && position(c) < end;) {
        mmu_flush_all(c);
        x = core_run_insns(c, 1, err);
    }
    return x;
}

static void other_end(struct paranoid *p, enum engine_exit x, const struct tape_entry *e)
{
    if (position(&p->d->c) == e->a && x == e->size)
        return;
    follow_left(p, "a run ends with exit %d, where the window had exit %u at position %llu", x,
                e->size, (unsigned long long)e->a);
}

/* As far as the run went, or to `upto`. */
static void follow_run(struct paranoid *p, const struct tape_entry *e, pos_t upto, pos_t by_hand)
{
    struct core *c = &p->d->c;
    struct err err;
    bool whole = upto > e->a, stops = e->size == ENGINE_STOP || e->size == ENGINE_BETWEEN;
    /* It may go where the run might have gone: it ends for another reason before. */
    pos_t end = !whole ? upto : stops ? e->a : e->b;
    p->time = e->time;
    tape_skip(p, e);
    for (;;) {
        bool first = c->by_hand && by_hand < end;
        pos_t to = first ? MAX(by_hand, position(c)) : end;
        enum engine_exit x = piece(p, to - position(c), &err);
        if (first && x == ENGINE_STOP && position(c) == to) {
            set_by_hand(c, false);
            continue;
        }
        if (x == ENGINE_STOP && e->size == ENGINE_BETWEEN)
            x = ENGINE_BETWEEN;
        if (whole)
            other_end(p, x, e);
        else if (position(c) != upto)
            follow_left(p, "a run ends with exit %d, where that of the window goes on", x);
        break;
    }
    if (!whole)
        return;
    if (e->size == ENGINE_SHUTDOWN && c->unit == UNIT_BRANCH)
        core_shut_down(c);
    const struct tape_entry *last = tape_next(p);
    if (!last || last->kind != TAPE_END)
        follow_left(p, "no call, where the window had one");
    tape_skip(p, last);
}

/* The state, and which pages are not what they were. */
static void store(struct paranoid *p)
{
    struct outcome *o = p->out;
    struct core *c = &p->d->c;
    size_t n;
    outcome_take(p, o);
    const u32 *list = core_ops.written(&c->base, &n);
    o->npages = 0;
    for (size_t i = 0; i < n; i++)
        o->pages[o->npages++] = (struct page_hash){list[i], paranoid_hash(p, list[i])};
    for (u32 i = 0; i < o->ndumps; i++)
        memcpy(o->dump[i], c->ram->host + (u64)o->dumped[i] * PAGE_SIZE, PAGE_SIZE);
}

void follow(struct paranoid *p, struct window *w, pos_t upto, pos_t by_hand, struct outcome *out)
{
    struct core *c = &p->d->c;
    const struct tape_entry *e;
    p->following = true;
    p->tape = w;
    p->out = out;
    p->cursor = 0;
    c->kicked = 0;
    set_by_hand(c, by_hand > position(c));
    if (by_hand == NEVER)
        mmu_flush_all(c); /* what the engine remembers wrongly is not to be believed here */
    while (position(c) < upto && (e = tape_next(p))) {
        if (e->kind == TAPE_RUN) {
            follow_run(p, e, upto, by_hand);
            continue;
        }
        tape_skip(p, e); /* an interrupt may make a counter overflow: the next entry */
        switch (e->kind) {
        case TAPE_RAM: tape_to_ram(p, e); break;
        case TAPE_WANT: core_ops.want_window(&c->base, e->a, e->b); break;
        case TAPE_INTERRUPT: core_ops.interrupt(&c->base, (u8)e->a); break;
        case TAPE_NMI: core_ops.nmi(&c->base); break;
        default: follow_left(p, "no call, where the window had one");
        }
    }
    store(p);
}
