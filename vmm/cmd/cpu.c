/* `reprise cpu`: the CPU models and features that a machine may have, and what runs on this host.
 */
#include "cmd/cpu.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cmd/cmd.h"
#include "cpu/features.h"

enum { O_JSON = 256 };

static const struct argp_option options[] = {
    {"json", O_JSON, NULL, 0, "Print the result as JSON", 0},
    {0},
};

static const char list_doc[] =
    "Lists the CPU models, which of them run on this host, and the features that `--cpu "
    "MODEL,+FEATURE,-FEATURE` turns on and off.\vExit codes: 0 success; 2 wrong usage.";
static const char show_doc[] =
    "Shows what a CPU is to its guest: numbers, features, performance counters, and CPUID's leaves "
    "as they are at power-on with one CPU (those that are not all zero).\vExit codes: 0 success; 2 "
    "wrong usage, or no such CPU.";

struct args {
    const char *cpu;
    bool shows, json;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct args *a = state->input;
    switch (key) {
    case O_JSON: a->json = true; break;
    case ARGP_KEY_ARG:
        if (!a->shows || a->cpu)
            argp_error(state, "'%s' belongs to no option", arg);
        a->cpu = arg;
        break;
    case ARGP_KEY_END:
        if (a->shows && !a->cpu)
            argp_error(state, "MODEL is missing (`reprise cpu list` has them)");
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* ---- list ---- */

/* The levels first, by number; then the others as they came. */
static enum cpu_model model_at(unsigned i)
{
    static const u8 levels[] = {CPU_X86_64_V1, CPU_X86_64_V2, CPU_X86_64_V3, CPU_X86_64_V4};
    return i < ARRAY_SIZE(levels) ? levels[i]
                                  : (enum cpu_model)(CPU_NEHALEM + i - ARRAY_SIZE(levels));
}

enum { MODELS = CPU_MODEL_LAST - CPU_MODEL_FIRST + 1 };

void cpu_text(const struct cpu_choice *c, char out[CPU_TEXT])
{
    char changes[CPU_CHANGES];
    cpu_changes_text(c, changes);
    snprintf(out, CPU_TEXT, "%s%s%s", cpu_model_name(c->model), *changes ? "," : "", changes);
}

static void host_text(char out[CPU_TEXT])
{
    struct cpu_choice host;
    struct err err;
    *out = 0;
    if (!cpu_choose("host", &host, &err)) /* it is made of what may be chosen */
        cpu_text(&host, out);
}

static void list_print(void)
{
    char lacks[256], host[CPU_TEXT];
    host_text(host);
    printf("%-16s %-10s %-5s %s\n", "MODEL", "or", "here", "is");
    for (unsigned i = 0; i < MODELS; i++) {
        enum cpu_model m = model_at(i);
        const char *alias = cpu_model_alias(m);
        cpu_host_lacks_all(cpu_model_words(m), lacks, sizeof(lacks));
        printf("%-16s %-10s %-5s %s%s%s\n", cpu_model_name(m), alias ? alias : "",
               *lacks ? "no" : "yes", cpu_model_brand(m), *lacks ? "; this CPU lacks " : "", lacks);
    }
    printf("%-16s %-10s %-5s %s\n", "host", "", "yes", host);
    printf("\n%-16s %-5s %s\n", "FEATURE", "here", "is (--cpu MODEL,+FEATURE,-FEATURE)");
    for (size_t i = 0; i < cpu_feature_count; i++) {
        const struct cpu_feature_row *r = &cpu_feature_rows[i];
        char name[CPU_FEATURE_NAME];
        cpu_feature_name(r, name);
        if (r->free)
            printf("%-16s %-5s %s\n", name, cpu_host_executes(r) ? "yes" : "no", r->text);
    }
}

void cpu_option(struct argp_state *state, const char *arg, struct cpu_choice *out)
{
    struct err err;
    if (!strcmp(arg, "help")) {
        list_print();
        exit(EX_FINE);
    }
    if (cpu_choose(arg, out, &err))
        argp_error(state, "--cpu: %s", err.text);
}

static void json_names(const char *names)
{
    fputc('[', stdout);
    for (size_t n; *names; names += n + (names[n] == '|')) {
        n = strcspn(names, "|");
        json_string(stdout, names, n);
        fputs(names[n] ? "," : "", stdout);
    }
    fputc(']', stdout);
}

static void json_words(const char *key, const u32 words[CPU_WORDS])
{
    const char *between = "";
    printf("\"%s\":[", key);
    for (size_t i = 0; i < cpu_feature_count; i++) {
        char name[CPU_FEATURE_NAME];
        cpu_feature_name(&cpu_feature_rows[i], name);
        if (*name && cpu_words_have(words, cpu_feature_rows[i].feature)) {
            printf("%s\"%s\"", between, name);
            between = ",";
        }
    }
    fputc(']', stdout);
}

static void json_lacks(const u32 words[CPU_WORDS])
{
    u32 missing[CPU_WORDS];
    cpu_host_missing(words, missing);
    printf("\"here\":%s,", cpu_host_lacks(words) ? "false" : "true");
    json_words("lacks", missing);
}

static void list_json(void)
{
    char host[CPU_TEXT];
    const char *between = "";
    host_text(host);
    printf("{\"models\":[");
    for (unsigned i = 0; i < MODELS; i++) {
        enum cpu_model m = model_at(i);
        printf("%s{\"name\":\"%s\",\"alias\":", i ? "," : "", cpu_model_name(m));
        if (cpu_model_alias(m))
            printf("\"%s\"", cpu_model_alias(m));
        else
            fputs("null", stdout);
        printf(",\"brand\":\"%s\",", cpu_model_brand(m));
        json_lacks(cpu_model_words(m));
        fputc('}', stdout);
    }
    printf("],\"host\":\"%s\",\"features\":[", host);
    for (size_t i = 0; i < cpu_feature_count; i++) {
        const struct cpu_feature_row *r = &cpu_feature_rows[i];
        if (!r->free)
            continue;
        printf("%s{\"names\":", between);
        json_names(r->names);
        printf(",\"is\":\"%s\",\"here\":%s,\"of_host\":%s}", r->text,
               cpu_host_executes(r) ? "true" : "false", r->host == CPU_NATIVE ? "true" : "false");
        between = ",";
    }
    puts("]}");
}

static int cmd_list(int argc, char **argv)
{
    static const struct argp argp = {.options = options, .parser = parse, .doc = list_doc};
    struct args a = {0};
    option_parse(&argp, argc, argv, &a);
    if (a.json)
        list_json();
    else
        list_print();
    return EX_FINE;
}

/* ---- show ---- */

/* Calls `fn` for each leaf that is not all zero. */
static void each_leaf(const struct cpu_choice *c,
                      void (*fn)(u32 leaf, u32 subleaf, const struct cpuid_result *r, bool first))
{
    const struct cpuid_live live = {.words = c->words,
                                    .xcr0 = 1,
                                    .apic_enabled = true,
                                    .pmu = cpu_model_pmu(c->model)->kind != PMU_KIND_NONE};
    static const u32 bases[] = {0, 0x40000000, 0x80000000};
    bool first = true;
    for (size_t b = 0; b < ARRAY_SIZE(bases); b++) {
        struct cpuid_result last, r;
        cpu_model_cpuid(c->model, bases[b], 0, &live, &last);
        for (u32 leaf = bases[b]; leaf <= last.eax; leaf++) {
            bool parts = leaf == 4 || leaf == 7 || leaf == 0xb || leaf == 0xd || leaf == 0x8000001d;
            for (u32 sub = 0; sub < (parts ? 8u : 1u); sub++) {
                cpu_model_cpuid(c->model, leaf, sub, &live, &r);
                /* Beyond the last level leaf 0xb has its number in ECX still. */
                if (!(r.eax | r.ebx | r.edx) && (r.ecx == sub || !r.ecx))
                    continue;
                fn(leaf, sub, &r, first);
                first = false;
            }
        }
    }
}

static void leaf_line(u32 leaf, u32 subleaf, const struct cpuid_result *r, bool first)
{
    printf("%s %08x.%x  %08x %08x %08x %08x\n", first ? "CPUID       " : "            ", leaf,
           subleaf, r->eax, r->ebx, r->ecx, r->edx);
}

static void leaf_json(u32 leaf, u32 subleaf, const struct cpuid_result *r, bool first)
{
    printf("%s{\"leaf\":%u,\"subleaf\":%u,\"eax\":%u,\"ebx\":%u,\"ecx\":%u,\"edx\":%u}",
           first ? "" : ",", leaf, subleaf, r->eax, r->ebx, r->ecx, r->edx);
}

struct about {
    char maker[13], changes[CPU_CHANGES];
    u32 family, number, stepping;
};

static void about(const struct cpu_choice *c, struct about *out)
{
    struct cpuid_live live = {0};
    struct cpuid_result r;
    *out = (struct about){.family = 0};
    cpu_changes_text(c, out->changes);
    cpu_model_cpuid(c->model, 0, 0, &live, &r);
    const u32 maker[3] = {r.ebx, r.edx, r.ecx};
    memcpy(out->maker, maker, sizeof(maker));
    cpu_model_cpuid(c->model, 1, 0, &live, &r);
    out->family = r.eax >> 8 & 15;
    if (out->family == 15)
        out->family += r.eax >> 20 & 0xff;
    out->number = (r.eax >> 4 & 15) | (r.eax >> 12 & 0xf0);
    out->stepping = r.eax & 15;
}

static void show(const struct cpu_choice *c)
{
    const struct model_pmu *p = cpu_model_pmu(c->model);
    char lacks[256];
    struct about a;
    about(c, &a);
    cpu_host_lacks_all(c->words, lacks, sizeof(lacks));
    printf("model        %s, %s\n", cpu_model_name(c->model), cpu_model_brand(c->model));
    if (*a.changes)
        printf("changed      %s\n", a.changes);
    printf("numbers      %s, family %u, model %u, stepping %u\n", a.maker, a.family, a.number,
           a.stepping);
    printf("here         %s%s\n", *lacks ? "no: this CPU lacks " : "yes", lacks);
    if (cpu_not_free(c))
        printf("engines      not kvm with the counter pmu: %s\n", cpu_not_free(c));
    printf("features    ");
    for (size_t i = 0; i < cpu_feature_count; i++) {
        char name[CPU_FEATURE_NAME];
        cpu_feature_name(&cpu_feature_rows[i], name);
        if (cpu_words_have(c->words, cpu_feature_rows[i].feature))
            printf("%s%s", *name ? " " : "", name);
    }
    if (p->kind == PMU_KIND_NONE)
        printf("\ncounters     none\n");
    else
        printf("\ncounters     %u of any event, %u fixed, %u bits\n", p->general, p->fixed,
               p->width);
    each_leaf(c, leaf_line);
}

static void show_json(const struct cpu_choice *c)
{
    const struct model_pmu *p = cpu_model_pmu(c->model);
    struct about a;
    about(c, &a);
    printf("{\"model\":\"%s\",\"brand\":\"%s\",\"changed\":\"%s\",\"maker\":\"%s\",\"family\":%u,"
           "\"number\":%u,\"stepping\":%u,",
           cpu_model_name(c->model), cpu_model_brand(c->model), a.changes, a.maker, a.family,
           a.number, a.stepping);
    json_lacks(c->words);
    printf(",\"kvm_pmu\":%s,", cpu_not_free(c) ? "false" : "true");
    json_words("features", c->words);
    printf(",\"counters\":{\"general\":%u,\"fixed\":%u,\"width\":%u},\"cpuid\":[", p->general,
           p->fixed, p->width);
    each_leaf(c, leaf_json);
    puts("]}");
}

static int cmd_show(int argc, char **argv)
{
    static const struct argp argp = {.options = options,
                                     .parser = parse,
                                     .args_doc = "MODEL[,+FEATURE][,-FEATURE]",
                                     .doc = show_doc};
    struct args a = {.shows = true};
    struct cpu_choice c;
    struct err err;
    option_parse(&argp, argc, argv, &a);
    if (cpu_choose(a.cpu, &c, &err)) {
        cmd_fail(&err);
        return EX_BAD_USAGE;
    }
    if (a.json)
        show_json(&c);
    else
        show(&c);
    return EX_FINE;
}

static const struct verb verbs[] = {
    {"list", cmd_list, 0, "the models and features, and what runs on this host"},
    {"show", cmd_show, 0, "one of them: numbers, features, counters, CPUID"},
};

int cmd_cpu(int argc, char **argv)
{
    struct verb_choice c = {.verbs = verbs, .n = ARRAY_SIZE(verbs), .what = "verb"};
    verb_choose(&c, "What CPU a machine may have (`record --cpu`, `run --cpu`).",
                "`reprise cpu VERB --help` says more about each.", argc, argv);
    return verb_run(&c, "reprise cpu");
}
