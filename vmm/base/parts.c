/* See parts.h. */
#include "base/parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool has(const struct part *p, unsigned kind)
{
    return !p->of || p->of & kind;
}

static void put_name(const struct part *p, FILE *out)
{
    fprintf(out, "%s%s%s", p->name, p->arg ? "=" : "", p->arg ? p->arg : "");
}

/* "a=N, b": those that the kind has. */
static void put_list(const struct parts *parts, unsigned kind, FILE *out)
{
    const char *between = "";
    for (unsigned i = 0; i < parts->n; i++) {
        if (!has(&parts->row[i], kind))
            continue;
        fputs(between, out);
        put_name(&parts->row[i], out);
        between = ", ";
    }
}

/* Those that only kind I - 1 has; of all kinds: I is 0, or kinds have no names. */
static bool in_group(const struct parts *parts, const struct part *p, unsigned i)
{
    return i ? p->of >> (i - 1) & 1 : !p->of || !parts->kinds;
}

static void put_group(const struct parts *parts, unsigned kind, unsigned group, bool more,
                      FILE *out)
{
    const char *between = more ? "; " : "";
    bool first = true;
    for (unsigned i = 0; i < parts->n; i++) {
        const struct part *p = &parts->row[i];
        if (!has(p, kind) || !in_group(parts, p, group))
            continue;
        fputs(between, out);
        if (group && first)
            fprintf(out, "of %s ", parts->kinds[group - 1]);
        put_name(p, out);
        if (p->help)
            fprintf(out, " (%s)", p->help);
        between = ", ";
        first = false;
    }
}

char *parts_help(const struct parts *parts, unsigned kind, const char *text)
{
    char *all = NULL;
    size_t size, n = strcspn(text, "%");
    FILE *out = open_memstream(&all, &size);
    if (!out)
        return NULL;
    fprintf(out, "%.*s", (int)n, text);
    for (unsigned group = 0; group <= parts->nkinds; group++)
        put_group(parts, kind, group, group, out);
    fputs(text + n + (text[n] == '%'), out);
    return fclose(out) ? (free(all), NULL) : all;
}

static bool named(const struct part *p, const char *text, size_t n)
{
    return strlen(p->name) == n && !memcmp(p->name, text, n);
}

/* What is said of a part, of `name` bytes of `n`, that is none of this kind. */
static int unknown(const struct parts *parts, unsigned kind, const char *text, size_t name, int n,
                   const char *others, struct err *err)
{
    char all[512] = "";
    for (unsigned i = 0; i < parts->n; i++) {
        const struct part *p = &parts->row[i];
        for (unsigned k = 0; k < parts->nkinds && named(p, text, name); k++)
            if (p->of >> k & 1)
                return err_set(err, -EINVAL, "'%.*s': %s goes with %s", n, text, p->name,
                               parts->kinds[k]);
    }
    FILE *out = fmemopen(all, sizeof(all), "w");
    if (out) {
        put_list(parts, kind, out);
        fclose(out);
    }
    return err_set(err, -EINVAL, "there is no option '%.*s' (%s%s%s)", n, text, others,
                   *others && *all ? ", " : "", all);
}

static int read_one(const struct parts *parts, unsigned kind, const char *text, size_t n,
                    const char *others, unsigned count[32], void *to, struct err *err)
{
    int shown = (int)MIN(n, (size_t)200);
    const char *equals = memchr(text, '=', n);
    size_t name = equals ? (size_t)(equals - text) : n;
    for (unsigned i = 0; i < parts->n; i++) {
        const struct part *p = &parts->row[i];
        if (!has(p, kind) || !named(p, text, name))
            continue;
        if (count[i]++ && !p->most)
            return err_set(err, -EINVAL, "%s is given twice", p->name);
        if (p->most && count[i] > p->most)
            return err_set(err, -EINVAL, "at most %u of %s", p->most, p->name);
        if (!equals == !p->arg &&
            p->read(p, (u8 *)to + p->offset, equals ? equals + 1 : "", equals ? n - name - 1 : 0))
            return 0;
        return err_set(err, -EINVAL, "'%.*s': %s is %s", shown, text, p->name,
                       !p->arg    ? "without a value"
                       : p->takes ? p->takes
                                  : p->arg);
    }
    return unknown(parts, kind, text, name, shown, others, err);
}

int parts_read(const struct parts *parts, unsigned kind, const char *text, const char *others,
               void *to, struct err *err)
{
    unsigned count[32] = {0};
    int code = 0;
    while (*text == ',' && !code) {
        size_t n = strcspn(++text, ",");
        code = read_one(parts, kind, text, n, others, count, to, err);
        text += n;
    }
    return code;
}

bool part_flag(const struct part *p, void *field, const char *value, size_t n)
{
    (void)p, (void)value, (void)n;
    *(bool *)field = true;
    return true;
}

bool part_on_off(const struct part *p, void *field, const char *value, size_t n)
{
    (void)p;
    *(bool *)field = n == 2 && !memcmp(value, "on", 2);
    return *(bool *)field || (n == 3 && !memcmp(value, "off", 3));
}

bool part_number(const struct part *p, void *field, const char *value, size_t n)
{
    u64 v = 0;
    for (size_t i = 0; i < n; i++) {
        if (value[i] < '0' || value[i] > '9' || v > UINT32_MAX)
            return false;
        v = 10 * v + (u64)(value[i] - '0');
    }
    *(u32 *)field = (u32)v;
    return n && v >= p->least && v <= p->at_most;
}

bool part_text(const struct part *p, void *field, const char *value, size_t n)
{
    if (!n || n >= p->size)
        return false;
    memcpy(field, value, n);
    ((char *)field)[n] = 0;
    return true;
}
