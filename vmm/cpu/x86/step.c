/*
 * One instruction at RIP: fetched, executed, and what follows each one: RF, TF, debug registers,
 * delivery of what it raised. Every event falls on an exact instruction boundary.
 */
#include "cpu/x86/step.h"

#include "base/phase.h"
#include "cpu/x86/except.h"
#include "cpu/x86/exec.h"
#include "cpu/x86/icache.h"
#include "cpu/x86/park.h"
#include "cpu/x86/tlb.h"
#include "cpu/x86/debug.h"
#include "cpu/x86/pmu.h"
#include "cpu/x86/mode.h"
#include "cpu/x86/trace.h"

/* What code reads where there is no RAM, devices' memory included: nothing drives the bus. Two such
 * bytes are #UD. */
static const u8 no_ram[PAGE_SIZE] = {[0 ... PAGE_SIZE - 1] = 0xff};

int fetch_page(struct core *d, u64 lin, gpa_t *gpa, const u8 **page)
{
    if (UNLIKELY(!is_canonical(lin)))
        return raise_error(d, EXC_GP, 0);
    TRY(mmu_walk(d, lin, ACC_X, d->cpl == 3 ? IDX_USER : IDX_SUPU, gpa));
    *page = ram_ptr(d->ram, *gpa & ~(u64)(PAGE_SIZE - 1), PAGE_SIZE);
    if (UNLIKELY(!*page))
        *page = no_ram;
    return DONE;
}

/* The instruction at RIP. */
static int fetch(struct core *d, struct insn **out)
{
    u8 key[16] __attribute__((aligned(8)));
    gpa_t gpa;
    const u8 *page;
    u64 lin = code_linear(d, d->cpu.rip);
    if (UNLIKELY(!code_reachable(d, d->cpu.rip)))
        return raise_error(d, EXC_GP, 0);
    TRY(fetch_page(d, lin, &gpa, &page));
    d->code_page = gpa & ~(u64)(PAGE_SIZE - 1);
    unsigned off = gpa & (PAGE_SIZE - 1), avail = MIN(15u, PAGE_SIZE - off);
    icache_key(code_size(d), page + off, avail, key);
    struct insn *in = icache_get(d, key);
    d->code_page2 = NEVER;
    if (in->len == 0) {
        /* It goes on in the next page; unless that walk set an accessed bit in the first page. */
        const u8 *second;
        TRY(fetch_page(d, code_linear(d, d->cpu.rip + avail), &gpa, &second));
        icache_key(code_size(d), page + off, avail, key);
        in = icache_get(d, key);
        if (in->len == 0) {
            u8 bytes[15];
            for (unsigned i = 0; i < 15; i++)
                bytes[i] = i < avail ? key[i] : second[i - avail];
            icache_key(code_size(d), bytes, 15, key);
            in = icache_get(d, key);
            d->code_page2 = gpa & ~(u64)(PAGE_SIZE - 1);
        }
    }
    *out = in;
    if (UNLIKELY(!is_64bit(d)) && !code_reachable(d, d->cpu.rip + in->len - 1))
        return raise_error(d, EXC_GP, 0);
    return DONE;
}

static int finish(struct core *d, int r, bool tf)
{
    if (UNLIKELY(r == STOP_HALT && (tf || d->db_pending))) {
        d->cpu.halted = 0; /* a debug trap after HLT wakes it at once */
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
    CHECK(r >= STOP_HALT && r < STOP_FAILED, "an instruction that ends with %d", r);
    return r;
}

int step_finish(struct core *d, int r, bool tf)
{
    r = finish(d, r, tf);
    if (UNLIKELY(d->pmu.on))
        pmu_ring(d);
    return r;
}

/* One instruction at RIP; `in` if it is known already. */
static int step_one(struct core *d, struct insn *in)
{
    bool tf = d->cpu.rflags & FL_TF;
    d->stale = false;
    if (UNLIKELY(d->careful_only)) {
        if (d->dr_active && !(d->cpu.rflags & FL_RF) &&
            !(d->shadow_pos == position(d) && d->mov_ss)) {
            u64 dr7 = d->cpu.dr[7];
            u32 hit = 0;
            for (unsigned i = 0; i < 4; i++)
                if ((dr7 >> (2 * i) & 3) && !(dr7 >> (16 + 4 * i) & 3) &&
                    d->cpu.dr[i] == code_linear(d, d->cpu.rip))
                    hit |= 1u << i;
            if (hit) {
                d->cpu.dr[6] |= hit;
                d->fault = (struct fault){.vector = EXC_DB, .code_bp = true};
                return step_finish(d, FAULT, false);
            }
        }
    }
    int r = in ? DONE : fetch(d, &in);
    if (r == DONE) {
        u64 from = d->cpu.rip;
        d->st.careful++;
        d->executing = true;
        r = NOT_STEPPED;
        if (d->stepper) {
            core_park(d);
            r = d->stepper(d, in);
        }
        if (r == NOT_STEPPED)
            r = exec(d, in);
        if (r == DONE)
            d->branches += in->treat == T_JCC || in->treat == T_LOOP;
        if (UNLIKELY(d->pmu.on) && r == DONE)
            pmu_retired(d, in, from);
        if (UNLIKELY(tf) && pmu_steps_branches(d)) /* SDM vol. 3, 18.4.2 */
            tf = r == DONE && pmu_branched(d, in);
        d->executing = false;
    }
    return step_finish(d, r, tf);
}

/* The same, traced or not. */
static int step_either(struct core *d, struct insn *in)
{
    if (LIKELY(!trace_at(d, code_linear(d, d->cpu.rip))))
        return step_one(d, in);
    core_park(d);
    d->accesses.n = d->accesses.lost = 0;
    d->trace.before(d->trace.opaque);
    d->logging = true;
    int r = step_one(d, in);
    d->logging = false;
    core_park(d);
    d->trace.after(d->trace.opaque);
    return r;
}

int core_step(struct core *d, struct insn *in)
{
    enum phase before = phase_enter(PHASE_STEP);
    int r = step_either(d, in);
    phase_leave(before);
    return r;
}

bool step_debug_stop(struct core *d)
{
    u32 point;
    if (!debug_exec_at(d, code_linear(d, d->cpu.rip), &point) || d->cpu.rep_resume ||
        position(d) == d->debug.pass)
        return false;
    d->debug.hit = true;
    d->debug.at =
        (struct debug_hit){point, false, code_linear(d, d->cpu.rip), unit_position(d), d->id};
    return true;
}
