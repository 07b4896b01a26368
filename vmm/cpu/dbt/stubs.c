/*
 * Code outside blocks: the snippet that runs one instruction for exec(), and the fixed stubs that
 * go into and out of translated code.
 */
#include "tr.h"

#include "slow.h"
#include "regions.h"
#include "translate.h"
#include "code_log.h"

#include "base/phase.h"

/*
 * One instruction for exec(): its memory operand, if it has one, at d->c.ptr; no checks. Register
 * forms and implicit operands as they are.
 */
void translate_snippet(struct dbt *d, struct insn *in)
{
    enum phase before = phase_enter(PHASE_TRANSLATE);
    regions_reserve(d, 1);
    struct emit e = {.p = d->code->rw + d->code->cold_used};
    in->snippet = d->code->cold_used;
    in->snip_gen = d->code->region[d->code->now].gen;
    u16 loaded = in->use & STOLEN, spilled = 0;
    bool mem = in->mem || in->treat == T_HELP;
    mem = mem && in->has_mem;
    int s = NOREG;
    if (mem) {
        static const int order[] = {R10, R11, RSI, RDI, RBX, RDX, R9, R8};
        for (unsigned i = 0; i < ARRAY_SIZE(order) && s < 0; i++)
            if (!(in->use >> order[i] & 1) && !(in->high8 && order[i] >= 8))
                s = order[i];
        if (!(STOLEN >> s & 1))
            spilled = (u16)(1u << s);
    }
    in->snip_loaded = loaded;
    in->snip_spilled = spilled;
    put_prologue(&e, loaded, spilled);
    if (mem) {
        e_load(&e, s, OFF(c.ptr));
        put_patched(&e, in, s);
    } else {
        put_copy(&e, in);
    }
    put_epilogue(&e, loaded & in->wr, spilled);
    e_store_imm32(&e, OFF(exit_id), 0);
    e_jmp_to(&e, d->code->rw + d->code->exit_common);
    size_t bytes = (size_t)(e.p - d->code->rw) - d->code->cold_used;
    CHECK(bytes <= 2 * INSN_COLD, "a snippet of %zu bytes", bytes);
    d->code->cold_used = (u32)(e.p - d->code->rw + 15) & ~15u;
    d->c.st.snippets++;
    d->c.st.code_bytes += bytes;
    if (UNLIKELY(d->code->log.made))
        code_log_single(d, in, bytes);
    phase_leave(before);
}

/* ---- the fixed stubs ---- */

static const int callee_saved[] = {RBX, RBP, R12, R13, R14, R15};

static void push_pop(struct emit *e, u8 op, int r)
{
    if (r >= 8)
        e1(e, 0x41);
    e1(e, (u8)(op | (r & 7)));
}

static void put_return(struct emit *e, u32 value)
{
    e_movi(e, RAX, value);
    for (int i = (int)ARRAY_SIZE(callee_saved) - 1; i >= 0; i--)
        push_pop(e, 0x58, callee_saved[i]);
    e1(e, 0xc3);
}

/*
 * A stack access in another page than the one before: r10 = its address, r11 = where it goes on
 * with what makes a host address of it. By the TLB, and the page is the stack's from now on.
 */
static void put_stack_stub(struct dbt *d, struct emit *e, unsigned tlb, unsigned log, bool write,
                           bool live)
{
    unsigned idx = tlb == IDX_COUNT ? IDX_SUPU : tlb;
    size_t page = OFF(c.stack) + (idx == IDX_USER ? 0 : sizeof(struct stack_page));
    size_t at = OFF(c.tlb) + sizeof(struct tlb_entry) * TLB_SIZE * idx;
    size_t tag = write ? offsetof(struct tlb_entry, wtag) : offsetof(struct tlb_entry, rtag);

    e->p = (u8 *)(((uintptr_t)e->p + 15) & ~15ull);
    d->code->stack[tlb][log][write][live] = (u32)(e->p - d->code->rw);
    e_store(e, R10, OFF(slow_ea));
    e_store(e, R11, OFF(stack_resume));
    if (live) {
        e_store(e, RAX, OFF(save_rax));
        e_flags_to_ax(e);
    }
    tr_tlb_index(e, d, R10, R11);
    e_gs(e, 1, 0x33, R10, R11, 1, at + tag);
    e_cmp_imm32(e, R10, PAGE_SIZE - (1u << log));
    u8 *miss = e_jcc(e, 7); /* ja */
    e_gs(e, 1, 0x03, R10, R11, 1, at + offsetof(struct tlb_entry, host));
    e_gs(e, 1, 0x2b, R10, NOREG, 1, OFF(slow_ea));
    if (tlb != IDX_COUNT)
        tr_keep_stack_page(e, R10, R11, page, at);
    u8 *back = e->p;
    if (live) {
        e_flags_from_ax(e);
        e_load(e, RAX, OFF(save_rax));
    }
    e1(e, 0x65); /* jmp gs:[stack_resume] */
    e1(e, 0xff);
    e_modrm(e, 4, NOREG, NOREG, 1, (i32)OFF(stack_resume));

    e_fix(e, miss, e->p);
    e_load(e, R10, OFF(slow_ea));
    u8 *rel = e->p;
    e_lea_rip(e, R11, e->p);
    e_jmp_to(e, d->code->rw + d->code->slow_r10);
    struct emit again = {.p = rel};
    e_lea_rip(&again, R11, e->p);
    e_gs(e, 1, 0x2b, R10, NOREG, 1, OFF(slow_ea));
    e_jmp_to(e, back);
}

/*
 * The jump cache had another target, or none, in the place of r10: is it in jc2? As flags are the
 * guest's, nothing here changes them.
 */
static void put_second(struct dbt *d, struct emit *e, unsigned idx)
{
    size_t at = OFF(jc2) + sizeof(struct jc_second) * JC_SIZE * idx;
    d->code->second[idx] = (u32)(e->p - d->code->rw);
    tr_jc_slot(e, 2);
    e_lea(e, R11, R11, R11, 1, 0); /* an entry has 16 bytes, a scale 8 */
    e_store(e, RCX, OFF(tmp));
    e_gs(e, 1, 0x8b, RCX, R11, 8, at + offsetof(struct jc_second, minus));
    e_lea(e, RCX, RCX, R10, 1, 0);
    e1(e, 0xe3); /* jrcxz over the miss */
    u8 *hit = e->p;
    e1(e, 0);
    u8 *miss = e->p;
    e_load(e, RCX, OFF(tmp));
    e_jmp_to(e, d->code->rw + d->code->ind_miss);
    *hit = (u8)(e->p - hit - 1);
    e_load(e, RCX, OFF(second_left));
    e_lea(e, RCX, RCX, NOREG, 1, -1);
    e_store(e, RCX, OFF(second_left));
    e1(e, 0xe3); /* jrcxz miss: jc_first() moves it */
    e1(e, (u8)(miss - e->p - 1));
    e_load(e, RCX, OFF(tmp));
    e1(e, 0x65); /* jmp gs:[r11*8 + entry] */
    e1(e, 0x42);
    e1(e, 0xff);
    e_modrm(e, 4, NOREG, R11, 8, (i32)(at + offsetof(struct jc_second, entry)));
}

/* Keeps every register, calls fn, and goes on where `resume` says; returns a jump for when it
 * returned 0. */
static u8 *put_c_call(struct emit *e, u64 (*fn)(struct dbt *d))
{
    for (int r = 0; r < 16; r++)
        e_store(e, r, OFF(sregs) + 8 * (size_t)r);
    e_load(e, RSP, OFF(host_rsp));
    e1(e, 0x9c);
    e1(e, 0x65);
    e1(e, 0x8f);
    e_modrm(e, 0, NOREG, NOREG, 1, (i32)OFF(sflags));
    e_load(e, RDI, OFF(self)); /* of several vCPUs, the one that runs */
    e_movi(e, RAX, (u64)(uintptr_t)fn);
    e1(e, 0x48); /* sub rsp, 8: the six pushes leave it misaligned by 8 */
    e1(e, 0x83);
    e1(e, 0xec);
    e1(e, 8);
    e1(e, 0xff); /* call rax */
    e1(e, 0xd0);
    e1(e, 0x48); /* test rax, rax */
    e1(e, 0x85);
    e1(e, 0xc0);
    u8 *fail = e_jcc(e, 4);
    for (int r = 0; r < 16; r++)
        e_load(e, r, OFF(sregs) + 8 * (size_t)r);
    e1(e, 0x65);
    e1(e, 0xff);
    e_modrm(e, 4, NOREG, NOREG, 1, (i32)OFF(resume));
    return fail;
}

/* A TLB miss; and what else C does (slow.c). */
static void put_slow(struct dbt *d, struct emit *e)
{
    e->p = (u8 *)(((uintptr_t)e->p + 63) & ~63ull);
    d->code->slow_r10 = (u32)(e->p - d->code->rw);
    e_store(e, R10, OFF(slow_ea));
    e_store(e, R11, OFF(resume));
    d->code->slow_common = (u32)(e->p - d->code->rw);
    u8 *fail = put_c_call(e, slow_mem);
    e_fix(e, fail, e->p);
    /* Also where signals go: the registers are in sregs already. */
    d->code->unwind = (u32)(e->p - d->code->rw);
    e_load(e, RSP, OFF(host_rsp));
    put_return(e, 1);
    e->p = (u8 *)(((uintptr_t)e->p + 63) & ~63ull);
    d->code->approx = (u32)(e->p - d->code->rw);
    e_fix(e, put_c_call(e, slow_approx), d->code->rw + d->code->unwind);
}

void translate_common(struct dbt *d)
{
    struct emit e = {.p = d->code->rw + 64};

    /* int enter(const void *code): host -> guest. 0: an exit; 1: registers are in sregs. */
    d->code->enter = (u32)(e.p - d->code->rw);
    for (unsigned i = 0; i < ARRAY_SIZE(callee_saved); i++)
        push_pop(&e, 0x50, callee_saved[i]);
    e_store(&e, RSP, OFF(host_rsp));
    e_store(&e, RDI, OFF(entry_code));
    e_load(&e, RAX, OFF(c.flags));
    e_rr(&e, 0, 0x89, RAX, RDX); /* mov edx, eax */
    e1(&e, 0xc1);                /* shr edx, 11 */
    e1(&e, 0xea);
    e1(&e, 11);
    e1(&e, 0x83); /* and edx, 1 */
    e1(&e, 0xe2);
    e1(&e, 1);
    e1(&e, 0x88); /* mov ah, al */
    e1(&e, 0xc4);
    e1(&e, 0x88); /* mov al, dl */
    e1(&e, 0xd0);
    e_flags_from_ax(&e);
    for (int r = 0; r < 16; r++)
        if (!(STOLEN >> r & 1))
            e_load(&e, r, SLOT(r));
    e1(&e, 0x65);
    e1(&e, 0xff);
    e_modrm(&e, 4, NOREG, NOREG, 1, (i32)OFF(entry_code));

    /* Guest -> host: every register but the stolen ones, and the flags. */
    e.p = (u8 *)(((uintptr_t)e.p + 63) & ~63ull);
    d->code->exit_common = (u32)(e.p - d->code->rw);
    for (int r = 0; r < 16; r++)
        if (!(STOLEN >> r & 1))
            e_store(&e, r, SLOT(r));
    e_load(&e, RSP, OFF(host_rsp));
    e1(&e, 0x9c); /* pushfq; pop gs:[flags] */
    e1(&e, 0x65);
    e1(&e, 0x8f);
    e_modrm(&e, 0, NOREG, NOREG, 1, (i32)OFF(c.flags));
    put_return(&e, 0);

    /* An indirect jump found no block: r10 = target. */
    e.p = (u8 *)(((uintptr_t)e.p + 63) & ~63ull);
    d->code->ind_miss = (u32)(e.p - d->code->rw);
    e_store(&e, R10, OFF(target));
    e_store_imm32(&e, OFF(exit_id), EXIT_ID(0, 0, X_IND));
    e_jmp_to(&e, d->code->rw + d->code->exit_common);

    for (unsigned idx = 0; idx < IDX_COUNT; idx++) {
        e.p = (u8 *)(((uintptr_t)e.p + 63) & ~63ull);
        put_second(d, &e, idx);
    }

    put_slow(d, &e);

    for (unsigned tlb = 0; tlb < STACK_TLBS; tlb++)
        for (unsigned log = 0; log < STACK_SIZES; log++)
            for (unsigned k = 0; k < 4; k++)
                put_stack_stub(d, &e, tlb, log, k & 1, k >> 1);
    d->code->fixed = (u32)(e.p - d->code->rw + 63) & ~63u;
}
