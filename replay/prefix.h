/*
 * A recording that begins in another one: an input source that gives what a log has up to an
 * instant, compares as a player does, and from there on hands over to a live source. The recorder
 * that takes from it writes all of it, so that the new recording is complete in itself, from
 * power-on.
 */
#ifndef REPRISE_PREFIX_H
#define REPRISE_PREFIX_H

#include "replay/checkpoint.h"
#include "replay/player.h"

struct prefix;

struct prefix_config {
    struct player *player;     /* owned by the prefix from prefix_create on, also on error */
    struct input_source *live; /* outlives the prefix */
    struct instant at;
    /* Until then, whether the user wants to end it: 1: *in is a QUIT. */
    int (*quits)(void *opaque, struct machine *m, struct input *in);
    /* The machine stands there; the live source is next. */
    void (*begins)(void *opaque, struct machine *m);
    void *opaque;
};

int prefix_create(struct prefix **out, const struct prefix_config *config, struct err *err);
struct input_source *prefix_source(struct prefix *p);
/* Is it over? */
bool prefix_begun(const struct prefix *p);
void prefix_destroy(struct prefix *p); /* NULL is safe */

#endif
