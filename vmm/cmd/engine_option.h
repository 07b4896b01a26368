/* --engine of the commands that run a machine. */
#ifndef REPRISE_CMD_ENGINE_OPTION_H
#define REPRISE_CMD_ENGINE_OPTION_H

#include "cmd/cmd.h"

#define PARANOID_HELP                                                                              \
    "With dbt,paranoid[,seed=N] whatever dbt runs is run a second time, one instruction at a "     \
    "time, "                                                                                       \
    "and all state compared: it takes more than a hundred times as long, and the first "           \
    "difference ends it, "                                                                         \
    "with the instruction that it takes"

/* "dbt", "kvm", "dbt,paranoid", "dbt,paranoid,seed=N"; if `chooses` also "auto", which is -1. */
int option_engine(struct argp_state *state, const char *arg, bool chooses,
                  struct engine_paranoid *out);
/* On stderr what was compared, if it was; `failed`: how to see the difference again, by a replay of
 * `dir`. */
void paranoid_summary(const struct engine_paranoid *p, const struct machine *m, bool failed,
                      const char *dir);

#endif
