/* The CPU model, by cpu.def, and performance counters: see plan.h. */
#include "libvirt/plan.h"

#include <string.h>

#include "cpu/model.h"

static const struct {
    const char *name;
    enum cpu_model ours;
    bool exact;
} models[] = {
#define CPU_MODEL(name, ours, exact) {name, ours, exact},
#include "libvirt/cpu.def"
};

static const struct {
    const char *name;
    enum cpu_feature feature;
} features[] = {
#define CPU_NAME(name, feature) {name, FEAT_##feature},
#include "libvirt/cpu.def"
};

static const char *const absent[] = {
#define CPU_ABSENT(name) name,
#include "libvirt/cpu.def"
};

static bool has(enum cpu_model model, const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(features); i++)
        if (!strcmp(features[i].name, name))
            return cpu_model_has(model, features[i].feature);
    return false;
}

static bool missed(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(absent); i++)
        if (!strcmp(absent[i], name))
            return false;
    return true;
}

static void take_features(struct plan *p, xmlNodePtr cpu, enum cpu_model model)
{
    char name[64], what[160], how[160];
    for (xmlNodePtr f = xml_find(cpu, "feature"); f; f = xml_next(f)) {
        xml_attribute(f, "name", name, sizeof(name));
        snprintf(what, sizeof(what), "<feature name='%s'>", name);
        if (xml_is(f, "policy", "disable|forbid")) {
            if (!has(model, name))
                continue;
            snprintf(how, sizeof(how), "the model %s has it", cpu_model_name(model));
            plan_otherwise(p, what, how, "--cpu MODEL of one without (`record --cpu help`)");
        } else if (!xml_is(f, "policy", "optional") && !has(model, name) && missed(name)) {
            snprintf(how, sizeof(how), "the model %s has it not", cpu_model_name(model));
            plan_left(p, what, how, "--cpu MODEL of one that has it (`record --cpu help`)");
        }
    }
}

/* The host's own CPU is not what a recording can be replayed on elsewhere. */
static enum cpu_model take_host(struct plan *p, xmlNodePtr cpu)
{
    enum cpu_model model = cpu_model_host_lacks(CPU_X86_64_V3) ? CPU_X86_64_V2 : CPU_X86_64_V3;
    char what[160], how[200];
    snprintf(how, sizeof(how), "the model is %s, so that the recording replays on other hosts",
             cpu_model_name(model));
    plan_otherwise(p, plan_what(cpu, what, sizeof(what)), how,
                   "--cpu MODEL for another one (`record --cpu help`)");
    return model;
}

static enum cpu_model take_model(struct plan *p, xmlNodePtr cpu)
{
    char name[64], what[160], how[160];
    xmlNodePtr model = xml_find(cpu, "model");
    if (xml_is(cpu, "mode", "host-passthrough|host-model|maximum"))
        return take_host(p, cpu);
    if (!*xml_text(model, name, sizeof(name)))
        return CPU_X86_64_V2;
    size_t i = 0;
    while (strncmp(models[i].name, name, strlen(models[i].name)))
        i++; /* the last row fits all */
    if (!models[i].exact) {
        snprintf(what, sizeof(what), "<cpu> %s", name);
        snprintf(how, sizeof(how), "the model is %s", cpu_model_name(models[i].ours));
        plan_otherwise(p, what, how, "--cpu MODEL for another one (`record --cpu help`)");
    }
    if (xml_has(model, "vendor_id"))
        plan_otherwise(p, "<model vendor_id>", "the CPU's maker is the model's", "nothing");
    return models[i].ours;
}

void take_cpu(struct plan *p)
{
    xmlNodePtr cpu = xml_find(p->domain, "cpu"), pmu = xml_find(p->domain, "features/pmu");
    enum cpu_model model = cpu ? take_model(p, cpu) : CPU_X86_64_V2;
    bool counts = cpu_model_pmu(model)->kind != PMU_KIND_NONE;
    if (cpu) {
        plan_option(p, "cpu", cpu_model_name(model), "<cpu>");
        take_features(p, cpu, model);
    }
    if (pmu && xml_is(pmu, "state", "off")) {
        if (counts)
            plan_option(p, "pmu", "off", "<pmu>");
    } else if (pmu && !counts) {
        plan_left(p, "<pmu>", "the CPU model has no performance counters",
                  "--cpu MODEL of one that has some (docs/counters.md)");
    }
}
