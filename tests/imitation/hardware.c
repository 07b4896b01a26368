/*
 * The imitated processor: an engine dbt, and the coroutine that it runs in. dbt calls its
 * environment in the middle of an instruction; KVM leaves to user space there and goes on at the
 * next KVM_RUN. So the environment's functions switch to the program's stack and come back with its
 * answer.
 */
#define _GNU_SOURCE
#include <errno.h>
#include "cpu/dbt/host.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "imitation.h"

#define STACK      (1u << 20)
#define AUTODISARM (1u << 31) /* SS_AUTODISARM: the engine's */

/* host.c's `current` is a secret; this follows it. */
void __real_host_enter(struct dbt *d);
void __real_host_fini(struct dbt *d);
void __wrap_host_enter(struct dbt *d);
void __wrap_host_fini(struct dbt *d);
static _Thread_local struct dbt *current, *outer;

void __wrap_host_enter(struct dbt *d)
{
    current = d;
    __real_host_enter(d);
}

void __wrap_host_fini(struct dbt *d)
{
    if (current == d)
        current = NULL;
    if (outer == d)
        outer = NULL;
    __real_host_fini(d);
}

/* Two engines take turns on a thread: one stack for the handler of their signals is enough. */
int __real_sigaltstack(const stack_t *in, stack_t *old);
int __wrap_sigaltstack(const stack_t *in, stack_t *old);
int __wrap_sigaltstack(const stack_t *in, stack_t *old)
{
    static _Thread_local u8 *ours;
    if (ours && in && (in->ss_flags & SS_DISABLE)) /* one engine goes, the other needs it */
        return 0;
    if (!in || !(in->ss_flags & (int)AUTODISARM))
        return __real_sigaltstack(in, old);
    if (ours)
        return 0;
    stack_t ss = *in;
    ours = mmap(NULL, in->ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(ours != MAP_FAILED, "no memory for a stack of signals");
    ss.ss_sp = ours;
    return __real_sigaltstack(&ss, old);
}

/* ---- the environment ---- */

static struct im_vcpu *vcpu(void *machine)
{
    struct im_vcpu *v = machine;
    /* What the program does meanwhile is looked at before the next instruction. */
    v->hw->attention = true;
    return v;
}

static void mmio(struct im_vcpu *v, const struct im_write *w, bool write)
{
    v->run->exit_reason = KVM_EXIT_MMIO;
    v->run->mmio.phys_addr = w->gpa;
    v->run->mmio.len = w->len;
    v->run->mmio.is_write = write;
    memset(v->run->mmio.data, 0, sizeof(v->run->mmio.data));
    memcpy(v->run->mmio.data, &w->value, w->len);
}

static u8 *port(struct im_vcpu *v, u16 number, unsigned size, u8 direction)
{
    v->run->exit_reason = KVM_EXIT_IO;
    v->run->io.direction = direction;
    v->run->io.size = (u8)size;
    v->run->io.port = number;
    v->run->io.count = 1;
    v->run->io.data_offset = PAGE_SIZE;
    return (u8 *)v->run + PAGE_SIZE;
}

bool im_hw_write_exit(struct im_vcpu *v)
{
    if (v->first_write == v->nwrites) {
        v->first_write = v->nwrites = 0;
        return false;
    }
    const struct im_write *w = &v->write[v->first_write++];
    if (w->port)
        memcpy(port(v, (u16)w->gpa, w->len, KVM_EXIT_IO_OUT), &w->value, w->len);
    else
        mmio(v, w, true);
    return true;
}

/* Stores are posted, as KVM's are: the instruction is over when the program hears of them. Unless
 * something else of it comes first. */
static void flush_writes(struct im_vcpu *v)
{
    while (im_hw_write_exit(v))
        im_hw_leave(v);
}

static u64 mmio_read(void *machine, gpa_t gpa, unsigned size)
{
    struct im_vcpu *v = vcpu(machine);
    u64 value = 0;
    flush_writes(v);
    mmio(v, &(struct im_write){.gpa = gpa, .len = size}, false);
    im_hw_leave(v);
    memcpy(&value, v->run->mmio.data, size);
    return value;
}

/* KVM's pieces are as large as eight bytes and the page let them be; dbt's are powers of two. */
static bool merge(struct im_write *last, const struct im_write *w)
{
    if (w->port || last->port || w->gpa != last->gpa + last->len || last->len + w->len > 8 ||
        !(w->gpa & (PAGE_SIZE - 1)))
        return false;
    last->value |= w->value << 8 * last->len;
    last->len += w->len;
    return true;
}

void im_hw_post(struct im_vcpu *v, const struct im_write *w)
{
    if (v->nwrites > v->first_write && merge(&v->write[v->nwrites - 1], w))
        return;
    if (v->nwrites == IM_WRITES)
        flush_writes(v);
    v->write[v->nwrites++] = *w;
    v->hw->attention = true;
}

static void mmio_write(void *machine, gpa_t gpa, unsigned size, u64 value)
{
    im_hw_post(vcpu(machine), &(struct im_write){gpa, size, value, false});
}

static u32 pio_read(void *machine, u16 number, unsigned size)
{
    struct im_vcpu *v = vcpu(machine);
    u32 value = 0;
    flush_writes(v);
    const u8 *data = port(v, number, size, KVM_EXIT_IO_IN);
    im_hw_leave(v);
    memcpy(&value, data, size);
    return value;
}

static void pio_write(void *machine, u16 number, unsigned size, u32 value)
{
    struct im_vcpu *v = vcpu(machine);
    if ((v->executed->opcode & 0xfe) == 0x6e) { /* OUTS is KVM's emulator's */
        im_hw_post(v, &(struct im_write){number, size, value, true});
        return;
    }
    memcpy(port(v, number, size, KVM_EXIT_IO_OUT), &value, size);
    im_hw_leave(v);
}

static bool rdmsr(void *machine, u32 msr, u64 *value)
{
    const struct im_vcpu *v = machine;
    if (msr != IM_MSR_APIC_BASE)
        return false;
    *value = v->apic_base;
    return true;
}

static bool wrmsr(void *machine, u32 msr, u64 value)
{
    struct im_vcpu *v = machine;
    if (msr != IM_MSR_APIC_BASE)
        return false;
    v->apic_base = value;
    return true;
}

static u64 get_cr8(void *machine)
{
    const struct im_vcpu *v = machine;
    return v->cr8;
}

static void set_cr8(void *machine, u64 value)
{
    struct im_vcpu *v = vcpu(machine);
    v->set_tpr = value < v->cr8;
    v->cr8 = value;
}

static vns_t now(void *machine)
{
    const struct im_vcpu *v = machine;
    core_park(v->hw); /* RDTSC does not */
    if (im_cycles() > v->until)
        v->hw->attention = true;
    return im_tsc(v);
}

static void counted(void *machine)
{
    (void)machine;
}

static const struct engine_env environment = {
    .pio_read = pio_read,
    .pio_write = pio_write,
    .mmio_read = mmio_read,
    .mmio_write = mmio_write,
    .rdmsr = rdmsr,
    .wrmsr = wrmsr,
    .get_cr8 = get_cr8,
    .set_cr8 = set_cr8,
    .now = now,
    .counted = counted,
};

bool im_is_hw(const struct core *d)
{
    return d->env->now == now;
}

struct im_vcpu *im_of(const struct core *d)
{
    return d->env->cpu;
}

/* ---- its making ---- */

void im_hw_drop(struct im_vcpu *v)
{
    u64 npages = v->ram.size / PAGE_SIZE;
    if (v->hw)
        core_destroy(&v->hw->base);
    if (v->shadow) {
        munmap(v->shadow, v->ram.size);
        munmap(v->looked, npages * sizeof(*v->looked));
        munmap(v->pages, npages * sizeof(*v->pages));
    }
    v->hw = NULL;
    v->shadow = NULL;
    v->alive = v->mid = false;
}

static void *map(u64 size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* An engine installs its handlers of signals, which find their way by host_enter(): once is enough,
 * and whoever came after it stays in front. */
static int make(struct im_vcpu *v, struct err *err)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    const struct engine_config config = {.model = v->model,
                                         .ram = &v->ram,
                                         .env = &v->env,
                                         .revision = ENGINE_REVISION,
                                         .unit = UNIT_BRANCH};
    struct sigaction old[ARRAY_SIZE(signals)];
    for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
        sigaction(signals[i], NULL, &old[i]);
    int r = core_create(&v->hw, &config, err);
    for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
        if (old[i].sa_flags & SA_SIGINFO)
            sigaction(signals[i], &old[i], NULL);
    return r;
}

bool im_hw_ready(struct im_vcpu *v)
{
    struct vcpu cpu;
    struct err err = {0};
    if (v->hw && v->layout == v->vm->layout && !v->stale)
        return true;
    CHECK(!v->mid, "the memory or CPUID changes in the middle of an instruction");
    vcpu_reset(&cpu);
    if (v->hw) {
        im_sync(v);
        cpu = v->hw->cpu;
    }
    bool first = !v->hw;
    im_hw_drop(v);
    if (!im_vm_ram(v->vm, &v->ram, &v->has_rom))
        return false;
    v->env = environment;
    v->env.cpu = v;
    u64 npages = v->ram.size / PAGE_SIZE;
    v->shadow = map(v->ram.size);
    v->looked = map(npages * sizeof(*v->looked));
    v->pages = map(npages * sizeof(*v->pages));
    v->epoch = 1;
    v->npages = 0;
    if (!v->stack)
        v->stack = map(STACK);
    if (!v->shadow || !v->looked || !v->pages || !v->stack || make(v, &err)) {
        im_refuse(ENOMEM, "no processor: %s", err.text);
        return false;
    }
    if (!first) {
        v->hw->cpu = cpu;
        core_changed(&v->hw->base);
    }
    v->layout = v->vm->layout;
    v->stale = false;
    return true;
}

/* ---- the coroutine ---- */

/* As swapcontext(), but without its two system calls: the mask of signals is one. */
void im_switch(void **from, void *to);
__asm__(".pushsection .text\n"
        "im_switch: push %rbx\n"
        "push %rbp\n"
        "push %r12\n"
        "push %r13\n"
        "push %r14\n"
        "push %r15\n"
        "mov %rsp, (%rdi)\n"
        "mov %rsi, %rsp\n"
        "pop %r15\n"
        "pop %r14\n"
        "pop %r13\n"
        "pop %r12\n"
        "pop %rbp\n"
        "pop %rbx\n"
        "ret\n"
        "im_begin: mov %rbx, %rdi\n"
        "call *%rbp\n"
        "ud2\n"
        ".popsection\n");
extern const u8 im_begin[];

static void inside(struct im_vcpu *v)
{
    for (;;) {
        v->result = core_run_insns(v->hw, v->insns, &v->err);
        im_switch(&v->inside, v->outside);
    }
}

/* A stack from which im_switch() comes to im_begin. */
static void *new_stack(struct im_vcpu *v)
{
    u64 *top = (u64 *)(v->stack + STACK) - 2; /* aligned before the call */
    *--top = (u64)im_begin;
    *--top = (u64)v; /* rbx */
    *--top = (u64)inside;
    return top - 4; /* r12 to r15 */
}

void im_hw_leave(struct im_vcpu *v)
{
    v->mid = true;
    im_switch(&v->inside, v->outside);
    v->mid = false;
}

void im_hw_abort(struct im_vcpu *v)
{
    v->aborted = true;
    im_switch(&v->inside, v->outside);
    CHECK(0, "an instruction that was given up goes on");
}

void im_hw_go(struct im_vcpu *v)
{
    if (!v->alive) {
        v->inside = new_stack(v);
        v->alive = true;
    }
    host_enter(dbt_of(v->hw));
    v->keeps_tlb = false;
    im_switch(&v->outside, v->inside);
    v->keeps_tlb = im_options()->tlb;
    if (!v->aborted)
        return;
    v->aborted = v->alive = v->mid = false;
    v->hw->executing = false;
    v->hw->db_pending = 0;
    v->result = ENGINE_ATTENTION;
}

void im_hw_enter(struct im_vcpu *v)
{
    outer = current;
    v->epoch++;
}

void im_hw_left(struct im_vcpu *v)
{
    for (u32 i = 0; i < v->npages; i++) {
        u64 at = v->pages[i] * PAGE_SIZE;
        memcpy(v->shadow + at, v->ram.host + at, PAGE_SIZE);
    }
    v->npages = 0;
    if (outer)
        host_enter(outer);
}
