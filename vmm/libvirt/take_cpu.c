/* The CPU model, by cpu.def, and performance counters: see plan.h. */
#include "libvirt/plan.h"

#include <string.h>

#include "cpu/features.h"

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

/* Our name of a feature that libvirt calls so; "": none of ours. */
static void our_name(const char *name, char out[CPU_FEATURE_NAME])
{
    *out = 0;
    for (size_t i = 0; i < ARRAY_SIZE(features); i++)
        for (size_t r = 0; !strcmp(features[i].name, name) && r < cpu_feature_count; r++)
            if (cpu_feature_rows[r].feature == features[i].feature)
                cpu_feature_name(&cpu_feature_rows[r], out);
}

static bool has(const struct cpu_choice *c, const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(features); i++)
        if (!strcmp(features[i].name, name))
            return cpu_words_have(c->words, features[i].feature);
    return false;
}

static bool missed(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(absent); i++)
        if (!strcmp(absent[i], name))
            return false;
    return true;
}

/* The choice with the feature more or less, if there is such a CPU here; else why not. */
static bool changed(struct cpu_choice *c, char sign, const char *name, char *why, size_t size)
{
    char text[CPU_CHANGES], ours[CPU_FEATURE_NAME];
    struct cpu_choice next;
    struct err err;
    our_name(name, ours);
    cpu_changes_text(c, text);
    size_t n = strlen(text);
    if (!*ours) {
        snprintf(why, size, "no CPU model here has it");
        return false;
    }
    snprintf(text + n, sizeof(text) - n, "%s%c%s", n ? "," : "", sign, ours);
    if (cpu_change(c->model, text, &next, &err)) {
        snprintf(why, size, "%s", err.text);
        return false;
    }
    const char *lacks = cpu_host_lacks(next.words);
    if (lacks) {
        snprintf(why, size, "this host has no %s", lacks);
        return false;
    }
    *c = next;
    return true;
}

static void take_features(struct plan *p, xmlNodePtr cpu, struct cpu_choice *c)
{
    char name[64], what[160], how[sizeof(((struct err *)0)->text)];
    for (xmlNodePtr f = xml_find(cpu, "feature"); f; f = xml_next(f)) {
        bool off = xml_is(f, "policy", "disable|forbid");
        xml_attribute(f, "name", name, sizeof(name));
        snprintf(what, sizeof(what), "<feature name='%s'>", name);
        if (off == has(c, name) && (off || missed(name)) &&
            !changed(c, off ? '-' : '+', name, how, sizeof(how)) &&
            !xml_is(f, "policy", "optional"))
            (off ? plan_otherwise
                 : plan_left)(p, what, how, "--cpu MODEL,+FEATURE,-FEATURE (`reprise cpu list`)");
    }
}

/* The host's own CPU is not what a recording can be replayed on elsewhere. */
static enum cpu_model take_host(struct plan *p, xmlNodePtr cpu)
{
    enum cpu_model model =
        cpu_host_lacks(cpu_model_words(CPU_X86_64_V3)) ? CPU_X86_64_V2 : CPU_X86_64_V3;
    char what[160], how[200];
    snprintf(how, sizeof(how), "the model is %s, so that the recording replays on other hosts",
             cpu_model_name(model));
    plan_otherwise(p, plan_what(cpu, what, sizeof(what)), how,
                   "--cpu MODEL for another one (`reprise cpu list`)");
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
        plan_otherwise(p, what, how, "--cpu MODEL for another one (`reprise cpu list`)");
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
        struct cpu_choice choice;
        struct err none;
        char text[64 + CPU_CHANGES], changes[CPU_CHANGES];
        cpu_change(model, "", &choice, &none);
        take_features(p, cpu, &choice);
        cpu_changes_text(&choice, changes);
        snprintf(text, sizeof(text), "%s%s%s", cpu_model_name(model), *changes ? "," : "", changes);
        plan_option(p, "cpu", text, "<cpu>");
    }
    if (pmu && xml_is(pmu, "state", "off")) {
        if (counts)
            plan_option(p, "pmu", "off", "<pmu>");
    } else if (pmu && !counts) {
        plan_left(p, "<pmu>", "the CPU model has no performance counters",
                  "--cpu MODEL of one that has some (docs/counters.md)");
    }
}
