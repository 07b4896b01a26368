/* See options.h. */
#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static bool number(const char *text, u32 *value)
{
    char *end;
    unsigned long v = strtoul(text, &end, 10);
    *value = (u32)v;
    return *text >= '0' && *text <= '9' && !*end && v <= 0x7fffffff;
}

static bool option(struct options *o, const char *word)
{
    char after;
    if (!strncmp(word, "frames=", 7))
        return number(word + 7, &o->frames) && o->frames;
    if (!strncmp(word, "every=", 6))
        return number(word + 6, &o->every) && o->every;
    if (!strncmp(word, "bug=", 4))
        return number(word + 4, &o->planted) && o->planted;
    if (!strncmp(word, "size=", 5))
        return sscanf(word + 5, "%4ux%4u%c", &o->width, &o->height, &after) == 2;
    if (strcmp(word, "endless"))
        return false;
    o->frames = 0;
    return true;
}

static bool wrong_option(struct options *o, const char *word)
{
    u32 seed;
    if (!strncmp(word, "random=", 7))
        return number(word + 7, &o->random) && o->random;
    if (!strncmp(word, "seed=", 5)) {
        bool good = number(word + 5, &seed);
        o->seed = seed;
        return good;
    }
    o->wrong |= !strcmp(word, "wrong");
    o->flood |= !strcmp(word, "flood");
    return !strcmp(word, "wrong") || !strcmp(word, "flood");
}

enum status options_parse(struct options *o, const char *name, bool wrong, int count, char **words)
{
    for (int i = 0; i < count; i++)
        if (!option(o, words[i]) && !(wrong && wrong_option(o, words[i]))) {
            printf("%s: '%s' is none of frames=N endless every=N size=WxH bug=N%s\n", name,
                   words[i], wrong ? " wrong flood random=N seed=N" : "");
            return BAD_WORD;
        }
    return RIGHT;
}

bool options_check(const struct options *o, u32 n)
{
    return n == 1 || n % o->every == 0 || n == o->frames || n == o->planted;
}

double options_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
