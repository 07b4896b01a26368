/*
 * What a KVM does where its documentation leaves it open: a line for each fact. Of the host's
 * /dev/kvm; or, linked with tests/imitation, of the imitation, which must do as hardware does.
 * Exit code 77: no guest can be started, the reason is printed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <linux/kvm.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cpu/kvm/probe_vm.h"
#include "cpu/vcpu.h"

#define DEVICE 0x200000u /* after the RAM, and mapped */

static struct probe_vm v;
static struct err err;

static void fail(const char *what)
{
    printf("cannot go on: %s: %s\n", what, strerror(errno));
    fflush(stdout);
    _exit(1);
}

static void must(int r, const char *what)
{
    if (r < 0)
        fail(what);
}

static struct kvm_regs regs(void)
{
    struct kvm_regs r;
    must(ioctl(v.vcpu, KVM_GET_REGS, &r), "KVM_GET_REGS");
    return r;
}

static struct kvm_vcpu_events events(void)
{
    struct kvm_vcpu_events e;
    must(ioctl(v.vcpu, KVM_GET_VCPU_EVENTS, &e), "KVM_GET_VCPU_EVENTS");
    return e;
}

/* Where it is, from the code's begin. */
static i64 at(void)
{
    return (i64)(regs().rip - PROBE_CODE);
}

static void load(const void *code, size_t size, unsigned ring)
{
    const u64 device = DEVICE | 0x87, none = 0;
    struct kvm_vcpu_events clear = {.flags = KVM_VCPUEVENT_VALID_NMI_PENDING |
                                             KVM_VCPUEVENT_VALID_SHADOW};
    if (v.run->exit_reason != KVM_EXIT_IO) { /* else probe_vm_load() does it */
        v.run->immediate_exit = 1;
        ioctl(v.vcpu, KVM_RUN, 0);
        v.run->immediate_exit = 0;
    }
    must(probe_vm_load(&v, code, size, ring, 3, DEVICE, &err), err.text);
    must(ioctl(v.vcpu, KVM_SET_VCPU_EVENTS, &clear), "KVM_SET_VCPU_EVENTS");
    memcpy(v.ram + 0x3000 + 8, &device, 8);
    memcpy(v.ram + 0x3000 + 16, &none, 8);
}

#define LOAD(...)                                                                                  \
    do {                                                                                           \
        static const u8 code_[] = {__VA_ARGS__};                                                   \
        load(code_, sizeof(code_), 0);                                                             \
    } while (0)
#define END 0xe6, PROBE_PORT

static const char *name(void)
{
    switch (v.run->exit_reason) {
    case KVM_EXIT_IO:
        return v.run->io.port == PROBE_PORT   ? "end"
               : v.run->io.port == PROBE_TRAP ? "trap"
                                              : "port";
    case KVM_EXIT_MMIO: return "mmio";
    case KVM_EXIT_DEBUG: return "debug";
    case KVM_EXIT_HLT: return "hlt";
    case KVM_EXIT_SHUTDOWN: return "shutdown";
    case KVM_EXIT_IRQ_WINDOW_OPEN: return "window";
    case KVM_EXIT_SET_TPR: return "tpr";
    case KVM_EXIT_X86_RDMSR: return "rdmsr";
    case KVM_EXIT_X86_WRMSR: return "wrmsr";
    case KVM_EXIT_FAIL_ENTRY: return "fail entry";
    case KVM_EXIT_INTERNAL_ERROR: return "internal error";
    default: return "another";
    }
}

/* One KVM_RUN: how it ended and where it is. */
static void run(void)
{
    sigset_t ours;
    const struct timespec now = {0};
    int r = ioctl(v.vcpu, KVM_RUN, 0);
    if (r < 0)
        printf(" %s@%" PRId64, errno == EINTR ? "EINTR" : strerror(errno), at());
    else
        printf(" %s@%" PRId64, name(), at());
    if (!r && v.run->exit_reason == KVM_EXIT_IO && v.run->io.port == PROBE_TRAP)
        printf("(%u)", ((u8 *)v.run)[v.run->io.data_offset]);
    sigemptyset(&ours);
    sigaddset(&ours, SIGIO);
    while (sigtimedwait(&ours, NULL, &now) > 0)
        ;
}

static void finish(void)
{
    v.run->immediate_exit = 1;
    run();
    v.run->immediate_exit = 0;
}

static void mmio(void)
{
    run();
    printf("[%s %u of %llx: %02x %02x]", v.run->mmio.is_write ? "write" : "read", v.run->mmio.len,
           v.run->mmio.phys_addr, v.run->mmio.data[0], v.run->mmio.data[7]);
}

static void step(bool on)
{
    must(v.host.vcpu >= 0 ? pmu_kvm_ops.debug(&v.host, on, NULL, &err) : -1, "single step");
}

static void mmio_write(void)
{
    LOAD(0xb8, 0x21, 0x43, 0x65, 0x07, 0x89, 0x02, 0x90, END); /* mov eax; mov [rdx], eax */
    mmio();
    finish();
    run();
}

static void mmio_read(void)
{
    LOAD(0x8b, 0x02, 0x90, END); /* mov eax, [rdx] */
    mmio();
    memset(v.run->mmio.data, 0x5a, 8);
    finish();
    printf(" rax %llx", regs().rax);
}

static void mmio_modify(void)
{
    LOAD(0x48, 0x83, 0x02, 0x07, 0x90, END); /* add qword [rdx], 7 */
    mmio();
    memset(v.run->mmio.data, 0x10, 8);
    mmio();
    finish();
}

static void mmio_step(void)
{
    LOAD(0x89, 0x02, 0x90, 0x90, END); /* mov [rdx], eax */
    step(true);
    mmio();
    run();
}

static void mmio_read_step(void)
{
    LOAD(0x8b, 0x02, 0x90, 0x90, END); /* mov eax, [rdx] */
    step(true);
    mmio();
    finish();
}

static void port_out(void)
{
    LOAD(0xe6, 0x20, 0x90, END);
    run();
    finish();
    run();
}

static void port_in(void)
{
    LOAD(0xe4, 0x20, 0x90, END);
    run();
    ((u8 *)v.run)[v.run->io.data_offset] = 0x77;
    finish();
    printf(" rax %llx", regs().rax);
}

static void port_step(void)
{
    LOAD(0xe6, 0x20, 0x90, END);
    step(true);
    run();
    finish();
}

static void rep_outs(void)
{
    LOAD(0xbe, 0, 0, 0x19, 0, 0xf3, 0x6e, END); /* mov esi, PROBE_DATA; rep outsb: to port 0 */
    run();
    printf("[count %u rcx %llu]", v.run->io.count, regs().rcx);
    run();
    printf("[count %u rcx %llu]", v.run->io.count, regs().rcx);
    finish();
}

static void halt(void)
{
    LOAD(0xf4, 0x90, END);
    run();
    run();
}

static void halt_step(void)
{
    LOAD(0xf4, 0x90, END);
    step(true);
    run();
    run();
}

static void window(void)
{
    LOAD(0x90, 0xfb, 0x90, 0x90, 0x90, END); /* nop; sti; nop */
    v.run->request_interrupt_window = 1;
    run();
    printf("[if %u ready %u shadow %u]", v.run->if_flag, v.run->ready_for_interrupt_injection,
           events().interrupt.shadow);
    struct kvm_interrupt irq = {.irq = 0x30};
    must(ioctl(v.vcpu, KVM_INTERRUPT, &irq), "KVM_INTERRUPT");
    printf(" queued %u", events().interrupt.injected);
    v.run->request_interrupt_window = 0;
    run();
}

static void window_open(void)
{
    struct kvm_regs r;
    LOAD(0x90, 0x90, END);
    r = regs();
    r.rflags |= FL_IF;
    must(ioctl(v.vcpu, KVM_SET_REGS, &r), "KVM_SET_REGS");
    v.run->request_interrupt_window = 1;
    run();
    v.run->request_interrupt_window = 0;
    run();
}

static void interrupt_closed(void)
{
    struct kvm_interrupt irq = {.irq = 0x30};
    LOAD(0x90, 0x90, END);
    must(ioctl(v.vcpu, KVM_INTERRUPT, &irq), "KVM_INTERRUPT");
    run();
}

static void nmi(void)
{
    LOAD(0x90, 0x90, END);
    must(ioctl(v.vcpu, KVM_NMI), "KVM_NMI");
    run();
    printf("[masked %u pending %u]", events().nmi.masked, events().nmi.pending);
}

static void tpr(void)
{
    /* mov eax, 5; mov cr8, rax; dec eax; mov cr8, rax; nop */
    LOAD(0xb8, 5, 0, 0, 0, 0x44, 0x0f, 0x22, 0xc0, 0xff, 0xc8, 0x44, 0x0f, 0x22, 0xc0, 0x90, END);
    run();
    printf("[cr8 %llu]", v.run->cr8);
    finish();
    run();
}

static void msr_denied(void)
{
    u8 none[1] = {0};
    struct kvm_enable_cap cap = {.cap = KVM_CAP_X86_USER_SPACE_MSR,
                                 .args = {KVM_MSR_EXIT_REASON_INVAL | KVM_MSR_EXIT_REASON_UNKNOWN |
                                          KVM_MSR_EXIT_REASON_FILTER}};
    struct kvm_msr_filter filter = {
        .ranges = {{KVM_MSR_FILTER_READ | KVM_MSR_FILTER_WRITE, 8, 0x170, none}}};
    LOAD(0xb9, 0x74, 1, 0, 0, 0x0f, 0x32, 0x90, END); /* mov ecx, 0x174; rdmsr */
    must(ioctl(v.vm, KVM_ENABLE_CAP, &cap), "KVM_ENABLE_CAP");
    must(ioctl(v.vm, KVM_X86_SET_MSR_FILTER, &filter), "KVM_X86_SET_MSR_FILTER");
    run();
    printf("[reason %u index %x]", (unsigned)v.run->msr.reason, v.run->msr.index);
    v.run->msr.data = 0x1122334455;
    v.run->msr.error = 0;
    finish();
    printf(" rax %llx rdx %llx", regs().rax, regs().rdx);
    LOAD(0xb9, 0x74, 1, 0, 0, 0x0f, 0x32, 0x90, END);
    run();
    v.run->msr.error = 1;
    finish();
    printf("[injected %u vector %u]", events().exception.injected, events().exception.nr);
    run();
    LOAD(0xb9, 0x08, 8, 0, 0, 0x0f, 0x32, 0x90, END); /* the x2APIC's: of no filter */
    run();
    printf("[reason %u]", (unsigned)v.run->msr.reason);
    LOAD(0xb9, 0x84, 0, 0, 0xc0, 0x0f, 0x32, 0x90, END); /* SFMASK: allowed */
    run();
    printf(" rax %llx", regs().rax);
}

static void triple(void)
{
    struct kvm_sregs s;
    LOAD(0x90, 0x0f, 0x0b);
    must(ioctl(v.vcpu, KVM_GET_SREGS, &s), "KVM_GET_SREGS");
    s.idt.limit = 0;
    must(ioctl(v.vcpu, KVM_SET_SREGS, &s), "KVM_SET_SREGS");
    run();
    printf("[rf %u rcx %llu]", !!(regs().rflags & FL_RF), regs().rcx);
}

static void fault_step(void)
{
    LOAD(0x0f, 0x0b);
    step(true);
    run();
}

static void inject(void)
{
    struct kvm_vcpu_events e = {0};
    LOAD(0x90, 0x90, END);
    e.exception.injected = 1;
    e.exception.nr = EXC_GP;
    e.exception.has_error_code = 1;
    e.exception.error_code = 0x50;
    must(ioctl(v.vcpu, KVM_SET_VCPU_EVENTS, &e), "KVM_SET_VCPU_EVENTS");
    run();
    u64 code = 0;
    memcpy(&code, v.ram + regs().rsp, 8);
    printf("[error %llx]", (unsigned long long)code);
}

static void breakpoint(void)
{
    u64 where = PROBE_CODE + 2;
    LOAD(0x90, 0x90, 0x90, 0x90, END);
    must(pmu_kvm_ops.debug(&v.host, false, &where, &err), "breakpoint");
    run();
    printf("[dr6 %llx]", v.run->debug.arch.dr6 & 0xe00f);
    run();
    step(true);
    run();
    printf("[dr6 %llx]", v.run->debug.arch.dr6 & 0xe00f);
    step(false);
    run();
}

static void watchpoint(void)
{
    struct kvm_guest_debug d = {.control = KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_USE_HW_BP,
                                .arch = {.debugreg = {[1] = PROBE_DATA + 8, [7] = 0x900408}}};
    LOAD(0x48, 0x89, 0x07, 0x48, 0x89, 0x47, 0x08, 0x90, END); /* mov [rdi]; mov [rdi+8] */
    must(ioctl(v.vcpu, KVM_SET_GUEST_DEBUG, &d), "KVM_SET_GUEST_DEBUG");
    run();
    printf("[dr6 %llx]", v.run->debug.arch.dr6 & 0xe00f);
    run();
}

static void step_popf(void)
{
    LOAD(0x6a, 0x02, 0x9d, 0x90, 0x90, END); /* push 2; popf */
    step(true);
    run();
    run();
    run();
}

static void step_other_rip(void)
{
    struct kvm_regs r;
    LOAD(0x90, 0x90, 0x90, END);
    step(true);
    r = regs();
    must(ioctl(v.vcpu, KVM_SET_REGS, &r), "KVM_SET_REGS");
    run();
    r = regs();
    r.rip++;
    must(ioctl(v.vcpu, KVM_SET_REGS, &r), "KVM_SET_REGS");
    run();
}

static void step_rep(void)
{
    LOAD(0xf3, 0xaa, 0x90, END); /* rep stosb */
    step(true);
    for (unsigned i = 0; i < 3; i++) {
        run();
        printf("[rcx %llu rf %u]", regs().rcx, !!(regs().rflags & FL_RF));
    }
}

static void step_shadow(void)
{
    LOAD(0x8c, 0xd0, 0x8e, 0xd0, 0x90, 0x90, 0xfb, 0x90, 0x90, END); /* mov ss; sti */
    step(true);
    for (unsigned i = 0; i < 4; i++) {
        run();
        printf("[shadow %u]", events().interrupt.shadow);
    }
}

static void immediate(void)
{
    LOAD(0x90, END);
    finish();
    run();
}

static void signals(void)
{
    LOAD(0x90, END);
    raise(SIGIO);
    run();
    run();
    finish();
}

static void sync_regs(void)
{
    LOAD(0x90, 0x48, 0xff, 0xc0, END); /* inc rax */
    v.run->kvm_valid_regs = KVM_SYNC_X86_REGS | KVM_SYNC_X86_SREGS | KVM_SYNC_X86_EVENTS;
    v.run->immediate_exit = 1;
    ioctl(v.vcpu, KVM_RUN, 0);
    v.run->immediate_exit = 0;
    printf(" rip %llx cr3 %llx", v.run->s.regs.regs.rip, v.run->s.regs.sregs.cr3);
    v.run->s.regs.regs.rax = 0x41;
    v.run->kvm_dirty_regs = KVM_SYNC_X86_REGS;
    run();
    printf(" rax %llx dirty %llx", v.run->s.regs.regs.rax, v.run->kvm_dirty_regs);
    v.run->kvm_valid_regs = 1ull << 40;
    run();
    v.run->kvm_valid_regs = 0;
}

static void dirty_log(void)
{
    struct kvm_userspace_memory_region m = {
        .flags = KVM_MEM_LOG_DIRTY_PAGES, .memory_size = 2 << 20, .userspace_addr = (u64)v.ram};
    u64 bits[8];
    struct kvm_dirty_log log = {.dirty_bitmap = bits};
    LOAD(0x88, 0x07, END); /* mov [rdi], al */
    must(ioctl(v.vm, KVM_SET_USER_MEMORY_REGION, &m), "KVM_MEM_LOG_DIRTY_PAGES");
    must(ioctl(v.vm, KVM_GET_DIRTY_LOG, &log), "KVM_GET_DIRTY_LOG");
    run();
    for (unsigned i = 0; i < 2; i++) {
        must(ioctl(v.vm, KVM_GET_DIRTY_LOG, &log), "KVM_GET_DIRTY_LOG");
        printf(" page %u",
               (unsigned)(bits[(PROBE_DATA >> 12) / 64] >> (PROBE_DATA >> 12) % 64 & 1));
    }
    m.flags = 0;
    must(ioctl(v.vm, KVM_SET_USER_MEMORY_REGION, &m), "KVM_SET_USER_MEMORY_REGION");
    printf(" %s", ioctl(v.vm, KVM_GET_DIRTY_LOG, &log) ? strerror(errno) : "still there");
}

/* Stores to read-only memory. */
static void read_only(void)
{
    struct kvm_userspace_memory_region all = {.memory_size = 0, .userspace_addr = (u64)v.ram},
                                       part[3];
    static const u64 ends[] = {0, 0xa0000, 0x100000, 2 << 20};
    must(ioctl(v.vm, KVM_SET_USER_MEMORY_REGION, &all), "no memory");
    for (unsigned i = 0; i < 3; i++) {
        part[i] = (struct kvm_userspace_memory_region){.slot = i,
                                                       .flags = i == 1 ? KVM_MEM_READONLY : 0,
                                                       .guest_phys_addr = ends[i],
                                                       .memory_size = ends[i + 1] - ends[i],
                                                       .userspace_addr = (u64)v.ram + ends[i]};
        must(ioctl(v.vm, KVM_SET_USER_MEMORY_REGION, &part[i]), "KVM_MEM_READONLY");
    }
    /* mov edi, 0xa0010; mov [rdi], rsi; push [rdi]; mov edi, 0xa0ffe; movsq */
    LOAD(0xbf, 0x10, 0, 0x0a, 0, 0x48, 0x89, 0x3f, 0xff, 0x37, 0xbf, 0xfe, 0x0f, 0x0a, 0, 0xbe,
         0x30, 0, 0x19, 0, 0x48, 0xa5, END);
    memset(v.ram + 0x190030, 0x66, 8);
    memset(v.ram + 0xa0000, 0x11, 0x2000);
    mmio();
    mmio();
    mmio();
    run();
    u64 pushed;
    memcpy(&pushed, v.ram + regs().rsp, 8);
    printf(" read %llx, there %02x %02x", (unsigned long long)pushed, v.ram[0xa0010],
           v.ram[0xa1000]);
}

/* Code that the program writes, and a table: seen at the next entry, once CR3 is loaded. */
static void written_code(void)
{
    struct kvm_sregs s;
    LOAD(0xeb, 0x00, 0xb0, 0x01, END, 0xeb, 0xfa); /* jmp; 2: mov al, 1; out; jmp 2 */
    run();
    printf(" al %u", ((u8 *)v.run)[v.run->io.data_offset]);
    v.ram[PROBE_CODE + 3] = 2;
    run();
    printf(" al %u", ((u8 *)v.run)[v.run->io.data_offset]);
    LOAD(0xeb, 0x00, 0x8a, 0x07, END, 0xeb, 0xfa); /* jmp; 2: mov al, [rdi]; out; jmp 2 */
    v.ram[PROBE_DATA] = 3;
    run();
    printf(" al %u", ((u8 *)v.run)[v.run->io.data_offset]);
    finish();
    const u64 there = 0x4007;
    u64 pages[512];
    for (u64 i = 0; i < 512; i++)
        pages[i] = i << 12 | 7;
    pages[PROBE_DATA >> 12] = 0x1a0007;
    memcpy(v.ram + 0x4000, pages, sizeof(pages));
    memcpy(v.ram + 0x3000, &there, 8);
    v.ram[0x1a0000] = 4;
    must(ioctl(v.vcpu, KVM_GET_SREGS, &s), "KVM_GET_SREGS");
    s.cr3 ^= 8;
    must(ioctl(v.vcpu, KVM_SET_SREGS, &s), "KVM_SET_SREGS");
    run();
    printf(" al %u", ((u8 *)v.run)[v.run->io.data_offset]);
}

static void refused(void)
{
    struct kvm_sregs s, good;
    struct {
        struct kvm_msrs head;
        struct kvm_msr_entry entry[2];
    } m = {.head = {.nmsrs = 2}, .entry = {{.index = 0xc0000081}, {.index = 0x12345}}};
    LOAD(0x90, END);
    must(ioctl(v.vcpu, KVM_GET_SREGS, &good), "KVM_GET_SREGS");
    s = good;
    s.efer &= ~(u64)EFER_LMA;
    printf(" sregs %s", ioctl(v.vcpu, KVM_SET_SREGS, &s) ? strerror(errno) : "taken");
    s = good;
    s.cr4 &= ~(u64)CR4_PAE;
    printf(", %s", ioctl(v.vcpu, KVM_SET_SREGS, &s) ? strerror(errno) : "taken");
    s = good;
    s.cr0 &= ~(u64)CR0_PE;
    printf(", %s", ioctl(v.vcpu, KVM_SET_SREGS, &s) ? strerror(errno) : "taken");
    printf("; msrs %d", ioctl(v.vcpu, KVM_GET_MSRS, &m));
    run();
}

static void tsc(void)
{
    struct {
        struct kvm_msrs head;
        struct kvm_msr_entry entry;
    } m = {.head = {.nmsrs = 1}, .entry = {.index = 0x10}};
    u64 offset = 1ull << 50;
    struct kvm_device_attr attr = {
        .group = KVM_VCPU_TSC_CTRL, .attr = KVM_VCPU_TSC_OFFSET, .addr = (u64)&offset};
    LOAD(0x0f, 0x31, 0x89, 0xd6, END); /* rdtsc; mov esi, edx */
    must(ioctl(v.vcpu, KVM_SET_DEVICE_ATTR, &attr), "KVM_VCPU_TSC_OFFSET");
    run();
    must(ioctl(v.vcpu, KVM_GET_MSRS, &m), "KVM_GET_MSRS");
    u64 seen = regs().rsi << 32 | (u32)regs().rax;
    printf(" %s, %s", seen >> 50 == 1 ? "the guest has the offset" : "the guest has no offset",
           m.entry.data - seen < 1ull << 34 ? "and what the ioctl says" : "the ioctl says else");
}

static void floating(void)
{
    struct kvm_fpu f, g;
    LOAD(0xd9, 0xe8, 0x0f, 0x57, 0xc0, END); /* fld1; xorps xmm0, xmm0 */
    must(ioctl(v.vcpu, KVM_GET_FPU, &f), "KVM_GET_FPU");
    memset(f.xmm, 0x3c, sizeof(f.xmm));
    f.fcw = 0x37f;
    f.fsw = 0;
    f.ftwx = 0;
    f.mxcsr = 0x1f80;
    must(ioctl(v.vcpu, KVM_SET_FPU, &f), "KVM_SET_FPU");
    run();
    must(ioctl(v.vcpu, KVM_GET_FPU, &g), "KVM_GET_FPU");
    printf(" tags %02x fsw %x st0 %02x%02x xmm0 %02x xmm1 %02x", g.ftwx, g.fsw, g.fpr[0][9],
           g.fpr[0][8], g.xmm[0][0], g.xmm[1][0]);
}

static const struct {
    const char *name;
    void (*show)(void);
} facts[] = {
    {"mmio write", mmio_write},
    {"mmio read", mmio_read},
    {"mmio read, then write", mmio_modify},
    {"step of an mmio write", mmio_step},
    {"step of an mmio read", mmio_read_step},
    {"out", port_out},
    {"in", port_in},
    {"step of out", port_step},
    {"rep outs", rep_outs},
    {"hlt", halt},
    {"step of hlt", halt_step},
    {"interrupt window", window},
    {"open window", window_open},
    {"interrupt where none may be", interrupt_closed},
    {"nmi", nmi},
    {"cr8 lowered", tpr},
    {"triple fault", triple},
    {"step of a fault", fault_step},
    {"injected exception", inject},
    {"breakpoint", breakpoint},
    {"watchpoint", watchpoint},
    {"step of popf", step_popf},
    {"step from elsewhere", step_other_rip},
    {"step of rep", step_rep},
    {"step in shadows", step_shadow},
    {"immediate exit", immediate},
    {"signal", signals},
    {"sync regs", sync_regs},
    {"dirty log", dirty_log},
    {"read-only", read_only},
    {"written by others", written_code},
    {"refused", refused},
    {"tsc", tsc},
    {"floating point", floating},
    {"filtered msr", msr_denied},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; i < ARRAY_SIZE(facts); i++) {
        if (argc > 1 && strcmp(argv[1], facts[i].name))
            continue;
        /* A machine of its own: nothing is left over. */
        if (probe_vm_open(&v, NULL, &err)) {
            printf("%s\n", err.text);
            return 77;
        }
        printf("%s:", facts[i].name);
        pmu_kvm_ops.kick_at(&v.host, pmu_kvm_ops.now(&v.host) + 1000000000);
        facts[i].show();
        pmu_kvm_ops.kick_at(&v.host, NEVER);
        printf("\n");
        probe_vm_close(&v);
    }
    return 0;
}
