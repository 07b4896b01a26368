/* What the environment asks for, and the random numbers that decide: the same for the same seed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "imitation.h"

#include "tests/splitmix.h"

#define SKID 40u

static struct im_options options;
static _Thread_local bool spared, ran;
static u64 state;

static _Noreturn void wrong(const char *word)
{
    fprintf(stderr, "REPRISE_IMITATION: what is '%s'?\n", word);
    exit(2);
}

static u64 number(const char *word, const char *text)
{
    char *end;
    u64 v = strtoull(text, &end, 0);
    if (!*text || *end)
        wrong(word);
    return v;
}

static void set(char *word)
{
    static const struct {
        const char *name;
        u64 *value;
        bool rate;
    } values[] = {
        {"seed", &options.seed, false},        {"skid", &options.skid, false},
        {"late", &options.late, true},         {"lost", &options.lost, true},
        {"early", &options.early, true},       {"stolen", &options.stolen, true},
        {"tick", &options.tick, true},         {"suspend", &options.suspend, true},
        {"core", &options.core, true},         {"unknown", &options.unknown, true},
        {"internal", &options.internal, true}, {"fails", &options.fails, true},
    };
    static const struct {
        const char *name;
        bool *value;
    } flags[] = {
        {"nopmu", &options.nopmu},       {"noscale", &options.noscale},
        {"nostep", &options.nostep},     {"miscount", &options.miscount},
        {"speclock", &options.speclock}, {"tlb", &options.tlb},
        {"later", &options.later},
    };
    char *value = strchr(word, '=');
    for (size_t i = 0; !value && i < ARRAY_SIZE(flags); i++)
        if (!strcmp(word, flags[i].name)) {
            *flags[i].value = true;
            return;
        }
    for (size_t i = 0; value && i < ARRAY_SIZE(values); i++) {
        size_t n = strlen(values[i].name);
        if ((size_t)(value - word) != n || strncmp(word, values[i].name, n))
            continue;
        bool rate = !strncmp(value + 1, "1/", 2);
        if (rate != values[i].rate)
            wrong(word);
        *values[i].value = number(word, value + (rate ? 3 : 1));
        return;
    }
    const char *at = value ? strchr(value, '@') : NULL;
    if (at && !strncmp(word, "fail=", 5) && im_fail_known(value + 1, (size_t)(at - value - 1))) {
        options.fail = strdup(value + 1);
        options.fail_at = number(word, at + 1);
    } else if (value && !strncmp(word, "cpu=", 4))
        options.cpu = strdup(value + 1);
    else
        wrong(word);
}

const struct im_options *im_options(void)
{
    static bool known;
    if (known)
        return &options;
    known = true;
    options.skid = SKID;
    const char *text = getenv("REPRISE_IMITATION");
    char *words = strdup(text ? text : ""), *rest = words;
    for (char *word = strtok_r(words, ", ", &rest); word; word = strtok_r(NULL, ", ", &rest))
        set(word);
    free(words);
    state = options.seed;
    return &options;
}

u64 im_random(u64 below)
{
    im_options();
    u64 x = splitmix64(&state);
    return below ? x % below : 0;
}

/* The machines that the program tries the host with are smaller. */
#define TRIAL_MAX (4u << 20)

void im_options_for(const struct im_vcpu *v)
{
    ran = true;
    spared = im_options()->later && v->ram.size <= TRIAL_MAX;
}

bool im_spared(void)
{
    return spared || (!ran && im_options()->later);
}

bool im_happens(u64 one_in)
{
    return !spared && one_in && !im_random(one_in);
}

u64 im_skid(void)
{
    return im_random((spared ? SKID : im_options()->skid) + 1);
}
