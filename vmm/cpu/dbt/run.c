/*
 * The run loop: finds or translates the block at RIP, enters it, and does what its exit asks for.
 * Everything that is not plain code runs in exec(), one instruction at a time, after which the
 * machine's wishes (attention, interrupt window, stop) are looked at: so every event falls on an
 * exact instruction boundary.
 */
#include "dbt.h"

#include <stdlib.h>

#define FAST_MIN (DBT_SLACK + 1)

/* So many instructions and REP iterations without anything that counts are a guest that waits. */
#define BETWEEN_INSNS (1u << 22)

static int enter(struct dbt *d, u32 code)
{
    dbt_unpark(d);
    return ((int (*)(const void *))(uintptr_t)(d->rx + d->enter))(d->rx + code);
}

/* Host registers of an interrupted block back into the slots. */
static void merge_registers(struct dbt *d, u16 loaded, u16 spilled)
{
    const u16 stolen = 1u << R10 | 1u << R11;
    for (unsigned r = 0; r < 16; r++) {
        u16 bit = (u16)(1u << r);
        if ((spilled & bit) || ((stolen & bit) && !(loaded & bit)))
            continue;
        d->cpu.gpr[r] = d->sregs[r];
    }
    d->flags = d->sflags;
}

/* Fault of a copied instruction, as the host's CPU raised it in a guest instruction's place. */
static int signal_fault(struct dbt *d)
{
    switch (d->signal_trap) {
    case EXC_DE: return raise_fault(d, EXC_DE);
    case EXC_MF: return raise_fault(d, EXC_MF);
    case EXC_XM: return raise_fault(d, d->cpu.cr4 & CR4_OSXMMEXCPT ? EXC_XM : EXC_UD);
    case EXC_UD: return raise_fault(d, EXC_UD);
    case EXC_GP: return raise_error(d, EXC_GP, 0);
    case EXC_SS: return raise_error(d, EXC_SS, 0);
    default: CHECK(0, "host exception %u in translated code at +%x", d->signal_trap, d->signal_rip);
    }
}

int exec_native(struct dbt *d, struct insn *in)
{
    if (in->snip_gen != d->code_gen || !in->snippet) {
        dbt_park(d);
        translate_snippet(d, in);
    }
    int r = enter(d, in->snippet);
    if (LIKELY(r == 0))
        return DONE;
    merge_registers(d, in->snip_loaded, in->snip_spilled);
    d->signalled = false;
    return signal_fault(d);
}

/* The page bytes at linear address lin, fetched with the rights of the current mode. */
static int fetch_page(struct dbt *d, u64 lin, gpa_t *gpa, const u8 **page)
{
    if (UNLIKELY(!is_canonical(lin)))
        return raise_error(d, EXC_GP, 0);
    TRY(mmu_walk(d, lin, ACC_X, d->cpl == 3 ? IDX_USER : IDX_SUPU, gpa));
    *page = ram_ptr(d->ram, *gpa & ~(u64)(PAGE_SIZE - 1), PAGE_SIZE);
    if (!*page) {
        return REPORT(d,
                      "the guest executes from physical address %llx, which is not RAM (RIP %llx)",
                      (unsigned long long)*gpa, (unsigned long long)lin);
    }
    return DONE;
}

/* The instruction at RIP. */
int fetch(struct dbt *d, struct insn **out)
{
    u8 key[16] __attribute__((aligned(8)));
    gpa_t gpa;
    const u8 *page;
    TRY(fetch_page(d, d->cpu.rip, &gpa, &page));
    d->code_page = gpa & ~(u64)(PAGE_SIZE - 1);
    unsigned off = gpa & (PAGE_SIZE - 1), avail = MIN(15u, PAGE_SIZE - off);
    for (unsigned i = 0; i < 15; i++)
        key[i] = i < avail ? page[off + i] : 0;
    key[15] = (u8)avail;
    struct insn *in = icache_get(d, key);
    d->code_page2 = NEVER;
    if (in->len == 0) {
        /* It goes on in the next page. */
        TRY(fetch_page(d, d->cpu.rip + avail, &gpa, &page));
        for (unsigned i = avail; i < 15; i++)
            key[i] = page[i - avail];
        key[15] = 15;
        in = icache_get(d, key);
        d->code_page2 = gpa & ~(u64)(PAGE_SIZE - 1);
    }
    *out = in;
    return DONE;
}

/* Budget correction and RIP for an exit at instruction i of a block. */
static void settle(struct dbt *d, const struct block *b, unsigned i)
{
    if (i >= b->check_at && b->count)
        d->budget += (i64)b->count - (i64)i; /* the check took all of the block */
    else
        d->budget -= (i64)i;
    d->cpu.rip = b->lin + d->insn_off[b->insns + i].guest;
}

static struct insn *block_insn(struct dbt *d, const struct block *b, unsigned i)
{
    u8 key[16] __attribute__((aligned(8)));
    u64 phys = b->phys + d->insn_off[b->insns + i].guest;
    const u8 *p = d->ram->host + ram_page_index(d->ram, phys) * PAGE_SIZE;
    unsigned off = phys & (PAGE_SIZE - 1), avail = MIN(15u, PAGE_SIZE - off);
    for (unsigned k = 0; k < 15; k++)
        key[k] = k < avail ? p[off + k] : 0;
    key[15] = (u8)avail;
    d->code_page = phys & ~(u64)(PAGE_SIZE - 1);
    d->code_page2 = NEVER;
    return icache_get(d, key);
}

/* What follows every instruction that exec() ran, and every fault. */
static int finish(struct dbt *d, int r, bool tf)
{
    if (UNLIKELY(r == STOP_HALT && (tf || d->db_pending))) {
        d->cpu.halted = 0; /* a debug trap behind HLT wakes it at once */
        r = DONE;
    }
    if (LIKELY(r == DONE)) {
        d->budget--;
        d->cpu.rip = d->next;
        if (!d->keep_rf)
            d->cpu.rflags &= ~(u64)FL_RF;
        d->keep_rf = false;
        d->cpu.rep_resume = 0;
        if (d->tf_now) {
            d->tf_now = false;
            tf = tf && (d->cpu.rflags & FL_TF);
        }
        if (UNLIKELY(tf || d->db_pending)) {
            d->cpu.dr[6] |= d->db_pending | (tf ? 1u << 14 : 0);
            d->db_pending = 0;
            if (d->shadow_pos == position(d) && d->mov_ss)
                return DONE; /* MOV SS holds debug traps back as well; data hits are dropped */
            d->fault = (struct fault){.vector = EXC_DB, .trap = true};
            return deliver_fault(d);
        }
        return DONE;
    }
    u32 hit = d->db_pending;
    d->db_pending = 0;
    if (r == STOP_FAILED)
        return r; /* everything is as before it, in the middle of a REP too */
    if (r == FAULT)
        d->debug.hit = false; /* the instruction did not happen */
    d->cpu.rep_resume = 0;    /* a fault in the middle of a REP ends it, wherever slices ended */
    if (r == RESTART) {
        d->cpu.rep_resume = 1;
        if (UNLIKELY(tf || hit)) {
            d->cpu.dr[6] |= hit | (tf ? 1u << 14 : 0);
            d->fault = (struct fault){.vector = EXC_DB, .trap = true};
            return deliver_fault(d);
        }
        return DONE;
    }
    if (r == FAULT)
        return deliver_fault(d);
    if (r == STOP_HALT) {
        d->budget--;
        count_events(d, 1);
        d->cpu.rip = d->next;
        d->cpu.rflags &= ~(u64)FL_RF;
    }
    return r;
}

/* One instruction at RIP; `in` if it is known already. */
static int step(struct dbt *d, struct insn *in)
{
    bool tf = d->cpu.rflags & FL_TF;
    d->stale = false;
    if (UNLIKELY(d->careful_only)) {
        if (d->trace) {
            dbt_park(d);
            d->trace(d->trace_opaque);
        }
        if (d->dr_active && !(d->cpu.rflags & FL_RF) &&
            !(d->shadow_pos == position(d) && d->mov_ss)) {
            u64 dr7 = d->cpu.dr[7];
            u32 hit = 0;
            for (unsigned i = 0; i < 4; i++)
                if ((dr7 >> (2 * i) & 3) && !(dr7 >> (16 + 4 * i) & 3) &&
                    d->cpu.dr[i] == d->cpu.rip)
                    hit |= 1u << i;
            if (hit) {
                d->cpu.dr[6] |= hit;
                d->fault = (struct fault){.vector = EXC_DB, .code_bp = true};
                return finish(d, FAULT, false);
            }
        }
    }
    int r = in ? DONE : fetch(d, &in);
    if (r == DONE) {
        d->st.careful++;
        d->executing = true;
        d->pinned = in;
        r = NOT_STEPPED;
        if (d->stepper) {
            dbt_park(d);
            r = d->stepper(d, in);
        }
        if (r == NOT_STEPPED)
            r = exec(d, in);
        if (r == DONE)
            d->branches += in->treat == T_JCC || in->treat == T_LOOP;
        d->pinned = NULL;
        d->executing = false;
    }
    return finish(d, r, tf);
}

/* An instruction that crosses into the next page is in no block: looked at before anything is
 * made ready for translating it, because a hot loop may have one. */
static bool crosses(struct dbt *d, const u8 *page, unsigned offset)
{
    u8 key[16] __attribute__((aligned(8))) = {0};
    unsigned avail = PAGE_SIZE - offset;
    if (avail >= 15)
        return false;
    for (unsigned i = 0; i < avail; i++)
        key[i] = page[offset + i];
    key[15] = (u8)avail;
    const struct insn *in = icache_get(d, key);
    return !in->len || in->len > avail;
}

/* The block at RIP, translated if need be. NULL: run one instruction by hand. */
static struct block *lookup(struct dbt *d, int *result, bool remember)
{
    u64 rip = d->cpu.rip;
    u32 slot = jc_slot(rip);
    u32 bi = d->jc_block[d->idx][slot];
    *result = DONE;
    if (debug_stops_at(d, rip))
        return NULL;
    if (LIKELY(bi && d->blocks[bi].lin == rip))
        return &d->blocks[bi];
    gpa_t gpa;
    const u8 *page;
    *result = fetch_page(d, rip, &gpa, &page);
    if (*result)
        return NULL;
    if (crosses(d, page, gpa & (PAGE_SIZE - 1)))
        return NULL;
    struct block *b = cache_find(d, rip, gpa, d->mode);
    if (!b) {
        dbt_park(d);
        b = translate(d, rip, gpa, page);
        if (!b)
            return NULL;
        cache_link(d, b);
    }
    if (!remember)
        return b;
    jc_set(d, d->idx, b);
    /* User entries go at each CR3 write. The page's other blocks are as valid: one walk serves
     * them all. */
    u32 left = rip >> 63 ? 0 : 32;
    for (u32 i = d->pages[ram_page_index(d->ram, gpa)].blocks; i && left; left--) {
        struct block *o = &d->blocks[i];
        i = o->page_next;
        if (o->mode == d->mode && (o->lin ^ rip) < PAGE_SIZE &&
            !d->jc_block[d->idx][jc_slot(o->lin)])
            jc_set(d, d->idx, o);
    }
    return b;
}

/* A branch to a non-canonical address faults at the branch, before any effect. */
static int bad_target(struct dbt *d)
{
    u32 id = d->ind_id;
    struct block *b = &d->blocks[EXIT_BLOCK(id)];
    unsigned i = EXIT_INDEX(id);
    struct insn *in = block_insn(d, b, i);
    d->cpu.rip = b->lin + d->insn_off[b->insns + i].guest;
    d->budget++;
    if (in->treat == T_RET) {
        d->cpu.gpr[RSP] -= 8 + (in->op0_kind == OP_IMM ? (u16)in->imm : 0);
    } else if (in->treat == T_CALL) {
        d->cpu.gpr[RSP] += 8; /* the pushed address stays behind, as on Intel's CPUs */
    }
    return finish(d, raise_error(d, EXC_GP, 0), false);
}

/* An inlined STI left its budget: if nothing retired since, its shadow holds now. */
static void note_shadow(struct dbt *d)
{
    if (UNLIKELY(d->sti_budget + DBT_SLACK == d->budget)) {
        d->shadow_pos = position(d);
        d->mov_ss = false;
    }
}

/* Runs translated code from block b until something needs C. */
static int run_block(struct dbt *d, struct block *b)
{
    u32 gen = d->code_gen;
    d->stale = false;
    d->sti_budget = INT64_MIN;
    d->budget -= DBT_SLACK;
    int r = enter(d, b->code);
    d->budget += DBT_SLACK;
    d->st.exits++;
    if (UNLIKELY(r)) {
        if (d->signalled) {
            /* A guest instruction faulted: find it by host address. */
            d->signalled = false;
            u32 lo = 1, hi = d->nblocks - 1;
            while (lo < hi) {
                u32 mid = (lo + hi + 1) / 2;
                if (d->blocks[mid].ient <= d->signal_rip)
                    lo = mid;
                else
                    hi = mid - 1;
            }
            b = &d->blocks[lo];
            u32 off = d->signal_rip - b->code;
            unsigned i = b->n - 1;
            while (i && d->insn_off[b->insns + i].host > off)
                i--;
            merge_registers(d, b->loaded, b->spilled);
            settle(d, b, i);
            note_shadow(d);
            return finish(d, signal_fault(d), false);
        }
        b = &d->blocks[EXIT_BLOCK(d->exit_id)];
        merge_registers(d, b->loaded, b->spilled);
    }
    u32 id = d->exit_id;
    unsigned i = EXIT_INDEX(id);
    switch (EXIT_KIND(id)) {
    case X_LINK: {
        b = &d->blocks[EXIT_BLOCK(id)];
        d->cpu.rip = (b->lin & ~(u64)(PAGE_SIZE - 1)) | b->link_target[i];
        note_shadow(d);
        if (d->budget < FAST_MIN || d->kicked || b->dead)
            return DONE;
        int res;
        struct block *to = lookup(d, &res, false); /* the link remembers */
        if (res)
            return finish(d, res, false);
        if (to && gen == d->code_gen && !b->dead && to->phys - (b->phys & ~4095ull) < PAGE_SIZE) {
            u8 *at = d->rw + b->link_patch[i];
            *(i32 *)(void *)at = (i32)((d->rw + to->code) - (at + 4));
        }
        return DONE;
    }
    case X_IND:
        d->cpu.rip = d->target;
        note_shadow(d);
        if (UNLIKELY(!is_canonical(d->target)))
            return bad_target(d);
        return DONE;
    case X_BUDGET:
        b = &d->blocks[EXIT_BLOCK(id)];
        settle(d, b, i);
        note_shadow(d);
        /* The rest of the way by hand: blocks from every following instruction would be waste. */
        d->near_stop = true;
        return DONE;
    case X_INSN_LF: {
        u64 ax = d->cpu.gpr[RAX];
        d->flags = (ax >> 8 & 0xd5) | (ax & 1 ? FL_OF : 0);
        d->cpu.gpr[RAX] = d->save_rax;
    } /* fall through */
    case X_INSN:
        b = &d->blocks[EXIT_BLOCK(id)];
        settle(d, b, i);
        note_shadow(d);
        return step(d, b->dead ? NULL : block_insn(d, b, i));
    default: CHECK(0, "exit %x", id);
    }
}

/* In front of an instruction that a debugger stops at? */
static bool debug_stop(struct dbt *d)
{
    u32 point;
    if (!debug_exec_at(d, d->cpu.rip, &point) || d->cpu.rep_resume || position(d) == d->debug.pass)
        return false;
    d->debug.hit = true;
    d->debug.at = (struct debug_hit){point, false, d->cpu.rip, unit_position(d)};
    return true;
}

enum engine_exit dbt_run_insns(struct engine *e, u64 n, struct err *err)
{
    struct dbt *d = dbt_of(e);
    host_enter(d);
    d->target_pos = position(d) + n;
    d->budget = (i64)n;
    d->attention = false;
    d->near_stop = false;
    d->want = d->want_int || d->want_nmi;
    int r = DONE;
    enum engine_exit result = ENGINE_STOP;
    while (d->budget > 0) {
        if (d->want_int && dbt_can_interrupt(&d->base)) {
            result = ENGINE_WINDOW;
            break;
        }
        if (d->want_nmi && dbt_can_nmi(&d->base)) {
            result = ENGINE_WINDOW;
            break;
        }
        if (UNLIKELY(d->kicked))
            break;
        if (UNLIKELY(d->debug.nexec) && debug_stop(d)) {
            result = ENGINE_DEBUG;
            break;
        }
        /* Blocks do not clear RF: the instruction behind an IRET that set it runs by hand. */
        bool by_hand = d->careful_only || d->near_stop || d->budget < FAST_MIN ||
                       (d->cpu.rflags & FL_RF) ||
                       ((d->want_int || d->want_nmi) && d->shadow_pos == position(d));
        struct block *b = NULL;
        if (!by_hand) {
            b = lookup(d, &r, true);
            if (r)
                r = finish(d, r, false);
        }
        if (r == DONE)
            r = b ? run_block(d, b) : step(d, NULL);
        if (UNLIKELY(r)) {
            result = r == STOP_HALT       ? ENGINE_HALT
                     : r == STOP_SHUTDOWN ? ENGINE_SHUTDOWN
                     : r == STOP_FAILED   ? ENGINE_FAILED
                                          : ENGINE_UNSUPPORTED;
            break;
        }
        if (UNLIKELY(d->debug.hit)) {
            result = ENGINE_DEBUG;
            break;
        }
        if (UNLIKELY(d->attention)) {
            result = ENGINE_ATTENTION;
            break;
        }
    }
    d->kicked = 0;
    dbt_park(d);
    if (result == ENGINE_UNSUPPORTED || result == ENGINE_FAILED)
        *err = d->err;
    return result;
}

/*
 * UNIT_BRANCH: an instruction counts one at most (but for devices, which ask for attention), so as
 * many instructions as positions are left cannot go too far; they go a part of the way, and again.
 */
static enum engine_exit run_branches(struct dbt *d, pos_t stop_at, struct err *err)
{
    enum engine_exit r = ENGINE_STOP;
    pos_t moved = position(d), at = unit_position(d);
    while (r == ENGINE_STOP && unit_position(d) < stop_at) {
        u64 n = MIN(stop_at - unit_position(d), BETWEEN_INSNS);
        pos_t until = position(d) + n;
        r = dbt_run_insns(&d->base, n, err);
        if (position(d) != until)
            break; /* kicked */
        if (unit_position(d) != at) {
            at = unit_position(d);
            moved = position(d);
        } else if (r == ENGINE_STOP && position(d) - moved >= BETWEEN_INSNS) {
            return ENGINE_BETWEEN;
        }
    }
    if (r == ENGINE_SHUTDOWN)
        dbt_shut_down(d);
    return r;
}

enum engine_exit dbt_run(struct engine *e, pos_t stop_at, struct err *err)
{
    struct dbt *d = dbt_of(e);
    return d->by_branch ? run_branches(d, stop_at, err)
                        : dbt_run_insns(e, stop_at - position(d), err);
}
