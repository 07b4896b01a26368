/* The option --chaos. */
#ifndef REPRISE_CMD_CHAOS_OPTION_H
#define REPRISE_CMD_CHAOS_OPTION_H

#include <argp.h>

#include "dev/input.h"

struct chaos {
    u64 seed;
    enum chaos_part part;
};

#define CHAOS_ARG "SEED[,turns|,delays]"
#define CHAOS_HELP                                                                                 \
    "turns of any length in any order, late timers and devices, so that what happens once in a "   \
    "long while happens now (docs/chaos.md). SEED makes it the same again (default: random); "     \
    "turns, delays: only these"
#define CHAOS_TEXT 48 /* bytes of chaos_option_text() */

/* Reads its argument, NULL: a random seed. What is wrong is printed, and ends the process. */
void chaos_option(struct argp_state *state, const char *arg, struct chaos *out);
/* The option as it would be given. */
void chaos_option_text(const struct chaos *c, char out[CHAOS_TEXT]);

#endif
