/* System calls of a good host that fail: options `fail=CALL@N`, the Nth, and `fails=1/N`, any. */
#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <string.h>

#include "imitation.h"

/* Those that the engine needs while the guest runs. */
static const struct {
    unsigned long request;
    const char *name;
} calls[] = {
    {KVM_RUN, "KVM_RUN"},
    {KVM_GET_REGS, "KVM_GET_REGS"},
    {KVM_SET_REGS, "KVM_SET_REGS"},
    {KVM_GET_SREGS, "KVM_GET_SREGS"},
    {KVM_SET_SREGS, "KVM_SET_SREGS"},
    {KVM_GET_VCPU_EVENTS, "KVM_GET_VCPU_EVENTS"},
    {KVM_SET_VCPU_EVENTS, "KVM_SET_VCPU_EVENTS"},
    {KVM_GET_DEBUGREGS, "KVM_GET_DEBUGREGS"},
    {KVM_SET_DEBUGREGS, "KVM_SET_DEBUGREGS"},
    {KVM_GET_MSRS, "KVM_GET_MSRS"},
    {KVM_SET_MSRS, "KVM_SET_MSRS"},
    {KVM_GET_XCRS, "KVM_GET_XCRS"},
    {KVM_SET_XCRS, "KVM_SET_XCRS"},
    {KVM_GET_XSAVE, "KVM_GET_XSAVE"},
    {KVM_SET_XSAVE, "KVM_SET_XSAVE"},
    {KVM_SET_GUEST_DEBUG, "KVM_SET_GUEST_DEBUG"},
    {KVM_SET_SIGNAL_MASK, "KVM_SET_SIGNAL_MASK"},
    {KVM_SET_DEVICE_ATTR, "KVM_SET_DEVICE_ATTR"},
    {KVM_GET_DIRTY_LOG, "KVM_GET_DIRTY_LOG"},
    {PERF_EVENT_IOC_PERIOD, "PERF_EVENT_IOC_PERIOD"},
    {IM_PERF_READ, "read"},
};

bool im_fail_known(const char *name, size_t len)
{
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
        if (strlen(calls[i].name) == len && !strncmp(calls[i].name, name, len))
            return true;
    return false;
}

bool im_fails(unsigned long request)
{
    static u64 count;
    const struct im_options *o = im_options();
    const char *name = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(calls) && !name; i++)
        if (calls[i].request == request)
            name = calls[i].name;
    if (!name || im_spared())
        return false;
    size_t n = strlen(name);
    bool this = o->fail && !strncmp(o->fail, name, n) && o->fail[n] == '@';
    if (!(this && ++count == o->fail_at) && !im_happens(o->fails))
        return false;
    fprintf(stderr, "imitation: %s fails\n", name);
    errno = ENOMEM;
    return true;
}
