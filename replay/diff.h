/*
 * Where two logs part. Inputs and ends are compared one by one; progress records, which lie where
 * the host's clock put them, only where both logs have one at the same position and time.
 */
#ifndef REPRISE_DIFF_H
#define REPRISE_DIFF_H

#include "replay/log.h"

struct log_difference {
    bool differ;
    bool has_a, has_b;  /* the log has a record there (else it ended before) */
    struct record a, b; /* valid until the readers move on */
    char field[96];     /* what differs first: "data", "components (cpu0)" */
    u64 compared;       /* records that were compared and equal */
};

/* Both readers at their start. */
void log_diff(struct log_reader *a, struct log_reader *b, struct log_difference *out);

#endif
