/* The words of GRUB's script: quotes, variables, line ends and braces. See script.h. */
#define _GNU_SOURCE /* asprintf */
#include "boot/script.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WORDS 1024u /* of one command */

int script_fail(struct script *s, const char *at, const char *what)
{
    unsigned line = 1;
    for (const char *p = s->text; p < at; p++)
        line += *p == '\n';
    return err_set(s->err, -EINVAL, "line %u: %s", line, what);
}

int script_pay(struct script *s, const char *at, u64 cost)
{
    if (cost > s->budget)
        return script_fail(s, at, "the script does not come to an end");
    s->budget -= cost;
    return 0;
}

void script_words_free(struct script_words *w)
{
    for (size_t i = 0; i < w->count; i++)
        free(w->list[i]);
    free(w->list);
    *w = (struct script_words){0};
}

static int words_add(struct script *s, struct script_words *w, const char *at, const char *text,
                     size_t len)
{
    char **list = NULL, *word = strndup(text, len);
    if (w->count == MAX_WORDS) {
        free(word);
        return script_fail(s, at, "a command has too many words");
    }
    if (word)
        list = realloc(w->list, (w->count + 1) * sizeof(*list));
    if (!list) {
        free(word);
        return boot_no_memory(s->err);
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
        return script_fail(s, at, "a word is too long");
    b->text[b->len++] = c;
    b->any = true;
    return 0;
}

static int finish_word(struct script *s, struct building *b, const char *at, struct script_words *w)
{
    int code = b->any ? words_add(s, w, at, b->text, b->len) : 0;
    b->len = 0;
    b->any = false;
    return code;
}

/* What $NAME stands for; NULL: nothing. `joined`: room for $@. */
static const char *value_of(struct script *s, const char *name, char **joined)
{
    static const struct script_words none;
    const struct script_words *args = s->args ? s->args : &none;
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

/* `$` at c->at: moves after the name, and puts the value into the word, or several if not quoted.
 */
static int variable(struct script *s, struct script_cursor *c, bool quoted, bool expand,
                    struct building *b, struct script_words *w)
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
        return script_fail(s, start, "${ without a name and }");
    if (!expand)
        return 0;
    if (!len)
        return add_char(s, b, start, '$');
    char *copy = strndup(name, len), *joined = NULL;
    const char *value = copy ? value_of(s, copy, &joined) : NULL;
    int code = copy ? script_pay(s, start, s->m->nvariables + (value ? strlen(value) : 0))
                    : boot_no_memory(s->err);
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

static int quoted(struct script *s, struct script_cursor *c, bool expand, struct building *b,
                  struct script_words *w)
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
        return script_fail(s, start, "a quote is not closed");
    c->at++;
    return 0;
}

/*
 * The next token. Of a word, `*raw` is where it starts; with `w` not NULL what it stands for is
 * appended, which may be no word or several.
 */
int script_next(struct script *s, struct script_cursor *c, enum script_token *token,
                const char **raw, struct script_words *w)
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
    *token = c->at == c->end                   ? SCRIPT_END
             : *c->at == '\n' || *c->at == ';' ? SCRIPT_LINE
             : *c->at == '{'                   ? SCRIPT_OPEN
             : *c->at == '}'                   ? SCRIPT_CLOSE
                                               : SCRIPT_WORD;
    if (*token != SCRIPT_WORD) {
        c->at += *token != SCRIPT_END;
        return script_pay(s, *raw, SCRIPT_WORD_COSTS);
    }
    struct building b = {.text = w ? malloc(BOOT_WORD_MAX + 1) : NULL};
    int code = w && !b.text ? boot_no_memory(s->err) : 0;
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
    return code ? code : script_pay(s, *raw, (u64)(c->at - *raw) + SCRIPT_WORD_COSTS);
}

bool script_raw_is(const struct script_cursor *c, const char *raw, const char *word)
{
    size_t len = strlen(word);
    return (size_t)(c->at - raw) == len && !memcmp(raw, word, len);
}

/* After `{`: what stands up to the `}` that belongs to it. */
int script_block(struct script *s, struct script_cursor *c, struct script_cursor *body)
{
    const char *start = c->at, *raw;
    enum script_token token = SCRIPT_LINE;
    for (unsigned open = 1; open;) {
        int code = script_next(s, c, &token, &raw, NULL);
        if (code)
            return code;
        if (token == SCRIPT_END)
            return script_fail(s, start, "a { is not closed");
        open += token == SCRIPT_OPEN;
        open -= token == SCRIPT_CLOSE;
    }
    *body = (struct script_cursor){start, c->at - 1};
    return 0;
}
