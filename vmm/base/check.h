/*
 * CHECK: our own invariants, on in release builds too. The condition has no side effects. A failed
 * CHECK prints file, line, text and what check_set_context() said, and aborts.
 */
#ifndef REPRISE_CHECK_H
#define REPRISE_CHECK_H

#include "base/types.h"

#define CHECK(cond, ...)                                                                           \
    do {                                                                                           \
        if (UNLIKELY(!(cond)))                                                                     \
            check_failed(__FILE__, __LINE__, #cond, __VA_ARGS__);                                  \
    } while (0)

_Noreturn void check_failed(const char *file, int line, const char *cond, const char *fmt, ...)
    PRINTF(4, 5);

/* Who can say where we are (position, RIP, last events); called once by check_failed. */
void check_set_context(void (*print)(void *opaque), void *opaque);

#endif
