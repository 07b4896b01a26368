/*
 * Errors of the host and the user: a text set where the facts are known, carried up by value,
 * printed once by main. A guest's errors are architectural and never come here; our own broken
 * invariants are CHECKs (check.h).
 */
#ifndef REPRISE_ERR_H
#define REPRISE_ERR_H

#include "base/types.h"

struct err {
    int code; /* -errno or -ERR_*; 0 when none */
    char text[1024];
};

/* Sets the text (printf format, no newline, no "error:" prefix); returns `code` for `return`. */
int err_set(struct err *err, int code, const char *fmt, ...) PRINTF(3, 4);

/* As err_set with code -errno and ": strerror" appended. */
int err_errno(struct err *err, const char *fmt, ...) PRINTF(2, 3);

/* Puts "prefix: " in front of the text that is there; returns the code that is there. */
int err_prefix(struct err *err, const char *fmt, ...) PRINTF(2, 3);

#endif
