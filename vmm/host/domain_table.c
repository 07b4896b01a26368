/* See domain_table.h. */
#include "host/domain_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct row_form {
    const char *word;
    unsigned fields, most;
} forms[] = {
#define DOMAIN_ROW(ID, word, fields, most, doc) [DOMAIN_##ID] = {word, fields, most},
#include "host/domain_table.def"
};

static const struct option_form {
    const char *name;
    unsigned most;
} options[] = {
#define DOMAIN_OPTION(name, most) {name, most},
#include "host/domain_table.def"
};

static bool control(char c)
{
    return (u8)c < ' ' || c == 127;
}

static void put(FILE *out, const char *text)
{
    for (; text && *text; text++)
        fputc(control(*text) ? '?' : *text, out);
}

void domain_row_print(FILE *out, enum domain_row_kind kind, const char *a, const char *b,
                      const char *c)
{
    const char *const field[DOMAIN_TABLE_FIELDS] = {a, b, c};
    fputs(forms[kind].word, out);
    for (unsigned i = 0; i < forms[kind].fields; i++) {
        fputc('\t', out);
        put(out, field[i]);
    }
    fputc('\n', out);
}

static int option_index(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(options); i++)
        if (!strcmp(options[i].name, name))
            return (int)i;
    return -1;
}

struct counts {
    unsigned rows[DOMAIN_ROW_KINDS], options[ARRAY_SIZE(options)];
};

/* A line without its end, which is cut into fields. */
static int read_row(struct domain_row *row, char *line, struct counts *n, struct err *err)
{
    char *word = strsep(&line, "\t");
    unsigned fields = 0, kind = 0;
    while (kind < DOMAIN_ROW_KINDS && strcmp(forms[kind].word, word))
        kind++;
    if (kind == DOMAIN_ROW_KINDS)
        return err_set(err, -EPROTO, "an unknown row");
    *row = (struct domain_row){.kind = (enum domain_row_kind)kind};
    for (char *field; (field = strsep(&line, "\t")); fields++) {
        if (fields == forms[kind].fields)
            return err_set(err, -EPROTO, "a row '%s' with too many fields", forms[kind].word);
        for (const char *c = field; *c; c++)
            if (control(*c))
                return err_set(err, -EPROTO, "control characters in a row '%s'", forms[kind].word);
        row->field[fields] = field;
    }
    if (fields != forms[kind].fields)
        return err_set(err, -EPROTO, "a row '%s' without all its fields", forms[kind].word);
    if (++n->rows[kind] > forms[kind].most)
        return err_set(err, -EPROTO, "too many rows '%s'", forms[kind].word);
    if (kind != DOMAIN_OPTION)
        return 0;
    int option = option_index(row->field[0]);
    if (option < 0)
        return err_set(err, -EPROTO, "an option that no domain becomes");
    if (++n->options[option] > options[option].most)
        return err_set(err, -EPROTO, "too many of --%s", options[option].name);
    return 0;
}

static int read_rows(struct domain_table *t, size_t size, struct err *err)
{
    struct counts n = {0};
    char *at = t->text, *end = t->text + size;
    while (at < end) {
        char *next = memchr(at, '\n', (size_t)(end - at));
        if (!next)
            return err_set(err, -EPROTO, "a row that is cut off");
        *next = 0;
        if (strlen(at) != (size_t)(next - at))
            return err_set(err, -EPROTO, "control characters");
        if (t->n == DOMAIN_TABLE_ROWS || (t->n && t->row[t->n - 1].kind == DOMAIN_END))
            return err_set(err, -EPROTO, "more rows than there are");
        int code = read_row(&t->row[t->n], at, &n, err);
        if (code)
            return code;
        t->n++;
        at = next + 1;
    }
    if (!t->n || t->row[0].kind != DOMAIN_BEGIN)
        return err_set(err, -EPROTO, "no beginning");
    if (strcmp(t->row[0].field[0], DOMAIN_TABLE_VERSION))
        return err_set(err, -EPROTO, "it is of another version than this program");
    if (t->row[t->n - 1].kind != DOMAIN_END)
        return err_set(err, -EPROTO, "no end");
    return 0;
}

int domain_table_read(struct domain_table *t, const char *text, size_t size, struct err *err)
{
    *t = (struct domain_table){0};
    if (size > DOMAIN_TABLE_MAX)
        return err_set(err, -EPROTO, "too much");
    t->text = malloc(size + 1);
    t->row = calloc(DOMAIN_TABLE_ROWS, sizeof(*t->row));
    if (!t->text || !t->row) {
        domain_table_free(t);
        return err_set(err, -ENOMEM, "no memory");
    }
    memcpy(t->text, text, size);
    t->text[size] = 0;
    int code = read_rows(t, size, err);
    if (code)
        domain_table_free(t);
    return code;
}

void domain_table_free(struct domain_table *t)
{
    free(t->text);
    free(t->row);
    *t = (struct domain_table){0};
}

const char *domain_table_one(const struct domain_table *t, enum domain_row_kind kind)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->row[i].kind == kind)
            return t->row[i].field[0];
    return NULL;
}
