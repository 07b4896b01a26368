/*
 * One instruction in KVM by single step: the progress counter `step`. Exact, because nothing is
 * left to the hardware but what the instruction computes:
 *
 *   - everything that may stop it (faults, page walks with their accessed and dirty bits, debug
 *     points) is looked at first, by the core;
 *   - what a trap flag would show in, or what changes how the machine runs, is the core's;
 *   - a REP string runs with RCX = 1: one iteration, one position;
 *   - a step that does not stop (hosts lose the trap now and then) runs into an undefined
 *     instruction that was put where the instruction leads, and ends there all the same;
 *   - RIP must be where the instruction leads.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#include <Zydis/Mnemonic.h>

#include "base/phase.h"
#include "cpu/kvm/kvm.h"
#include "host/clock.h"

#include "cpu/x86/park.h"
#include "cpu/x86/exec.h"
#include "cpu/x86/flags.h"
#include "cpu/x86/fpu.h"
#include "cpu/x86/memory.h"
#include "cpu/x86/mode.h"
#include "cpu/x86/run.h"
#include "cpu/x86/sys.h"
#include "cpu/x86/walk.h"

#define LOOK_EVERY 128u
#define TURN_NS    20000000u

/* What is known about an instruction before KVM runs it. */
struct plan {
    struct operand op[2];
    unsigned nop;
    u64 target;    /* where a branch leads if it is taken */
    bool branch;   /* may lead to target */
    bool always;   /* surely does */
    bool string;   /* one iteration of it */
    bool compares; /* SCAS, CMPS: RFLAGS change with the last iteration only */
    bool rep;      /* RCX counts, and is not 0 */
    bool cr8_load;
    bool device; /* leaves KVM on the way: the guest's memory must be its own then */
    bool port;   /* ... and asks a device at a port */
    struct guard {
        u8 *host;
        u8 was[2];
    } guard[2];
    unsigned nguards;
};

static void add_operand(struct plan *p, unsigned seg, u64 off, unsigned len, enum access acc,
                        bool read)
{
    p->op[p->nop++] =
        (struct operand){.off = off, .len = len, .seg = seg, .acc = acc, .read = read};
}

static bool lead_to(const struct core *d, struct plan *p, u64 target, bool always)
{
    p->target = target;
    p->branch = true;
    p->always = always;
    return code_reachable(d, target);
}

static bool has_prefix(const struct insn *in, u8 prefix)
{
    return memchr(in->bytes, prefix, in->prefix_end) != NULL;
}

/* A repeat prefix that is not part of the opcode: BSF for TZCNT where the model has none, and
 * lock elision. KVM's CPU may take it for what it means there. */
static bool odd_repeat(const struct insn *in)
{
    return in->rep && !memchr(in->keep, in->rep, sizeof(in->keep));
}

/* The manuals leave OF open after a count other than 1, and AF always; CPUs differ in it between a
 * count in CL and an immediate one, and KVM's emulator has but one of them. So the core decides.
 */
static bool leaves_open(const struct insn *in)
{
    switch (in->mnemonic) {
    case ZYDIS_MNEMONIC_ROL:
    case ZYDIS_MNEMONIC_ROR:
    case ZYDIS_MNEMONIC_RCL:
    case ZYDIS_MNEMONIC_RCR:
    case ZYDIS_MNEMONIC_SHL:
    case ZYDIS_MNEMONIC_SHR:
    case ZYDIS_MNEMONIC_SAR:
    case ZYDIS_MNEMONIC_SHLD:
    case ZYDIS_MNEMONIC_SHRD: return true;
    default: return false;
    }
}

/* Any instruction may meet KVM's emulator, at the first access to a page for instance. These it
 * takes for others (LZCNT for BSR), or it leaves out what they do to MXCSR or to the upper half of
 * a register: found by tests/insn --engine kvm. */
static bool emulated_wrongly(const struct insn *in)
{
    switch (in->mnemonic) {
    case ZYDIS_MNEMONIC_BSF: /* of zero, into 32 bits: the upper half is lost */
    case ZYDIS_MNEMONIC_BSR:
    case ZYDIS_MNEMONIC_LZCNT:
    case ZYDIS_MNEMONIC_TZCNT:
    case ZYDIS_MNEMONIC_CVTSD2SI:
    case ZYDIS_MNEMONIC_CVTSS2SI:
    case ZYDIS_MNEMONIC_CVTTSD2SI:
    case ZYDIS_MNEMONIC_CVTTSS2SI: return true;
    case ZYDIS_MNEMONIC_CMPXCHG: return !in->mem;
    default: return false;
    }
}

static bool plan_general(struct core *d, const struct insn *in, struct plan *p)
{
    if (in->canon || odd_repeat(in) || leaves_open(in) || emulated_wrongly(in))
        return false;
    if (!in->mem)
        return true;
    if ((in->align && (insn_linear(d, in) & (in->align - 1u))) || (in->fpu_wait && fpu_pending(d)))
        return false;
    if (in->mnemonic == ZYDIS_MNEMONIC_VCVTPH2PS || in->mnemonic == ZYDIS_MNEMONIC_VCVTPS2PH)
        return false;
    add_operand(p, in->seg, insn_offset(d, in), in->mem_size, in->mem & MEM_W ? ACC_W : ACC_R,
                in->mem & MEM_R);
    return true;
}

/* The eight bytes a branch reads its target from; RAM only. */
static bool read_target(struct core *d, u64 va, u64 *target)
{
    return core_peek(&d->base, va, target, sizeof(*target));
}

static bool plan_branch(struct core *d, const struct insn *in, struct plan *p)
{
    u64 sp = get_sp(d), next = d->cpu.rip + in->len, target;
    /* With an operand-size prefix CPU makers disagree; with a repeat prefix AMD's take LOOPE for
     * LOOPNE and the other way round. */
    if (in->far || has_prefix(in, 0x66) ||
        (in->treat == T_LOOP && (has_prefix(in, 0xf2) || has_prefix(in, 0xf3))))
        return false;
    if (in->treat == T_JCC || in->treat == T_LOOP)
        return lead_to(d, p, next + (u64)in->imm, false);
    if (in->treat == T_RET) {
        add_operand(p, SEG_SS, sp, 8, ACC_R, true);
        return read_target(d, linear(d, SEG_SS, sp), &target) && lead_to(d, p, target, true);
    }
    if (in->op0_kind == OP_IMM)
        target = next + (u64)in->imm;
    else if (!in->mem)
        target = d->cpu.gpr[in->reg0];
    else if (!read_target(d, insn_linear(d, in), &target))
        return false;
    if (in->mem)
        add_operand(p, in->seg, insn_offset(d, in), 8, ACC_R, true);
    if (in->treat == T_CALL)
        add_operand(p, SEG_SS, sp - 8, 8, ACC_W, false);
    return lead_to(d, p, target, true);
}

static bool plan_stack(struct core *d, const struct insn *in, struct plan *p)
{
    unsigned size = in->stack;
    u64 sp = get_sp(d);
    if (in->op0_kind == OP_SREG)
        return false;
    if (in->treat == T_LEAVE) {
        add_operand(p, SEG_SS, d->cpu.gpr[RBP], size, ACC_R, true);
    } else if (in->treat == T_PUSH) {
        if (in->mem)
            add_operand(p, in->seg, insn_offset(d, in), size, ACC_R, true);
        add_operand(p, SEG_SS, sp - size, size, ACC_W, false);
    } else {
        if (in->mem)
            return false; /* its address may use RSP after the pop */
        add_operand(p, SEG_SS, sp, size, ACC_R, true);
    }
    return true;
}

static bool plan_string(struct core *d, const struct insn *in, struct plan *p)
{
    bool io = (in->opcode & 0xfc) == 0x6c;
    unsigned size = in->opcode & 1 ? in->opsize : 1;
    if (io)
        size = MIN(size, 4u);
    /* Where branches are counted, REP INS takes more than one at once (x86/string.c). */
    if (in->addrsize != 8 || (io && in->rep && counts_branches(d)))
        return false;
    if (io && check_io(d, (u16)d->cpu.gpr[RDX], size))
        return false;
    if (in->rep && !d->cpu.gpr[RCX])
        return true;
    u64 di = d->cpu.gpr[RDI], si = d->cpu.gpr[RSI];
    p->string = true;
    p->rep = in->rep;
    p->device = p->port = io;
    switch (in->opcode & 0xfe) {
    case 0x6c: /* INS */
    case 0xaa: add_operand(p, SEG_ES, di, size, ACC_W, false); break;
    case 0x6e: /* OUTS */
    case 0xac: add_operand(p, in->seg, si, size, ACC_R, true); break;
    case 0xa4:
        add_operand(p, in->seg, si, size, ACC_R, true);
        add_operand(p, SEG_ES, di, size, ACC_W, false);
        break;
    case 0xa6: /* this order shows in CR2 */
        add_operand(p, SEG_ES, di, size, ACC_R, true);
        add_operand(p, in->seg, si, size, ACC_R, true);
        p->compares = true;
        break;
    case 0xae:
        add_operand(p, SEG_ES, di, size, ACC_R, true);
        p->compares = true;
        break;
    default: return false;
    }
    return true;
}

static bool plan_port(struct core *d, const struct insn *in)
{
    unsigned size = in->opcode & 1 ? (in->opsize == 2 ? 2 : 4) : 1;
    u64 imm = in->mnemonic == ZYDIS_MNEMONIC_IN ? in->imm2 : (u64)in->imm;
    u16 port = in->opcode & 8 ? (u16)d->cpu.gpr[RDX] : (u8)imm;
    return check_io(d, port, size) == DONE;
}

/* Of the system instructions, those that KVM hands to us or that change no more than a flag. */
static bool plan_system(struct core *d, const struct insn *in, struct plan *p)
{
    switch (in->mnemonic) {
    case ZYDIS_MNEMONIC_CLD:
    case ZYDIS_MNEMONIC_STD: return true;
    case ZYDIS_MNEMONIC_CPUID:
        return d->pmu.kind->kind == PMU_KIND_NONE && !d->debug.mark &&
               (!d->cpl || !(d->cpu.features & FEATURES_CPUID_FAULT));
    case ZYDIS_MNEMONIC_IN:
    case ZYDIS_MNEMONIC_OUT: p->device = p->port = true; return plan_port(d, in);
    case ZYDIS_MNEMONIC_RDMSR:
    case ZYDIS_MNEMONIC_WRMSR: p->device = true; return d->cpl == 0;
    case ZYDIS_MNEMONIC_MOV:
        p->cr8_load = in->op0_kind == OP_CR;
        return d->cpl == 0 && in->sreg == 8 && (in->op0_kind == OP_CR || in->op1_kind == OP_CR);
    case ZYDIS_MNEMONIC_INSB:
    case ZYDIS_MNEMONIC_INSW:
    case ZYDIS_MNEMONIC_INSD:
    case ZYDIS_MNEMONIC_OUTSB:
    case ZYDIS_MNEMONIC_OUTSW:
    case ZYDIS_MNEMONIC_OUTSD:
    case ZYDIS_MNEMONIC_MOVSB:
    case ZYDIS_MNEMONIC_MOVSW:
    case ZYDIS_MNEMONIC_MOVSD:
    case ZYDIS_MNEMONIC_MOVSQ:
    case ZYDIS_MNEMONIC_STOSB:
    case ZYDIS_MNEMONIC_STOSW:
    case ZYDIS_MNEMONIC_STOSD:
    case ZYDIS_MNEMONIC_STOSQ:
    case ZYDIS_MNEMONIC_LODSB:
    case ZYDIS_MNEMONIC_LODSW:
    case ZYDIS_MNEMONIC_LODSD:
    case ZYDIS_MNEMONIC_LODSQ:
    case ZYDIS_MNEMONIC_SCASB:
    case ZYDIS_MNEMONIC_SCASW:
    case ZYDIS_MNEMONIC_SCASD:
    case ZYDIS_MNEMONIC_SCASQ:
    case ZYDIS_MNEMONIC_CMPSB:
    case ZYDIS_MNEMONIC_CMPSW:
    case ZYDIS_MNEMONIC_CMPSD:
    case ZYDIS_MNEMONIC_CMPSQ: return plan_string(d, in, p);
    default: return false;
    }
}

/* FS or GS and another segment: KVM's emulator takes the last one, a CPU in 64-bit mode FS or GS.
 */
static bool two_segments(const struct insn *in)
{
    return (in->seg == SEG_FS || in->seg == SEG_GS) &&
           (has_prefix(in, 0x26) || has_prefix(in, 0x2e) || has_prefix(in, 0x36) ||
            has_prefix(in, 0x3e) || (has_prefix(in, 0x64) && has_prefix(in, 0x65)));
}

/* false: it is the core's. */
static bool plan(struct core *d, const struct insn *in, struct plan *p)
{
    if (!is_64bit(d) || two_segments(in))
        return false;
    switch (in->treat) {
    case T_GEN: return plan_general(d, in, p);
    case T_NOP: return in->mnemonic == ZYDIS_MNEMONIC_NOP; /* KVM's emulator runs past a fence */
    case T_LEA: return true;
    case T_PUSH:
    case T_POP:
    case T_LEAVE: return plan_stack(d, in, p);
    case T_CALL:
    case T_RET:
    case T_JMP:
    case T_JCC:
    case T_LOOP: return plan_branch(d, in, p);
    case T_HELP: return plan_system(d, in, p);
    default: return false;
    }
}

/*
 * All that may stop it. What is not plain RAM or a plain device is the core's as well. Dead flags
 * become visible here, before KVM has them (flags.c); and where they do twice, the device of the
 * first access may change what is dead at the second one: the core's.
 */
static bool look_at_operands(struct core *d, struct plan *p)
{
    unsigned shows = p->port;
    if (p->port)
        flags_make_visible(d);
    for (unsigned i = 0; i < p->nop; i++) {
        struct operand *op = &p->op[i];
        if (operand_check(d, op))
            return false;
        bool ram = ram_ptr(d->ram, op->gpa[0], op->part);
        if (op->part < op->len && (!ram || !ram_ptr(d->ram, op->gpa[1], op->len - op->part)))
            return false;
        bool rom = ram_is_rom(op->gpa[0]) || (op->part < op->len && ram_is_rom(op->gpa[1]));
        if (op->acc == ACC_W && rom)
            return false;
        if (!ram && p->branch)
            return false;
        p->device = p->device || !ram;
        if (!ram && op->acc != ACC_W)
            flags_make_visible(d);
        shows += op->shows || !ram;
    }
    return shows <= 1;
}

static bool overlaps(gpa_t a, unsigned alen, gpa_t b, unsigned blen)
{
    return a < b + blen && b < a + alen;
}

static bool add_guard(struct core *d, const struct insn *in, struct plan *p, u64 at)
{
    static const u8 ud2[2] = {0x0f, 0x0b};
    u64 rip = d->cpu.rip, page = rip & ~(u64)(PAGE_SIZE - 1);
    if (at - page > PAGE_SIZE - sizeof(ud2) || overlaps(at, 2, rip, in->len))
        return false;
    gpa_t gpa = d->code_page | (at & (PAGE_SIZE - 1));
    for (unsigned i = 0; i < p->nop; i++) {
        const struct operand *op = &p->op[i];
        if (overlaps(gpa, 2, op->gpa[0], op->part) ||
            (op->part < op->len && overlaps(gpa, 2, op->gpa[1], op->len - op->part)))
            return false;
    }
    struct guard *g = &p->guard[p->nguards++];
    g->host = ram_ptr(d->ram, gpa, 2);
    memcpy(g->was, g->host, 2);
    memcpy(g->host, ud2, 2);
    return true;
}

static void remove_guards(struct plan *p)
{
    while (p->nguards) {
        const struct guard *g = &p->guard[--p->nguards];
        memcpy(g->host, g->was, 2);
    }
}

/* Where the instruction leads, inside its own page only: nothing else may be fetched early. Not
 * where that page is a table too, through which KVM may walk on the way. */
static bool add_guards(struct core *d, const struct insn *in, struct plan *p)
{
    bool two = p->branch && !p->always;
    if (d->code_page2 != NEVER || (page_at(d, d->code_page)->flags & PG_PT) ||
        (two && overlaps(p->target, 2, d->next, 2)))
        return false;
    if (add_guard(d, in, p, p->branch ? p->target : d->next) &&
        (!two || add_guard(d, in, p, d->next)))
        return true;
    remove_guards(p);
    return false;
}

/* A signal came: before the instruction, or after it and before its trap? (A jump to itself may
 * run twice.) */
static bool moved(struct kvm *k)
{
    struct kvm_regs now;
    return !ioctl(k->h.vcpu, KVM_GET_REGS, &now) &&
           (now.rip != k->regs.rip || now.rcx != k->regs.rcx);
}

/* Until the instruction is done, or is told not to have happened. <0 or enum kvm_next. */
static int enter(struct kvm *k, const struct insn *in, struct err *err)
{
    struct kvm_run *run = k->h.run;
    for (bool completing = false;;) {
        /* Completing must not go on to the next instruction. */
        run->immediate_exit = completing;
        enum phase before = phase_enter(PHASE_KVM);
        int r = ioctl(k->h.vcpu, KVM_RUN, 0);
        phase_leave(before);
        k->exits++;
        if (r < 0 && (errno == EINTR || errno == EAGAIN)) {
            if (completing || moved(k))
                return KVM_STEPPED;
            continue;
        }
        if (r < 0)
            return err_errno(err, "/dev/kvm: KVM_RUN at position %llu, instruction at %llx",
                             (unsigned long long)position(k->core),
                             (unsigned long long)k->core->cpu.rip);
        r = kvm_exit(k, in, err);
        if (r != KVM_AGAIN)
            return r;
        completing = true;
    }
}

/* With the registers after it: did the instruction retire? <0 or enum kvm_next. */
static int judge(struct kvm *k, const struct insn *in, const struct plan *p, struct err *err)
{
    struct core *d = k->core;
    u64 rip = d->cpu.rip, now = k->regs.rip;
    if (k->h.run->exit_reason == KVM_EXIT_SHUTDOWN) {
        /* RF: it faulted, or a guard after it did. */
        bool fault = !k->keeps || (now == rip && (k->regs.rflags & FL_RF));
        k->armed = false;
        int r = kvm_clear_events(k, err);
        if (r < 0)
            return r;
        if (fault)
            return KVM_NOT_STEPPED;
    }
    bool msr =
        k->h.run->exit_reason == KVM_EXIT_X86_RDMSR || k->h.run->exit_reason == KVM_EXIT_X86_WRMSR;
    if (msr && k->h.run->msr.error) {
        /* KVM holds the #GP for the next entry: the core delivers it. */
        int r = kvm_clear_events(k, err);
        return r < 0 ? r : KVM_NOT_STEPPED;
    }
    bool there = p->branch ? now == p->target || (!p->always && now == d->next) : now == d->next;
    if (p->rep)
        there = there || (now == rip && k->regs.rcx == 0);
    if (there)
        return KVM_STEPPED;
    char text[128], what[256];
    insn_text((enum code_size)in->code, in->bytes, in->len, rip, text, sizeof(text));
    snprintf(what, sizeof(what), "a single step of `%s` stopped at %llx", text,
             (unsigned long long)now);
    return kvm_dump(k, what, err);
}

static void take_registers(struct kvm *k)
{
    struct core *d = k->core;
    const struct kvm_regs *g = &k->regs;
    u64 *r = d->cpu.gpr;
    const u64 from[16] = {g->rax, g->rcx, g->rdx, g->rbx, g->rsp, g->rbp, g->rsi, g->rdi,
                          g->r8,  g->r9,  g->r10, g->r11, g->r12, g->r13, g->r14, g->r15};
    memcpy(r, from, sizeof(from));
    d->flags = g->rflags & FL_ARITH;
    d->cpu.rflags = (d->cpu.rflags & ~(u64)FL_DF) | (g->rflags & FL_DF);
}

/* CPUID is the model's; KVM may keep bits of its own in it. */
static int answer_cpuid(struct kvm *k, struct insn *in)
{
    int r = in->help(k->core, in);
    const u64 *g = k->core->cpu.gpr;
    if (g[RAX] != k->regs.rax || g[RBX] != k->regs.rbx || g[RCX] != k->regs.rcx ||
        g[RDX] != k->regs.rdx)
        k->corrected++;
    return r;
}

/* One iteration of a REP string is done. */
static int iterated(struct core *d, const struct insn *in, const struct plan *p, u64 rcx, u64 flags)
{
    bool zf = d->flags & FL_ZF;
    bool io = (in->opcode & 0xfc) == 0x6c;
    if (!io)
        d->cpu.rflags &= ~(u64)FL_RF;
    d->cpu.gpr[RCX] = --rcx;
    if (rcx == 0 || (p->compares && zf != (in->rep == 0xf3)))
        return DONE;
    if (p->compares)
        d->flags = flags;
    d->budget--;
    return RESTART;
}

/* The instruction's results out of KVM. */
static int finish_step(struct kvm *k, struct insn *in, const struct plan *p, bool fpu)
{
    struct core *d = k->core;
    u64 rcx = d->cpu.gpr[RCX], flags = d->flags;
    if (fpu && kvm_get_fpu(k, &d->err))
        return STOP_FAILED;
    k->steps++;
    if (fpu) {
        exec_x87_pointers(d, in);
        park_take_image(d, (const u8 *)k->image->region);
        memcpy(k->fpu, d->cpu.xsave, XSAVE_SIZE);
    }
    if (in->mnemonic == ZYDIS_MNEMONIC_CPUID)
        return answer_cpuid(k, in);
    take_registers(k);
    for (unsigned i = 0; i < p->nop; i++)
        operand_stored(d, &p->op[i]);
    if (p->cr8_load)
        load_cr8(d, k->h.run->cr8);
    if (p->branch)
        d->next = k->regs.rip;
    return p->rep ? iterated(d, in, p, rcx, flags) : DONE;
}

/* KVM could not, and memory, registers and devices are as before it; or they are once exec() has
 * done it. */
static int failed(struct kvm *k)
{
    if (kvm_undo(k))
        return STOP_FAILED;
    kvm_forget(k);
    return NOT_STEPPED;
}

/* Steps are so slow that a slice would take half a minute: whoever waits for its end would wait. */
static void look_at_clock(struct kvm *k)
{
    if (++k->looked % LOOK_EVERY == 0 && host_ns_coarse() >= k->turn_ends)
        k->core->kicked = 1;
}

enum engine_exit kvm_run_steps(struct engine *e, pos_t stop_at, struct err *err)
{
    kvm_of(e)->turn_ends = host_ns_coarse() + TURN_NS;
    return core_run(e, stop_at, err);
}

/* KVM's emulator, which any instruction may meet, reads 15 bytes whatever the instruction's length:
 * from the next page too, which then counts as accessed. */
static bool reads_ahead(const struct core *d)
{
    return (code_linear(d, d->cpu.rip) & (PAGE_SIZE - 1)) > PAGE_SIZE - 15;
}

int kvm_step(struct core *d, struct insn *in)
{
    struct kvm *k = d->stepper_opaque;
    look_at_clock(k);
    struct plan p = {0};
    bool fpu = in->needs == N_X87 || in->needs == N_MMX || in->needs == N_SSE ||
               in->needs == N_AVX || in->needs == N_AVX512;
    if (kvm_undo_failed(k))
        return STOP_FAILED;
    if (k->stop[d->cpl] == KVM_STOP_NONE || insn_syncs(d, in) || reads_ahead(d) ||
        !ram_ptr(d->ram, d->code_page, 1) ||
        (k->unknown[in->mnemonic % KVM_MNEMONICS] >> (d->cpl ? 1 : 0) & 1))
        return NOT_STEPPED;
    if (exec_begin(d, in) || !plan(d, in, &p) || !look_at_operands(d, &p))
        return NOT_STEPPED;
    kvm_undo_begin(k, p.op, p.nop);
    if (k->keeps && !p.device && !add_guards(d, in, &p))
        return NOT_STEPPED;
    u64 rcx = d->cpu.gpr[RCX];
    if (p.rep)
        d->cpu.gpr[RCX] = 1;
    k->h.run->cr8 = d->env->get_cr8(d->env->cpu);
    int r = kvm_send(k, fpu, &d->err);
    d->cpu.gpr[RCX] = rcx;
    if (!r)
        r = enter(k, in, &d->err);
    remove_guards(&p);
    if (r == KVM_STEPPED) {
        if (ioctl(k->h.vcpu, KVM_GET_REGS, &k->regs))
            r = err_errno(&d->err, "/dev/kvm: KVM_GET_REGS");
        else
            r = judge(k, in, &p, &d->err);
    }
    if (r < 0)
        return failed(k);
    if (r == KVM_NOT_STEPPED) {
        kvm_forget(k);
        return NOT_STEPPED;
    }
    r = finish_step(k, in, &p, fpu);
    return r == STOP_FAILED ? failed(k) : r;
}
