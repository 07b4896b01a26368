/* Can the guest's TSC be made to stand still (pmu_tsc.h)? See probe.h. */
#include <errno.h>
#include <inttypes.h>
#include <linux/kvm.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#include "cpu/kvm/pmu_tsc.h"
#include "cpu/kvm/probe.h"
#include "cpu/kvm/probe_vm.h"
#include "host/clock.h"

/*
 *     rdtsc; shl rdx, 32; or rax, rdx; mov rsi, rax
 * 1:  rdtsc; shl rdx, 32; or rax, rdx; cmp rax, rsi; je 2
 *     inc r8; mov rsi, rax
 * 2:  dec rcx; jnz 1
 *     out PROBE_PORT, al; again
 */
static const u8 code[] = {0x0f, 0x31, 0x48, 0xc1, 0xe2, 0x20,       0x48, 0x09, 0xd0, 0x48, 0x89,
                          0xc6, 0x0f, 0x31, 0x48, 0xc1, 0xe2,       0x20, 0x48, 0x09, 0xd0, 0x48,
                          0x39, 0xf0, 0x74, 0x06, 0x49, 0xff,       0xc0, 0x48, 0x89, 0xc6, 0x48,
                          0xff, 0xc9, 0x75, 0xe7, 0xe6, PROBE_PORT, 0xeb, 0xfc};

#define RUN_NS 200000000u /* so long the TSC is watched */

static int slow_down(struct probe_vm *v, struct err *err)
{
    if (ioctl(v->vcpu, KVM_SET_TSC_KHZ, PMU_TSC_KHZ))
        return err_errno(err, "KVM_SET_TSC_KHZ");
    return 0;
}

/* Until the code's end: 0, *changes: how often the guest saw another value, *last: the last. */
static int watch(struct probe_vm *v, struct pmu_tsc *t, u64 *changes, u64 *last, struct err *err)
{
    struct kvm_regs r;
    u64 until, began = host_ns();
    int stop;
    do {
        int result = pmu_tsc_enter(t, &until, err);
        if (result)
            return result;
        pmu_kvm_ops.kick_at(&v->host, until);
        stop = pmu_kvm_ops.run(&v->host, err);
        pmu_kvm_ops.kick_at(&v->host, NEVER);
        result = stop < 0 ? stop : pmu_tsc_left(t, err);
        if (result)
            return result;
    } while (stop == PMU_STOP_SIGNAL && host_ns() - began < RUN_NS);
    int result = probe_vm_regs(v, &r, err);
    *changes = r.r8;
    *last = r.rsi;
    return result;
}

static void stands_still(struct facts *f, struct probe_vm *v)
{
    struct pmu_tsc t;
    struct err err = {0};
    u64 changes = 0, last = 0, value = 0x123456789abull;
    int result = 0;
    for (unsigned ring = 0; !result && !changes && ring <= 3; ring += 3) {
        result = probe_vm_load(v, code, sizeof(code), ring, UINT64_MAX, 0, &err);
        if (!result)
            result = pmu_tsc_init(&t, &pmu_kvm_ops, &v->host, &err);
        if (result)
            break;
        pmu_tsc_set(&t, value);
        result = watch(v, &t, &changes, &last, &err);
    }
    bool still = !result && !changes && last == value;
    struct fact *fact =
        fact_add(f, "tsc.still", still ? FACT_YES : FACT_NO, "%s", still ? "yes" : "no");
    if (still)
        fact_note(fact, "%" PRIu64 " slices, waited %" PRIu64 " us for ticks", t.slices,
                  t.waited_ns / 1000);
    else if (result)
        fact_note(fact, "%s", err.text);
    else
        fact_note(fact, "the guest saw %" PRIu64 " changes, the last to %" PRIu64, changes, last);
}

void probe_tsc(struct facts *f)
{
    struct probe_vm v;
    struct err err = {0};
    struct kvm_device_attr attr = {.group = KVM_VCPU_TSC_CTRL, .attr = KVM_VCPU_TSC_OFFSET};
    if (probe_vm_open(&v, NULL, &err)) {
        fact_note(fact_add(f, "tsc.offset", FACT_UNTESTED, "not tested"), "%s", err.text);
        return;
    }
    bool offset = !ioctl(v.vcpu, KVM_HAS_DEVICE_ATTR, &attr);
    bool scaling = ioctl(v.kvm, KVM_CHECK_EXTENSION, KVM_CAP_TSC_CONTROL) > 0;
    int khz = ioctl(v.vcpu, KVM_GET_TSC_KHZ, 0);
    probe_vm_close(&v);
    fact_note(fact_add(f, "tsc.offset", offset ? FACT_YES : FACT_NO, "%s", offset ? "yes" : "no"),
              "%s", offset ? "" : "KVM_VCPU_TSC_OFFSET: Linux 5.16 and later have it");
    if (khz > 0)
        fact_number(fact_add(f, "tsc.khz", FACT_INFO, "%d kHz", khz), khz);
    if (scaling && probe_vm_open(&v, slow_down, &err)) {
        fact_note(fact_add(f, "tsc.scaling", FACT_NO, "no"), "%s", err.text);
        return;
    }
    fact_note(
        fact_add(f, "tsc.scaling", scaling ? FACT_YES : FACT_NO, "%s", scaling ? "yes" : "no"),
        "%s", scaling ? "" : "KVM_CAP_TSC_CONTROL: the CPU, or the hypervisor around it, lacks it");
    if (!scaling)
        return;
    if (offset)
        stands_still(f, &v);
    probe_vm_close(&v);
}
