/*
 * The run loop: finds or translates the block at RIP, enters it, and does what its exit asks for.
 * Everything that is not plain code runs in exec(), one instruction at a time, after which the
 * machine's wishes (attention, interrupt window, stop) are looked at: so every event falls on an
 * exact instruction boundary.
 */
#include "run.h"

#include "cache.h"
#include "regions.h"
#include "spaces.h"
#include "translate.h"
#include "host.h"

#include "base/phase.h"
#include "cpu/x86/except.h"
#include "cpu/x86/icache.h"
#include "cpu/x86/mode.h"
#include "cpu/x86/park.h"
#include "cpu/x86/step.h"

#include <stdlib.h>

#define FAST_MIN     (DBT_SLACK + 1)
#define BUDGET_SHORT 1024
#define BUDGET_LEAST 128 /* all of less is for one part: */
_Static_assert(BUDGET_LEAST - (BUDGET_PARTS - 1) * BUDGET_LEAST / (2 * BUDGET_PARTS) >= BLOCK_MAX,
               "what is left is for some block enough, or a stop is near");

static int enter(struct dbt *d, u32 code)
{
    core_unpark(&d->c);
    return ((int (*)(const void *))(uintptr_t)(d->code->rx + d->code->enter))(d->code->rx + code);
}

/* Host registers of an interrupted block back into the slots. */
static void merge_registers(struct dbt *d, u16 loaded, u16 spilled)
{
    const u16 stolen = 1u << R10 | 1u << R11;
    for (unsigned r = 0; r < 16; r++) {
        u16 bit = (u16)(1u << r);
        if ((spilled & bit) || ((stolen & bit) && !(loaded & bit)))
            continue;
        d->c.cpu.gpr[r] = d->sregs[r];
    }
    d->c.flags = d->sflags;
}

/* Fault of a copied instruction, as the host's CPU raised it in a guest instruction's place. */
static int signal_fault(struct dbt *d)
{
    switch (d->signal_trap) {
    case EXC_DE: return raise_fault(&d->c, EXC_DE);
    case EXC_MF: return raise_fault(&d->c, EXC_MF);
    case EXC_XM: return raise_fault(&d->c, d->c.cpu.cr4 & CR4_OSXMMEXCPT ? EXC_XM : EXC_UD);
    case EXC_UD: return raise_fault(&d->c, EXC_UD);
    case EXC_GP: return raise_error(&d->c, EXC_GP, 0);
    case EXC_SS: return raise_error(&d->c, EXC_SS, 0);
    default: CHECK(0, "host exception %u in translated code at +%x", d->signal_trap, d->signal_rip);
    }
}

int dbt_native(struct core *c, struct insn *in)
{
    struct dbt *d = dbt_of(c);
    if (in->snip_gen != d->code->region[region_of_code(d->code, in->snippet)].gen) {
        core_set_aside(&d->c);
        translate_snippet(d, in);
    }
    int r = enter(d, in->snippet);
    if (LIKELY(r == 0))
        return DONE;
    merge_registers(d, in->snip_loaded, in->snip_spilled);
    d->signalled = false;
    return signal_fault(d);
}

/* The block that translated code came out of; its instruction `EXIT_INDEX(id)` is in it. */
static struct block *exit_block(struct dbt *d, u32 id)
{
    u32 bi = EXIT_BLOCK(id);
    CHECK(bi && bi < d->code->max_blocks && EXIT_INDEX(id) < MAX(d->code->blocks[bi].n, LINKS_MAX),
          "exit %x, of no block", id);
    return &d->code->blocks[bi];
}

static unsigned insn_in_page(const struct dbt *d, const struct block *b, unsigned i)
{
    return d->code->insn_off[b->insns + i].guest & (PAGE_SIZE - 1);
}

/* RIP at instruction i of a block. */
static u64 insn_rip(const struct dbt *d, const struct block *b, unsigned i)
{
    return code_offset(&d->c, (b->lin & ~(u64)(PAGE_SIZE - 1)) + insn_in_page(d, b, i));
}

/* Branches that the block went over before instruction i: put_passed() counts at its ends. */
static void count_passed(struct dbt *d, const struct block *b, unsigned i)
{
    for (unsigned k = 0; k < i; k++) {
        u16 off = d->code->insn_off[b->insns + k].guest;
        d->c.pmu.counted[SIG_COND] += (off & OFF_JCC) != 0;
        d->c.pmu.counted[SIG_BRANCH] += (off & (OFF_JCC | OFF_JMP)) != 0;
    }
}

/* Budget correction and RIP for an exit at instruction i of a block. */
static void stop_at_insn(struct dbt *d, const struct block *b, unsigned i)
{
    if (UNLIKELY(block_signals(b->mode)))
        count_passed(d, b, i);
    if (i >= b->check_at && b->count)
        d->c.budget += (i64)b->count - (i64)i; /* the check took all of the block */
    else
        d->c.budget -= (i64)i;
    d->c.cpu.rip = insn_rip(d, b, i);
}

/* 15 bytes, the first `avail` of which end a page. */
static void join_bytes(u8 to[15], const u8 *first, unsigned avail, const u8 *second)
{
    for (unsigned i = 0; i < 15; i++)
        to[i] = i < avail ? first[i] : second[i - avail];
}

static const u8 *ram_page(const struct dbt *d, u64 phys)
{
    return d->c.ram->host + ram_page_index(d->c.ram, phys) * PAGE_SIZE;
}

static struct insn *block_insn(struct dbt *d, const struct block *b, unsigned i)
{
    u8 key[16] __attribute__((aligned(8))), bytes[15];
    u64 phys = (b->phys & ~(u64)(PAGE_SIZE - 1)) + insn_in_page(d, b, i);
    unsigned off = phys & (PAGE_SIZE - 1), avail = MIN(15u, PAGE_SIZE - off);
    const u8 *p = ram_page(d, phys) + off;
    d->c.code_page = phys & ~(u64)(PAGE_SIZE - 1);
    d->c.code_page2 = NEVER;
    if (UNLIKELY(b->phys2)) {
        d->c.code_page2 = b->phys2;
        join_bytes(bytes, p, avail, ram_page(d, b->phys2));
        p = bytes;
        avail = 15;
    }
    icache_key(code_size(&d->c), p, avail, key);
    return icache_get(&d->c, key);
}

/*
 * Is code of this mode translated? Outside 64-bit mode flat 32-bit code is. It uses RSP and RBP as
 * addresses: nothing that it does sets their upper halves.
 */
static bool is_translated(const struct core *c)
{
    const u32 flat = (u32)CODE_32 << MODE_CODE_SHIFT | MODE_FLAT;
    return is_64bit(c) || ((c->mode & (MODE_CODE | MODE_FLAT)) == flat &&
                           !((c->cpu.gpr[RSP] | c->cpu.gpr[RBP]) >> 32));
}

/* The block at RIP, translated if need be. NULL: run one instruction by hand. */
static struct block *lookup(struct dbt *d, int *result, bool remember)
{
    u64 lin = code_linear(&d->c, d->c.cpu.rip);
    *result = DONE;
    /* In the last page of 32 bits addresses begin anew. */
    if (runs_alone(&d->c, lin) || (!is_64bit(&d->c) && lin >= 0xfffff000))
        return NULL;
    u32 bi = jc_find(d, lin);
    if (LIKELY(bi))
        return &d->code->blocks[bi];
    if (d->c.idx == IDX_USER && !(lin >> 63) && (bi = spaces_find(d, lin))) {
        d->c.st.jc_returns++;
        return &d->code->blocks[bi];
    }
    d->c.st.jc_misses++;
    struct code_at at = {.lin = lin};
    *result = fetch_page(&d->c, lin, &at.phys, &at.page);
    if (*result || !ram_ptr(d->c.ram, at.phys, 1))
        return NULL;
    unsigned offset = at.phys & (PAGE_SIZE - 1);
    if (icache_crosses(&d->c, at.page, offset)) {
        const u8 *second;
        unsigned avail = PAGE_SIZE - offset;
        u8 before[15] = {0};
        for (unsigned i = 0; i < avail; i++)
            before[i] = at.page[offset + i];
        *result = fetch_page(&d->c, lin + avail, &at.phys2, &second);
        if (*result || !ram_ptr(d->c.ram, at.phys2, 1))
            return NULL;
        join_bytes(at.bytes, at.page + offset, avail, second);
        /* The walk set an accessed bit in the instruction's own first page. */
        for (unsigned i = 0; i < avail; i++)
            if (at.bytes[i] != before[i])
                return NULL;
    }
    CHECK((d->c.mode & MODE_IDX) == d->c.idx, "mode %x with TLB %u", d->c.mode, d->c.idx);
    struct block *b = cache_find(d, lin, at.phys, at.phys2, d->c.mode);
    if (!b) {
        core_set_aside(&d->c);
        b = translate(d, &at);
        if (!b)
            return NULL;
        cache_link(d, b);
    }
    if (!remember && !b->phys2)
        return b;
    bool empty = !d->jc_known[d->c.idx][jc_slot(lin)].block;
    jc_learn(d, d->c.idx, b);
    /* User entries go at each CR3 write. The page's other blocks are as valid: one walk serves
     * them all. Where another target had the place they have not gone. After some of other
     * addresses, few are to be expected. */
    u32 left = lin >> 63 || !empty ? 0 : 32, others = 4;
    for (u32 e = d->code->pages[ram_page_index(d->c.ram, at.phys)].blocks; e && left && others;
         left--) {
        struct block *o = &d->code->blocks[e & ~SECOND_PAGE];
        e = e & SECOND_PAGE ? o->page2_next : o->page_next;
        if ((o->lin ^ lin) >= PAGE_SIZE)
            others--;
        else if (o->mode == d->c.mode && !o->phys2 && !o->plain &&
                 !d->jc_known[d->c.idx][jc_slot(o->lin)].block)
            jc_learn(d, d->c.idx, o);
    }
    return b;
}

/* A branch to a non-canonical address faults at the branch, before any effect. */
static int bad_target(struct dbt *d)
{
    u32 id = d->ind_id;
    struct block *b = exit_block(d, id);
    unsigned i = EXIT_INDEX(id);
    struct insn *in = block_insn(d, b, i);
    d->c.cpu.rip = insn_rip(d, b, i);
    d->c.budget++;
    for (u32 s = pmu_signals(in) & block_signals(b->mode); s; s &= s - 1)
        d->c.pmu.counted[__builtin_ctz(s)]--;
    u64 sp = get_sp(&d->c);
    if (in->treat == T_RET) {
        i64 skip = in->op0_kind == OP_IMM ? (u16)in->imm : 0;
        set_sp(&d->c, sp_moved(&d->c, sp, -(in->stack + skip)));
    } else if (in->treat == T_CALL) {
        set_sp(&d->c,
               sp_moved(&d->c, sp,
                        in->stack)); /* the pushed address stays behind, as on Intel's CPUs */
    }
    return step_finish(&d->c, raise_error(&d->c, EXC_GP, 0), false);
}

/* What translated code has counted. */
static void take_signals(struct dbt *d)
{
    for (u32 s = d->c.pmu.signals[0] | d->c.pmu.signals[1]; s; s &= s - 1) {
        unsigned signal = (unsigned)__builtin_ctz(s);
        for (unsigned k = 0; k < BUDGET_PARTS; k++) {
            d->c.pmu.counted[signal] += d->signals[signal][k];
            d->signals[signal][k] = 0;
        }
    }
}

/* Translated code from an offset in the cache on, with the budget in parts. */
static int enter_block(struct dbt *d, u32 code)
{
    /* Of a short one all is for the block that had too little; where stops are frequent half and
     * more, as a loop of several parts comes near to its end in few entries then. */
    i64 left = d->c.budget - DBT_SLACK, each = left / BUDGET_PARTS;
    if (left < BUDGET_SHORT)
        each = left < BUDGET_LEAST || d->c.parts.cpus == 1 ? 0 : each / 2;
    for (unsigned k = 0; k < BUDGET_PARTS; k++)
        d->part[k] = each;
    d->part[d->favoured] = left - each * (BUDGET_PARTS - 1);
    int r = enter(d, code);
    d->c.budget = DBT_SLACK;
    for (unsigned k = 0; k < BUDGET_PARTS; k++)
        d->c.budget += d->part[k];
    if (UNLIKELY(d->c.pmu.signals[0] | d->c.pmu.signals[1])) /* whether a counter is on or not */
        take_signals(d);
    return r;
}

/* An inlined STI left its budget: if nothing retired since, its shadow holds now. */
static void note_shadow(struct dbt *d)
{
    if (UNLIKELY(d->sti_budget + DBT_SLACK == d->c.budget)) {
        d->c.shadow_pos = position(&d->c);
        d->c.mov_ss = false;
    }
}

/* A slice ended in that block: one in which many do is translated again (path.c). */
static void heat(struct dbt *d, struct block *b)
{
    if (b->heat < UINT8_MAX)
        b->heat++;
    if (b->hot || b->plain || b->phys2 || b->dead || b->heat < d->hot_at || branches_end(&d->c) ||
        b->mode != d->c.mode)
        return;
    b->hot = true;
    struct code_at at = {.lin = b->lin, .phys = b->phys, .page = ram_page(d, b->phys), .hot = true};
    u32 gen = block_gen(d->code, b);
    core_set_aside(&d->c);
    struct block *to = translate(d, &at);
    if (!to)
        return;
    to->hot = true;
    if (gen != block_gen(d->code, b) || b->dead) {
        cache_link(d, to);
        return;
    }
    to->heat = b->heat;
    cache_replace(d, b, to);
}

/* Instruction i of a block, at which RIP is, by hand. */
static int run_insn(struct dbt *d, const struct block *b, unsigned i)
{
    return core_step(&d->c, b->dead ? NULL : block_insn(d, b, i));
}

/* What exec() does for a PAUSE, where nobody looks at instructions: most turns end by one. */
static int run_pause(struct dbt *d, const struct block *b, unsigned i)
{
    if (UNLIKELY(d->c.pmu.on || trace_at(&d->c, code_linear(&d->c, d->c.cpu.rip))))
        return run_insn(d, b, i);
    d->c.st.careful++;
    core_set_aside(&d->c);
    d->c.env->pause(d->c.env->cpu);
    d->c.cpu.rip = rip_moved(&d->c, d->c.cpu.rip, 2);
    d->c.budget--;
    return DONE;
}

/* Runs translated code from block b until something needs C. */
static int run_block(struct dbt *d, struct block *b)
{
    d->c.stale = d->c.revoked = false;
    d->sti_budget = INT64_MIN;
    int r = enter_block(d, b->code);
    d->c.st.exits++;
    if (UNLIKELY(r)) {
        if (d->signalled) {
            /* A guest instruction faulted: find it by host address. */
            d->signalled = false;
            d->c.st.exit_fault++;
            b = regions_block_at(d->code, d->signal_rip);
            u32 off = d->signal_rip - b->code;
            unsigned i = b->n - 1;
            while (i && d->code->insn_off[b->insns + i].host > off)
                i--;
            merge_registers(d, b->loaded, b->spilled);
            stop_at_insn(d, b, i);
            note_shadow(d);
            /* Of a stack access that STACK_NONE let pass, too: exec() says which fault it is. */
            if (d->signal_trap == EXC_GP || d->signal_trap == EXC_SS)
                return run_insn(d, b, i);
            return step_finish(&d->c, signal_fault(d), false);
        }
        b = &d->code->blocks[EXIT_BLOCK(d->exit_id)];
        merge_registers(d, b->loaded, b->spilled);
    }
    u32 id = d->exit_id;
    unsigned i = EXIT_INDEX(id);
    switch (EXIT_KIND(id)) {
    case X_LINK: {
        d->c.st.exit_link++;
        b = exit_block(d, id);
        u32 gen = block_gen(d->code, b);
        const struct link *l = block_link(d->code, b, i);
        CHECK(l, "no link %u of the block at %llx", i, (unsigned long long)b->lin);
        u64 target = (b->lin & ~(u64)(PAGE_SIZE - 1)) | l->target;
        d->c.cpu.rip = code_offset(&d->c, target);
        note_shadow(d);
        if (d->c.budget < FAST_MIN || d->c.kicked || b->dead)
            return DONE;
        int res;
        struct block *to = lookup(d, &res, false); /* the link remembers */
        if (res)
            return step_finish(&d->c, res, false);
        if (to && gen == block_gen(d->code, b) && !b->dead && !to->phys2 &&
            to->phys - (b->phys & ~4095ull) < PAGE_SIZE) {
            CHECK(to->lin == target, "a link to %llx instead of %llx", (unsigned long long)to->lin,
                  (unsigned long long)target);
            link_to(d, b, l, to);
        }
        return DONE;
    }
    case X_PLAIN: {
        d->c.st.exit_plain++;
        b = exit_block(d, id);
        const struct link *l = block_link(d->code, b, i);
        CHECK(l && l->plain, "no guard has the link %u of the block at %llx", i,
              (unsigned long long)b->lin);
        u64 in_page = PAGE_SIZE - 1, offset = l->target;
        struct code_at at = {.lin = (b->lin & ~in_page) | offset,
                             .phys = (b->phys & ~in_page) | offset,
                             .page = ram_page(d, b->phys),
                             .plain = true};
        d->c.cpu.rip = code_offset(&d->c, at.lin);
        note_shadow(d);
        if (b->dead)
            return DONE;
        /* Often it is what the TLB does not have yet, and will not fail again. (A search for a
         * wrong instruction must not have it executed right.) */
        if (b->failed < FAILED_AT && !d->paranoid) {
            b->failed++;
            d->by_hand = position(&d->c) + b->n;
            return DONE;
        }
        u32 gen = block_gen(d->code, b);
        core_set_aside(&d->c);
        struct block *to = translate(d, &at);
        CHECK(to, "no plain translation of the block at %llx", (unsigned long long)at.lin);
        cache_link(d, to);
        if (gen == block_gen(d->code, b))
            link_to(d, b, l, to);
        return DONE;
    }
    case X_IND:
        d->c.st.exit_indirect++;
        d->c.cpu.rip = code_offset(&d->c, d->target);
        note_shadow(d);
        if (UNLIKELY(!code_reachable(&d->c, d->c.cpu.rip)))
            return bad_target(d);
        if (!d->second_left) /* it is in the jump cache, but at the second place */
            jc_first(d, code_linear(&d->c, d->c.cpu.rip));
        return DONE;
    case X_BUDGET:
        d->c.st.exit_budget++;
        b = exit_block(d, id);
        stop_at_insn(d, b, i);
        note_shadow(d);
        /* Its part was used up. If all of the budget nearly is, the rest of the way goes by hand:
         * blocks from every following instruction would be waste. */
        d->favoured = b->part;
        d->near_stop = d->c.budget - DBT_SLACK < b->count;
        heat(d, b);
        return DONE;
    case X_INSN_LF: {
        u64 ax = d->c.cpu.gpr[RAX];
        d->c.flags = (ax >> 8 & 0xd5) | (ax & 1 ? FL_OF : 0);
        d->c.cpu.gpr[RAX] = d->save_rax;
    } /* fall through */
    case X_INSN:
    case X_PAUSE:
        d->c.st.exit_insn++;
        b = exit_block(d, id);
        stop_at_insn(d, b, i);
        note_shadow(d);
        return EXIT_KIND(id) == X_PAUSE ? run_pause(d, b, i) : run_insn(d, b, i);
    default: CHECK(0, "exit %x", id);
    }
}

enum engine_exit dbt_run_insns(struct core *c, u64 n, struct err *err)
{
    struct dbt *d = dbt_of(c);
    pos_t began = position(&d->c);
    enum phase before = phase_enter(PHASE_LOOP);
    host_enter(d);
    d->c.target_pos = began + n;
    d->c.budget = (i64)n;
    /* Where instructions are counted, time moves with the position until the run ends. */
    if (!counts_branches(&d->c))
        d->tsc_ends = d->c.env->now(d->c.env->cpu) + n - DBT_SLACK;
    d->c.attention = false;
    d->near_stop = false;
    d->by_hand = 0;
    int r = DONE;
    enum engine_exit result = ENGINE_STOP;
    while (d->c.budget > 0) {
        if (core_takes_wanted(&d->c)) {
            result = ENGINE_WINDOW;
            break;
        }
        if (UNLIKELY(d->c.kicked))
            break;
        if (UNLIKELY(d->c.debug.nexec) && step_debug_stop(&d->c)) {
            result = ENGINE_DEBUG;
            break;
        }
        /* Blocks do not clear RF: the instruction after an IRET that set it runs by hand. */
        bool by_hand = d->c.careful_only || d->near_stop || d->c.budget < FAST_MIN ||
                       (d->c.cpu.rflags & FL_RF) || !is_translated(&d->c) ||
                       (d->c.want && d->c.shadow_pos == position(&d->c)) ||
                       UNLIKELY(position(&d->c) < d->by_hand);
        struct block *b = NULL;
        if (!by_hand) {
            b = lookup(d, &r, true);
            if (r)
                r = step_finish(&d->c, r, false);
        }
        if (r == DONE)
            r = b ? run_block(d, b) : core_step(&d->c, NULL);
        if (UNLIKELY(r)) {
            result = r == STOP_HALT       ? ENGINE_HALT
                     : r == STOP_SHUTDOWN ? ENGINE_SHUTDOWN
                     : r == STOP_FAILED   ? ENGINE_FAILED
                                          : ENGINE_UNSUPPORTED;
            break;
        }
        if (UNLIKELY(d->c.debug.hit)) {
            result = ENGINE_DEBUG;
            break;
        }
        if (UNLIKELY(d->c.attention)) {
            result = ENGINE_ATTENTION;
            break;
        }
        if (UNLIKELY(d->c.pmu.again))
            break;
    }
    core_set_aside(&d->c);
    phase_leave(before);
    /* A REP INS takes what a CPU takes at once where branches are counted (x86/string.c). */
    CHECK(position(&d->c) >= began && (d->c.budget >= 0 || counts_branches(&d->c)),
          "from position %llu for %llu came to %llu", (unsigned long long)began,
          (unsigned long long)n, (unsigned long long)position(&d->c));
    if (result == ENGINE_UNSUPPORTED || result == ENGINE_FAILED)
        *err = d->c.err;
    return result;
}
