/*
 * What Linux shows of a process in /proc/PID, written from the guest's kernel as it is in memory
 * (kernel's documentation: filesystems/proc): nothing was read in the guest. What it does not know
 * here is left out.
 */
#ifndef REPRISE_PROGRAM_PROC_H
#define REPRISE_PROGRAM_PROC_H

#include <stdio.h>

#include "inspect/program.h"

void program_proc_learn(struct program_layout *l, const struct btf *b);
/* The file of that name, as "maps"; false: it has none, or it is not known. */
bool program_proc(FILE *out, const struct program *p, const struct program_layout *l,
                  struct machine *m, const char *name);

#endif
