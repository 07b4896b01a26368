/* See pmu_event.h. */
#include "cpu/kvm/pmu_event.h"

#include <cpuid.h>
#include <string.h>

enum { INTEL_CORE, INTEL_ICE, INTEL_ALDER, INTEL_ATOM, AMD_ZEN };

/* BR_INST_RETIRED.CONDITIONAL and its kin; on Zen EX_RET_COND, and SPEC_LOCK_MAP_COMMIT: while the
 * CPU maps locks speculatively, branches are counted more than once. */
static const struct pmu_event events[] = {
    [INTEL_CORE] = {"Intel Nehalem to Comet Lake", 0x5101c4, 100, false, 0},
    [INTEL_ICE] = {"Intel Ice Lake to Rocket Lake", 0x5111c4, 100, false, 0},
    [INTEL_ALDER] = {"Intel Alder Lake, Sapphire Rapids and later", 0x5111c4, 125, false, 0},
    [INTEL_ATOM] = {"Intel Atom, Silvermont to Crestmont", 0x517ec4, 100, false, 0},
    [AMD_ZEN] = {"AMD Zen", 0x5100d1, 10000, true, 0x510825},
};

/* Models of Intel's family 6. */
static const struct {
    u8 model, event;
} intel[] = {
    {0x1a, INTEL_CORE},  {0x1e, INTEL_CORE},  {0x1f, INTEL_CORE},
    {0x2e, INTEL_CORE},                                           /* Nehalem */
    {0x25, INTEL_CORE},  {0x2c, INTEL_CORE},  {0x2f, INTEL_CORE}, /* Westmere */
    {0x2a, INTEL_CORE},  {0x2d, INTEL_CORE},                      /* Sandy Bridge */
    {0x3a, INTEL_CORE},  {0x3e, INTEL_CORE},                      /* Ivy Bridge */
    {0x3c, INTEL_CORE},  {0x3f, INTEL_CORE},  {0x45, INTEL_CORE},
    {0x46, INTEL_CORE}, /* Haswell */
    {0x3d, INTEL_CORE},  {0x47, INTEL_CORE},  {0x4f, INTEL_CORE},
    {0x56, INTEL_CORE},                                           /* Broadwell */
    {0x4e, INTEL_CORE},  {0x5e, INTEL_CORE},  {0x55, INTEL_CORE}, /* Skylake, Cascade Lake */
    {0x8e, INTEL_CORE},  {0x9e, INTEL_CORE},                      /* Kaby Lake, Coffee Lake */
    {0x66, INTEL_CORE},                                           /* Cannon Lake */
    {0xa5, INTEL_CORE},  {0xa6, INTEL_CORE},                      /* Comet Lake */
    {0x6a, INTEL_ICE},   {0x6c, INTEL_ICE},   {0x7d, INTEL_ICE},
    {0x7e, INTEL_ICE},   {0x9d, INTEL_ICE},                        /* Ice Lake */
    {0x8c, INTEL_ICE},   {0x8d, INTEL_ICE},                        /* Tiger Lake */
    {0xa7, INTEL_ICE},                                             /* Rocket Lake */
    {0x97, INTEL_ALDER}, {0x9a, INTEL_ALDER},                      /* Alder Lake */
    {0xb7, INTEL_ALDER}, {0xba, INTEL_ALDER}, {0xbf, INTEL_ALDER}, /* Raptor Lake */
    {0xaa, INTEL_ALDER}, {0xac, INTEL_ALDER},                      /* Meteor Lake */
    {0x8f, INTEL_ALDER}, {0xcf, INTEL_ALDER},                      /* Sapphire, Emerald Rapids */
    {0xad, INTEL_ALDER}, {0xae, INTEL_ALDER},                      /* Granite Rapids */
    {0x37, INTEL_ATOM},  {0x4a, INTEL_ATOM},  {0x4d, INTEL_ATOM},
    {0x5a, INTEL_ATOM},  {0x5d, INTEL_ATOM},                      /* Silvermont */
    {0x4c, INTEL_ATOM},  {0x75, INTEL_ATOM},                      /* Airmont */
    {0x5c, INTEL_ATOM},  {0x5f, INTEL_ATOM},  {0x7a, INTEL_ATOM}, /* Goldmont, Goldmont Plus */
    {0x86, INTEL_ATOM},  {0x96, INTEL_ATOM},  {0x9c, INTEL_ATOM}, /* Tremont */
    {0xbe, INTEL_ATOM},                                           /* Gracemont */
    {0xaf, INTEL_ATOM},  {0xb6, INTEL_ATOM},                      /* Crestmont */
};

void pmu_cpu_read(struct pmu_cpu *out)
{
    u32 max, a, b, c, d;
    memset(out, 0, sizeof(*out));
    __cpuid(0, max, b, c, d);
    memcpy(out->vendor, &b, 4);
    memcpy(out->vendor + 4, &d, 4);
    memcpy(out->vendor + 8, &c, 4);
    __cpuid(1, a, b, c, d);
    out->stepping = a & 15;
    out->family = a >> 8 & 15;
    out->model = a >> 4 & 15;
    if (out->family == 6 || out->family == 15)
        out->model |= a >> 12 & 0xf0;
    if (out->family == 15)
        out->family += a >> 20 & 0xff;
    out->hypervisor = c >> 31;
    if (max >= 7) {
        __cpuid_count(7, 0, a, b, c, d);
        out->hybrid = d >> 15 & 1;
    }
    if (out->hybrid && max >= 0x1a) {
        __cpuid_count(0x1a, 0, a, b, c, d);
        out->core = a >> 24;
    }
}

const struct pmu_event *pmu_event_find(const struct pmu_cpu *cpu)
{
    bool amd = !strcmp(cpu->vendor, "AuthenticAMD"), hygon = !strcmp(cpu->vendor, "HygonGenuine");
    if (amd && (cpu->family == 0x17 || cpu->family == 0x19 || cpu->family == 0x1a))
        return &events[AMD_ZEN];
    if (hygon && cpu->family == 0x18)
        return &events[AMD_ZEN];
    if (strcmp(cpu->vendor, "GenuineIntel") || cpu->family != 6)
        return NULL;
    for (size_t i = 0; i < ARRAY_SIZE(intel); i++)
        if (intel[i].model == cpu->model)
            return &events[cpu->hybrid && cpu->core == PMU_CORE_ATOM ? INTEL_ATOM : intel[i].event];
    return NULL;
}
