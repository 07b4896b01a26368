/* The last events of a machine, for the text of a CHECK that fails. */
#ifndef REPRISE_MACHINE_LAST_H
#define REPRISE_MACHINE_LAST_H

#include <stdio.h>

#include "cpu/engine.h"
#include "dev/input.h"

#define LAST_EVENTS 20

struct last_event {
    pos_t position;
    u32 input; /* enum input_kind; 0: the engine came out */
    u32 code;  /* enum engine_exit, or bytes of the input */
};

struct last_events {
    u64 n; /* so far */
    struct last_event ring[LAST_EVENTS];
};

static inline void last_input(struct last_events *l, pos_t position, const struct input *in)
{
    l->ring[l->n++ % LAST_EVENTS] = (struct last_event){position, in->kind, in->len};
}

static inline void last_exit(struct last_events *l, pos_t position, enum engine_exit why)
{
    l->ring[l->n++ % LAST_EVENTS] = (struct last_event){position, 0, why};
}

/* The events, oldest first, and the command that goes to `position` of the recording in `dir`
 * (NULL: it has none). */
void last_print(const struct last_events *l, const char *dir, enum position_unit unit,
                pos_t position, FILE *out);

#endif
