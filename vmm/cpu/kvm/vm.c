/* /dev/kvm, and a machine with one vCPU in it. What is missing is said in words. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cpu/kvm/kvm.h"

/* Three pages that KVM needs on Intel's CPUs without unrestricted guests; no RAM is there. */
#define TSS_ADDRESS 0xfffbd000ul

static const struct {
    int number;
    const char *name;
} needed[] = {
    {KVM_CAP_USER_MEMORY, "KVM_CAP_USER_MEMORY"},
    {KVM_CAP_SET_TSS_ADDR, "KVM_CAP_SET_TSS_ADDR"},
    {KVM_CAP_EXT_CPUID, "KVM_CAP_EXT_CPUID"},
    {KVM_CAP_SET_GUEST_DEBUG, "KVM_CAP_SET_GUEST_DEBUG"},
    {KVM_CAP_VCPU_EVENTS, "KVM_CAP_VCPU_EVENTS"},
    {KVM_CAP_XSAVE, "KVM_CAP_XSAVE"},
    {KVM_CAP_XCRS, "KVM_CAP_XCRS"},
    {KVM_CAP_READONLY_MEM, "KVM_CAP_READONLY_MEM"},
    {KVM_CAP_IMMEDIATE_EXIT, "KVM_CAP_IMMEDIATE_EXIT"},
    {KVM_CAP_X86_USER_SPACE_MSR, "KVM_CAP_X86_USER_SPACE_MSR"},
    {KVM_CAP_X86_MSR_FILTER, "KVM_CAP_X86_MSR_FILTER"},
};

static int open_device(struct err *err)
{
    int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);
    if (fd >= 0)
        return fd;
    if (errno == EACCES || errno == EPERM)
        return err_set(err, -EACCES,
                       "/dev/kvm: permission denied (who may use it is in the group kvm: `adduser "
                       "USER kvm`, then log in again; or --engine=dbt)");
    if (errno == ENOENT || errno == ENODEV || errno == ENXIO)
        return err_set(err, -errno,
                       "there is no /dev/kvm here: the CPU's virtualization is off or not passed "
                       "on to this machine, or the modules kvm_intel or kvm_amd are not loaded "
                       "(--engine=dbt needs none)");
    return err_errno(err, "/dev/kvm");
}

static int create_vm(struct kvm_vm *h, struct err *err)
{
    int version = ioctl(h->dev, KVM_GET_API_VERSION, 0);
    if (version != KVM_API_VERSION)
        return err_set(err, -ENOTSUP, "/dev/kvm speaks version %d of its interface, not %d",
                       version, KVM_API_VERSION);
    do
        h->vm = ioctl(h->dev, KVM_CREATE_VM, 0);
    while (h->vm < 0 && errno == EINTR);
    if (h->vm < 0)
        return err_errno(err, "/dev/kvm: KVM_CREATE_VM (does another program hold the CPU's "
                              "virtualization?)");
    for (size_t i = 0; i < ARRAY_SIZE(needed); i++)
        if (ioctl(h->vm, KVM_CHECK_EXTENSION, needed[i].number) <= 0)
            return err_set(err, -ENOTSUP,
                           "this kernel's KVM lacks %s, which the kvm engine needs (Linux 5.10 "
                           "and later have it; or --engine=dbt)",
                           needed[i].name);
    if (ioctl(h->vm, KVM_SET_TSS_ADDR, TSS_ADDRESS))
        return err_errno(err, "/dev/kvm: KVM_SET_TSS_ADDR");
    return 0;
}

int kvm_open(struct kvm_vm *h, struct err *err)
{
    *h = (struct kvm_vm){-1, -1, -1, NULL, 0};
    h->dev = open_device(err);
    if (h->dev < 0)
        return err->code;
    int r = create_vm(h, err);
    if (r)
        kvm_close(h);
    return r;
}

/* No MSR is KVM's, or only three: each access comes to us, those of the x2APIC as invalid ones. */
static int take_msrs(struct kvm_vm *h, bool own, struct err *err)
{
    u8 none[8] = {own ? 7 : 0}; /* bits of a range: 0 denies */
    struct kvm_enable_cap cap = {.cap = KVM_CAP_X86_USER_SPACE_MSR,
                                 .args = {KVM_MSR_EXIT_REASON_INVAL | KVM_MSR_EXIT_REASON_UNKNOWN |
                                          KVM_MSR_EXIT_REASON_FILTER}};
    /* Denied by default; a filter must name one range, and the x2APIC's cannot be filtered. Here
     * FS_BASE, GS_BASE, KERNEL_GS_BASE. */
    struct kvm_msr_filter filter = {
        .flags = KVM_MSR_FILTER_DEFAULT_DENY,
        .ranges = {{.flags = KVM_MSR_FILTER_READ | KVM_MSR_FILTER_WRITE,
                    .nmsrs = 3,
                    .base = 0xc0000100,
                    .bitmap = none}},
    };
    if (ioctl(h->vm, KVM_ENABLE_CAP, &cap))
        return err_errno(err, "/dev/kvm: KVM_CAP_X86_USER_SPACE_MSR");
    if (ioctl(h->vm, KVM_X86_SET_MSR_FILTER, &filter))
        return err_errno(err, "/dev/kvm: KVM_X86_SET_MSR_FILTER");
    return 0;
}

int kvm_create_vcpu(struct kvm_vm *h, bool own, struct err *err)
{
    int r = take_msrs(h, own, err);
    if (r)
        return r;
    h->vcpu = ioctl(h->vm, KVM_CREATE_VCPU, 0);
    if (h->vcpu < 0)
        return err_errno(err, "/dev/kvm: KVM_CREATE_VCPU");
    int size = ioctl(h->dev, KVM_GET_VCPU_MMAP_SIZE, 0);
    if (size < (int)sizeof(struct kvm_run))
        return err_errno(err, "/dev/kvm: KVM_GET_VCPU_MMAP_SIZE says %d", size);
    void *p = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, h->vcpu, 0);
    if (p == MAP_FAILED)
        return err_errno(err, "/dev/kvm: mapping struct kvm_run");
    h->run = p;
    h->run_size = (size_t)size;
    return 0;
}

int kvm_add_memory(struct kvm_vm *h, u32 slot, gpa_t gpa, u64 size, void *host, u32 flags,
                   struct err *err)
{
    struct kvm_userspace_memory_region region = {.slot = slot,
                                                 .flags = flags,
                                                 .guest_phys_addr = gpa,
                                                 .memory_size = size,
                                                 .userspace_addr = (u64)host};
    if (ioctl(h->vm, KVM_SET_USER_MEMORY_REGION, &region))
        return err_errno(err, "/dev/kvm: RAM at %llx", (unsigned long long)gpa);
    return 0;
}

int kvm_log_dirty(struct kvm *k, u32 slot, struct err *err)
{
    const struct kvm_slot *s = &k->slot[slot];
    if (s->readonly)
        return 0;
    return kvm_add_memory(&k->h, slot, s->gpa, s->size, s->host, KVM_MEM_LOG_DIRTY_PAGES, err);
}

void kvm_close(struct kvm_vm *h)
{
    if (h->run)
        munmap(h->run, h->run_size);
    const int fds[] = {h->vcpu, h->vm, h->dev};
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        if (fds[i] >= 0)
            close(fds[i]);
    *h = (struct kvm_vm){-1, -1, -1, NULL, 0};
}

int kvm_set_cpuid(struct kvm_vm *h, enum cpu_model model, const struct core *of, struct err *err)
{
    static const struct {
        u32 first, last, subleaves; /* 0: ECX does not matter */
    } leaves[] = {
        {0, 3, 0},
        {4, 4, 5},
        {5, 6, 0},
        {7, 7, 3},
        {8, 0xa, 0},
        {0xb, 0xb, 3},
        {0xc, 0xc, 0},
        {0xd, 0xd, 3},
        {0xe, 0x16, 0},
        {0x40000000, 0x40000001, 0},
        {0x80000000, 0x80000008, 0},
        {0x8000001d, 0x8000001d, 5}, /* AMD's */
        {0x8000001e, 0x80000021, 0},
    };
    enum { MOST = 80 };
    struct kvm_cpuid2 *list = calloc(1, sizeof(*list) + MOST * sizeof(struct kvm_cpuid_entry2));
    if (!list)
        return err_set(err, -ENOMEM, "out of memory");
    struct cpuid_live live = of ? core_cpuid_live(of) : (struct cpuid_live){0};
    /* Live bits (OSXSAVE, the XSAVE area's size) KVM keeps itself; it counts for nobody. */
    live.cr4 = 0;
    live.xcr0 = 1;
    live.apic_enabled = true;
    live.pmu = false;
    for (size_t i = 0; i < ARRAY_SIZE(leaves); i++)
        for (u32 leaf = leaves[i].first; leaf <= leaves[i].last; leaf++)
            for (u32 sub = 0; sub == 0 || sub < leaves[i].subleaves; sub++) {
                CHECK(list->nent < MOST, "%u CPUID leaves", list->nent);
                struct cpuid_result r;
                cpu_model_cpuid(model, leaf, sub, &live, &r);
                list->entries[list->nent++] = (struct kvm_cpuid_entry2){
                    .function = leaf,
                    .index = sub,
                    .flags = leaves[i].subleaves ? KVM_CPUID_FLAG_SIGNIFCANT_INDEX : 0,
                    .eax = r.eax,
                    .ebx = r.ebx,
                    .ecx = r.ecx,
                    .edx = r.edx};
            }
    int r = ioctl(h->vcpu, KVM_SET_CPUID2, list);
    if (r)
        r = err_errno(err, "/dev/kvm: KVM_SET_CPUID2 of model %s", cpu_model_name(model));
    free(list);
    return r;
}
