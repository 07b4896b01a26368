/* See err.h. Texts hold names from recordings and images, and end on terminals: they are cleaned.
 */
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

int err_set(struct err *err, int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->text, sizeof(err->text), fmt, ap);
    va_end(ap);
    text_clean(err->text);
    err->code = code;
    return code;
}

int err_errno(struct err *err, const char *fmt, ...)
{
    int saved = errno ? errno : EIO;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(err->text, sizeof(err->text), fmt, ap);
    va_end(ap);
    if (n > 0 && (size_t)n < sizeof(err->text))
        snprintf(err->text + n, sizeof(err->text) - (size_t)n, ": %s", strerror(saved));
    text_clean(err->text);
    err->code = -saved;
    return err->code;
}

int err_prefix(struct err *err, const char *fmt, ...)
{
    char old[sizeof(err->text)];
    memcpy(old, err->text, sizeof(old));
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->text, sizeof(err->text) - 2, fmt, ap);
    va_end(ap);
    text_clean(err->text);
    size_t n = strlen(err->text);
    memcpy(err->text + n, ": ", 2);
    n += 2;
    size_t rest = strnlen(old, sizeof(old) - n - 1);
    memcpy(err->text + n, old, rest);
    err->text[n + rest] = 0;
    return err->code;
}
