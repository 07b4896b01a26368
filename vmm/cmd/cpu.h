/* What CPUs there are to choose from, for people. */
#ifndef REPRISE_CMD_CPU_H
#define REPRISE_CMD_CPU_H

#include <argp.h>

#include "cpu/features.h"

/* `--cpu MODEL,+feature,-feature`; `help` prints what there is, and ends the program. */
void cpu_option(struct argp_state *state, const char *arg, struct cpu_choice *out);

#define CPU_TEXT (64 + CPU_CHANGES)
/* As `--cpu` takes it, on any host. */
void cpu_text(const struct cpu_choice *c, char out[CPU_TEXT]);

#endif
