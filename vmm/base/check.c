#include "base/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Diagnostic only: the machine a thread is running, so that a failed CHECK can say where it was. */
static _Thread_local void (*context_print)(void *);
static _Thread_local void *context_opaque;

void check_set_context(void (*print)(void *opaque), void *opaque)
{
    context_print = print;
    context_opaque = opaque;
}

void check_failed(const char *file, int line, const char *cond, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "reprise: internal error at %s:%d: CHECK(%s): ", file, line, cond);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    if (context_print) {
        void (*print)(void *) = context_print;
        context_print = NULL;
        print(context_opaque);
    }
    abort();
}
