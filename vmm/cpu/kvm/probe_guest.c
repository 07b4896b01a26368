/* What tiny guests show: speed, single steps, breakpoints, CPUID, instructions. See probe.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#include "cpu/kvm/probe.h"
#include "cpu/kvm/probe_vm.h"
#include "cpu/vcpu.h"
#include "host/clock.h"

#define RUN_MS 1000u /* of one run; loops are shorter by far */

/* 1: add rax, rdx; dec rcx; jnz 1; 2: out PROBE_PORT, al; jmp 2 */
static const u8 loop_code[] = {0x48, 0x01, 0xd0, 0x48,       0xff, 0xc9,
                               0x75, 0xf8, 0xe6, PROBE_PORT, 0xeb, 0xfc};
/* 12 instructions of one byte, then the end. */
static const u8 nops_code[] = {0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90,
                               0x90, 0x90, 0x90, 0x90, 0x90, 0xe6, PROBE_PORT};
enum { NOPS = 12 };

static const char *ring_key(char *out, const char *what, unsigned ring)
{
    sprintf(out, "%s.ring%u", what, ring);
    return out;
}

/* How fast a loop runs, and how long an exit takes. */
static void speed(struct facts *f, struct probe_vm *v, unsigned ring)
{
    char key[32];
    struct err err = {0};
    u64 count = 3000, took;
    int code;
    do { /* until it takes long enough to be measured */
        code = probe_vm_load(v, loop_code, sizeof(loop_code), ring, count, 1, &err);
        u64 began = host_ns();
        if (!code)
            code = probe_vm_run(v, RUN_MS, NULL, &err);
        took = host_ns() - began;
        count *= 10;
    } while (code == PROBE_DONE && took < 20000000 && count < 1000000000);
    ring_key(key, "speed", ring);
    if (code != PROBE_DONE) {
        fact_note(fact_add(f, key, FACT_NO, "a loop does not end"), "%s", err.text);
        return;
    }
    double rate = 3.0 * (double)count / 10 / (double)took * 1e3;
    struct fact *fact = fact_add(f, key, FACT_INFO, "%.*f M instructions/s", rate < 100, rate);
    fact_number(fact, rate * 1e6);
    if (rate < 50)
        fact_note(fact, "KVM emulates this ring");
    enum { EXITS = 300 };
    u64 began = host_ns();
    for (unsigned i = 0; i < EXITS && code == PROBE_DONE; i++)
        code = probe_vm_run(v, RUN_MS, NULL, &err);
    double us = (double)(host_ns() - began) / EXITS / 1e3;
    ring_key(key, "exit", ring);
    if (code == PROBE_DONE)
        fact_number(fact_add(f, key, FACT_INFO, "%.1f us", us), us * 1e-6);
    else
        fact_note(fact_add(f, key, FACT_NO, "does not come back"), "%s", err.text);
}

/* KVM steps; or the guest's own trap flag does, and the trap, which then is the guest's, becomes a
 * triple fault where it has no IDT. */
enum step_way { STEP_BY_KVM, STEP_BY_FLAG };

static int prepare_flag(struct probe_vm *v, struct err *err)
{
    struct kvm_sregs s;
    struct kvm_regs r;
    if (ioctl(v->vcpu, KVM_GET_SREGS, &s) || ioctl(v->vcpu, KVM_GET_REGS, &r))
        return err_errno(err, "cannot read the vCPU's registers");
    s.idt.limit = 0;
    r.rflags |= FL_TF;
    if (ioctl(v->vcpu, KVM_SET_SREGS, &s) || ioctl(v->vcpu, KVM_SET_REGS, &r))
        return err_errno(err, "cannot set the vCPU's registers");
    return 0;
}

/* Whether single steps in that ring stop after each of NOPS instructions; *at: how far they came.
 */
static bool steps(struct probe_vm *v, unsigned ring, enum step_way way, u64 *at, struct err *err)
{
    struct kvm_regs r = {0};
    for (u64 i = 1; i <= NOPS; i++) {
        bool first = i == 1 || way == STEP_BY_FLAG; /* a triple fault resets what was set */
        if (first &&
            probe_vm_load(v, nops_code + i - 1, sizeof(nops_code) - i + 1, ring, 0, 0, err))
            return false;
        if (first && (way == STEP_BY_KVM ? pmu_kvm_ops.debug(&v->host, true, NULL, err)
                                         : prepare_flag(v, err)))
            return false;
        int code = probe_vm_run(v, RUN_MS, NULL, err);
        if (code < 0 || probe_vm_regs(v, &r, err))
            return false;
        *at = r.rip - PROBE_CODE;
        bool stopped = way == STEP_BY_KVM
                           ? code == PROBE_DEBUGGED
                           : code == PROBE_OTHER && v->run->exit_reason == KVM_EXIT_SHUTDOWN;
        if (!stopped || *at != (way == STEP_BY_KVM ? i : 1))
            return false;
    }
    return true;
}

static void stepping(struct facts *f, struct probe_vm *v, unsigned ring)
{
    char key[32];
    struct err err = {0};
    u64 at = 0, by_flag = 0;
    ring_key(key, "step", ring);
    if (steps(v, ring, STEP_BY_KVM, &at, &err))
        fact_add(f, key, FACT_YES, "yes");
    else if (steps(v, ring, STEP_BY_FLAG, &by_flag, &err))
        fact_note(fact_add(f, key, FACT_YES, "yes, through the guest's trap flag"),
                  "KVM_GUESTDBG_SINGLESTEP does not stop; RFLAGS.TF with an empty IDT does");
    else
        fact_note(fact_add(f, key, FACT_NO, "no: KVM ignores it"),
                  "KVM_GUESTDBG_SINGLESTEP does not stop (RIP was %" PRIu64 " bytes on), and "
                  "RFLAGS.TF with an empty IDT neither: the counter step refuses this ring",
                  at);
}

/* Steps and their registers, as the counter step needs them, in ring 0. */
static void step_speed(struct facts *f, struct probe_vm *v)
{
    enum { COUNT = 500 };
    struct err err = {0};
    struct kvm_regs r;
    if (!fact_yes(f, "step.ring0") ||
        probe_vm_load(v, loop_code, sizeof(loop_code), 0, COUNT, 1, &err) ||
        pmu_kvm_ops.debug(&v->host, true, NULL, &err))
        return;
    u64 began = host_ns();
    for (unsigned i = 0; i < COUNT; i++)
        if (probe_vm_run(v, RUN_MS, NULL, &err) != PROBE_DEBUGGED || probe_vm_regs(v, &r, &err))
            return;
    double rate = COUNT * 1e9 / (double)(host_ns() - began);
    fact_number(fact_add(f, "step.speed", FACT_INFO, "%.0f a second", rate), rate);
}

/* One single step by KVM from the code's begin: false when it does not stop. */
static bool step_from(struct probe_vm *v, const u8 *code, size_t size, u64 rcx, struct kvm_regs *r,
                      struct err *err)
{
    return !probe_vm_load(v, code, size, 0, rcx, 0, err) &&
           !pmu_kvm_ops.debug(&v->host, true, NULL, err) &&
           probe_vm_run(v, RUN_MS, NULL, err) == PROBE_DEBUGGED && !probe_vm_regs(v, r, err);
}

/* Single steps where they are delicate, in ring 0: iterations of REP strings, the shadow of MOV SS,
 * the trap flag that PUSHF stores. */
static void stepping_details(struct facts *f, struct probe_vm *v)
{
    static const u8 rep[] = {0xf3, 0xaa, 0x90, 0xe6, PROBE_PORT};
    static const u8 shadow[] = {0x66, 0xb8, 0x10, 0x00, 0x8e, 0xd0, 0x90, 0x90, 0xe6, PROBE_PORT};
    static const u8 pushf[] = {0x9c, 0x90, 0x90, 0xe6, PROBE_PORT};
    struct err err = {0};
    struct kvm_regs r;
    u64 pushed = 0;
    if (!fact_yes(f, "step.ring0"))
        return;
    bool stops = step_from(v, rep, sizeof(rep), 3, &r, &err) && r.rip == PROBE_CODE && r.rcx == 2;
    fact_add(f, "step.rep", stops ? FACT_YES : FACT_NO, "%s",
             stops ? "after each iteration" : "not after each iteration");
    bool ran = step_from(v, shadow, sizeof(shadow), 0, &r, &err) &&
               probe_vm_run(v, RUN_MS, NULL, &err) == PROBE_DEBUGGED && !probe_vm_regs(v, &r, &err);
    fact_add(f, "step.mov_ss", ran ? FACT_INFO : FACT_NO, "%s",
             !ran                      ? "does not stop"
             : r.rip == PROBE_CODE + 7 ? "after the next instruction, as on a CPU"
             : r.rip == PROBE_CODE + 6 ? "directly after it"
                                       : "elsewhere");
    ran = step_from(v, pushf, sizeof(pushf), 0, &r, &err) && r.rsp < PROBE_CODE;
    if (ran)
        memcpy(&pushed, v->ram + r.rsp, 8);
    fact_add(f, "step.pushf", ran ? FACT_INFO : FACT_NO, "%s",
             !ran             ? "does not stop"
             : pushed & FL_TF ? "the guest sees the trap flag"
                              : "the guest does not see the trap flag");
}

static void breakpoint(struct facts *f, struct probe_vm *v, unsigned ring)
{
    char key[32];
    struct err err = {0};
    struct kvm_regs r = {0};
    u64 at = PROBE_CODE + NOPS / 2;
    unsigned vector = 0;
    int code = probe_vm_load(v, nops_code, sizeof(nops_code), ring, 0, 0, &err);
    if (!code)
        code = pmu_kvm_ops.debug(&v->host, false, &at, &err);
    if (!code)
        code = probe_vm_run(v, RUN_MS, &vector, &err);
    bool stopped = code == PROBE_DEBUGGED && !probe_vm_regs(v, &r, &err) && r.rip == at;
    fact_add(f, ring_key(key, "breakpoint", ring), stopped ? FACT_YES : FACT_NO, "%s",
             stopped                                ? "yes"
             : code == PROBE_TRAPPED && vector == 1 ? "no: the guest gets it"
                                                    : "no: KVM ignores it");
}

/* eax = leaf (rdx); cpuid; mov rsi, rax; out */
static void model(struct facts *f, struct probe_vm *v, unsigned ring)
{
    static const u8 code[] = {0x89, 0xd0, 0x0f, 0xa2, 0x48, 0x89, 0xc6, 0xe6, PROBE_PORT};
    char key[32];
    struct err err = {0};
    struct kvm_regs r = {0};
    int result = probe_vm_load(v, code, sizeof(code), ring, 0, 0x80000002, &err);
    if (!result)
        result = probe_vm_run(v, RUN_MS, NULL, &err);
    bool ours = result == PROBE_DONE && !probe_vm_regs(v, &r, &err) && !memcmp(&r.rsi, "Repr", 4);
    struct fact *fact = fact_add(f, ring_key(key, "cpuid", ring), ours ? FACT_YES : FACT_NO, "%s",
                                 ours ? "the model's" : "the host's");
    if (!ours)
        fact_note(fact, "the guest reads what was not set: %s",
                  *err.text ? err.text : "another CPU");
}

/* What a Linux executes early and often, and a KVM that emulates may not know. `vector`: arrives as
 * that exception, 0: runs through. RDI points to zeros. */
static const struct {
    const char *name;
    u8 ring, vector, size, code[12];
} insns[] = {
    {"cmpxchg16b", 0, 0, 5, {0xf0, 0x48, 0x0f, 0xc7, 0x0f}},
    {"fxrstor", 0, 0, 7, {0x0f, 0xae, 0x07, 0x0f, 0xae, 0x0f, 0x90}},
    {"xrstor", 0, 0, 7, {0x31, 0xc0, 0x31, 0xd2, 0x0f, 0xae, 0x2f}},
    {"int3", 0, 3, 1, {0xcc}},
    {"int", 3, 0x80, 2, {0xcd, 0x80}},
    {"syscall", 3, PROBE_SYSCALL_VECTOR, 2, {0x0f, 0x05}},
    {"swapgs", 0, 0, 6, {0x0f, 0x01, 0xf8, 0x0f, 0x01, 0xf8}},
    {"invlpg", 0, 0, 3, {0x0f, 0x01, 0x3f}},
    {"sse", 0, 0, 7, {0x0f, 0x10, 0x07, 0x0f, 0x58, 0xc0, 0x90}},
    {"page_fault", 0, 14, 8, {0x8b, 0x04, 0x25, 0, 0, 0, 0x70, 0x90}},
};

static void instructions(struct facts *f, struct probe_vm *v)
{
    char key[40], list[120] = "";
    bool all = true;
    for (size_t i = 0; i < ARRAY_SIZE(insns); i++) {
        u8 code[sizeof(insns[i].code) + 2];
        unsigned vector = 0;
        struct err err = {0};
        memcpy(code, insns[i].code, insns[i].size);
        code[insns[i].size] = 0xe6;
        code[insns[i].size + 1] = PROBE_PORT;
        int result = probe_vm_load(v, code, insns[i].size + 2u, insns[i].ring, 0, 0, &err);
        if (!result)
            result = probe_vm_run(v, RUN_MS, &vector, &err);
        bool good = insns[i].vector ? result == PROBE_TRAPPED && vector == insns[i].vector
                                    : result == PROBE_DONE;
        snprintf(key, sizeof(key), "insn.%s", insns[i].name);
        struct fact *fact = fact_add(f, key, good ? FACT_YES : FACT_NO, "%s", good ? "yes" : "no");
        if (!good && result == PROBE_TRAPPED)
            fact_note(fact, "it raised exception %u", vector);
        else if (!good)
            fact_note(fact, "%s", *err.text ? err.text : "the guest does not go on");
        if (!good)
            snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s", all ? "" : ", ",
                     insns[i].name);
        all = all && good;
    }
    struct fact *fact =
        fact_add(f, "kvm.linux", all ? FACT_YES : FACT_NO, "%s", all ? "yes" : "no");
    if (all)
        fact_note(fact, "KVM runs what a stock Linux needs");
    else
        fact_note(fact, "this KVM emulates the guest and does not know: %s", list);
}

void probe_guest(struct facts *f)
{
    struct probe_vm v;
    struct err err = {0};
    if (probe_vm_open(&v, NULL, &err)) {
        fact_note(fact_add(f, "kvm.guest", FACT_NO, "no"), "%s", err.text);
        return;
    }
    fact_add(f, "kvm.guest", FACT_YES, "yes");
    for (unsigned i = 0; i < PROBE_RINGS; i++) {
        unsigned ring = probe_ring(i);
        speed(f, &v, ring);
        stepping(f, &v, ring);
        breakpoint(f, &v, ring);
        model(f, &v, ring);
    }
    step_speed(f, &v);
    stepping_details(f, &v);
    instructions(f, &v);
    probe_vm_close(&v);
}
