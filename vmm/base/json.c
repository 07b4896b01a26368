/* See json.h. */
#include "base/json.h"

#include <string.h>

void json_string(FILE *out, const void *data, size_t len)
{
    const u8 *p = data;
    fputc('"', out);
    for (size_t i = 0; i < len; i++) {
        if (p[i] == '"' || p[i] == '\\')
            fprintf(out, "\\%c", p[i]);
        else if (p[i] == '\n')
            fputs("\\n", out);
        else if (p[i] == '\r')
            fputs("\\r", out);
        else if (p[i] == '\t')
            fputs("\\t", out);
        else if (p[i] < 0x20 || p[i] >= 0x7f) /* bytes, not UTF-8: each as its own code point */
            fprintf(out, "\\u%04x", p[i]);
        else
            fputc(p[i], out);
    }
    fputc('"', out);
}

static bool is_utf8(const char *text)
{
    const u8 *p = (const u8 *)text;
    while (*p) {
        unsigned more = *p < 0x80                 ? 0
                        : *p >= 0xc2 && *p < 0xe0 ? 1
                        : *p >= 0xe0 && *p < 0xf0 ? 2
                        : *p >= 0xf0 && *p < 0xf5 ? 3
                                                  : 4;
        bool bad = more == 4 || (*p == 0xe0 && p[1] < 0xa0) || (*p == 0xed && p[1] > 0x9f) ||
                   (*p == 0xf0 && p[1] < 0x90) || (*p == 0xf4 && p[1] > 0x8f);
        for (p++; more && !bad; more--, p++)
            bad = (*p & 0xc0) != 0x80;
        if (bad)
            return false;
    }
    return true;
}

void json_text(FILE *out, const char *text)
{
    if (!is_utf8(text)) {
        json_string(out, text, strlen(text));
        return;
    }
    fputc('"', out);
    for (const char *p = text; *p; p++) {
        if (*p == '"' || *p == '\\')
            fprintf(out, "\\%c", *p);
        else if ((u8)*p < 0x20 || *p == 0x7f)
            fprintf(out, "\\u%04x", (u8)*p);
        else
            fputc(*p, out);
    }
    fputc('"', out);
}
