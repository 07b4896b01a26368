/*
 * The translator: one block of guest instructions (within a page, up to a branch) becomes host
 * code. See README.md for the conventions and ../../../docs/performance.md for what each choice
 * gave. Runs parked: it may use libc.
 *
 * Registers: guest registers are in the host registers of the same name; r10 and r11 ("stolen")
 * hold guest values only inside blocks that name them. Two scratch registers serve a block: stolen
 * ones it does not name, else others it does not name, saved around it ("spilled").
 */
#include "tr.h"

#include "regions.h"
#include "translate.h"
#include "code_log.h"
#include "copies.h"

#include "base/phase.h"
#include "cpu/x86/flags.h"
#include "cpu/x86/icache.h"
#include "cpu/x86/mode.h"
#include "cpu/x86/step.h"

#include <stdlib.h>

static bool fpu_ready(const struct dbt *d, const struct insn *in)
{
    u32 m = d->c.mode;
    switch (in->needs) {
    case N_X87:
        if (in->opcode == 0x9b)
            return !((m & MODE_TS) && (m & MODE_MP));
        return !(m & (MODE_TS | MODE_EM));
    case N_MMX: return !(m & (MODE_TS | MODE_EM));
    case N_SSE: return !(m & (MODE_TS | MODE_EM)) && (m & MODE_OSFXSR);
    case N_AVX: return !(m & MODE_TS) && (m & MODE_AVX);
    case N_AVX512: return !(m & MODE_TS) && (m & MODE_AVX512);
    default: return true;
    }
}

/* Outside 64-bit code: is its operand where no segment has a say, and written as 64-bit code has
 * it?
 */
static bool reaches(const struct dbt *d, const struct insn *in)
{
    return in->addrsize == 4 && (d->c.mode & mode_open(in->seg));
}

/* Must exec() run it? */
static bool is_tail(const struct dbt *d, const struct insn *in)
{
    if (!fpu_ready(d, in) || insn_syncs(&d->c, in) || in->host_lacks ||
        (in->code != CODE_64 && in->has_mem && !reaches(d, in)))
        return true;
    switch (in->treat) {
    case T_GEN:
        /* Which low register would serve depends on luck for none left. */
        return in->align_ours || in->canon == CANON_CAREFUL ||
               (in->mem && in->high8 && tr_low_register(in->use) < 0);
    case T_NOP:
    case T_LEA: return false;
    case T_PUSH: return !tr_usual_size(in) || in->op0_kind == OP_SREG;
    case T_POP: return !tr_usual_size(in) || in->op0_kind != OP_GPR;
    case T_LEAVE:
    case T_RET:
    case T_CALL:
    case T_JMP:
    case T_JCC: return !tr_usual_size(in);
    case T_HELP: return !tr_inlined(d, in);
    default: return true;
    }
}

static bool is_branch(const struct dbt *d, const struct insn *in)
{
    const struct inlined *k = tr_inlined(d, in);
    return (k && k->ends) || in->treat == T_CALL || in->treat == T_RET || in->treat == T_JMP ||
           in->treat == T_JCC;
}

static unsigned free_registers(u16 use)
{
    return 16u - (unsigned)__builtin_popcount(use | 1u << RAX | 1u << RSP);
}

static void pick_scratch(struct tr *t)
{
    static const int order[] = {R10, R11, R9, R8, RDI, RSI, RDX, RCX, R15, R14, RBX, R12, R13, RBP};
    int got[2] = {NOREG, NOREG};
    unsigned k = 0;
    for (unsigned i = 0; i < ARRAY_SIZE(order) && k < 2; i++) {
        int r = order[i];
        if (t->use >> r & 1)
            continue;
        got[k++] = r;
        if (!(STOLEN >> r & 1))
            t->spilled |= (u16)(1u << r);
    }
    t->s1 = got[0];
    t->s2 = got[1];
}

/* An instruction in two pages is a block by itself, unless exec() has to run it. */
static bool gather_crossing(struct tr *t)
{
    u8 key[16] __attribute__((aligned(8)));
    struct dbt *d = t->d;
    icache_key(code_size(&d->c), t->at->bytes, 15, key);
    const struct insn *in = icache_look(&d->c, key);
    unsigned first = PAGE_SIZE - (t->at->phys & (PAGE_SIZE - 1));
    /* From the last page to the first one: what is dropped by addresses would miss one of the two.
     */
    if ((t->lin ^ (t->lin + first)) >> 63 || in->len <= first)
        return false;
    if (!in->len || runs_alone(&d->c, t->lin) || is_tail(d, in) ||
        (tr_wants_scratch(d, in) && free_registers(in->use) < 2))
        return false;
    t->in[0] = *in;
    t->off[0] = 0;
    t->way[0] = WAY_END;
    t->n = t->count = 1;
    t->use = in->use;
    t->wr = in->wr;
    return true;
}

/* Is the path at an offset of the page where it was before? */
static bool was_there(const struct tr *t, int off)
{
    for (unsigned i = 0; t->at->hot && i < t->n; i++)
        if (t->off[i] == off)
            return true;
    return false;
}

/* Decodes the block; returns false if its first instruction crosses the page. */
static bool gather_insns(struct tr *t, const u8 *page, unsigned start)
{
    struct dbt *d = t->d;
    unsigned offset = start;
    bool scratch = t->at->hot;
    while (t->n < BLOCK_MAX && offset < PAGE_SIZE) {
        u8 key[16] __attribute__((aligned(8)));
        int off = (int)offset - (int)start;
        t->closed = t->n && !off;
        if (was_there(t, off))
            break;
        icache_key(code_size(&d->c), page + offset, MIN(15u, PAGE_SIZE - offset), key);
        const struct insn *in = icache_look(&d->c, key);
        if (in->len == 0 || offset + in->len > PAGE_SIZE)
            break;
        if (runs_alone(&d->c, t->lin + (u64)(i64)off))
            break;
        u16 use = t->use | in->use;
        bool s = scratch || tr_wants_scratch(d, in);
        bool tail = is_tail(d, in);
        if (!tail && s && free_registers(use) < 2)
            break;
        t->in[t->n] = *in;
        t->off[t->n] = (i16)off;
        t->way[t->n] = WAY_END;
        t->n++;
        offset += in->len;
        if (tail)
            return true;
        t->count++;
        scratch = s;
        t->use = use;
        t->wr |= in->wr;
        if (is_branch(d, in)) {
            int on = path_on(t);
            if (on < 0)
                return true;
            offset = (unsigned)on;
        }
    }
    if (t->n && !t->closed)
        path_end(t);
    return t->n > 0;
}

static void liveness(struct tr *t, const u8 *page, unsigned start)
{
    unsigned last = t->n - 1;
    if (t->at->phys2) {
        t->live[0] = t->after[0] = FL_ARITH; /* the rule does not look into the next page */
        return;
    }
    const struct insn *l = &t->in[last];
    unsigned after = (unsigned)((int)start + t->off[last] + l->len);
    u32 live = FL_ARITH;
    if (!ends_scan(l))
        live = flags_live(&t->d->c, page, after, &t->looked);
    for (int i = (int)last; i >= 0; i--) {
        t->after[i] = live;
        if (!ends_scan(&t->in[i]) && !counts_branches(&t->d->c))
            live = (live & ~(u32)t->in[i].kill) | t->in[i].test;
        else
            live = FL_ARITH;
        t->live[i] = live;
    }
}

void put_exit_if(struct tr *t, unsigned i, int cond, enum exit_kind kind)
{
    u8 *at = e_jcc(&t->e, cond);
    tr_cold(t, (struct cold){.at = at,
                             .kind = t->saved ? COLD_EXIT_SAVED : COLD_EXIT,
                             .id = EXIT_ID(t->bi, i, kind)});
}

static void put_budget(struct tr *t, unsigned i)
{
    struct emit *e = &t->e;
    put_saved(t, t->live[i] != 0);
    e1(e, 0x65); /* sub qword gs:[part], count */
    e1(e, 0x48);
    e1(e, 0x83);
    e_modrm(e, 5, NOREG, NOREG, 1, (i32)tr_part(t));
    e1(e, (u8)t->count);
    put_exit_if(t, i, 0xc, X_BUDGET); /* jl */
    put_saved(t, false);
}

/* PAUSE, which exec() tells, unless there is nobody to wait for. */
static void put_pause(struct tr *t, unsigned i)
{
    struct emit *e = &t->e;
    put_saved(t, t->live[i] != 0);
    e_cmp_slot_0(e, OFF(c.alone));
    put_exit_if(t, i, 4, t->in[i].len == 2 ? X_PAUSE : X_INSN); /* je */
    put_saved(t, false);
}

/* Before which instruction the budget is taken: where it costs no flags, if that is soon and not
 * after a branch that leaves the block. */
static unsigned place_check(const struct tr *t)
{
    for (unsigned i = 0; i < t->count && i <= CHECK_MAX; i++) {
        if (t->live[i] == 0)
            return i;
        if (t->way[i] != WAY_END)
            break;
    }
    return 0;
}

static void put_insn(struct tr *t, unsigned i)
{
    const struct insn *in = &t->in[i];
    if (t->guarded)
        put_middle_guards(t, i);
    put_saved(t, false);
    switch (in->treat) {
    case T_GEN: put_gen(t, in, i); break;
    case T_LEA: put_lea(t, in, i); break;
    case T_PUSH: put_push(t, in, i); break;
    case T_POP: put_pop(t, in, i); break;
    case T_LEAVE: put_leave(t, i); break;
    case T_CALL: put_call(t, in, i); break;
    case T_RET: put_ret(t, in, i); break;
    case T_JCC: t->way[i] != WAY_END ? put_way(t, i) : put_jcc(t, in, i); break;
    case T_JMP:
        if (in->op0_kind != OP_IMM)
            put_target(t, in, i);
        if (t->way[i] == WAY_END || (t->body && i + 1 == t->n))
            put_passed(t, i + 1);
        if (t->way[i] != WAY_END)
            break;
        if (in->op0_kind == OP_IMM)
            put_edge(t, tr_target(t, i), 0);
        else
            put_indirect(t, i);
        break;
    case T_HELP:
        if (tr_inlined(t->d, in)->ends)
            put_passed(t, i);
        tr_inlined(t->d, in)->put(t, i);
        break;
    case T_NOP:
        if (insn_waits(&t->d->c, in))
            put_pause(t, i);
        break;
    default: break;
    }
}

static void put_cold(struct tr *t, const struct cold *c)
{
    struct emit *e = &t->e;
    struct dbt *d = t->d;
    if (c->kind != COLD_PLAIN)
        e_fix(e, c->at, e->p);
    switch (c->kind) {
    case COLD_MISS:
        e_gs(e, 1, 0x33, c->s1, c->index, 1, c->tlb); /* the address again */
        if (c->value)
            tr_note_tlb(t, c->value);
        e_store_imm32(e, OFF(tmp2),
                      c->info | (c->add ? SLOW_ADD | (u32)c->s2 << SLOW_REG_SHIFT
                                        : (u32)c->s1 << SLOW_REG_SHIFT));
        tr_put_id(t, OFF(exit_id), c->id);
        if (c->s1 == R10 && c->s2 == R11) {
            e_lea_rip(e, R11, c->resume);
            e_jmp_to(e, d->code->rw + d->code->slow_r10);
            break;
        }
        e_store(e, c->s1, OFF(slow_ea));
        e_lea_rip(e, c->s2, c->resume);
        e_store(e, c->s2, OFF(resume));
        e_jmp_to(e, d->code->rw + d->code->slow_common);
        break;
    case COLD_EXIT_SAVED:
        put_restore_flags(t);
        /* fall through */
    case COLD_EXIT:
        put_block_epilogue(t);
        put_exit(t, c->id);
        break;
    case COLD_STACK: put_stack_cold(t, c); break;
    case COLD_LEAVE: put_leave_cold(t, c); break;
    case COLD_PLAIN: put_guard_cold(t, c); break;
    case COLD_MIDDLE: put_middle_cold(t, c); break;
    case COLD_APPROX: put_approx_cold(t, c); break;
    case COLD_LINK:
        block_link(d->code, t->b, EXIT_INDEX(c->id))->exit = (u32)(e->p - d->code->rw);
        /* fall through */
    default: put_exit(t, c->id); break; /* link: the epilogue is done */
    }
}

/* Entry for indirect jumps: r10 = target. Falls into the direct entry when it is this block. */
static void put_ient(struct tr *t)
{
    struct emit *e = &t->e;
    e_mov(e, R11, RCX);
    u64 neg = 0 - t->lin;
    if ((u64)(i64)(i32)neg == neg) {
        e_lea(e, RCX, R10, NOREG, 1, (i32)neg);
        e_note_lost(e);
    } else {
        e_movi_noted(e, RCX, neg, RELOC_MINUS);
        e_lea(e, RCX, RCX, R10, 1, 0);
    }
    e1(e, 0xe3); /* jrcxz over the miss */
    u8 *skip = e->p;
    e1(e, 0);
    e_mov(e, RCX, R11);
    e_jmp_to(e, t->d->code->rw + t->d->code->second[t->d->c.idx]);
    *skip = (u8)(e->p - skip - 1);
    e_mov(e, RCX, R11);
}

/* Notes where in the page the block's code is; returns where it ends. */
static unsigned place_of(struct tr *t)
{
    int start = t->at->phys & (PAGE_SIZE - 1), low = start, end = start;
    for (unsigned i = 0; i < t->n; i++) {
        low = MIN(low, start + t->off[i]);
        end = MAX(end, start + t->off[i] + t->in[i].len);
    }
    t->b->low = (u16)low;
    t->b->size = (u16)(end - low);
    t->b->live = (u16)t->live[0];
    t->b->looked = (u16)MAX(t->looked, MIN((unsigned)end, PAGE_SIZE));
    return (unsigned)end;
}

/* Stores into the 64 bytes around each instruction will drop the page's blocks, and into those that
 * say which flags are live after the last one. */
static void mark_page(const struct tr *t)
{
    unsigned start = t->at->phys & (PAGE_SIZE - 1);
    struct code_page *pg = &t->d->code->pages[ram_page_index(t->d->c.ram, t->at->phys)];
    for (unsigned i = 0; i < t->n; i++) {
        unsigned first = (unsigned)((int)start + t->off[i]), last = first + t->in[i].len - 1;
        pg->map |= page_chunks(first, MIN(last, PAGE_SIZE - 1u));
        if (i == t->n - 1 && t->looked > last)
            pg->map |= page_chunks(last, t->looked - 1);
    }
}

static unsigned kind_of(const struct insn *in)
{
    return in->treat == T_JCC ? OFF_JCC : in->treat == T_JMP ? OFF_JMP : 0;
}

/* NULL: exec() is to run one instruction. */
static struct block *make_block(struct dbt *d, const struct code_at *at)
{
    u64 lin = at->lin, phys = at->phys;
    struct tr t;
    struct notes notes;
    memset(&t, 0, offsetof(struct tr, in));
    t.d = d;
    t.at = at;
    t.lin = lin;
    unsigned start = phys & (PAGE_SIZE - 1);
    if (!(at->phys2 ? gather_crossing(&t) : gather_insns(&t, at->page, start)))
        return NULL;
    liveness(&t, at->page, start);
    if (!at->plain && !at->hot && !at->phys2)
        path_loop(&t);
    if (t.closed && !guard_wanted(&t))
        path_end(&t);
    if (at->hot && !path_gains(&t))
        return NULL;
    regions_reserve(d, t.closed ? BLOCK_MAX : t.n);
    t.bi = d->code->nblocks;
    struct block *b = t.b = &d->code->blocks[t.bi];
    *b = (struct block){.lin = lin,
                        .phys = phys,
                        .phys2 = at->phys2,
                        .mode = d->c.mode,
                        .links = d->code->nlinks,
                        .part = at->as ? at->as->part : t.bi % BUDGET_PARTS,
                        .plain = at->plain};
    t.loaded = t.use & STOLEN;
    t.s1 = t.s2 = t.s1_has = NOREG;
    for (unsigned i = 0; i < t.n; i++)
        if (t.nsides || tr_wants_scratch(d, &t.in[i]) || (t.in[i].needs == N_X87 && t.in[i].mem)) {
            pick_scratch(&t);
            break;
        }
    if (t.s1 == NOREG && t.closed)
        pick_scratch(&t);
    t.check = place_check(&t);
    if (t.s2 != NOREG && !at->plain && !at->phys2)
        guard_block(&t);
    if (t.closed && !t.body)
        path_end(&t);
    unsigned end = place_of(&t);
    b->n = (u16)t.n;
    b->count = (u8)t.count;
    t.e.p = d->code->rw + d->code->used;
    if (at->noted)
        t.e.notes = copies_begin(d, &notes);
    b->ient = (u32)(t.e.p - d->code->rw);
    put_ient(&t);
    b->code = (u32)(t.e.p - d->code->rw);
    put_prologue(&t.e, t.loaded, t.spilled);
    b->inner = (u32)(t.e.p - d->code->rw);
    if (t.guarded || t.body)
        put_guards(&t);
    b->check_at = (u8)t.check;
    b->insns = d->code->ninsn_off;
    for (unsigned i = 0; i < t.n; i++) {
        put_begin(&t, i);
        if (i == t.check && t.count)
            put_budget(&t, i);
        put_saved(&t, false);
        if (UNLIKELY(d->test_clobber))
            put_clobber(&t, i);
        d->code->insn_off[d->code->ninsn_off++] =
            (struct insn_off){.guest = (u16)((unsigned)((int)start + t.off[i]) | kind_of(&t.in[i])),
                              .host = (u16)(t.e.p - d->code->rw - b->code)};
        if (i < t.count)
            put_insn(&t, i);
    }
    t.alone = false;
    put_sp_moved(&t, 0);
    const struct insn *last = &t.in[t.n - 1];
    if (t.count < t.n) {
        put_block_epilogue(&t);
        put_exit(&t, EXIT_ID(t.bi, t.n - 1, X_INSN));
    } else if (t.body) {
        if (last->treat != T_JCC && last->treat != T_JMP) /* of a path that began at a branch */
            put_passed(&t, t.n);
        if (last->treat != T_JCC)
            e_jmp_to(&t.e, t.again);
    } else if (!is_branch(d, last)) {
        put_passed(&t, t.n);
        put_edge(&t, tr_next(&t, t.n - 1), 0);
    }
    size_t bytes = (size_t)(t.e.p - d->code->rw) - d->code->used;
    t.e.p = d->code->rw + d->code->cold_used;
    for (unsigned i = 0; i < t.ncold; i++) /* some add one */
        put_cold(&t, &t.cold[i]);
    b->loaded = t.loaded;
    b->spilled = t.spilled;
    size_t cold = (size_t)(t.e.p - d->code->rw) - d->code->cold_used;
    CHECK(bytes <= INSN_CODE * (t.n + 1) && cold <= INSN_COLD * (t.n + 1) &&
              b->ient == d->code->used && b->code > b->ient,
          "a block of %u instructions at %llx is %zu bytes, and %zu", t.n, (unsigned long long)lin,
          bytes, cold);
    if (at->noted)
        copies_note(d, b, &notes, bytes, cold);
    d->code->used = (u32)(d->code->used + bytes + 15) & ~15u;
    d->code->cold_used += (u32)cold;
    d->code->nblocks++;
    d->c.st.blocks++;
    d->c.st.block_insns += t.n;
    d->c.st.code_bytes += bytes + cold;
    if (UNLIKELY(d->code->log.made)) {
        code_log_block(d, b, b->ient, bytes);
        if (cold)
            code_log_block(d, b, d->code->cold_used - (u32)cold, cold);
    }
    CHECK((end <= PAGE_SIZE) == !at->phys2 && t.count <= t.n && t.n <= BLOCK_MAX,
          "a block of %u instructions, %u bytes, at %llx", t.n, b->size, (unsigned long long)lin);
    mark_page(&t);
    if (at->phys2)
        d->code->pages[ram_page_index(d->c.ram, at->phys2)].map |= 1;
    return b;
}

/* For tests: a block that was copied has to be what is translated there. */
static void compare(struct dbt *d, const struct code_at *at, u32 used, u32 cold_used, u32 ninsn_off)
{
    struct code *k = d->code;
    size_t hot = k->used - used, cold = k->cold_used - cold_used;
    u8 *copied = malloc(hot + cold);
    CHECK(copied, "no memory for %zu bytes", hot + cold);
    memcpy(copied, k->rw + used, hot);
    memcpy(copied + hot, k->rw + cold_used, cold);
    struct block was = k->blocks[--k->nblocks];
    struct insn_off offs[BLOCK_MAX];
    memcpy(offs, k->insn_off + ninsn_off, sizeof(struct insn_off) * was.n);
    struct link links[LINKS_MAX];
    memcpy(links, k->links + was.links, sizeof(struct link) * was.nlinks);
    k->used = used;
    k->cold_used = cold_used;
    k->ninsn_off = ninsn_off;
    k->nlinks = was.links;
    struct code_at here = *at;
    here.as = &was;
    struct block *b = make_block(d, &here);
    CHECK(b && k->used - used == hot && k->cold_used - cold_used == cold,
          "a copy of the block at %llx has other sizes", (unsigned long long)was.lin);
    b->relocs = was.relocs;
    hot = k->used - was.ient - 15; /* not what fills it up */
    for (size_t i = 0; i < hot; i++)
        CHECK(copied[i] == k->rw[used + i],
              "a copy of the block at %llx differs at +%zx: %02x, not %02x",
              (unsigned long long)was.lin, i, copied[i], k->rw[used + i]);
    for (size_t i = 0; i < cold; i++)
        CHECK(copied[k->used - used + i] == k->rw[cold_used + i],
              "a copy of the block at %llx differs, of what seldom runs, at +%zx",
              (unsigned long long)was.lin, i);
    CHECK(!memcmp(&was, b, sizeof(was)) &&
              !memcmp(offs, k->insn_off + ninsn_off, sizeof(struct insn_off) * was.n) &&
              !memcmp(links, k->links + was.links, sizeof(struct link) * was.nlinks),
          "a copy of the block at %llx is described otherwise", (unsigned long long)was.lin);
    free(copied);
}

/* The caller links it into the tables. */
struct block *translate(struct dbt *d, const struct code_at *at)
{
    enum phase before = phase_enter(PHASE_TRANSLATE);
    struct code *k = d->code;
    struct code_at here = *at;
    bool may = copies_want(d, at);
    if (UNLIKELY(d->test_copies))
        regions_reserve(d, BLOCK_MAX);
    u32 used = k->used, cold_used = k->cold_used, ninsn_off = k->ninsn_off;
    struct block *b = may ? copies_make(d, at, &here.noted) : NULL;
    if (b && UNLIKELY(d->test_copies))
        compare(d, &here, used, cold_used, ninsn_off);
    if (!b) {
        b = make_block(d, &here);
        if (b && may)
            copies_keep(d, b);
    }
    phase_leave(before);
    return b;
}
