/* See backtrace.h. What the rows mean: orc.h, and unwind_orc.c of Linux. */
#include "inspect/backtrace.h"

#include "cpu/vcpu.h"
#include "inspect/orc.h"

struct walk {
    struct machine *m;
    u64 ip, sp, gpr[16];
    bool whole;      /* gpr has what they were; else RBP alone */
    bool after_call; /* ip is after a CALL */
    bool user;
    bool narrow; /* of 32 bits */
};

static bool load(const struct walk *w, u64 at, u64 *out)
{
    *out = 0;
    return machine_peek(w->m, at, out, w->narrow ? 4 : 8);
}

/* kind ORC_NONE: nothing is known of that place. */
static struct orc_row row_of(const struct symbols *s, u64 address)
{
    u64 offset = 0;
    const char *function = symbols_find(s, address, &offset);
    u32 lo = 0, hi = s->norc;
    while (lo < hi) {
        u32 mid = (lo + hi) / 2;
        if (s->orc[mid].address <= address)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo ? orc_row_in(s, lo - 1, function ? function : "", address - offset)
              : (struct orc_row){.kind = ORC_NONE};
}

/* The stack pointer of the frame before. */
static bool previous_sp(const struct walk *w, const struct orc_row *r, u64 *out)
{
    static const u8 numbers[] = {
        [ORC_DX] = RDX, [ORC_DI] = RDI, [ORC_R10] = R10, [ORC_R13] = R13, [ORC_AX] = RAX};
    u64 offset = (u64)(i64)r->sp_offset;
    switch (r->sp_reg) {
    case ORC_SP: *out = w->sp + offset; return true;
    case ORC_BP: *out = w->gpr[RBP] + offset; return true;
    case ORC_BP_INDIRECT: return load(w, w->gpr[RBP] + offset, out);
    case ORC_SP_INDIRECT:
        if (!load(w, w->sp, out))
            return false;
        *out += offset;
        return true;
    case ORC_DX:
    case ORC_DI:
    case ORC_R10:
    case ORC_R13:
    case ORC_AX: *out = w->gpr[numbers[r->sp_reg]]; return w->whole;
    default: return false;
    }
}

/* What the CPU pushed, at `at`: RIP, CS, RFLAGS, RSP. */
static bool load_iret(struct walk *w, u64 at)
{
    u64 cs;
    w->after_call = false;
    if (!load(w, at, &w->ip) || !load(w, at + 8, &cs) || !load(w, at + 24, &w->sp))
        return false;
    w->user = (cs & 3) == 3;
    return true;
}

/* struct pt_regs. */
static bool load_regs(struct walk *w, u64 at)
{
    static const u8 order[] = {R15, R14, R13, R12, RBP, RBX, R11, R10,
                               R9,  R8,  RAX, RCX, RDX, RSI, RDI};
    for (unsigned i = 0; i < ARRAY_SIZE(order); i++)
        if (!load(w, at + 8 * i, &w->gpr[order[i]]))
            return false;
    w->whole = true;
    return load_iret(w, at + 16 * 8);
}

/* The entries of a kernel of 32 bits say so in the upper half of CS: ESP and SS are there, as the
 * CPU pushes them of programs only. */
#define CS_FROM_KERNEL (1u << 29)

static bool load_iret_narrow(struct walk *w, u64 at)
{
    u64 cs;
    w->after_call = false;
    if (!load(w, at, &w->ip) || !load(w, at + 4, &cs))
        return false;
    w->user = (cs & 3) == 3;
    if (w->user || cs & CS_FROM_KERNEL)
        return load(w, at + 12, &w->sp);
    w->sp = at + 12;
    return true;
}

static bool load_regs_narrow(struct walk *w, u64 at)
{
    static const u8 order[] = {RBX, RCX, RDX, RSI, RDI, RBP, RAX};
    for (unsigned i = 0; i < ARRAY_SIZE(order); i++)
        if (!load(w, at + 4 * i, &w->gpr[order[i]]))
            return false;
    w->whole = true;
    return load_iret_narrow(w, at + 48);
}

/* To the caller; false: there is none, or nobody knows it. */
static bool step(struct walk *w, const struct symbols *s)
{
    u64 sp, bp = w->gpr[RBP];
    const struct orc_row row = row_of(s, w->ip - w->after_call), *r = &row;
    if (r->kind == ORC_NONE || r->kind == ORC_END || !previous_sp(w, r, &sp))
        return false;
    if (w->narrow)
        sp = (u32)sp;
    if (r->kind == ORC_REGS)
        return w->narrow ? load_regs_narrow(w, sp) : load_regs(w, sp);
    if (r->bp_reg == ORC_PREVIOUS_SP && !load(w, sp + (u64)(i64)r->bp_offset, &bp))
        return false;
    if (r->bp_reg == ORC_BP && !load(w, w->gpr[RBP] + (u64)(i64)r->bp_offset, &bp))
        return false;
    if (r->kind == ORC_IRET && !(w->narrow ? load_iret_narrow(w, sp) : load_iret(w, sp)))
        return false;
    if (r->kind == ORC_CALL) {
        if (!load(w, sp - (w->narrow ? 4 : 8), &w->ip))
            return false;
        w->sp = sp;
        w->after_call = !r->signal;
    }
    w->gpr[RBP] = bp;
    w->whole = false;
    return true;
}

unsigned backtrace_read(struct machine *m, const struct symbols *s,
                        struct backtrace_frame out[BACKTRACE_MAX])
{
    const struct vcpu *c = machine_vcpu(m);
    struct walk w = {.m = m,
                     .ip = c->rip,
                     .sp = c->gpr[RSP],
                     .whole = true,
                     .narrow = s && s->narrow,
                     .user = (c->seg_sel[SEG_CS] & 3) == 3};
    unsigned n = 0;
    for (unsigned i = 0; i < ARRAY_SIZE(w.gpr); i++)
        w.gpr[i] = w.narrow ? (u32)c->gpr[i] : c->gpr[i];
    if (w.narrow)
        w.sp = (u32)w.sp;
    do
        out[n++] = (struct backtrace_frame){w.ip, w.user};
    while (n < BACKTRACE_MAX && !w.user && s && s->norc && step(&w, s) && w.ip);
    return n;
}
