/* What the commands of GRUB's script do that count for what is booted. See script.h. */
#define _GNU_SOURCE /* asprintf */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "boot/script.h"

/* Sets what `len` bytes of name say. */
static int set_bytes(struct script *s, const char *name, size_t len, const char *value)
{
    char *copy = strndup(name, len);
    if (!copy)
        return boot_no_memory(s->err);
    int code = boot_menu_set(s->m, s->scope, copy, value, s->err);
    free(copy);
    return code;
}

/* NAME=VALUE; other words are none of its business. */
static int assign(struct script *s, const char *word)
{
    const char *equals = strchr(word, '=');
    return equals ? set_bytes(s, word, (size_t)(equals - word), equals + 1) : 0;
}

/* grubenv: lines NAME=VALUE ('\' before '\' and line ends), padded with '#'. */
static int load_env(struct script *s, const struct script_words *w)
{
    size_t first = 1;
    while (first < w->count && w->list[first][0] == '-') /* --skip-sig, --file F, -f F */
        first += !strcmp(w->list[first], "-f") || !strcmp(w->list[first], "--file") ? 2 : 1;
    int code = 0;
    s->status = !s->env;
    if (!s->env)
        return 0;
    const char *p = s->env, *end = s->env + s->env_size;
    while (p < end && !code) {
        const char *equals = NULL, *start = p;
        char *value = malloc((size_t)(end - p) + 1);
        size_t len = 0;
        if (!value)
            return boot_no_memory(s->err);
        for (; p < end && *p != '\n'; p++) {
            if (*p == '\\' && p + 1 < end)
                p++;
            if (!equals && *p == '=')
                equals = p;
            else if (equals && len < BOOT_WORD_MAX)
                value[len++] = *p;
        }
        value[len] = 0;
        p += p < end;
        bool wanted = equals && *start != '#' && first >= w->count;
        for (size_t i = first; equals && i < w->count; i++)
            wanted = wanted || (strlen(w->list[i]) == (size_t)(equals - start) &&
                                !memcmp(w->list[i], start, (size_t)(equals - start)));
        code = script_pay(s, s->text, (u64)(p - start) + SCRIPT_WORD_COSTS);
        if (!code && wanted)
            code = set_bytes(s, start, (size_t)(equals - start), value);
        free(value);
    }
    return code;
}

/* search [--fs-uuid|--label|--file] [--set[=VAR]] [--hint...] [--no-floppy] NAME; search.fs_uuid
 * NAME VAR HINT */
static int search(struct script *s, const struct script_words *w)
{
    const char *kind = "file", *variable = NULL, *name = NULL;
    bool plain = w->list[0][6] == '.';
    if (plain)
        kind = !strcmp(w->list[0], "search.fs_uuid")    ? "uuid"
               : !strcmp(w->list[0], "search.fs_label") ? "label"
                                                        : "file";
    for (size_t i = 1; i < w->count; i++) {
        const char *word = w->list[i];
        if (plain || word[0] != '-') {
            if (plain && name) {
                variable = word;
                break;
            }
            name = word;
        } else if (!strcmp(word, "--fs-uuid") || !strcmp(word, "-u")) {
            kind = "uuid";
        } else if (!strcmp(word, "--label") || !strcmp(word, "--fs-label") || !strcmp(word, "-l")) {
            kind = "label";
        } else if (!strcmp(word, "--file") || !strcmp(word, "-f")) {
            kind = "file";
        } else if (!strncmp(word, "--set=", 6)) {
            variable = word + 6;
        } else if (!strcmp(word, "--set") || !strcmp(word, "-s")) {
            /* The variable may follow; the last word is what is looked for. */
            if (i + 2 < w->count && w->list[i + 1][0] != '-')
                variable = w->list[++i];
            else
                variable = "root";
        } else if (!strcmp(word, "--hint") || !strcmp(word, "-h")) {
            i++;
        }
    }
    s->status = !name;
    if (!name)
        return 0;
    char *where;
    if (asprintf(&where, "%s:%s", kind, name) < 0)
        return boot_no_memory(s->err);
    int code = variable || plain
                   ? boot_menu_set(s->m, s->scope, variable ? variable : "root", where, s->err)
                   : 0;
    free(where);
    return code;
}

/* "(DEVICE)/PATH"; without a device it is on $root. NULL: no memory. */
static char *whole_path(const struct script *s, const char *path)
{
    const char *root = boot_menu_variable(s->m, "root");
    char *out;
    if (*path == '(')
        return strdup(path);
    return asprintf(&out, "(%s)%s%s", root ? root : "", *path == '/' ? "" : "/", path) < 0 ? NULL
                                                                                           : out;
}

/* linux [--OPTION...] FILE WORD...; words with blanks get quotes, as GRUB gives them. */
static int start_linux(struct script *s, const struct script_words *w)
{
    size_t first = 1, size;
    while (first < w->count && !strncmp(w->list[first], "--", 2))
        first++;
    if (s->entry < 0 || first >= w->count)
        return 0;
    struct boot_entry *e = &s->m->entry[s->entry];
    free(e->kernel);
    free(e->options);
    e->options = NULL;
    e->kernel = whole_path(s, w->list[first]);
    FILE *f = open_memstream(&e->options, &size);
    for (size_t i = first + 1; f && i < w->count; i++) {
        const char *quote = strpbrk(w->list[i], " \t") ? "\"" : "";
        fprintf(f, "%s%s%s%s", i > first + 1 ? " " : "", quote, w->list[i], quote);
    }
    if (!f || fclose(f) || !e->kernel)
        return boot_no_memory(s->err);
    return 0;
}

static int start_initrd(struct script *s, const struct script_words *w)
{
    int code = 0;
    if (s->entry < 0)
        return 0;
    struct boot_entry *e = &s->m->entry[s->entry];
    for (size_t i = 1; i < w->count && !code; i++) {
        if (e->ninitrd >= 64)
            return err_set(s->err, -EINVAL, "has too many initrds");
        if (strncmp(w->list[i], "--", 2))
            code = boot_entry_add_initrd(e, whole_path(s, w->list[i]), s->err);
    }
    return code;
}

static bool one_of(const char *word, const char *const *list)
{
    while (*list && strcmp(*list, word))
        list++;
    return *list;
}

/* One command that has no block. */
int script_command(struct script *s, const char *at, struct script_words *w)
{
    static const char *const linuxes[] = {"linux", "linux16", "linuxefi", NULL},
                             *const initrds[] = {"initrd", "initrd16", "initrdefi", NULL},
                             *const works[] = {"insmod",         "echo",     "export",
                                               "true",           "save_env", "terminal_output",
                                               "terminal_input", "set",      "loadfont",
                                               "clear",          ":",        NULL};
    const char *name = w->list[0], *equals = strchr(name, '=');
    struct script_words args = {w->list + 1, w->count - 1};
    int code = script_pay(s, at, s->m->nvariables + s->nfunctions);
    if (code)
        return code;
    for (size_t i = s->nfunctions; i-- > 0;)
        if (!strcmp(s->function[i].name, name))
            return script_run(s, (struct script_cursor){s->function[i].body, s->function[i].end},
                              &args, false);
    s->status = 0;
    if (!strcmp(name, "[") || !strcmp(name, "test")) {
        bool bracket = *name == '[';
        if (bracket && (!args.count || strcmp(args.list[args.count - 1], "]")))
            return script_fail(s, at, "[ without ]");
        s->status = !script_test(s, args.list, args.count - bracket);
        return 0;
    }
    if (!strcmp(name, "set"))
        return w->count > 1 ? assign(s, w->list[1]) : 0;
    if (!strcmp(name, "unset"))
        return w->count > 1 ? boot_menu_set(s->m, s->scope, w->list[1], NULL, s->err) : 0;
    if (!strcmp(name, "load_env"))
        return load_env(s, w);
    if (!strcmp(name, "search") || !strncmp(name, "search.", 7))
        return search(s, w);
    if (one_of(name, linuxes))
        return start_linux(s, w);
    if (one_of(name, initrds))
        return start_initrd(s, w);
    if (!strcmp(name, "blscfg")) {
        s->m->blscfg = true;
        return 0;
    }
    if (equals && equals > name &&
        strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                     "0123456789_") == (size_t)(equals - name))
        return assign(s, name);
    s->status = !one_of(name, works);
    return 0;
}
