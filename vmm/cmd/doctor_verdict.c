/* What follows from the facts: see doctor.h. */
#include <stdio.h>
#include <string.h>

#include "cmd/doctor.h"

#define BOOT     1e9 /* instructions of a Linux boot */
#define PATIENCE 60  /* minutes for one */

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
static const struct need pmu_needs[] = {
    {"pmu.counter", "no exact counter of branches"},
    {"tsc.offset", "the guest's TSC cannot be set"},
    {"tsc.scaling", "the guest's TSC cannot be slowed down"},
    {"tsc.still", "the guest's TSC does not stand still"},
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
        snprintf(v->text, sizeof(v->text), "Linux; it needs nothing of this host but its CPU");
    else
        snprintf(v->text, sizeof(v->text), "no: %s", why);
}

/* What KVM does not step or execute, dbt does: one ring is enough. What counts is the time. */
static void judge_step(const struct facts *f, struct verdict *v)
{
    char why[sizeof(v->text) - 64];
    const struct fact *speed = fact_find(f, "step.speed");
    *v = (struct verdict){.engine = "kvm", .counter = "step"};
    if (LACKS(f, kvm_needs, why, sizeof(why))) {
        snprintf(v->text, sizeof(v->text), "no: %s", why);
        return;
    }
    v->tiny = fact_yes(f, "step.ring0") || fact_yes(f, "step.ring3");
    if (!v->tiny) {
        const struct fact *ring = fact_find(f, "step.ring0");
        snprintf(v->text, sizeof(v->text), "no: no single steps in any ring: %s",
                 ring ? ring->note : "not tested");
        return;
    }
    double rate = speed && speed->number > 0 ? speed->number : 1, minutes = BOOT / rate / 60;
    v->stock = minutes < PATIENCE;
    snprintf(
        v->text, sizeof(v->text),
        "%s exactly, every instruction is a step: %.0f k instructions/s at most, so that a boot "
        "takes %.0f %s or more",
        v->stock ? "Linux," : "tiny guests,", rate / 1e3, minutes < 100 ? minutes : minutes / 60,
        minutes < 100 ? "minutes" : "hours");
}

static void judge_pmu(const struct facts *f, struct verdict *v)
{
    char why[sizeof(v->text) - 64];
    *v = (struct verdict){.engine = "kvm", .counter = "pmu"};
    v->tiny = !LACKS(f, kvm_needs, why, sizeof(why)) && !LACKS(f, pmu_needs, why, sizeof(why));
    v->stock = v->tiny && !LACKS(f, pmu_linux_needs, why, sizeof(why));
    if (v->stock)
        snprintf(
            v->text, sizeof(v->text),
            "Linux, at the hardware's speed: the counter is exact here and the TSC stands still. "
            "record takes this by itself");
    else
        snprintf(v->text, sizeof(v->text), "%s%s",
                 v->tiny ? "tiny guests, no Linux: " : "no: ", why);
}

void doctor_verdicts(const struct facts *f, struct verdict out[DOCTOR_VERDICTS])
{
    judge_dbt(f, &out[0]);
    judge_step(f, &out[1]);
    judge_pmu(f, &out[2]);
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

/* needs: without it the facts are those of an imitation. */
static const struct {
    const char *what, *keys[4], *needs, *lack;
} proofs[DOCTOR_PROOFS] = {
    {"counts the guest only",
     {"pmu.exact.ring0", "pmu.exits.ring0", "pmu.exact.ring3", "pmu.exits.ring3"},
     NULL,
     "not seen here: no counter of branches"},
    {"counts LOOP and JRCXZ",
     {"pmu.insns.ring0", "pmu.insns.ring3"},
     NULL,
     "not seen here: no counter of branches"},
    {"steps in REP and MOV SS",
     {"step.rep", "step.mov_ss"},
     "kvm.linux",
     "not seen here: KVM emulates, or runs no guest"},
    {"TSC that stands still",
     {"tsc.still"},
     NULL,
     "not seen here: a guest's TSC cannot be slowed down"},
    {"Linux boot, both engines", {NULL}, NULL, "not tried here: make check-hardware does"},
};

static enum fact_state proved(const struct facts *f, const char *key)
{
    const struct fact *fact = fact_find(f, key);
    if (!fact || fact->state != FACT_INFO)
        return fact ? (enum fact_state)fact->state : FACT_UNTESTED;
    /* step.mov_ss: a CPU stops after the next instruction. */
    return strncmp(fact->value, "after the next", 14) ? FACT_NO : FACT_YES;
}

void doctor_proofs(const struct facts *f, struct proof out[DOCTOR_PROOFS])
{
    for (unsigned i = 0; i < DOCTOR_PROOFS; i++) {
        enum fact_state state = proofs[i].keys[0] ? FACT_YES : FACT_UNTESTED;
        if (proofs[i].needs && !fact_yes(f, proofs[i].needs))
            state = FACT_UNTESTED;
        for (unsigned k = 0; k < ARRAY_SIZE(proofs[i].keys) && proofs[i].keys[k]; k++) {
            enum fact_state one = proved(f, proofs[i].keys[k]);
            if (state == FACT_YES || (state == FACT_NO && one == FACT_UNTESTED))
                state = one;
        }
        out[i] = (struct proof){.what = proofs[i].what,
                                .text = state == FACT_YES  ? "so on this host"
                                        : state == FACT_NO ? "not so on this host"
                                                           : proofs[i].lack,
                                .state = state};
    }
}
