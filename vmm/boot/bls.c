/*
 * Entries of the Boot Loader Specification
 * (uapi-group.org/specifications/specs/boot_loader_specification, type #1). See menu.h.
 */
#define _GNU_SOURCE /* strverscmp */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "boot/menu_internal.h"

/* A copy of [from, from + len) in which $NAME and ${NAME} are values; others stand for nothing. */
static char *expanded(const struct boot_menu *m, const char *from, size_t len)
{
    char *out = NULL;
    size_t size;
    FILE *f = open_memstream(&out, &size);
    if (!f)
        return NULL;
    for (size_t i = 0; i < len && ftell(f) < (long)BOOT_WORD_MAX; i++) {
        size_t at = i + 1 + (i + 1 < len && from[i] == '$' && from[i + 1] == '{'), n = 0;
        while (from[i] == '$' && at + n < len && (isalnum((u8)from[at + n]) || from[at + n] == '_'))
            n++;
        if (!n) {
            putc(from[i], f);
            continue;
        }
        char *name = strndup(from + at, n);
        const char *value = name ? boot_menu_variable(m, name) : NULL;
        fputs(value ? value : "", f);
        free(name);
        i = at + n - 1 + (at == i + 2 && at + n < len && from[at + n] == '}');
    }
    if (fclose(f)) {
        free(out);
        return NULL;
    }
    return out;
}

/* The next line of the form KEY VALUE, without blanks around; false at the end. */
static bool next_line(const char **at, const char *end, const char **key, size_t *key_len,
                      const char **value, size_t *value_len)
{
    while (*at < end) {
        const char *p = *at, *stop = memchr(p, '\n', (size_t)(end - p));
        stop = stop ? stop : end;
        *at = stop < end ? stop + 1 : end;
        while (p < stop && isspace((u8)*p))
            p++;
        while (stop > p && (isspace((u8)stop[-1]) || !stop[-1]))
            stop--;
        *key = p;
        while (p < stop && !isspace((u8)*p))
            p++;
        *key_len = (size_t)(p - *key);
        while (p < stop && isspace((u8)*p))
            p++;
        *value = p;
        *value_len = (size_t)(stop - p);
        if (*key_len && **key != '#' && *value_len)
            return true;
    }
    return false;
}

static bool is(const char *key, size_t len, const char *name)
{
    return strlen(name) == len && !memcmp(key, name, len);
}

/* Replaces *field; a second line of `options` is appended. */
static int put(char **field, char *value, bool append, struct err *err)
{
    char *both = value;
    if (value && append && *field && asprintf(&both, "%s %s", *field, value) < 0)
        both = NULL;
    if (both != value)
        free(value);
    if (!both)
        return boot_no_memory(err);
    free(*field);
    *field = both;
    return 0;
}

/* "(ROOT)PATH" */
static char *on_device(const char *root, const char *path)
{
    char *out;
    return asprintf(&out, "(%s)%s%s", root, *path == '/' ? "" : "/", path) < 0 ? NULL : out;
}

static int bls_initrds(struct boot_entry *e, const char *root, char *files, struct err *err)
{
    char *rest = files, *file;
    int code = files ? 0 : boot_no_memory(err);
    while (!code && (file = strsep(&rest, " \t")))
        if (*file)
            code = e->ninitrd < 64 ? boot_entry_add_initrd(e, on_device(root, file), err)
                                   : err_set(err, -EINVAL, "has too many initrds");
    free(files);
    return code;
}

static int bls_line(const struct boot_menu *m, struct boot_entry *e, const char *root,
                    const char *key, size_t len, char *value, bool *foreign, struct err *err)
{
    if (value && is(key, len, "linux")) {
        char *file = on_device(root, value);
        free(value);
        return put(&e->kernel, file, false, err);
    }
    if (is(key, len, "initrd"))
        return bls_initrds(e, root, value, err);
    if (value && is(key, len, "architecture"))
        *foreign =
            strcasecmp(value, "x64") && strcasecmp(value, "x86_64") && strcasecmp(value, "x86-64");
    char **field = is(key, len, "title")        ? &e->title
                   : is(key, len, "version")    ? &e->version
                   : is(key, len, "machine-id") ? &e->machine
                   : is(key, len, "sort-key")   ? &e->sort_key
                   : is(key, len, "options")    ? &e->options
                                                : NULL;
    if (field)
        return put(field, value, field == &e->options, err);
    free(value);
    return 0;
}

int boot_menu_bls(struct boot_menu *m, const char *name, const char *text, size_t size,
                  const char *root, struct err *err)
{
    const char *at = text, *key, *value;
    size_t key_len, value_len, len = strlen(name);
    bool foreign = false;
    if (len > 5 && !strcmp(name + len - 5, ".conf"))
        len -= 5;
    char *id = strndup(name, len);
    if (!id)
        return boot_no_memory(err);
    char *tries = strrchr(id, '+'); /* "+3-1": boots left and done, no part of the name */
    if (tries && tries[1] && strspn(tries + 1, "0123456789-") == strlen(tries + 1))
        *tries = 0;
    int n = boot_menu_add(m, -1, id, id, err);
    free(id);
    if (n < 0)
        return n;
    struct boot_entry *e = &m->entry[n];
    e->sort_key = strdup("");
    int code = e->sort_key ? 0 : boot_no_memory(err);
    while (!code && next_line(&at, text + size, &key, &key_len, &value, &value_len))
        code = bls_line(m, e, root, key, key_len, expanded(m, value, value_len), &foreign, err);
    if (!code && !e->options) /* as GRUB's blscfg does */
        code = put(&e->options, expanded(m, "$default_kernelopts", 19), false, err);
    for (size_t end = e->options ? strlen(e->options) : 0; end && e->options[end - 1] == ' ';)
        e->options[--end] = 0; /* where variables stood for nothing */
    if (code || !e->kernel || foreign)
        boot_entry_clear(&m->entry[--m->count]);
    return code;
}

static int by(const char *a, const char *b, bool version)
{
    a = a ? a : "";
    b = b ? b : "";
    return version ? -strverscmp(a, b) : strcmp(a, b);
}

static int bls_order(const void *x, const void *y)
{
    const struct boot_entry *a = x, *b = y;
    if (!a->sort_key != !b->sort_key) /* of a script: after, in its order */
        return !a->sort_key ? 1 : -1;
    if (!a->sort_key)
        return 0;
    if (!*a->sort_key != !*b->sort_key)
        return !*a->sort_key ? 1 : -1;
    int d = by(a->sort_key, b->sort_key, false);
    if (!d && *a->sort_key && !(d = by(a->machine, b->machine, false)))
        d = by(a->version, b->version, true);
    return d ? d : by(a->id, b->id, true);
}

void boot_menu_sort(struct boot_menu *m)
{
    /* Insertion: stable, and parents (indices) can be put right on the way. */
    for (size_t i = 1; i < m->count; i++) {
        for (size_t k = i; k > 0 && bls_order(&m->entry[k - 1], &m->entry[k]) > 0; k--) {
            struct boot_entry swap = m->entry[k];
            m->entry[k] = m->entry[k - 1];
            m->entry[k - 1] = swap;
            for (size_t j = 0; j < m->count; j++) {
                int p = m->entry[j].parent;
                m->entry[j].parent = p == (int)k ? (int)k - 1 : p == (int)k - 1 ? (int)k : p;
            }
        }
    }
    unsigned top = 0;
    for (size_t i = 0; i < m->count; i++)
        if (m->entry[i].parent < 0)
            m->entry[i].number = top++;
}

char *boot_loader_default(const char *text, size_t size)
{
    const char *at = text, *key, *value;
    size_t key_len, value_len;
    char *found = NULL;
    while (next_line(&at, text + size, &key, &key_len, &value, &value_len)) {
        if (!is(key, key_len, "default") || *value == '@') /* @saved: in the firmware's variables */
            continue;
        free(found);
        found = strndup(value, value_len);
        size_t len = found ? strlen(found) : 0;
        if (len > 5 && !strcmp(found + len - 5, ".conf"))
            found[len - 5] = 0;
    }
    return found;
}
