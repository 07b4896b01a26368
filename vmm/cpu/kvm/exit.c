/* What KVM_RUN comes back for: answered, or dumped whole. None is ignored. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#include "cpu/kvm/kvm.h"

#include "cpu/x86/memory.h"
#include "cpu/x86/msr.h"
#include "cpu/x86/park.h"
#include "cpu/x86/run.h"

static const char *reason_name(u32 reason)
{
    static const char *const names[] = {
        [KVM_EXIT_UNKNOWN] = "KVM_EXIT_UNKNOWN",
        [KVM_EXIT_EXCEPTION] = "KVM_EXIT_EXCEPTION",
        [KVM_EXIT_IO] = "KVM_EXIT_IO",
        [KVM_EXIT_HYPERCALL] = "KVM_EXIT_HYPERCALL",
        [KVM_EXIT_DEBUG] = "KVM_EXIT_DEBUG",
        [KVM_EXIT_HLT] = "KVM_EXIT_HLT",
        [KVM_EXIT_MMIO] = "KVM_EXIT_MMIO",
        [KVM_EXIT_IRQ_WINDOW_OPEN] = "KVM_EXIT_IRQ_WINDOW_OPEN",
        [KVM_EXIT_SHUTDOWN] = "KVM_EXIT_SHUTDOWN",
        [KVM_EXIT_FAIL_ENTRY] = "KVM_EXIT_FAIL_ENTRY",
        [KVM_EXIT_INTR] = "KVM_EXIT_INTR",
        [KVM_EXIT_SET_TPR] = "KVM_EXIT_SET_TPR",
        [KVM_EXIT_TPR_ACCESS] = "KVM_EXIT_TPR_ACCESS",
        [KVM_EXIT_NMI] = "KVM_EXIT_NMI",
        [KVM_EXIT_INTERNAL_ERROR] = "KVM_EXIT_INTERNAL_ERROR",
        [KVM_EXIT_SYSTEM_EVENT] = "KVM_EXIT_SYSTEM_EVENT",
        [KVM_EXIT_X86_RDMSR] = "KVM_EXIT_X86_RDMSR",
        [KVM_EXIT_X86_WRMSR] = "KVM_EXIT_X86_WRMSR",
    };
    return reason < ARRAY_SIZE(names) && names[reason] ? names[reason] : "an unnamed exit";
}

/* Appends to a text that is cut, never overrun. */
__attribute__((format(printf, 3, 4))) static void add(char *text, size_t size, const char *fmt, ...)
{
    size_t at = strlen(text);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text + at, size - at, fmt, ap);
    va_end(ap);
}

int kvm_dump(struct kvm *k, const char *what, struct err *err)
{
    const struct kvm_run *run = k->h.run;
    struct core *d = k->core;
    struct kvm_regs g = {0};
    struct kvm_sregs s = {0};
    char text[900] = "";
    ioctl(k->h.vcpu, KVM_GET_REGS, &g);
    ioctl(k->h.vcpu, KVM_GET_SREGS, &s);
    add(text, sizeof(text), "%s: %s (%u)", what, reason_name(run->exit_reason), run->exit_reason);
    if (run->exit_reason == KVM_EXIT_INTERNAL_ERROR) {
        add(text, sizeof(text), ", suberror %u, data", run->internal.suberror);
        for (u32 i = 0; i < run->internal.ndata && i < ARRAY_SIZE(run->internal.data); i++)
            add(text, sizeof(text), " %llx", run->internal.data[i]);
    } else if (run->exit_reason == KVM_EXIT_FAIL_ENTRY) {
        add(text, sizeof(text), ", hardware reason %llx",
            run->fail_entry.hardware_entry_failure_reason);
    } else if (run->exit_reason == KVM_EXIT_UNKNOWN) {
        add(text, sizeof(text), ", hardware reason %llx", run->hw.hardware_exit_reason);
    }
    add(text, sizeof(text), "; at position %llu, instruction at %llx (ring %u), bytes",
        (unsigned long long)unit_position(d), (unsigned long long)d->cpu.rip, d->cpl);
    u8 bytes[15];
    for (unsigned i = 0; i < sizeof(bytes) && core_peek(&d->base, d->cpu.rip + i, &bytes[i], 1);
         i++)
        add(text, sizeof(text), " %02x", bytes[i]);
    add(text, sizeof(text),
        "; KVM has RIP %llx RFLAGS %llx CS %04x SS %04x CR0 %llx CR2 %llx CR3 %llx CR4 %llx EFER "
        "%llx RAX %llx RBX %llx RCX %llx RDX %llx RSI %llx RDI %llx RSP %llx RBP %llx R8 %llx R9 "
        "%llx R10 %llx R11 %llx R12 %llx R13 %llx R14 %llx R15 %llx",
        g.rip, g.rflags, s.cs.selector, s.ss.selector, s.cr0, s.cr2, s.cr3, s.cr4, s.efer, g.rax,
        g.rbx, g.rcx, g.rdx, g.rsi, g.rdi, g.rsp, g.rbp, g.r8, g.r9, g.r10, g.r11, g.r12, g.r13,
        g.r14, g.r15);
    return err_set(err, -EIO, "%s", text);
}

void kvm_port_access(struct kvm *k)
{
    struct core *d = k->core;
    struct kvm_run *run = k->h.run;
    u8 *data = (u8 *)run + run->io.data_offset;
    unsigned size = run->io.size;
    for (u32 i = 0; i < run->io.count; i++, data += size) {
        u32 v = 0;
        d->st.pio++;
        if (run->io.direction == KVM_EXIT_IO_IN) {
            v = d->env->pio_read(d->env->cpu, run->io.port, size);
            memcpy(data, &v, size);
        } else {
            memcpy(&v, data, size);
            d->env->pio_write(d->env->cpu, run->io.port, size, v);
        }
        count_events(d, 1);
    }
}

int kvm_memory_access(struct kvm *k, struct err *err)
{
    struct core *d = k->core;
    struct kvm_run *run = k->h.run;
    gpa_t gpa = run->mmio.phys_addr;
    if (ram_ptr(d->ram, gpa, 1) || run->mmio.len > sizeof(run->mmio.data))
        return kvm_dump(k, "KVM takes RAM for a device", err);
    if (run->mmio.is_write)
        io_write(d, gpa, run->mmio.len, run->mmio.data);
    else
        io_read(d, gpa, run->mmio.len, run->mmio.data);
    return KVM_AGAIN;
}

static int internal_error(struct kvm *k, const struct insn *in, struct err *err)
{
    if (k->h.run->internal.suberror != KVM_INTERNAL_ERROR_EMULATION)
        return kvm_dump(k, "an internal error of KVM", err);
    /* Its emulator gave up before it did anything. */
    k->refused++;
    k->unknown[in->mnemonic % KVM_MNEMONICS] |= (u8)(1u << (k->core->cpl ? 1 : 0));
    return KVM_NOT_STEPPED;
}

int kvm_exit(struct kvm *k, const struct insn *in, struct err *err)
{
    struct core *d = k->core;
    struct kvm_run *run = k->h.run;
    switch (run->exit_reason) {
    case KVM_EXIT_DEBUG: return KVM_STEPPED;
    case KVM_EXIT_SHUTDOWN: return KVM_STEPPED; /* or a fault: the registers tell (step.c) */
    case KVM_EXIT_IO: kvm_port_access(k); return KVM_AGAIN;
    case KVM_EXIT_MMIO: return kvm_memory_access(k, err);
    case KVM_EXIT_X86_RDMSR: {
        u64 v = 0;
        run->msr.error = !msr_read(d, run->msr.index, &v);
        run->msr.data = v;
        return KVM_AGAIN;
    }
    case KVM_EXIT_X86_WRMSR:
        run->msr.error = !msr_write(d, run->msr.index, run->msr.data);
        return KVM_AGAIN;
    case KVM_EXIT_SET_TPR: return KVM_AGAIN; /* step.c looks at run->cr8 */
    case KVM_EXIT_INTERNAL_ERROR: return internal_error(k, in, err);
    case KVM_EXIT_FAIL_ENTRY: return kvm_dump(k, "the CPU does not take the guest's state", err);
    default: return kvm_dump(k, "KVM came out for a reason that has no answer", err);
    }
}
