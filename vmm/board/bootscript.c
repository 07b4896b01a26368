/*
 * GRUB's script language, as far as a grub.cfg uses it, run over a text in memory (the GRUB manual,
 * "Writing full configuration files directly"). Each entry's body is run when the menu is made, in
 * a scope of its own, as GRUB would run it if it were chosen.
 *
 * The text is hostile: everything it can make the interpreter do is paid from one budget.
 */
#define _GNU_SOURCE /* asprintf */
#include "board/bootscript.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUDGET        (32u << 20) /* bytes looked at or made */
#define MAX_DEPTH     64u         /* of blocks in blocks and calls in calls */
#define MAX_WORDS     1024u       /* of one command */
#define MAX_FUNCTIONS 64u
#define WORD_COSTS    16u

struct words {
    char **list;
    size_t count;
};

struct function {
    char *name;
    const char *body, *end;
};

struct script {
    struct boot_menu *m;
    const char *text; /* all of it, for line numbers */
    const char *env;  /* grubenv; NULL: none */
    size_t env_size;
    struct function function[MAX_FUNCTIONS];
    size_t nfunctions;
    const struct words *args; /* $1 ... of the function or entry that runs */
    size_t scope;
    int entry, parent; /* the one that runs, -1: none; the submenu new ones go to */
    u64 budget;
    unsigned depth;
    int status; /* of the last command; 0: true */
    struct err *err;
};

/* Where in the text; a copy of it is a place to go back to. */
struct cursor {
    const char *at, *end;
};

enum token { T_END, T_LINE, T_OPEN, T_CLOSE, T_WORD };

static int fail(struct script *s, const char *at, const char *what)
{
    unsigned line = 1;
    for (const char *p = s->text; p < at; p++)
        line += *p == '\n';
    return err_set(s->err, -EINVAL, "line %u: %s", line, what);
}

static int pay(struct script *s, const char *at, u64 cost)
{
    if (cost > s->budget)
        return fail(s, at, "the script does not come to an end");
    s->budget -= cost;
    return 0;
}

static void words_free(struct words *w)
{
    for (size_t i = 0; i < w->count; i++)
        free(w->list[i]);
    free(w->list);
    *w = (struct words){0};
}

static int words_add(struct script *s, struct words *w, const char *at, const char *text,
                     size_t len)
{
    char **list = NULL, *word = strndup(text, len);
    if (w->count == MAX_WORDS) {
        free(word);
        return fail(s, at, "a command has too many words");
    }
    if (word)
        list = realloc(w->list, (w->count + 1) * sizeof(*list));
    if (!list) {
        free(word);
        return err_set(s->err, -ENOMEM, "no memory for the boot entries");
    }
    w->list = list;
    list[w->count++] = word;
    return 0;
}

/* The word being put together. */
struct building {
    char *text; /* BOOT_WORD_MAX */
    size_t len;
    bool any; /* a word even if it is empty: there was a quote or a character */
};

static int add_char(struct script *s, struct building *b, const char *at, char c)
{
    if (b->len == BOOT_WORD_MAX)
        return fail(s, at, "a word is too long");
    b->text[b->len++] = c;
    b->any = true;
    return 0;
}

static int finish_word(struct script *s, struct building *b, const char *at, struct words *w)
{
    int code = b->any ? words_add(s, w, at, b->text, b->len) : 0;
    b->len = 0;
    b->any = false;
    return code;
}

/* What $NAME stands for; NULL: nothing. `joined`: room for $@. */
static const char *value_of(struct script *s, const char *name, char **joined)
{
    static const struct words none;
    const struct words *args = s->args ? s->args : &none;
    *joined = NULL;
    if (!strcmp(name, "?"))
        return s->status ? "1" : "0";
    if (!strcmp(name, "#"))
        return asprintf(joined, "%zu", args->count) < 0 ? NULL : *joined;
    if (isdigit((u8)*name)) {
        unsigned long n = strtoul(name, NULL, 10);
        return n >= 1 && n <= args->count ? args->list[n - 1] : NULL;
    }
    if (strcmp(name, "@") && strcmp(name, "*"))
        return boot_menu_variable(s->m, name);
    size_t size;
    FILE *f = open_memstream(joined, &size);
    for (size_t i = 0; f && i < args->count; i++)
        fprintf(f, "%s%s", i ? " " : "", args->list[i]);
    if (!f || fclose(f))
        return NULL;
    return *joined;
}

/* `$` at c->at: moves behind the name, and puts the value into the word, or several if not quoted.
 */
static int variable(struct script *s, struct cursor *c, bool quoted, bool expand,
                    struct building *b, struct words *w)
{
    const char *start = c->at++, *name = c->at;
    bool braces = c->at < c->end && *c->at == '{';
    if (braces)
        name = ++c->at;
    if (c->at < c->end && strchr("?#@*", *c->at) && *c->at)
        c->at++;
    else
        while (c->at < c->end && (isalnum((u8)*c->at) || *c->at == '_'))
            c->at++;
    size_t len = (size_t)(c->at - name);
    if (braces && (c->at == c->end || *c->at++ != '}' || !len))
        return fail(s, start, "${ without a name and }");
    if (!expand)
        return 0;
    if (!len)
        return add_char(s, b, start, '$');
    char *copy = strndup(name, len), *joined = NULL;
    const char *value = copy ? value_of(s, copy, &joined) : NULL;
    int code = copy ? pay(s, start, s->m->nvariables + (value ? strlen(value) : 0))
                    : err_set(s->err, -ENOMEM, "no memory for the boot entries");
    for (; value && *value && !code; value++) {
        if (!quoted && isspace((u8)*value))
            code = finish_word(s, b, start, w);
        else
            code = add_char(s, b, start, *value);
    }
    free(joined);
    free(copy);
    return code;
}

static int quoted(struct script *s, struct cursor *c, bool expand, struct building *b,
                  struct words *w)
{
    const char *start = c->at;
    char quote = *c->at++;
    b->any = true;
    while (c->at < c->end && *c->at != quote) {
        int code = 0;
        if (quote == '"' && *c->at == '$') {
            code = variable(s, c, true, expand, b, w);
        } else {
            if (quote == '"' && *c->at == '\\' && c->at + 1 < c->end && strchr("\"\\$", c->at[1]))
                c->at++;
            code = expand ? add_char(s, b, c->at, *c->at) : 0;
            c->at++;
        }
        if (code)
            return code;
    }
    if (c->at == c->end)
        return fail(s, start, "a quote is not closed");
    c->at++;
    return 0;
}

/*
 * The next token. Of a word, `*raw` is where it starts; with `w` not NULL what it stands for is
 * appended, which may be no word or several.
 */
static int next(struct script *s, struct cursor *c, enum token *token, const char **raw,
                struct words *w)
{
    for (;; c->at++) {
        if (c->at < c->end && *c->at == '#')
            while (c->at < c->end && *c->at != '\n')
                c->at++;
        bool joins = c->end - c->at >= 2 && c->at[0] == '\\' && c->at[1] == '\n';
        if (joins)
            c->at++;
        else if (c->at == c->end || (*c->at != ' ' && *c->at != '\t' && *c->at != '\r'))
            break;
    }
    *raw = c->at;
    *token = c->at == c->end                   ? T_END
             : *c->at == '\n' || *c->at == ';' ? T_LINE
             : *c->at == '{'                   ? T_OPEN
             : *c->at == '}'                   ? T_CLOSE
                                               : T_WORD;
    if (*token != T_WORD) {
        c->at += *token != T_END;
        return pay(s, *raw, WORD_COSTS);
    }
    struct building b = {.text = w ? malloc(BOOT_WORD_MAX + 1) : NULL};
    int code = w && !b.text ? err_set(s->err, -ENOMEM, "no memory for the boot entries") : 0;
    while (!code && c->at < c->end && !memchr(" \t\r\n;{}", *c->at, 7)) {
        if (*c->at == '$') {
            code = variable(s, c, false, w, &b, w);
        } else if (*c->at == '\'' || *c->at == '"') {
            code = quoted(s, c, w, &b, w);
        } else {
            bool joins = *c->at == '\\' && c->at + 1 < c->end && c->at[1] == '\n';
            if (*c->at == '\\' && c->at + 1 < c->end)
                c->at++;
            if (w && !joins)
                code = add_char(s, &b, c->at, *c->at);
            c->at++;
        }
    }
    if (!code && w)
        code = finish_word(s, &b, *raw, w);
    free(b.text);
    return code ? code : pay(s, *raw, (u64)(c->at - *raw) + WORD_COSTS);
}

static bool raw_is(const struct cursor *c, const char *raw, const char *word)
{
    size_t len = strlen(word);
    return (size_t)(c->at - raw) == len && !memcmp(raw, word, len);
}

/* Behind `{`: what stands up to the `}` that belongs to it. */
static int block(struct script *s, struct cursor *c, struct cursor *body)
{
    const char *start = c->at, *raw;
    enum token token = T_LINE;
    for (unsigned open = 1; open;) {
        int code = next(s, c, &token, &raw, NULL);
        if (code)
            return code;
        if (token == T_END)
            return fail(s, start, "a { is not closed");
        open += token == T_OPEN;
        open -= token == T_CLOSE;
    }
    *body = (struct cursor){start, c->at - 1};
    return 0;
}

/* test, [ */

struct test {
    struct script *s;
    char **word;
    size_t at, count;
    unsigned depth;
};

static bool test_or(struct test *t);

static const char *peek(const struct test *t, size_t ahead)
{
    return t->at + ahead < t->count ? t->word[t->at + ahead] : "";
}

/* The one file whose being there is known. */
static bool file_is_there(const struct script *s, const char *path)
{
    const char *name = strrchr(path, '/');
    return s->env && !strcmp(name ? name + 1 : path, "grubenv");
}

static bool binary(const char *a, const char *op, const char *b, bool *result)
{
    static const char *const numeric[] = {"-eq", "-ne", "-lt", "-le", "-gt", "-ge"};
    long x = strtol(a, NULL, 10), y = strtol(b, NULL, 10);
    bool results[] = {x == y, x != y, x<y, x <= y, x> y, x >= y};
    for (unsigned i = 0; i < 6; i++) {
        if (!strcmp(op, numeric[i])) {
            *result = results[i];
            return true;
        }
    }
    int d = strcmp(a, b);
    bool equal = !strcmp(op, "=") || !strcmp(op, "==");
    *result = equal ? !d : !strcmp(op, "!=") ? d != 0 : !strcmp(op, "<") ? d < 0 : d > 0;
    return equal || !strcmp(op, "!=") || !strcmp(op, "<") || !strcmp(op, ">");
}

static bool test_one(struct test *t)
{
    bool result;
    if (t->depth > MAX_DEPTH || t->at >= t->count)
        return false;
    if (t->count - t->at >= 3 && binary(peek(t, 0), peek(t, 1), peek(t, 2), &result)) {
        t->at += 3;
        return result;
    }
    if (!strcmp(peek(t, 0), "!")) {
        t->at++;
        t->depth++;
        result = !test_one(t);
        t->depth--;
        return result;
    }
    if (!strcmp(peek(t, 0), "(")) {
        t->at++;
        t->depth++;
        result = test_or(t);
        t->depth--;
        t->at += !strcmp(peek(t, 0), ")");
        return result;
    }
    const char *word = peek(t, 0);
    if (word[0] == '-' && word[1] && !word[2] && t->count - t->at >= 2) {
        const char *of = peek(t, 1);
        t->at += 2;
        return word[1] == 'n'                   ? *of
               : word[1] == 'z'                 ? !*of
               : strchr("efs", word[1]) != NULL ? file_is_there(t->s, of)
                                                : false;
    }
    t->at++;
    return *word;
}

static bool test_and(struct test *t)
{
    bool result = test_one(t);
    while (t->at < t->count && !strcmp(peek(t, 0), "-a")) {
        t->at++;
        result = test_one(t) && result;
    }
    return result;
}

static bool test_or(struct test *t)
{
    bool result = test_and(t);
    while (t->at < t->count && !strcmp(peek(t, 0), "-o")) {
        t->at++;
        result = test_and(t) || result;
    }
    return result;
}

/* Commands */

/* Sets what `len` bytes of name say. */
static int set_bytes(struct script *s, const char *name, size_t len, const char *value)
{
    char *copy = strndup(name, len);
    if (!copy)
        return err_set(s->err, -ENOMEM, "no memory for the boot entries");
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
static int load_env(struct script *s, const struct words *w)
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
            return err_set(s->err, -ENOMEM, "no memory for the boot entries");
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
        code = pay(s, s->text, (u64)(p - start) + WORD_COSTS);
        if (!code && wanted)
            code = set_bytes(s, start, (size_t)(equals - start), value);
        free(value);
    }
    return code;
}

/* search [--fs-uuid|--label|--file] [--set[=VAR]] [--hint...] [--no-floppy] NAME; search.fs_uuid
 * NAME VAR HINT */
static int search(struct script *s, const struct words *w)
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
        return err_set(s->err, -ENOMEM, "no memory for the boot entries");
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
static int start_linux(struct script *s, const struct words *w)
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
        return err_set(s->err, -ENOMEM, "no memory for the boot entries");
    return 0;
}

static int start_initrd(struct script *s, const struct words *w)
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

static int run_list(struct script *s, struct cursor *c, bool run, const char **stop);

/* Runs `body` in a scope of its own, or in the one that is, with `args`. */
static int run_body(struct script *s, struct cursor body, const struct words *args, bool scoped)
{
    const struct words *outer_args = s->args;
    size_t outer_scope = s->scope;
    const char *stop;
    if (s->depth == MAX_DEPTH)
        return fail(s, body.at, "too much within each other");
    s->depth++;
    s->args = args;
    if (scoped)
        s->scope = s->m->nvariables;
    int code = run_list(s, &body, true, &stop);
    if (!code && stop)
        code = fail(s, stop, "a word that ends nothing");
    if (scoped) {
        boot_menu_forget(s->m, s->scope);
        s->scope = outer_scope;
    }
    s->args = outer_args;
    s->depth--;
    return code;
}

/* menuentry TITLE [--OPTION [VALUE]]... { BODY } */
static int menu_entry(struct script *s, const struct words *w, struct cursor body, bool submenu)
{
    static const char *const with_value[] = {"--class", "--users", "--hotkey", "--source", "--id"};
    const char *title = NULL, *id = "";
    struct words args = {.list = w->list};
    if (s->entry >= 0) /* an entry in an entry shows in no menu */
        return 0;
    for (size_t i = 1; i < w->count; i++) {
        char *word = w->list[i];
        bool value = false;
        for (unsigned k = 0; k < 5; k++)
            value = value || !strcmp(word, with_value[k]);
        if (value && i + 1 < w->count) {
            i++;
            if (!strcmp(word, "--id"))
                id = w->list[i];
        } else if (!strncmp(word, "--id=", 5)) {
            id = word + 5;
        } else if (strncmp(word, "--", 2) && !title) {
            title = word;
            args = (struct words){w->list + i + 1, w->count - i - 1};
        }
    }
    int entry = boot_menu_add(s->m, s->parent, title ? title : "", id, s->err);
    if (entry < 0)
        return entry;
    s->m->entry[entry].submenu = submenu;
    int outer = s->parent;
    if (submenu)
        s->parent = entry;
    else
        s->entry = entry;
    int code = run_body(s, body, &args, true);
    s->parent = outer;
    s->entry = -1;
    return code;
}

static int define(struct script *s, const struct words *w, struct cursor body)
{
    if (w->count < 2 || s->nfunctions == MAX_FUNCTIONS)
        return fail(s, body.at, "a function without a name, or too many of them");
    struct function *f = &s->function[s->nfunctions];
    f->name = strdup(w->list[1]);
    if (!f->name)
        return err_set(s->err, -ENOMEM, "no memory for the boot entries");
    f->body = body.at;
    f->end = body.end;
    s->nfunctions++;
    return 0;
}

static bool one_of(const char *word, const char *const *list)
{
    while (*list && strcmp(*list, word))
        list++;
    return *list;
}

/* One command that has no block. */
static int command(struct script *s, const char *at, struct words *w)
{
    static const char *const linuxes[] = {"linux", "linux16", "linuxefi", NULL},
                             *const initrds[] = {"initrd", "initrd16", "initrdefi", NULL},
                             *const works[] = {"insmod",         "echo",     "export",
                                               "true",           "save_env", "terminal_output",
                                               "terminal_input", "set",      "loadfont",
                                               "clear",          ":",        NULL};
    const char *name = w->list[0], *equals = strchr(name, '=');
    struct words args = {w->list + 1, w->count - 1};
    int code = pay(s, at, s->m->nvariables + s->nfunctions);
    if (code)
        return code;
    for (size_t i = s->nfunctions; i-- > 0;)
        if (!strcmp(s->function[i].name, name))
            return run_body(s, (struct cursor){s->function[i].body, s->function[i].end}, &args,
                            false);
    s->status = 0;
    if (!strcmp(name, "[") || !strcmp(name, "test")) {
        struct test t = {.s = s, .word = args.list, .count = args.count};
        if (*name == '[') {
            if (!args.count || strcmp(args.list[args.count - 1], "]"))
                return fail(s, at, "[ without ]");
            t.count--;
        }
        s->status = !test_or(&t);
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

/* Statements */

static int expect(struct script *s, const char *stop, const struct cursor *c, const char *word,
                  const char *start)
{
    if (stop && raw_is(c, stop, word))
        return 0;
    char text[64];
    snprintf(text, sizeof(text), "there is no %s to what starts here", word);
    return fail(s, start, text);
}

/* Behind `if`. */
static int run_if(struct script *s, struct cursor *c, bool run)
{
    const char *start = c->at, *stop;
    bool done = !run;
    for (;;) {
        int code = run_list(s, c, !done, &stop);
        if (!code)
            code = expect(s, stop, c, "then", start);
        bool yes = !done && !s->status;
        if (!code)
            code = run_list(s, c, yes, &stop);
        if (code)
            return code;
        done = done || yes;
        if (!stop || !raw_is(c, stop, "elif"))
            break;
    }
    if (stop && raw_is(c, stop, "else")) {
        int code = run_list(s, c, !done, &stop);
        if (code)
            return code;
    }
    return expect(s, stop, c, "fi", start);
}

/* Behind `while` or `until`. */
static int run_while(struct script *s, struct cursor *c, bool run, bool until)
{
    const struct cursor start = *c;
    const char *stop;
    for (;;) {
        *c = start;
        int code = run_list(s, c, run, &stop);
        if (!code)
            code = expect(s, stop, c, "do", start.at);
        run = run && !s->status != until;
        if (!code)
            code = run_list(s, c, run, &stop);
        if (!code)
            code = expect(s, stop, c, "done", start.at);
        if (code || !run)
            return code;
    }
}

/* Behind `for`: NAME in WORD...; do LIST; done */
static int run_for(struct script *s, struct cursor *c, bool run)
{
    const char *start = c->at, *raw, *stop;
    struct words w = {0};
    enum token token;
    int code;
    do
        code = next(s, c, &token, &raw, run ? &w : NULL);
    while (!code && token == T_WORD);
    if (!code && (token != T_LINE || (run && (w.count < 2 || strcmp(w.list[1], "in")))))
        code = fail(s, start, "not of the form: for NAME in WORDS");
    if (!code)
        code = run_list(s, c, false, &stop);
    if (!code)
        code = expect(s, stop, c, "do", start);
    const struct cursor body = *c;
    for (size_t i = 2; !code && i < w.count; i++) {
        struct cursor again = body;
        code = boot_menu_set(s->m, s->scope, w.list[0], w.list[i], s->err);
        if (!code)
            code = run_list(s, &again, true, &stop);
    }
    if (!code)
        code = run_list(s, c, false, &stop);
    if (!code)
        code = expect(s, stop, c, "done", start);
    words_free(&w);
    return code;
}

/* A command whose first word has been read: the rest, and a block if it takes one. */
static int run_command(struct script *s, struct cursor *c, const char *start, bool run)
{
    struct words w = {0};
    struct cursor body;
    enum token token;
    const char *raw;
    bool has_block = false;
    int code;
    c->at = start;
    for (;;) {
        struct cursor before = *c;
        code = next(s, c, &token, &raw, run ? &w : NULL);
        if (code || token == T_LINE || token == T_END)
            break;
        if (token == T_CLOSE) { /* of the block that this is in */
            *c = before;
            break;
        }
        if (token == T_OPEN) {
            code = block(s, c, &body);
            has_block = true;
            break;
        }
    }
    if (!code && run && w.count) {
        const char *name = w.list[0];
        if (!has_block)
            code = command(s, start, &w);
        else if (!strcmp(name, "menuentry") || !strcmp(name, "submenu"))
            code = menu_entry(s, &w, body, *name == 's');
        else if (!strcmp(name, "function"))
            code = define(s, &w, body);
    }
    words_free(&w);
    return code;
}

/*
 * Runs, or only reads, commands up to the end, or to a word that is part of the statement around
 * them (then, elif, else, fi, do, done): *stop is where that starts, and the cursor is behind it.
 */
static int run_list(struct script *s, struct cursor *c, bool run, const char **stop)
{
    static const char *const ends[] = {"then", "elif", "else", "fi", "do", "done", NULL};
    if (s->depth == MAX_DEPTH)
        return fail(s, c->at, "too much within each other");
    s->depth++;
    int code = 0;
    for (*stop = NULL; !code && !*stop;) {
        enum token token;
        const char *raw;
        struct cursor ignored;
        code = next(s, c, &token, &raw, NULL);
        if (code || token == T_END)
            break;
        if (token == T_CLOSE)
            code = fail(s, raw, "a } that closes nothing");
        if (token == T_OPEN)
            code = block(s, c, &ignored);
        if (token != T_WORD)
            continue;
        for (const char *const *e = ends; *e && !*stop; e++)
            *stop = raw_is(c, raw, *e) ? raw : NULL;
        if (*stop)
            break;
        if (raw_is(c, raw, "if"))
            code = run_if(s, c, run);
        else if (raw_is(c, raw, "while") || raw_is(c, raw, "until"))
            code = run_while(s, c, run, *raw == 'u');
        else if (raw_is(c, raw, "for"))
            code = run_for(s, c, run);
        else
            code = run_command(s, c, raw, run);
    }
    s->depth--;
    return code;
}

int boot_menu_grub(struct boot_menu *m, const char *text, size_t size, const char *root,
                   const char *prefix, const char *env, size_t env_size, struct err *err)
{
    /* What GRUB has set by itself. */
    static const char *const set[] = {
        "feature_menuentry_id",
        "feature_all_video_module",
        "feature_default_font_path",
        "feature_platform_search_hint",
        "feature_timeout_style",
        "feature_chainloader_bpb",
        "feature_ntldr",
        "feature_nativedisk_cmd",
        "feature_200_final",
    };
    struct script s = {.m = m,
                       .text = text,
                       .env = env,
                       .env_size = env_size,
                       .entry = -1,
                       .parent = -1,
                       .budget = BUDGET,
                       .err = err};
    memset(m, 0, sizeof(*m));
    int code = boot_menu_set(m, 0, "root", root, err);
    if (!code)
        code = boot_menu_set(m, 0, "prefix", prefix, err);
    if (!code)
        code = boot_menu_set(m, 0, "config_directory", prefix, err);
    if (!code)
        code = boot_menu_set(m, 0, "grub_platform", "pc", err);
    if (!code)
        code = boot_menu_set(m, 0, "grub_cpu", "i386", err);
    for (size_t i = 0; i < sizeof(set) / sizeof(*set) && !code; i++)
        code = boot_menu_set(m, 0, set[i], "y", err);
    if (!code && size > BOOT_TEXT_MAX)
        code = err_set(err, -EFBIG, "is larger than %u KiB", BOOT_TEXT_MAX >> 10);
    if (!code)
        code = run_body(&s, (struct cursor){text, text + size}, NULL, false);
    for (size_t i = 0; i < s.nfunctions; i++)
        free(s.function[i].name);
    return code;
}
