/*
 * Exact stops of the progress counter `pmu` on a real vCPU: a guest with branches and REP strings
 * is stopped at random, and run again to each of the positions; it must then have the same
 * registers.
 *
 *     pmu_exact hardware 0|3 SEED     counted by the CPU; needs what `make check-hardware` looks
 * for pmu_exact register 0 SEED       counted by the guest itself, in R15, and stopped by a timer:
 *                                     everything but the counter is real
 *
 * Exit code 0: exact; 1: not; 2: wrong usage; 77: cannot be tried here, the reason is printed.
 */
#include <errno.h>
#include <inttypes.h>
#include <linux/kvm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "cpu/kvm/pmu.h"
#include "cpu/kvm/probe_pmu.h"
#include "host/clock.h"

enum { STOPS = 100, RETRIES = 20, NOT_HERE = 77 };

/* RDX: rounds; three conditional branches in each, and before each of them one is counted in R15.
 * BL & 8 and R13 decide whether there is a REP string. */
__asm__(".pushsection .rodata\n"
        "pmu_guest: imul $1103515245, %rax, %rax\n"
        "add $12345, %rax\n"
        "mov %rax, %rbx\n"
        "shr $16, %rbx\n"
        "inc %r15\n"
        "test $3, %bl\n"
        "jnz 2f\n"
        "add %rax, %r8\n"
        "2: inc %r15\n"
        "test %r13, %rbx\n"
        "jz 3f\n"
        "mov %ebx, %ecx\n"
        "and $31, %ecx\n"
        "mov $0x190000, %edi\n"
        "rep stosb\n"
        "3: inc %r15\n"
        "dec %rdx\n"
        "jnz pmu_guest\n"
        "4: out %al, $0x10\n"
        "jmp 4b\n"
        "pmu_guest_end:\n"
        ".popsection\n");
extern const u8 pmu_guest[], pmu_guest_end[];
_Static_assert(PROBE_DATA == 0x190000 && PROBE_PORT == 0x10, "the code above");

/* The host of the mode `register`: pmu_kvm_ops but for the counter. First, so that both are one. */
struct register_host {
    struct pmu_bench bench;
    u64 overflow_at;
    u64 kick_ns;
};

static struct register_host *self(void *host)
{
    return (struct register_host *)((char *)host - offsetof(struct register_host, bench.vm.host));
}

static int count(void *host, u64 *branches, struct err *err)
{
    struct kvm_regs r;
    int code = probe_vm_regs(&self(host)->bench.vm, &r, err);
    *branches = r.r15;
    return code;
}

static int arm(void *host, u64 branches, struct err *err)
{
    u64 now;
    int code = count(host, &now, err);
    self(host)->overflow_at = branches == PMU_NO_PERIOD ? NEVER : now + branches;
    return code;
}

static void kick_at(void *host, u64 ns)
{
    self(host)->kick_ns = ns;
}

/* Looks every few microseconds whether the counter has overflowed. */
static int run(void *host, struct err *err)
{
    struct register_host *h = self(host);
    for (;;) {
        u64 now = host_ns(), branches;
        pmu_kvm_ops.kick_at(host, MIN(now + 20000, h->kick_ns));
        int stop = pmu_kvm_ops.run(host, err);
        pmu_kvm_ops.kick_at(host, NEVER);
        int code = stop < 0 ? stop : count(host, &branches, err);
        if (code || stop != PMU_STOP_SIGNAL || host_ns() >= h->kick_ns)
            return code ? code : stop;
        if (branches >= h->overflow_at) {
            h->overflow_at = NEVER;
            return stop;
        }
    }
}

static const struct pmu_event by_register = {.family = "R15", .margin = 150};

static int begin(struct pmu_bench *b, struct pmu *p, const struct pmu_host_ops *ops,
                 const struct pmu_event *event, unsigned ring, u64 rounds, bool rep,
                 struct err *err)
{
    struct kvm_regs r;
    int code =
        probe_vm_load(&b->vm, pmu_guest, (size_t)(pmu_guest_end - pmu_guest), ring, 0, rounds, err);
    if (!code)
        code = probe_vm_regs(&b->vm, &r, err);
    r.r13 = rep ? 8 : 0;
    if (!code && ioctl(b->vm.vcpu, KVM_SET_REGS, &r))
        code = err_errno(err, "KVM_SET_REGS");
    return code ? code : pmu_init(p, ops, &b->vm.host, event, NULL, err);
}

static u64 next_random(u64 *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

struct trial {
    struct pmu_bench *bench;
    const struct pmu_host_ops *ops;
    const struct pmu_event *event;
    unsigned ring;
    bool rep;
    u64 rounds, seed;
    struct pmu_target at[STOPS]; /* counts from where the run begins */
    unsigned n;
};

static int start(struct trial *t, struct pmu *p, u64 *base, struct err *err)
{
    int code = begin(t->bench, p, t->ops, t->event, t->ring, t->rounds, t->rep, err);
    *base = p->count;
    return code;
}

static int record(struct trial *t, struct err *err)
{
    struct pmu p;
    u64 random = t->seed, base;
    int code = start(t, &p, &base, err);
    while (!code && t->n < STOPS) {
        struct pmu_target to = {.where = PMU_ANYWHERE,
                                .branches =
                                    p.count + next_random(&random) % (6 * t->rounds / STOPS)};
        code = pmu_run(&p, &to, err);
        if (code == PMU_EXIT)
            break;
        code = code == PMU_AT ? pmu_position(&p, &t->at[t->n], err) : code;
        t->at[t->n++].branches -= base;
    }
    return code < 0    ? code
           : t->n < 20 ? err_set(err, -EPROTO, "the guest ended after %u stops", t->n)
                       : 0;
}

/* Too much skid (a timer is no counter) is told, and then it goes again from the begin. */
static int replay(struct trial *t, struct err *err)
{
    struct pmu p;
    u64 base, in_rep = 0, overshot = 0, skid = 0;
    int code = start(t, &p, &base, err);
    for (unsigned i = 0; i < t->n && !code; i++) {
        struct pmu_target to = t->at[i];
        to.branches += base;
        code = pmu_run(&p, &to, err);
        skid = MAX(skid, p.stats.skid);
        if (code == -EOVERFLOW && overshot++ < RETRIES) {
            code = start(t, &p, &base, err);
            i--;
            continue;
        }
        if (code > 0 && code != PMU_AT)
            code = err_set(err, -EPROTO, "the run ended by %d", code);
        code = code == PMU_AT ? 0 : err_prefix(err, "stop %u of %u", i + 1, t->n);
        in_rep += t->rep && to.place.rcx;
    }
    if (!code)
        printf("ring %u: %u stops exact in %" PRIu64 " branches, %" PRIu64
               " with RCX left, %" PRIu64 " steps, %" PRIu64 " breakpoints, largest skid %" PRIu64
               ", too much %" PRIu64 " times, seed %" PRIu64 "\n",
               t->ring, t->n, t->at[t->n - 1].branches, in_rep, p.stats.steps, p.stats.breakpoints,
               skid, overshot, t->seed);
    return code;
}

int main(int argc, char **argv)
{
    static struct register_host h = {.overflow_at = NEVER, .kick_ns = NEVER};
    struct pmu_host_ops ops = pmu_kvm_ops;
    struct err err = {0};
    bool hardware = argc == 4 && !strcmp(argv[1], "hardware");
    if (argc != 4 || (!hardware && strcmp(argv[1], "register"))) {
        fprintf(stderr, "usage: pmu_exact hardware|register 0|3 SEED\n");
        return 2;
    }
    unsigned ring = (unsigned)atoi(argv[2]);
    u64 seed = strtoull(argv[3], NULL, 0);
    h.bench.zero.fd = -1;
    int code = hardware ? pmu_bench_open(&h.bench, &err) : probe_vm_open(&h.bench.vm, NULL, &err);
    if (code) {
        printf("not tried: %s\n", err.text);
        return NOT_HERE;
    }
    if (!hardware) {
        ops.count = count;
        ops.arm = arm;
        ops.run = run;
        ops.kick_at = kick_at;
    }
    static struct trial t;
    t = (struct trial){.bench = &h.bench,
                       .ops = &ops,
                       .event = hardware ? h.bench.event : &by_register,
                       .ring = ring,
                       .rep = hardware, /* a KVM that emulates does not step in REP */
                       .rounds = hardware ? 1000000 : 10000,
                       .seed = seed};
    code = record(&t, &err);
    if (!code)
        code = replay(&t, &err);
    if (code)
        printf("ring %u, seed %" PRIu64 ": %s\n", ring, seed, err.text);
    pmu_bench_close(&h.bench);
    return code ? 1 : 0;
}
