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
    bool component;     /* a component's digests differ: these */
    u64 digest[2];
};

/* Both readers at their start. */
void log_diff(struct log_reader *a, struct log_reader *b, struct log_difference *out);
/* The same, looking past components that are known to differ: names, joined by commas. */
void log_diff_but(struct log_reader *a, struct log_reader *b, const char *but,
                  struct log_difference *out);

/* Where the inputs of two logs part: what came in, wherever it did. */
struct input_difference {
    u64 same; /* inputs from the first on that are the same */
    bool differ;
    bool has_a, has_b;  /* there is another one (else it ended) */
    struct record a, b; /* valid until the readers move on */
    bool moved;         /* the same inputs, but at other positions from number `moved_at` on */
    u64 moved_at;       /* from 1 */
    pos_t moved_a, moved_b;
};
/* Both readers at their start. */
void log_diff_inputs(struct log_reader *a, struct log_reader *b, struct input_difference *out);

#endif
