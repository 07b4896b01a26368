/* See disk_spec.h. */
#include "host/disk_spec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Cuts FILE at the comma; what follows it is returned. */
static const char *cut_file(const char *spec, char *file)
{
    for (; *spec && (*spec != ',' || spec[1] == ','); spec++) {
        spec += *spec == ',';
        *file++ = *spec;
    }
    *file = 0;
    return spec;
}

/* The value of an option NAME=VALUE of `n` bytes, if it has that name and 1 to room - 1 bytes. */
static bool value(const char *option, size_t n, const char *name, char *out, size_t room)
{
    size_t len = strlen(name);
    if (n <= len || strncmp(option, name, len) || n - len >= room)
        return false;
    snprintf(out, room, "%.*s", (int)(n - len), option + len);
    return true;
}

static bool take(struct disk_spec *s, const char *option, size_t n, bool of_machine)
{
    char word[8];
    if (of_machine && n == 8 && !strncmp(option, "readonly", n)) {
        s->readonly = true;
        return true;
    }
    if (of_machine && value(option, n, "serial=", s->serial, sizeof(s->serial)))
        return true;
    if (value(option, n, "format=", s->format, sizeof(s->format)))
        return true;
    if (value(option, n, "timeout=", word, sizeof(word)) &&
        strspn(word, "0123456789") == strlen(word) && strtoul(word, NULL, 10)) {
        s->timeout = (unsigned)strtoul(word, NULL, 10);
        return true;
    }
    if (value(option, n, "backing=", word, sizeof(word)) &&
        (!strcmp(word, "on") || !strcmp(word, "off"))) {
        s->backing = !strcmp(word, "on");
        return true;
    }
    return false;
}

int disk_spec_parse(struct disk_spec *s, const char *text, bool of_machine, struct err *err)
{
    *s = (struct disk_spec){.file = malloc(strlen(text) + 1)};
    if (!s->file)
        return err_set(err, -ENOMEM, "no memory");
    const char *from = cut_file(text, s->file);
    int code = *s->file ? 0 : err_set(err, -EINVAL, "--disk %s: the file has no name", text);
    while (*from == ',' && !code) {
        size_t n = strcspn(++from, ",");
        if (!take(s, from, n, of_machine))
            code = err_set(err, -EINVAL,
                           "--disk %s: '%.*s' is none of format=NAME, %sbacking=on|off and "
                           "timeout=SECONDS",
                           text, (int)n, from,
                           of_machine ? "readonly, serial=TEXT of at most 20 bytes, " : "");
        from += n;
    }
    if (code)
        disk_spec_free(s);
    return code;
}

void disk_spec_free(struct disk_spec *s)
{
    free(s->file);
    *s = (struct disk_spec){0};
}
