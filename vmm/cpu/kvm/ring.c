/*
 * Does a single step stop where it should? Tried in each ring, in a small machine of its own:
 * hosts that are guests themselves ignore it, or give the trap to the guest.
 */
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "cpu/kvm/kvm.h"

#define TRY_SIZE (4u << 20)
#define TRY_PML4 0x1000u
#define TRY_PDPT 0x2000u
#define TRY_PD   0x3000u
#define TRY_CODE 0x200000u
#define TRY_DATA 0x300000u

struct attempt {
    const char *what;
    u8 code[8];
    u8 size;
    u8 after; /* RIP after it, from its start */
    bool fault;
};

static const struct attempt attempts[] = {
    {"an addition", {0x48, 0x01, 0xc8}, 3, 3, false},
    {"a store", {0x48, 0x89, 0x07}, 3, 3, false},
    {"a jump", {0xeb, 0x02, 0x90, 0x90}, 4, 4, false},
    {"a jump to itself", {0xeb, 0xfe}, 2, 0, false},
    {"an undefined instruction", {0x0f, 0x0b}, 2, 0, true},
};

/* Long mode with 2 MiB pages for everybody, and no IDT. */
static void long_mode(unsigned cpl, struct kvm_sregs *s)
{
    struct vcpu c;
    vcpu_reset(&c);
    c.cr0 = CR0_PE | CR0_MP | CR0_ET | CR0_NE | CR0_WP | (u64)CR0_PG;
    c.cr3 = TRY_PML4;
    c.cr4 = CR4_PAE | CR4_OSFXSR;
    c.efer = EFER_LME | EFER_LMA;
    for (unsigned i = SEG_ES; i <= SEG_GS; i++) {
        c.seg_limit[i] = 0xffffffff;
        c.seg_sel[i] = (u16)((i == SEG_CS ? 0x8 : 0x10) | cpl);
        c.seg_attr[i] =
            (u16)(ATTR_P | ATTR_S | ATTR_G | cpl << 5 | (i == SEG_CS ? ATTR_L | 0xb : ATTR_DB | 3));
    }
    kvm_sregs_of(&c, cpl, s);
}

/* How the one instruction at TRY_CODE ends. */
static int attempt(const struct kvm_vm *h, unsigned cpl, const struct attempt *a, u8 *ram,
                   enum kvm_stop *stop, bool *keeps, struct err *err)
{
    struct kvm_sregs sregs;
    struct kvm_vcpu_events none = {0};
    struct kvm_regs regs = {.rip = TRY_CODE, .rflags = 2, .rax = 5, .rcx = 7, .rdi = TRY_DATA};
    struct kvm_guest_debug debug = {.control = KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_SINGLESTEP};
    memset(ram + TRY_CODE, 0x90, 64);
    memcpy(ram + TRY_CODE, a->code, a->size);
    long_mode(cpl, &sregs);
    if (ioctl(h->vcpu, KVM_SET_VCPU_EVENTS, &none) || ioctl(h->vcpu, KVM_SET_SREGS, &sregs) ||
        ioctl(h->vcpu, KVM_SET_REGS, &regs) || ioctl(h->vcpu, KVM_SET_GUEST_DEBUG, &debug))
        return err_errno(err, "/dev/kvm: setting up the single-step test of ring %u", cpl);
    int r;
    do
        r = ioctl(h->vcpu, KVM_RUN, 0);
    while (r < 0 && (errno == EINTR || errno == EAGAIN));
    if (r < 0)
        return err_errno(err, "/dev/kvm: KVM_RUN of the single-step test of ring %u", cpl);
    if (ioctl(h->vcpu, KVM_GET_REGS, &regs))
        return err_errno(err, "/dev/kvm: KVM_GET_REGS");
    *stop = h->run->exit_reason == KVM_EXIT_DEBUG      ? KVM_STOP_DEBUG
            : h->run->exit_reason == KVM_EXIT_SHUTDOWN ? KVM_STOP_SHUTDOWN
                                                       : KVM_STOP_NONE;
    if (a->fault) {
        *keeps = *keeps && regs.rip == TRY_CODE && (regs.rflags & FL_RF) && regs.rcx == 7;
        return 0;
    }
    /* By the trap the registers must be as after it, and RF clear, which a fault sets. */
    bool there = regs.rip == TRY_CODE + a->after && !(regs.rflags & FL_RF) && regs.rcx == 7 &&
                 regs.rax == (a->code[1] == 0x01 ? 12 : 5) && regs.rdi == TRY_DATA;
    if (!there)
        *stop = KVM_STOP_NONE;
    return 0;
}

static int all_attempts(const struct kvm_vm *h, unsigned cpl, u8 *ram, enum kvm_stop *stop,
                        bool *keeps, struct err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(attempts); i++) {
        enum kvm_stop one;
        int r = attempt(h, cpl, &attempts[i], ram, &one, keeps, err);
        if (r)
            return r;
        if (i == 0)
            *stop = one;
        /* A fault has no IDT to go to, whatever a step does. */
        if (one != (attempts[i].fault ? KVM_STOP_SHUTDOWN : *stop))
            *stop = KVM_STOP_NONE;
        if (*stop == KVM_STOP_NONE)
            return 0;
    }
    return 0;
}

int kvm_prove_step(enum kvm_stop stop[4], bool *keeps, struct err *err)
{
    struct kvm_vm h;
    int r = kvm_open(&h, err);
    if (r)
        return r;
    u8 *ram = mmap(NULL, TRY_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ram == MAP_FAILED) {
        kvm_close(&h);
        return err_set(err, -ENOMEM, "out of memory");
    }
    const u64 user = 7; /* present, writable, everybody's */
    const u64 pml4 = TRY_PDPT | user, pdpt = TRY_PD | user,
              pd[] = {0x83 | user | 0x60, 0x200000 | 0x80 | 0x60 | user};
    memcpy(ram + TRY_PML4, &pml4, sizeof(pml4));
    memcpy(ram + TRY_PDPT, &pdpt, sizeof(pdpt));
    memcpy(ram + TRY_PD, pd, sizeof(pd));
    r = kvm_add_memory(&h, 0, 0, TRY_SIZE, ram, 0, err);
    if (!r)
        r = kvm_create_vcpu(&h, false, err);
    if (!r)
        r = kvm_set_cpuid(&h, CPU_X86_64_V2, NULL, err);
    *keeps = true;
    for (unsigned cpl = 0; cpl < 4 && !r; cpl++)
        r = all_attempts(&h, cpl, ram, &stop[cpl], keeps, err);
    kvm_close(&h);
    munmap(ram, TRY_SIZE);
    return r;
}
