/*
 * Features of CPU models (features.h): names, dependencies, what this host has. What a user or a
 * recording says of them comes in as text and is hostile.
 */
#include "cpu/features.h"

#include <cpuid.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"

enum { FIXED, FREE };

const struct cpu_feature_row cpu_feature_rows[] = {
#define FEATURE(name, word, bit, host, how, names, text)                                           \
    {FEAT_##name, CPU_##host, how == FREE, names, text},
#include "cpu/features.def"
};
const size_t cpu_feature_count = ARRAY_SIZE(cpu_feature_rows);

static const struct {
    enum cpu_feature feature, other;
} needs[] = {
#define FEATURE_NEEDS(name, other) {FEAT_##name, FEAT_##other},
#include "cpu/features.def"
};

static const struct {
    const char *names, *why;
} not_executed[] = {
#define NOT_EXECUTED(names, why) {names, why},
#include "cpu/features.def"
};

static bool has(const struct cpu_choice *c, enum cpu_feature f)
{
    return cpu_words_have(c->words, f);
}

static void set(u32 words[CPU_WORDS], enum cpu_feature f, bool on)
{
    u32 bit = 1u << f % 32;
    words[f / 32] = on ? words[f / 32] | bit : words[f / 32] & ~bit;
}

/* ---- names ---- */

/* "SSE4.1" and "sse4-1" are sse4_1. */
static char plain(char c)
{
    return c == '-' || c == '.' ? '_' : (char)tolower((unsigned char)c);
}

static bool is_one_of(const char *name, const char *names)
{
    for (size_t n; *names; names += n + (names[n] == '|')) {
        n = strcspn(names, "|");
        size_t i = 0;
        while (i < n && name[i] && plain(name[i]) == names[i])
            i++;
        if (n && i == n && !name[i])
            return true;
    }
    return false;
}

void cpu_feature_name(const struct cpu_feature_row *r, char out[CPU_FEATURE_NAME])
{
    snprintf(out, CPU_FEATURE_NAME, "%.*s", (int)strcspn(r->names, "|"), r->names);
}

static const struct cpu_feature_row *row_of(enum cpu_feature f)
{
    const struct cpu_feature_row *r = cpu_feature_rows;
    while (r->feature != f)
        r++;
    return r;
}

static const struct cpu_feature_row *row_named(const char *name)
{
    for (size_t i = 0; i < cpu_feature_count; i++)
        if (is_one_of(name, cpu_feature_rows[i].names))
            return &cpu_feature_rows[i];
    return NULL;
}

/* ---- what is said of names that are not there ---- */

static int no_feature(const char *name, struct err *err)
{
    char first[ARRAY_SIZE(cpu_feature_rows)][CPU_FEATURE_NAME];
    const char *names[ARRAY_SIZE(cpu_feature_rows)];
    for (size_t i = 0; i < ARRAY_SIZE(not_executed); i++)
        if (is_one_of(name, not_executed[i].names))
            return err_set(err, -EINVAL, "%s is not executed here%s%s", name,
                           *not_executed[i].why ? ": " : ", on any host", not_executed[i].why);
    for (size_t i = 0; i < cpu_feature_count; i++) {
        cpu_feature_name(&cpu_feature_rows[i], first[i]);
        names[i] = cpu_feature_rows[i].free ? first[i] : NULL;
    }
    char plainly[2 * CPU_FEATURE_NAME] = "";
    for (size_t i = 0; name[i] && i + 1 < sizeof(plainly); i++)
        plainly[i] = plain(name[i]);
    const char *near = text_nearest(plainly, names, cpu_feature_count, sizeof(names[0]));
    return err_set(err, -EINVAL, "there is no feature '%s'%s%s%s", name, near ? "; is " : "",
                   near ? near : "", near ? " meant?" : " (`reprise cpu list` has their names)");
}

static int no_model(const char *name, struct err *err)
{
    const char *names[CPU_MODEL_LAST + 1] = {"host"};
    for (enum cpu_model m = CPU_MODEL_FIRST; m <= CPU_MODEL_LAST; m++)
        names[m] = cpu_model_name(m);
    const char *near = text_nearest(name, names, ARRAY_SIZE(names), sizeof(names[0]));
    return err_set(err, -EINVAL, "there is no model '%s'%s%s%s", name, near ? "; is " : "",
                   near ? near : "", near ? " meant?" : " (`reprise cpu list` has them)");
}

/* ---- changes ---- */

/* What of `c` cannot be without f, or (up) what f needs and `c` lacks; f first or last. */
static void gather(const struct cpu_choice *c, enum cpu_feature f, bool up, u32 out[CPU_WORDS])
{
    set(out, f, true);
    for (size_t i = 0; i < ARRAY_SIZE(needs); i++) {
        enum cpu_feature from = up ? needs[i].feature : needs[i].other;
        enum cpu_feature to = up ? needs[i].other : needs[i].feature;
        if (from == f && has(c, to) != up && !cpu_words_have(out, to))
            gather(c, to, up, out);
    }
}

static void list(const u32 words[CPU_WORDS], const char *sign, const char *between, char *out,
                 size_t size)
{
    size_t n = 0;
    *out = 0;
    for (size_t i = 0; i < cpu_feature_count; i++) {
        char name[CPU_FEATURE_NAME];
        cpu_feature_name(&cpu_feature_rows[i], name);
        if (cpu_words_have(words, cpu_feature_rows[i].feature) && n < size)
            n += (size_t)snprintf(out + n, size - n, "%s%s%s", n ? between : "", sign, name);
    }
}

/* Nothing without what it needs. `off`: what was turned off. */
static int check_needs(const struct cpu_choice *c, const u32 off[CPU_WORDS], struct err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(needs); i++) {
        enum cpu_feature f = needs[i].feature, other = needs[i].other;
        char name[CPU_FEATURE_NAME], lacks[CPU_FEATURE_NAME], all[CPU_CHANGES];
        u32 words[CPU_WORDS] = {0};
        if (!has(c, f) || has(c, other))
            continue;
        cpu_feature_name(row_of(f), name);
        cpu_feature_name(row_of(other), lacks);
        bool up = !cpu_words_have(off, other);
        gather(c, up ? f : other, up, words);
        list(words, up ? "+" : "-", ",", all, sizeof(all));
        if (up)
            return err_set(err, -EINVAL, "%s needs %s, which the model %s lacks: %s", name, lacks,
                           cpu_model_name(c->model), all);
        return err_set(err, -EINVAL, "%s needs %s: to be without, %s", name, lacks, all);
    }
    return 0;
}

void cpu_add(struct cpu_choice *c, enum cpu_feature f)
{
    u32 more[CPU_WORDS] = {0};
    gather(c, f, true, more);
    for (size_t i = 0; i < CPU_WORDS; i++)
        c->words[i] |= more[i];
}

/* One of "+name" and "-name". */
static int change_one(const char *word, struct cpu_choice *c, u32 on[CPU_WORDS], u32 off[CPU_WORDS],
                      struct err *err)
{
    bool plus = *word == '+';
    if (!plus && *word != '-')
        return err_set(err, -EINVAL,
                       "'%s' is neither +FEATURE nor -FEATURE: MODEL,+aes,-avx2 is the form", word);
    const struct cpu_feature_row *r = row_named(word + 1);
    if (!r)
        return no_feature(word + 1, err);
    if (cpu_words_have(on, r->feature) || cpu_words_have(off, r->feature))
        return err_set(err, -EINVAL, "%s is there twice", word + 1);
    if (!r->free && has(c, r->feature) != plus)
        return err_set(err, -EINVAL,
                       plus ? "%s cannot be turned on: it is a part of what a model is"
                            : "%s cannot be turned off: no machine here is without it",
                       word + 1);
    set(plus ? on : off, r->feature, true);
    set(c->words, r->feature, plus);
    return 0;
}

static int change(const char *changes, struct cpu_choice *c, struct err *err)
{
    u32 on[CPU_WORDS] = {0}, off[CPU_WORDS] = {0};
    for (const char *at = changes; *changes;) {
        char word[1 + 2 * CPU_FEATURE_NAME];
        size_t n = strcspn(at, ",");
        if (n >= sizeof(word))
            return err_set(err, -EINVAL, "there is no feature '%.40s...'", at);
        snprintf(word, sizeof(word), "%.*s", (int)n, at);
        int code = change_one(word, c, on, off, err);
        if (code)
            return code;
        if (!at[n])
            break;
        at += n + 1;
    }
    return check_needs(c, off, err);
}

static void as_model(enum cpu_model model, struct cpu_choice *c)
{
    c->model = model;
    memcpy(c->words, cpu_model_words(model), sizeof(c->words));
}

int cpu_change(enum cpu_model model, const char *changes, struct cpu_choice *out, struct err *err)
{
    as_model(model, out);
    return change(changes, out, err);
}

void cpu_changes_text(const struct cpu_choice *c, char out[CPU_CHANGES])
{
    const u32 *model = cpu_model_words(c->model);
    size_t n = 0;
    *out = 0;
    for (size_t i = 0; i < cpu_feature_count; i++) {
        const struct cpu_feature_row *r = &cpu_feature_rows[i];
        char name[CPU_FEATURE_NAME];
        cpu_feature_name(r, name);
        if (has(c, r->feature) != cpu_words_have(model, r->feature) && n < CPU_CHANGES)
            n += (size_t)snprintf(out + n, CPU_CHANGES - n, "%s%c%s", n ? "," : "",
                                  has(c, r->feature) ? '+' : '-', name);
    }
}

const char *cpu_not_free(const struct cpu_choice *c)
{
    const u32 *model = cpu_model_words(c->model);
    if (has(c, FEAT_AVX512F))
        return "AVX-512's registers are not taken out of KVM (--engine=dbt executes it)";
    if (has(c, FEAT_RDRAND) || has(c, FEAT_RDSEED))
        return "RDRAND and RDSEED would be the host's own, and KVM has no exit for them";
    for (size_t i = 0; i < CPU_WORDS; i++)
        if (model[i] & ~c->words[i])
            return "instructions that are turned off would be executed by the host's CPU";
    return NULL;
}

/* ---- this host ---- */

static bool test_lacks(const struct cpu_feature_row *r)
{
    /* For tests: "aes|avx", what this host is to lack. */
    const char *names = getenv("REPRISE_TEST_LACKS");
    char name[CPU_FEATURE_NAME];
    cpu_feature_name(r, name);
    return names && *name && is_one_of(name, names);
}

static bool host_bit(enum cpu_feature f)
{
    enum { REG_none = -1, REG_eax, REG_ebx, REG_ecx, REG_edx };
    static const struct {
        u32 leaf;
        u8 subleaf;
        i8 reg;
    } words[CPU_WORDS] = {
#define CPU_WORD(word, leaf, subleaf, reg) [CPU_WORD_##word] = {leaf, subleaf, REG_##reg},
#include "cpu/features.def"
    };
    u32 r[4] = {0};
    return words[f / 32].reg >= 0 &&
           __get_cpuid_count(words[f / 32].leaf, words[f / 32].subleaf, &r[0], &r[1], &r[2],
                             &r[3]) &&
           (r[words[f / 32].reg] >> f % 32 & 1);
}

/* Does its kernel keep these components of the state (XCR0)? */
static bool host_keeps(u32 components)
{
    u32 r[4] = {0}, lo, hi;
    if (!components)
        return true;
    if (!__get_cpuid(1, &r[0], &r[1], &r[2], &r[3]) || !(r[2] >> 27 & 1)) /* OSXSAVE */
        return false;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (lo & components) == components;
}

/* What its kernel has to keep for it. */
static u32 state_of(enum cpu_feature f)
{
    return f == FEAT_AVX       ? XCR0_SSE | XCR0_AVX
           : f == FEAT_AVX512F ? XCR0_SSE | XCR0_AVX | XCR0_AVX512
                               : 0;
}

static bool host_has(const struct cpu_feature_row *r)
{
    return host_bit(r->feature) && !test_lacks(r) && host_keeps(state_of(r->feature));
}

bool cpu_host_executes(const struct cpu_feature_row *r)
{
    return r->host == CPU_OURS || host_has(r);
}

void cpu_host_missing(const u32 words[CPU_WORDS], u32 missing[CPU_WORDS])
{
    memset(missing, 0, CPU_WORDS * sizeof(*missing));
    for (size_t i = 0; i < cpu_feature_count; i++) {
        const struct cpu_feature_row *r = &cpu_feature_rows[i];
        if (r->host == CPU_NATIVE && cpu_words_have(words, r->feature) && !host_has(r))
            set(missing, r->feature, true);
    }
}

void cpu_host_lacks_all(const u32 words[CPU_WORDS], char *out, size_t size)
{
    u32 missing[CPU_WORDS];
    size_t n = 0;
    *out = 0;
    cpu_host_missing(words, missing);
    for (size_t i = 0; i < cpu_feature_count; i++)
        if (cpu_words_have(missing, cpu_feature_rows[i].feature) && n < size)
            n += (size_t)snprintf(out + n, size - n, "%s%s", n ? ", " : "",
                                  cpu_feature_rows[i].text);
}

const char *cpu_host_lacks(const u32 words[CPU_WORDS])
{
    u32 missing[CPU_WORDS];
    cpu_host_missing(words, missing);
    for (size_t i = 0; i < cpu_feature_count; i++) {
        const struct cpu_feature_row *r = &cpu_feature_rows[i];
        if (!cpu_words_have(missing, r->feature))
            continue;
        if (!host_bit(r->feature) || test_lacks(r))
            return r->text;
        return r->feature == FEAT_AVX ? "AVX state (enabled by the host's kernel)"
                                      : "AVX-512 state (enabled by the host's kernel)";
    }
    return NULL;
}

/* `host`: the highest level that this host has, and of what may be chosen all that it has besides.
 */
static void choose_host(struct cpu_choice *c)
{
    static const enum cpu_model levels[] = {CPU_X86_64_V4, CPU_X86_64_V3, CPU_X86_64_V2,
                                            CPU_X86_64_V1};
    size_t k = 0;
    while (k + 1 < ARRAY_SIZE(levels) && cpu_host_lacks(cpu_model_words(levels[k])))
        k++;
    as_model(levels[k], c);
    for (size_t i = 0; i < cpu_feature_count; i++)
        if (cpu_feature_rows[i].free && host_has(&cpu_feature_rows[i]))
            set(c->words, cpu_feature_rows[i].feature, true);
    bool whole;
    do {
        whole = true;
        for (size_t i = 0; i < ARRAY_SIZE(needs); i++)
            if (has(c, needs[i].feature) && !has(c, needs[i].other)) {
                set(c->words, needs[i].feature, false);
                whole = false;
            }
    } while (!whole);
}

int cpu_choose(const char *text, struct cpu_choice *out, struct err *err)
{
    char name[64];
    size_t n = strcspn(text, ",");
    const char *changes = text[n] ? text + n + 1 : "";
    if (text[n] && !*changes)
        return err_set(err, -EINVAL, "'%.64s' ends with a comma", text);
    snprintf(name, sizeof(name), "%.*s", (int)MIN(n, sizeof(name) - 1), text);
    if (!strcmp(name, "host"))
        choose_host(out);
    else if (cpu_model_find(name) == CPU_MODEL_NONE)
        return no_model(name, err);
    else
        as_model(cpu_model_find(name), out);
    return change(changes, out, err);
}
