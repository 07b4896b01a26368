/* The menu: entries, variables, choosing. See menu.h; what fills it are script.c and bls.c. */
#include "boot/menu_internal.h"

#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int boot_no_memory(struct err *err)
{
    return err_set(err, -ENOMEM, "no memory for the boot entries");
}

void boot_entry_clear(struct boot_entry *e)
{
    for (size_t i = 0; i < e->ninitrd; i++)
        free(e->initrd[i]);
    free(e->initrd);
    free(e->title);
    free(e->id);
    free(e->kernel);
    free(e->options);
    free(e->sort_key);
    free(e->machine);
    free(e->version);
    memset(e, 0, sizeof(*e));
}

void boot_menu_free(struct boot_menu *m)
{
    for (size_t i = 0; i < m->count; i++)
        boot_entry_clear(&m->entry[i]);
    boot_menu_forget(m, 0);
    free(m->entry);
    free(m->variable);
    memset(m, 0, sizeof(*m));
}

int boot_menu_add(struct boot_menu *m, int parent, const char *title, const char *id,
                  struct err *err)
{
    if (m->count == BOOT_ENTRIES_MAX)
        return err_set(err, -EINVAL, "has more than %u entries", BOOT_ENTRIES_MAX);
    struct boot_entry *list = realloc(m->entry, (m->count + 1) * sizeof(*list));
    if (!list)
        return boot_no_memory(err);
    m->entry = list;
    struct boot_entry *e = &list[m->count];
    memset(e, 0, sizeof(*e));
    e->title = strdup(title);
    e->id = strdup(id);
    e->parent = parent;
    if (!e->title || !e->id) {
        boot_entry_clear(e);
        return boot_no_memory(err);
    }
    for (size_t i = 0; i < m->count; i++)
        e->number += list[i].parent == parent;
    return (int)m->count++;
}

int boot_entry_add_initrd(struct boot_entry *e, char *file, struct err *err)
{
    char **list = file ? realloc(e->initrd, (e->ninitrd + 1) * sizeof(*list)) : NULL;
    if (!list) {
        free(file);
        return boot_no_memory(err);
    }
    e->initrd = list;
    list[e->ninitrd++] = file;
    return 0;
}

/* Variables */

const char *boot_menu_variable(const struct boot_menu *m, const char *name)
{
    for (size_t i = m->nvariables; i-- > 0;)
        if (!strcmp(m->variable[i].name, name))
            return m->variable[i].value;
    return NULL;
}

int boot_menu_set(struct boot_menu *m, size_t scope, const char *name, const char *value,
                  struct err *err)
{
    char *copy = value ? strdup(value) : NULL;
    if (value && !copy)
        return boot_no_memory(err);
    for (size_t i = m->nvariables; i-- > scope;) {
        if (!strcmp(m->variable[i].name, name)) {
            free(m->variable[i].value);
            m->variable[i].value = copy;
            return 0;
        }
    }
    struct boot_variable *list = NULL;
    char *key = strdup(name);
    if (key && m->nvariables < 1024)
        list = realloc(m->variable, (m->nvariables + 1) * sizeof(*list));
    if (!list) {
        free(key);
        free(copy);
        return m->nvariables < 1024 ? boot_no_memory(err)
                                    : err_set(err, -EINVAL, "sets too many variables");
    }
    m->variable = list;
    list[m->nvariables++] = (struct boot_variable){key, copy};
    return 0;
}

void boot_menu_forget(struct boot_menu *m, size_t scope)
{
    while (m->nvariables > scope) {
        struct boot_variable *v = &m->variable[--m->nvariables];
        free(v->name);
        free(v->value);
    }
}

/* Choosing */

static bool has_name(const struct boot_entry *e, const char *name)
{
    return !strcmp(e->title, name) || (*e->id && !strcmp(e->id, name));
}

/* Down to something that is no submenu. */
static int first_below(const struct boot_menu *m, int at)
{
    while (at >= 0 && m->entry[at].submenu) {
        int below = -1;
        for (size_t i = m->count; i-- > 0;)
            if (m->entry[i].parent == at && m->entry[i].number == 0)
                below = (int)i;
        at = below;
    }
    return at;
}

/* One step of "1>title": an entry of the menu `parent`. */
static int find_in(const struct boot_menu *m, int parent, const char *name, size_t len)
{
    char *end;
    unsigned long number = len && isdigit((unsigned char)*name) ? strtoul(name, &end, 10) : 0;
    bool is_number = len && isdigit((unsigned char)*name) && end == name + len;
    for (size_t i = 0; i < m->count; i++) {
        const struct boot_entry *e = &m->entry[i];
        if (e->parent != parent)
            continue;
        if (is_number ? e->number == number
                      : (strlen(e->title) == len && !memcmp(e->title, name, len)) ||
                            (len && strlen(e->id) == len && !memcmp(e->id, name, len)))
            return (int)i;
    }
    return -1;
}

int boot_menu_find(const struct boot_menu *m, const char *wanted)
{
    /* A title may contain '>', and be that of an entry deep down. */
    for (size_t i = 0; i < m->count; i++)
        if (has_name(&m->entry[i], wanted))
            return first_below(m, (int)i);
    int at = -1;
    for (const char *p = wanted;; p++) {
        size_t len = strcspn(p, ">");
        int next = find_in(m, at, p, len);
        if (next < 0)
            break;
        at = next;
        p += len;
        if (!*p)
            return first_below(m, at);
    }
    for (size_t i = 0; i < m->count && strpbrk(wanted, "*?"); i++)
        if (*m->entry[i].id && !fnmatch(wanted, m->entry[i].id, 0))
            return first_below(m, (int)i);
    return -1;
}

int boot_menu_default(const struct boot_menu *m, const char *loader_default)
{
    const char *wanted = loader_default ? loader_default : boot_menu_variable(m, "default");
    int at = wanted && *wanted ? boot_menu_find(m, wanted) : -1;
    return at >= 0 ? at : boot_menu_find(m, "0");
}

void boot_menu_place(const struct boot_menu *m, int entry, char *out, size_t size)
{
    char text[16];
    int chain[BOOT_ENTRIES_MAX], depth = 0;
    size_t used = 0;
    for (; entry >= 0; entry = m->entry[entry].parent)
        chain[depth++] = entry;
    *out = 0;
    while (depth-- > 0) {
        int n =
            snprintf(text, sizeof(text), "%s%u", used ? ">" : "", m->entry[chain[depth]].number);
        if (used + (size_t)n >= size)
            return;
        memcpy(out + used, text, (size_t)n + 1);
        used += (size_t)n;
    }
}
