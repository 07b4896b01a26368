/* See probe_vm.h. */
#include "cpu/kvm/probe_vm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cpu/vcpu.h"
#include "host/clock.h"

enum {
    RAM_SIZE = 2 << 20,
    PML4 = 0x1000,
    PDPT = 0x2000,
    PAGE_DIR = 0x3000,
    TSS = 0x5000,
    GDT = 0x6000,
    IDT = 0x7000,
    STACK0 = 0x9ff0, /* of exceptions from ring 3; and of code in ring 0 that runs from below it */
    STACK3 = 0x180000,
    CS0 = 0x08,
    SS0 = 0x10,
    SS3 = 0x23, /* as SYSRET wants them: SS, then CS */
    CS3 = 0x2b,
    TR = 0x30,
};

static void put64(u8 *at, u64 v)
{
    memcpy(at, &v, 8);
}

/* al = vector; out PROBE_TRAP, al; and again, should it be resumed */
static void write_tables(u8 *ram)
{
    static const u64 gdt[] = {[CS0 / 8] = 0x00af9b000000ffff,
                              [SS0 / 8] = 0x00cf93000000ffff,
                              [SS3 / 8] = 0x00cff3000000ffff,
                              [CS3 / 8] = 0x00affb000000ffff};
    put64(ram + PML4, PDPT | 7);
    put64(ram + PDPT, PAGE_DIR | 7);
    put64(ram + PAGE_DIR, 0x87); /* 2 MiB for both rings */
    memcpy(ram + GDT, gdt, sizeof(gdt));
    put64(ram + GDT + TR, 0x00008b0000000067 | (u64)TSS << 16);
    put64(ram + TSS + 4, STACK0);
    for (unsigned v = 0; v <= PROBE_SYSCALL_VECTOR; v++) {
        u8 stub[] = {0xb0, (u8)v, 0xe6, PROBE_TRAP, 0xeb, 0xfa};
        u32 at = PROBE_STUB + 16 * v;
        memcpy(ram + at, stub, sizeof(stub));
        put64(ram + IDT + 16 * v,
              (at & 0xffff) | (u64)CS0 << 16 | 0xee00ull << 32 | (u64)(at >> 16) << 48);
        put64(ram + IDT + 16 * v + 8, 0);
    }
}

static int set_system(struct probe_vm *v, unsigned ring, struct err *err)
{
    struct kvm_sregs s;
    if (ioctl(v->vcpu, KVM_GET_SREGS, &s))
        return err_errno(err, "KVM_GET_SREGS");
    struct kvm_segment code = {.limit = 0xffffffff,
                               .selector = ring ? CS3 : CS0,
                               .type = 11,
                               .present = 1,
                               .dpl = (u8)ring,
                               .s = 1,
                               .l = 1,
                               .g = 1};
    struct kvm_segment data = {.limit = 0xffffffff,
                               .selector = ring ? SS3 : SS0,
                               .type = 3,
                               .present = 1,
                               .dpl = (u8)ring,
                               .db = 1,
                               .s = 1,
                               .g = 1};
    s.cs = code;
    s.ds = s.es = s.fs = s.gs = s.ss = data;
    s.tr =
        (struct kvm_segment){.base = TSS, .limit = 0x67, .selector = TR, .type = 11, .present = 1};
    s.gdt = (struct kvm_dtable){.base = GDT, .limit = TR + 15};
    s.idt = (struct kvm_dtable){.base = IDT, .limit = 16 * (PROBE_SYSCALL_VECTOR + 1) - 1};
    s.cr0 = CR0_PG | CR0_WP | CR0_NE | CR0_ET | CR0_MP | CR0_PE;
    s.cr3 = PML4;
    s.cr4 = CR4_PAE | CR4_OSFXSR | CR4_OSXMMEXCPT | CR4_OSXSAVE;
    s.efer = 0x501; /* LMA, LME, SCE */
    if (!ioctl(v->vcpu, KVM_SET_SREGS, &s))
        return 0;
    s.cr4 &= ~(u64)CR4_OSXSAVE;
    if (ioctl(v->vcpu, KVM_SET_SREGS, &s))
        return err_errno(err, "KVM_SET_SREGS");
    return 0;
}

/* What CPUID shows, and where SYSCALL goes. A mark in the brand string tells whether the guest sees
 * what was set. */
static int set_model(struct probe_vm *v, struct err *err)
{
    enum { ROOM = 256 };
    struct {
        struct kvm_msrs head;
        struct kvm_msr_entry entry[3];
    } m = {.head = {.nmsrs = 3},
           .entry = {{.index = 0xc0000081, .data = (u64)CS0 << 32 | (u64)(SS3 - 8) << 48},
                     {.index = 0xc0000082, .data = PROBE_STUB + 16 * PROBE_SYSCALL_VECTOR},
                     {.index = 0xc0000084, .data = FL_TF | FL_IF}}};
    struct kvm_cpuid2 *c = calloc(1, sizeof(*c) + ROOM * sizeof(c->entries[0]));
    if (!c)
        return err_set(err, -ENOMEM, "no memory for CPUID");
    c->nent = ROOM;
    int code = ioctl(v->kvm, KVM_GET_SUPPORTED_CPUID, c);
    for (u32 i = 0; !code && i < c->nent; i++)
        if (c->entries[i].function == 0x80000002)
            memcpy(&c->entries[i].eax, "Repr", 4);
    code = code ? code : ioctl(v->vcpu, KVM_SET_CPUID2, c);
    free(c);
    if (code)
        return err_errno(err, "KVM_SET_CPUID2");
    if (ioctl(v->vcpu, KVM_SET_MSRS, &m) != 3)
        return err_errno(err, "KVM_SET_MSRS");
    return 0;
}

static int create(struct probe_vm *v, struct err *err)
{
    v->kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
    if (v->kvm < 0)
        return err_errno(err, "cannot open /dev/kvm");
    v->vm = ioctl(v->kvm, KVM_CREATE_VM, 0);
    if (v->vm < 0)
        return err_errno(err, "KVM_CREATE_VM");
    if (ioctl(v->vm, KVM_SET_TSS_ADDR, 0xfffbd000))
        return err_errno(err, "KVM_SET_TSS_ADDR");
    v->ram = mmap(NULL, RAM_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (v->ram == MAP_FAILED) {
        v->ram = NULL;
        return err_errno(err, "no memory for a guest");
    }
    struct kvm_userspace_memory_region r = {.memory_size = RAM_SIZE, .userspace_addr = (u64)v->ram};
    if (ioctl(v->vm, KVM_SET_USER_MEMORY_REGION, &r))
        return err_errno(err, "KVM_SET_USER_MEMORY_REGION");
    v->vcpu = ioctl(v->vm, KVM_CREATE_VCPU, 0);
    int size = ioctl(v->kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
    if (v->vcpu < 0 || size < (int)sizeof(struct kvm_run))
        return err_errno(err, "KVM_CREATE_VCPU");
    v->run = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, v->vcpu, 0);
    if (v->run == MAP_FAILED) {
        v->run = NULL;
        return err_errno(err, "cannot map a vCPU");
    }
    v->run_size = (size_t)size;
    return 0;
}

int probe_vm_open(struct probe_vm *v, int (*before)(struct probe_vm *v, struct err *err),
                  struct err *err)
{
    struct pmu_cpu cpu;
    *v = (struct probe_vm){.kvm = -1, .vm = -1, .vcpu = -1, .host = {.perf = {-1}}, .opened = true};
    pmu_cpu_read(&cpu);
    int code = create(v, err);
    if (!code)
        code = before ? before(v, err) : 0;
    if (!code)
        code = set_model(v, err);
    if (!code)
        code = pmu_kvm_open(&v->host, v->vcpu, v->run, SIGIO, &cpu, err);
    if (code)
        probe_vm_close(v);
    return code;
}

void probe_vm_close(struct probe_vm *v)
{
    if (!v->opened)
        return;
    pmu_kvm_close(&v->host);
    if (v->run)
        munmap(v->run, v->run_size);
    if (v->vcpu >= 0)
        close(v->vcpu);
    if (v->vm >= 0)
        close(v->vm);
    if (v->ram)
        munmap(v->ram, RAM_SIZE);
    if (v->kvm >= 0)
        close(v->kvm);
    v->opened = false;
}

int probe_vm_load(struct probe_vm *v, const void *code, size_t size, unsigned ring, u64 rcx,
                  u64 rdx, struct err *err)
{
    struct kvm_regs r = {.rip = PROBE_CODE,
                         .rflags = 2 | (ring ? FL_IOPL : 0),
                         .rsp = ring ? STACK3 : STACK0 - 0x400,
                         .rdi = PROBE_DATA,
                         .rcx = rcx,
                         .rdx = rdx};
    if (v->run->exit_reason == KVM_EXIT_IO) { /* finish what the last run left, and no more */
        v->run->immediate_exit = 1;
        ioctl(v->vcpu, KVM_RUN, 0);
        v->run->immediate_exit = 0;
        v->run->exit_reason = KVM_EXIT_UNKNOWN;
    }
    memset(v->ram, 0, RAM_SIZE);
    write_tables(v->ram);
    memcpy(v->ram + PROBE_CODE, code, size);
    int result = pmu_kvm_ops.debug(&v->host, false, NULL, err);
    if (!result)
        result = set_system(v, ring, err);
    if (!result && ioctl(v->vcpu, KVM_SET_REGS, &r))
        result = err_errno(err, "KVM_SET_REGS");
    return result;
}

/* An exit of KVM in words: reason, and of internal errors the suberror. */
static void probe_exit_text(const struct kvm_run *run, char *out, size_t size)
{
    switch (run->exit_reason) {
    case KVM_EXIT_INTERNAL_ERROR:
        snprintf(out, size, "KVM's internal error %u%s", run->internal.suberror,
                 run->internal.suberror == KVM_INTERNAL_ERROR_EMULATION
                     ? " (it cannot emulate the instruction)"
                     : "");
        break;
    case KVM_EXIT_SHUTDOWN: snprintf(out, size, "a triple fault"); break;
    case KVM_EXIT_FAIL_ENTRY:
        snprintf(out, size, "a failed entry (0x%llx)",
                 run->fail_entry.hardware_entry_failure_reason);
        break;
    default: snprintf(out, size, "exit %u", run->exit_reason);
    }
}

int probe_vm_run(struct probe_vm *v, unsigned ms, unsigned *vector, struct err *err)
{
    char text[128];
    pmu_kvm_ops.kick_at(&v->host, host_ns() + ms * 1000000ull);
    int stop = pmu_kvm_ops.run(&v->host, err);
    pmu_kvm_ops.kick_at(&v->host, NEVER);
    if (stop == PMU_STOP_SIGNAL)
        return PROBE_SIGNAL;
    if (stop == PMU_STOP_DEBUG)
        return PROBE_DEBUGGED;
    if (stop < 0)
        return stop;
    if (v->run->exit_reason == KVM_EXIT_IO && v->run->io.direction == KVM_EXIT_IO_OUT) {
        if (vector)
            *vector = ((const u8 *)v->run)[v->run->io.data_offset];
        if (v->run->io.port == PROBE_PORT)
            return PROBE_DONE;
        if (v->run->io.port == PROBE_TRAP)
            return PROBE_TRAPPED;
    }
    probe_exit_text(v->run, text, sizeof(text));
    err_set(err, -EIO, "%s", text);
    return PROBE_OTHER;
}

int probe_vm_regs(struct probe_vm *v, struct kvm_regs *out, struct err *err)
{
    return ioctl(v->vcpu, KVM_GET_REGS, out) ? err_errno(err, "KVM_GET_REGS") : 0;
}
