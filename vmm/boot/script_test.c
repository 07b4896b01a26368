/* The commands `test` and `[`. See script.h. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

#include "boot/script.h"

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
    return s->env && !strcmp(text_base_name(path), "grubenv");
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
    if (t->depth > SCRIPT_MAX_DEPTH || t->at >= t->count)
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

bool script_test(struct script *s, char **word, size_t count)
{
    struct test t = {.s = s, .word = word, .count = count};
    return test_or(&t);
}
