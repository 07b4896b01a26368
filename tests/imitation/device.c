/* /dev/kvm and a machine: capabilities, memory, the log of written pages, the filter of MSRs. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "cpu/features.h"
#include "imitation.h"

static int capability(u64 cap)
{
    switch (cap) {
    case KVM_CAP_USER_MEMORY:
    case KVM_CAP_READONLY_MEM:
    case KVM_CAP_SET_TSS_ADDR:
    case KVM_CAP_EXT_CPUID:
    case KVM_CAP_IMMEDIATE_EXIT:
    case KVM_CAP_SET_GUEST_DEBUG:
    case KVM_CAP_X86_USER_SPACE_MSR:
    case KVM_CAP_X86_MSR_FILTER:
    case KVM_CAP_XSAVE:
    case KVM_CAP_XCRS:
    case KVM_CAP_VCPU_EVENTS:
    case KVM_CAP_DEBUGREGS:
    case KVM_CAP_USER_NMI:
    case KVM_CAP_SREGS2:
    case KVM_CAP_GET_TSC_KHZ:
    case KVM_CAP_VCPU_ATTRIBUTES:
    case KVM_CAP_CHECK_EXTENSION_VM:
    case KVM_CAP_ENABLE_CAP_VM:
    case KVM_CAP_NR_VCPUS:
    case KVM_CAP_MAX_VCPUS: return 1;
    case KVM_CAP_XSAVE2: return sizeof(struct kvm_xsave);
    case KVM_CAP_NR_MEMSLOTS: return IM_SLOTS;
    case KVM_CAP_SYNC_REGS: return KVM_SYNC_X86_VALID_FIELDS;
    case KVM_CAP_TSC_CONTROL:
    case KVM_CAP_VM_TSC_CONTROL: return !im_options()->noscale;
    default: return 0;
    }
}

/* What the hardware has: a model of ours under another name. */
static int supported_cpuid(struct kvm_cpuid2 *out)
{
    static const struct {
        u32 first, last, subleaves; /* 0: ECX does not matter */
    } leaves[] = {{0, 3, 0},
                  {4, 4, 5},
                  {5, 6, 0},
                  {7, 7, 3},
                  {0xb, 0xb, 3},
                  {0xd, 0xd, 3},
                  {0x15, 0x16, 0},
                  {0x40000000, 0x40000001, 0},
                  {0x80000000, 0x80000008, 0}};
    const struct cpuid_live live = {.xcr0 = 1, .apic_enabled = true};
    enum cpu_model model =
        cpu_host_lacks(cpu_model_words(CPU_X86_64_V3)) ? CPU_X86_64_V2 : CPU_X86_64_V3;
    struct kvm_cpuid_entry2 list[64];
    u32 n = 0;
    for (size_t i = 0; i < ARRAY_SIZE(leaves); i++)
        for (u32 leaf = leaves[i].first; leaf <= leaves[i].last; leaf++)
            for (u32 sub = 0; sub == 0 || sub < leaves[i].subleaves; sub++) {
                struct cpuid_result r;
                cpu_model_cpuid(model, leaf, sub, &live, &r);
                if (leaf == 0x80000002)
                    memcpy(&r, "imitated CPU    ", 16);
                list[n++] = (struct kvm_cpuid_entry2){
                    .function = leaf,
                    .index = sub,
                    .flags = leaves[i].subleaves ? KVM_CPUID_FLAG_SIGNIFCANT_INDEX : 0,
                    .eax = r.eax,
                    .ebx = r.ebx,
                    .ecx = r.ecx,
                    .edx = r.edx};
            }
    bool room = out->nent >= n;
    out->nent = n;
    if (!room) {
        errno = E2BIG;
        return -1;
    }
    memcpy(out->entries, list, n * sizeof(list[0]));
    return 0;
}

static int msr_list(struct kvm_msr_list *out)
{
    static const u32 list[] = {0x10,       0x1b,       0x3b,       0x48,       0x174,
                               0x175,      0x176,      0x1a0,      0x277,      0x2ff,
                               0xc0000080, 0xc0000081, 0xc0000082, 0xc0000083, 0xc0000084,
                               0xc0000100, 0xc0000101, 0xc0000102, 0xc0000103};
    bool room = out->nmsrs >= ARRAY_SIZE(list);
    out->nmsrs = ARRAY_SIZE(list);
    if (!room) {
        errno = E2BIG;
        return -1;
    }
    memcpy(out->indices, list, sizeof(list));
    return 0;
}

static int create_vm(void)
{
    struct im_vm *vm = calloc(1, sizeof(*vm));
    if (!vm)
        return -1;
    vm->users = 1;
    vm->khz = IM_HOST_KHZ;
    int fd = im_fd_new(IM_VM, vm);
    if (fd < 0)
        free(vm);
    return fd;
}

int im_device_ioctl(unsigned long request, void *arg)
{
    switch (request) {
    case KVM_GET_API_VERSION: return KVM_API_VERSION;
    case KVM_CREATE_VM: return create_vm();
    case KVM_CHECK_EXTENSION: return capability((u64)arg);
    case KVM_GET_VCPU_MMAP_SIZE: return 3 * PAGE_SIZE;
    case KVM_GET_SUPPORTED_CPUID: return supported_cpuid(arg);
    case KVM_GET_MSR_INDEX_LIST: return msr_list(arg);
    default: return im_refuse(ENOTTY, "/dev/kvm does not know ioctl %lx", request);
    }
}

/* ---- memory ---- */

static const struct im_slot *slot_at(const struct im_vm *vm, gpa_t gpa)
{
    for (unsigned i = 0; i < IM_SLOTS; i++) {
        const struct kvm_userspace_memory_region *r = &vm->slot[i].r;
        if (r->memory_size && gpa - r->guest_phys_addr < r->memory_size)
            return &vm->slot[i];
    }
    return NULL;
}

/* Bytes from `gpa` on that lie in one piece at `host` (NULL: wherever they begin). */
static u64 piece(const struct im_vm *vm, gpa_t gpa, u8 **host)
{
    gpa_t begin = gpa;
    const struct im_slot *s;
    while ((s = slot_at(vm, gpa))) {
        u8 *here = (u8 *)(s->r.userspace_addr + (gpa - s->r.guest_phys_addr));
        if (!*host)
            *host = here;
        if (here != *host + (gpa - begin))
            break;
        gpa = s->r.guest_phys_addr + s->r.memory_size;
    }
    return gpa - begin;
}

bool im_vm_ram(const struct im_vm *vm, struct ram *out, bool *has_rom)
{
    static u8 none[PAGE_SIZE] __attribute__((aligned(4096)));
    const gpa_t high = 1ull << 32;
    *out = (struct ram){.pagemap = -1};
    out->low_size = piece(vm, 0, &out->host);
    u8 *above = out->host + out->low_size;
    out->size = out->low_size + (out->low_size ? piece(vm, high, &above) : 0);
    u64 all = 0;
    *has_rom = false;
    for (unsigned i = 0; i < IM_SLOTS; i++) {
        const struct kvm_userspace_memory_region *r = &vm->slot[i].r;
        all += r->memory_size;
        *has_rom = *has_rom || (r->memory_size && (r->flags & KVM_MEM_READONLY));
        if (r->memory_size && (r->flags & KVM_MEM_READONLY) &&
            (r->guest_phys_addr < ROM_BASE || r->guest_phys_addr + r->memory_size > ROM_END)) {
            im_refuse(EINVAL, "read-only memory at %llx", r->guest_phys_addr);
            return false;
        }
    }
    if (all != out->size) {
        im_refuse(EINVAL, "the memory is not in one piece, as board/ram.h has it");
        return false;
    }
    if (!all)
        *out = (struct ram){.host = none, .size = PAGE_SIZE, .low_size = PAGE_SIZE, .pagemap = -1};
    return true;
}

/* Only of RAM that a vCPU runs on. */
static void start_log(struct im_vm *vm)
{
    struct im_vcpu *v = vm->vcpu;
    if (vm->dirty || !v || !im_hw_ready(v))
        return;
    vm->dirty = calloc(v->ram.size / PAGE_SIZE / 64 + 1, 8);
    CHECK(vm->dirty && !core_ops.written_reset(&v->hw->base), "no memory for the log");
}

static int set_memory(struct im_vm *vm, const struct kvm_userspace_memory_region *r)
{
    const u32 known = KVM_MEM_READONLY | KVM_MEM_LOG_DIRTY_PAGES;
    if (r->slot >= IM_SLOTS || (r->flags & ~known) ||
        ((r->guest_phys_addr | r->memory_size | r->userspace_addr) & (PAGE_SIZE - 1)))
        return im_refuse(EINVAL, "memory slot %u, flags %x at %llx", r->slot, r->flags,
                         r->guest_phys_addr);
    for (u64 at = 0; at < r->memory_size; at += PAGE_SIZE) {
        const struct im_slot *s = slot_at(vm, r->guest_phys_addr + at);
        if (s && s != &vm->slot[r->slot]) {
            errno = EEXIST;
            return -1;
        }
    }
    struct im_slot *s = &vm->slot[r->slot];
    bool same = s->r.guest_phys_addr == r->guest_phys_addr && s->r.memory_size == r->memory_size &&
                s->r.userspace_addr == r->userspace_addr;
    s->r = *r;
    if (!same) {
        vm->layout++;
        free(vm->dirty);
        vm->dirty = NULL;
    }
    if (r->flags & KVM_MEM_LOG_DIRTY_PAGES)
        start_log(vm);
    return 0;
}

static int dirty_log(struct im_vm *vm, const struct kvm_dirty_log *in)
{
    struct im_vcpu *v = vm->vcpu;
    const struct im_slot *s = in->slot < IM_SLOTS ? &vm->slot[in->slot] : NULL;
    if (!s || !s->r.memory_size || !(s->r.flags & KVM_MEM_LOG_DIRTY_PAGES)) {
        errno = ENOENT;
        return -1;
    }
    u64 n = s->r.memory_size / PAGE_SIZE;
    memset(in->dirty_bitmap, 0, (n + 63) / 64 * 8);
    start_log(vm);
    if (!vm->dirty)
        return 0;
    size_t written;
    const u32 *list = core_ops.written(&v->hw->base, &written);
    for (size_t i = 0; i < written; i++)
        vm->dirty[list[i] / 64] |= 1ull << list[i] % 64;
    core_ops.written_reset(&v->hw->base);
    u64 first = ram_page_index(&v->ram, s->r.guest_phys_addr);
    for (u64 i = 0; i < n; i++) {
        u64 *word = &vm->dirty[(first + i) / 64], bit = 1ull << (first + i) % 64;
        if (*word & bit)
            ((u8 *)in->dirty_bitmap)[i / 8] |= (u8)(1u << i % 8);
        *word &= ~bit;
    }
    return 0;
}

/* ---- MSRs ---- */

static void drop_filter(struct im_vm *vm)
{
    for (unsigned i = 0; i < IM_RANGES; i++)
        free(vm->range[i].bitmap);
    memset(vm->range, 0, sizeof(vm->range));
    vm->filtered = vm->deny = false;
}

static int set_filter(struct im_vm *vm, const struct kvm_msr_filter *in)
{
    u64 all = 0;
    for (unsigned i = 0; i < IM_RANGES; i++)
        all += in->ranges[i].nmsrs;
    bool deny = in->flags & KVM_MSR_FILTER_DEFAULT_DENY;
    if ((in->flags & ~KVM_MSR_FILTER_DEFAULT_DENY) || (deny && !all)) {
        errno = EINVAL;
        return -1;
    }
    drop_filter(vm);
    for (unsigned i = 0; i < IM_RANGES; i++) {
        u32 n = in->ranges[i].nmsrs;
        vm->range[i] = (struct im_range){.flags = in->ranges[i].flags,
                                         .base = in->ranges[i].base,
                                         .n = n,
                                         .bitmap = n ? malloc((n + 7) / 8) : NULL};
        if (n && vm->range[i].bitmap)
            memcpy(vm->range[i].bitmap, in->ranges[i].bitmap, (n + 7) / 8);
    }
    vm->filtered = all;
    vm->deny = deny;
    return 0;
}

static int enable(struct im_vm *vm, const struct kvm_enable_cap *cap)
{
    if (cap->cap != KVM_CAP_X86_USER_SPACE_MSR || cap->flags)
        return im_refuse(EINVAL, "KVM_ENABLE_CAP %u", cap->cap);
    vm->user_msr = (u32)cap->args[0];
    return 0;
}

static int create_vcpu(struct im_vm *vm)
{
    int fd = -1;
    if (vm->vcpu)
        return im_refuse(EINVAL, "a second vCPU");
    vm->vcpu = im_vcpu_new(vm, &fd);
    vm->users += vm->vcpu != NULL;
    return fd;
}

void im_vm_release(struct im_vm *vm)
{
    if (--vm->users)
        return;
    drop_filter(vm);
    free(vm->dirty);
    free(vm);
}

int im_vm_ioctl(struct im_vm *vm, unsigned long request, void *arg)
{
    switch (request) {
    case KVM_CHECK_EXTENSION: return capability((u64)arg);
    case KVM_SET_TSS_ADDR: return 0; /* its three pages are for processors older than this one */
    case KVM_SET_USER_MEMORY_REGION: return set_memory(vm, arg);
    case KVM_GET_DIRTY_LOG: return dirty_log(vm, arg);
    case KVM_ENABLE_CAP: return enable(vm, arg);
    case KVM_X86_SET_MSR_FILTER: return set_filter(vm, arg);
    case KVM_CREATE_VCPU: return create_vcpu(vm);
    case KVM_SET_TSC_KHZ:
        if (im_options()->noscale) {
            errno = EINVAL;
            return -1;
        }
        vm->khz = (u32)(u64)arg;
        return 0;
    case KVM_GET_TSC_KHZ: return (int)vm->khz;
    default: return im_refuse(ENOTTY, "a machine does not know ioctl %lx", request);
    }
}
