/*
 * A file of turns: which vCPU gets its turn when, otherwise than the schedule has it. The user
 * named it (`record --turns`); every line that is not understood is refused by its number. A line
 * is
 *
 *     CPU COUNT TO
 *
 * in decimal: once vCPU CPU has counted so much, and it is its turn, TO gets it, if TO can run.
 * Lines of one CPU stand in the order of their counts, of each count one. What is after # is a
 * comment. Lines whose count has passed are passed over.
 */
#ifndef REPRISE_LIVE_TURNS_H
#define REPRISE_LIVE_TURNS_H

#include <stdio.h>

#include "base/err.h"
#include "machine/machine.h"

#define TURNS_MAX (1u << 24) /* lines */

struct turns;

/* What is wrong is said with the path and the number of the line. */
int turns_load(struct turns **out, const char *path, struct err *err);
void turns_destroy(struct turns *t); /* NULL is safe */
/* A line that turns_load() takes. */
void turns_write(FILE *f, const struct machine_switch *s);
/* The INPUT_TURN that is due here. */
bool turns_take(struct turns *t, struct machine *m, struct input *in);
/* The next position at which one may be, while nobody else gets the turn; NEVER: none. */
pos_t turns_next(const struct turns *t, struct machine *m);

#endif
