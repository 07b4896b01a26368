/* See text.h. */
#define _GNU_SOURCE
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

/* C0, DEL, and C1 as UTF-8 has it: C2 80 to C2 9F. */
static bool controls(u8 c, u8 before)
{
    return c < ' ' || c == 127 || (before == 0xc2 && c >= 0x80 && c < 0xa0);
}

char *text_printable(const char *text, char *out, size_t size)
{
    size_t n = 0;
    for (; text[n] && n + 1 < size; n++)
        out[n] = controls((u8)text[n], n ? (u8)text[n - 1] : 0) ? '?' : text[n];
    out[n] = 0;
    return out;
}

static u8 cleaned(u8 c, u8 before)
{
    return controls(c, before) && c != '\n' && c != '\t' ? '?' : c;
}

void text_clean(char *text)
{
    u8 before = 0;
    for (u8 *p = (u8 *)text; *p; p++) {
        u8 now = *p;
        *p = cleaned(now, before);
        before = now;
    }
}

void text_ascii(char *text)
{
    for (; *text; text++)
        *text = *text < ' ' || *text > '~' ? '?' : *text;
}

struct guard {
    FILE *to;
    u8 before;
};

static ssize_t guard_write(void *cookie, const char *data, size_t size)
{
    struct guard *g = cookie;
    char clean[4096];
    for (size_t done = 0; done < size;) {
        size_t n = MIN(size - done, sizeof(clean));
        for (size_t i = 0; i < n; i++) {
            clean[i] = (char)cleaned((u8)data[done + i], g->before);
            g->before = (u8)data[done + i];
        }
        if (fwrite(clean, 1, n, g->to) != n)
            return 0;
        done += n;
    }
    return fflush(g->to) ? 0 : (ssize_t)size;
}

static int guard_close(void *cookie)
{
    free(cookie);
    return 0;
}

FILE *text_guard(FILE *to)
{
    struct guard *g = calloc(1, sizeof(*g));
    FILE *out = NULL;
    if (g) {
        g->to = to;
        out = fopencookie(g, "w",
                          (cookie_io_functions_t){.write = guard_write, .close = guard_close});
    }
    if (!out)
        free(g);
    return out;
}

void text_put_word(FILE *out, const char *name)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,"
        ":@%/";
    bool as_is = *name && strspn(name, plain) == strlen(name);
    if (as_is) {
        fputs(name, out);
        return;
    }
    fputc('\'', out);
    for (; *name; name++)
        if (*name == '\'')
            fputs("'\\''", out);
        else
            fputc(*name, out);
    fputc('\'', out);
}

const char *text_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

void text_put_quoted(FILE *out, const char *name)
{
    if (*name == '-') /* not an option */
        fputs("./", out);
    text_put_word(out, name);
}
