/* The file that `perf inject --jit` reads: code that was made, its name, when, its bytes.
 * Format: tools/perf/Documentation/jitdump-specification.txt of Linux, version 1. */
#ifndef REPRISE_CMD_JITDUMP_H
#define REPRISE_CMD_JITDUMP_H

#include <stdio.h>

#include "base/err.h"
#include "base/types.h"

struct jitdump {
    FILE *file; /* NULL: none */
    void *mark; /* its first page as code: so perf learns of the file */
    u64 index;
};

/* Makes jit-PID.dump in the directory, as perf wants it called. */
int jitdump_open(struct jitdump *j, const char *dir, struct err *err);
/* Code at `code`, made at `time` (CLOCK_MONOTONIC, ns); codes may come in any order. */
void jitdump_add(struct jitdump *j, const char *name, const void *code, u64 size, u64 time);
/* Removes the file from the directory; jitdump_close() is still due. */
void jitdump_discard(const struct jitdump *j, const char *dir);
/* Errors of all calls before, too. */
int jitdump_close(struct jitdump *j, struct err *err);

#endif
