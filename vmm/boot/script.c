/*
 * GRUB's script language, as far as a grub.cfg uses it, run over a text in memory (the GRUB manual,
 * "Writing full configuration files directly"). Each entry's body is run when the menu is made, in
 * a scope of its own, as GRUB would run it if it were chosen. Here are the statements; words, tests
 * and commands have files of their own.
 *
 * The text is hostile: everything it can make the interpreter do is paid from one budget.
 */
#include "boot/script.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUDGET (32u << 20) /* bytes looked at or made */

static int run_list(struct script *s, struct script_cursor *c, bool run, const char **stop);

/* Runs `body` in a scope of its own, or in the one that is, with `args`. */
int script_run(struct script *s, struct script_cursor body, const struct script_words *args,
               bool scoped)
{
    const struct script_words *outer_args = s->args;
    size_t outer_scope = s->scope;
    const char *stop;
    if (s->depth == SCRIPT_MAX_DEPTH)
        return script_fail(s, body.at, "too much within each other");
    s->depth++;
    s->args = args;
    if (scoped)
        s->scope = s->m->nvariables;
    int code = run_list(s, &body, true, &stop);
    if (!code && stop)
        code = script_fail(s, stop, "a word that ends nothing");
    if (scoped) {
        boot_menu_forget(s->m, s->scope);
        s->scope = outer_scope;
    }
    s->args = outer_args;
    s->depth--;
    return code;
}

/* menuentry TITLE [--OPTION [VALUE]]... { BODY } */
static int menu_entry(struct script *s, const struct script_words *w, struct script_cursor body,
                      bool submenu)
{
    static const char *const with_value[] = {"--class", "--users", "--hotkey", "--source", "--id"};
    const char *title = NULL, *id = "";
    struct script_words args = {.list = w->list};
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
            args = (struct script_words){w->list + i + 1, w->count - i - 1};
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
    int code = script_run(s, body, &args, true);
    s->parent = outer;
    s->entry = -1;
    return code;
}

static int define(struct script *s, const struct script_words *w, struct script_cursor body)
{
    if (w->count < 2 || s->nfunctions == SCRIPT_FUNCTIONS)
        return script_fail(s, body.at, "a function without a name, or too many of them");
    struct script_function *f = &s->function[s->nfunctions];
    f->name = strdup(w->list[1]);
    if (!f->name)
        return boot_no_memory(s->err);
    f->body = body.at;
    f->end = body.end;
    s->nfunctions++;
    return 0;
}

static int expect(struct script *s, const char *stop, const struct script_cursor *c,
                  const char *word, const char *start)
{
    if (stop && script_raw_is(c, stop, word))
        return 0;
    char text[64];
    snprintf(text, sizeof(text), "there is no %s to what starts here", word);
    return script_fail(s, start, text);
}

/* After `if`. */
static int run_if(struct script *s, struct script_cursor *c, bool run)
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
        if (!stop || !script_raw_is(c, stop, "elif"))
            break;
    }
    if (stop && script_raw_is(c, stop, "else")) {
        int code = run_list(s, c, !done, &stop);
        if (code)
            return code;
    }
    return expect(s, stop, c, "fi", start);
}

/* After `while` or `until`. */
static int run_while(struct script *s, struct script_cursor *c, bool run, bool until)
{
    const struct script_cursor start = *c;
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

/* After `for`: NAME in WORD...; do LIST; done */
static int run_for(struct script *s, struct script_cursor *c, bool run)
{
    const char *start = c->at, *raw, *stop;
    struct script_words w = {0};
    enum script_token token;
    int code;
    do
        code = script_next(s, c, &token, &raw, run ? &w : NULL);
    while (!code && token == SCRIPT_WORD);
    if (!code && (token != SCRIPT_LINE || (run && (w.count < 2 || strcmp(w.list[1], "in")))))
        code = script_fail(s, start, "not of the form: for NAME in WORDS");
    if (!code)
        code = run_list(s, c, false, &stop);
    if (!code)
        code = expect(s, stop, c, "do", start);
    const struct script_cursor body = *c;
    for (size_t i = 2; !code && i < w.count; i++) {
        struct script_cursor again = body;
        code = boot_menu_set(s->m, s->scope, w.list[0], w.list[i], s->err);
        if (!code)
            code = run_list(s, &again, true, &stop);
    }
    if (!code)
        code = run_list(s, c, false, &stop);
    if (!code)
        code = expect(s, stop, c, "done", start);
    script_words_free(&w);
    return code;
}

/* A command whose first word has been read: the rest, and a block if it takes one. */
static int run_command(struct script *s, struct script_cursor *c, const char *start, bool run)
{
    struct script_words w = {0};
    struct script_cursor body;
    enum script_token token;
    const char *raw;
    bool has_block = false;
    int code;
    c->at = start;
    for (;;) {
        struct script_cursor before = *c;
        code = script_next(s, c, &token, &raw, run ? &w : NULL);
        if (code || token == SCRIPT_LINE || token == SCRIPT_END)
            break;
        if (token == SCRIPT_CLOSE) { /* of the block that this is in */
            *c = before;
            break;
        }
        if (token == SCRIPT_OPEN) {
            code = script_block(s, c, &body);
            has_block = true;
            break;
        }
    }
    if (!code && run && w.count) {
        const char *name = w.list[0];
        if (!has_block)
            code = script_command(s, start, &w);
        else if (!strcmp(name, "menuentry") || !strcmp(name, "submenu"))
            code = menu_entry(s, &w, body, *name == 's');
        else if (!strcmp(name, "function"))
            code = define(s, &w, body);
    }
    script_words_free(&w);
    return code;
}

/*
 * Runs, or only reads, commands up to the end, or to a word that is part of the statement around
 * them (then, elif, else, fi, do, done): *stop is where that starts, and the cursor is after it.
 */
static int run_list(struct script *s, struct script_cursor *c, bool run, const char **stop)
{
    static const char *const ends[] = {"then", "elif", "else", "fi", "do", "done", NULL};
    if (s->depth == SCRIPT_MAX_DEPTH)
        return script_fail(s, c->at, "too much within each other");
    s->depth++;
    int code = 0;
    for (*stop = NULL; !code && !*stop;) {
        enum script_token token;
        const char *raw;
        struct script_cursor ignored;
        code = script_next(s, c, &token, &raw, NULL);
        if (code || token == SCRIPT_END)
            break;
        if (token == SCRIPT_CLOSE)
            code = script_fail(s, raw, "a } that closes nothing");
        if (token == SCRIPT_OPEN)
            code = script_block(s, c, &ignored);
        if (token != SCRIPT_WORD)
            continue;
        for (const char *const *e = ends; *e && !*stop; e++)
            *stop = script_raw_is(c, raw, *e) ? raw : NULL;
        if (*stop)
            break;
        if (script_raw_is(c, raw, "if"))
            code = run_if(s, c, run);
        else if (script_raw_is(c, raw, "while") || script_raw_is(c, raw, "until"))
            code = run_while(s, c, run, *raw == 'u');
        else if (script_raw_is(c, raw, "for"))
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
        code = script_run(&s, (struct script_cursor){text, text + size}, NULL, false);
    for (size_t i = 0; i < s.nfunctions; i++)
        free(s.function[i].name);
    return code;
}
