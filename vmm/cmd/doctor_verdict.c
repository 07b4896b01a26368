/* What follows from the facts: see doctor.h. */
#include <stdio.h>
#include <string.h>

#include "cmd/doctor.h"

/* Facts that must be there, in the order in which their lack explains more. */
struct need {
    const char *key;
    const char *lack; /* what is wrong then; the fact's note follows */
};

static const struct need dbt_needs[] = {
    {"dbt.v2", "no model of a CPU fits this one"},
    {"dbt.engine", "it does not run"},
};

/* For a tiny guest, and more for Linux. */
static const struct need kvm_needs[] = {
    {"kvm.device", "no /dev/kvm"},
    {"kvm.api", "KVM's interface is of another version"},
    {"kvm.vm", "KVM makes no virtual machine"},
    {"kvm.caps", "KVM lacks capabilities"},
    {"kvm.guest", "no guest starts"},
};
static const struct need step_needs[] = {
    {"step.ring0", "no single steps in ring 0"},
};
static const struct need step_linux_needs[] = {
    {"step.ring3", "no single steps in ring 3"},
    {"kvm.linux", "KVM does not run all that Linux executes"},
};
static const struct need pmu_needs[] = {
    {"pmu.counter", "no exact counter of branches"},
    {"tsc.offset", "the guest's TSC cannot be set"},
    {"tsc.scaling", "the guest's TSC cannot be slowed down"},
    {"tsc.still", "the guest's TSC does not stand still"},
    {"step.ring0", "no single steps in ring 0"},
    {"step.ring3", "no single steps in ring 3"},
};
static const struct need pmu_linux_needs[] = {
    {"kvm.linux", "KVM does not run all that Linux executes"},
};

/* The first that is lacking, in words; false: none is. */
static bool lacks(const struct facts *f, const struct need *needs, size_t n, char *out, size_t size)
{
    for (size_t i = 0; i < n; i++) {
        const struct fact *fact = fact_find(f, needs[i].key);
        if (fact && fact->state == FACT_YES)
            continue;
        const char *why = fact ? fact->note : "not tested";
        snprintf(out, size, "%s%s%s", needs[i].lack, *why ? ": " : "", why);
        return true;
    }
    return false;
}

#define LACKS(f, needs, out, size) lacks(f, needs, ARRAY_SIZE(needs), out, size)

static void judge_dbt(const struct facts *f, struct verdict *v)
{
    char why[sizeof(v->text) - 32];
    *v = (struct verdict){.engine = "dbt"};
    v->stock = v->tiny = !LACKS(f, dbt_needs, why, sizeof(why));
    if (v->stock)
        snprintf(v->text, sizeof(v->text), "records Linux; needs nothing of this host but its CPU");
    else
        snprintf(v->text, sizeof(v->text), "no: %s", why);
}

static void judge_kvm(const struct facts *f, struct verdict *v, bool pmu)
{
    char why[sizeof(v->text) - 48];
    *v = (struct verdict){.engine = "kvm", .counter = pmu ? "pmu" : "step"};
    v->tiny =
        !LACKS(f, kvm_needs, why, sizeof(why)) &&
        !(pmu ? LACKS(f, pmu_needs, why, sizeof(why)) : LACKS(f, step_needs, why, sizeof(why)));
    if (!v->tiny) {
        snprintf(v->text, sizeof(v->text), "no: %s", why);
        return;
    }
    v->stock = !(pmu ? LACKS(f, pmu_linux_needs, why, sizeof(why))
                     : LACKS(f, step_linux_needs, why, sizeof(why)));
    if (!v->stock)
        snprintf(v->text, sizeof(v->text), "tiny guests, no Linux: %s", why);
    else
        snprintf(v->text, sizeof(v->text), "records Linux, %s",
                 pmu ? "at the hardware's speed"
                     : "exactly and slowly: every instruction is a step");
}

void doctor_verdicts(const struct facts *f, struct verdict out[DOCTOR_VERDICTS])
{
    judge_dbt(f, &out[0]);
    judge_kvm(f, &out[1], false);
    judge_kvm(f, &out[2], true);
}

void doctor_advice(const struct facts *f, char *out, size_t size)
{
    struct verdict v[DOCTOR_VERDICTS];
    char why[400];
    const struct fact *guest = fact_find(f, "host.hypervisor");
    bool inside = guest && !strncmp(guest->value, "yes", 3);
    doctor_verdicts(f, v);
    if (!v[0].stock)
        snprintf(out, size, "the portable engine: %s", v[0].text);
    else if (v[2].stock)
        snprintf(out, size, "nothing: this host has all that Reprise can use");
    else if (LACKS(f, kvm_needs, why, sizeof(why)))
        snprintf(out, size, "%s", why);
    else if (!fact_yes(f, "kvm.linux"))
        snprintf(out, size, "%s",
                 inside
                     ? "a host with hardware virtualization: the KVM of this one, which is a guest "
                       "itself, emulates what it does not know (nested virtualization is its "
                       "owner's to switch on)"
                     : "virtualization in the firmware (VT-x, AMD-V): this KVM emulates");
    else if (LACKS(f, pmu_needs, why, sizeof(why)))
        snprintf(out, size, "%s", why);
    else
        snprintf(out, size, "nothing that is known");
}
