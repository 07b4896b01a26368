/*
 * `reprise run` for another command (hunt/): its options, looked at before anything is done, and
 * what became of the program.
 */
#ifndef REPRISE_CMD_RUN_H
#define REPRISE_CMD_RUN_H

#include "base/types.h"
#include "cmd/run_talk.h"

/* What a command line says. */
struct run_said {
    const char *output, *seed; /* NULL: not said */
    unsigned writes;           /* --write */
    int program;               /* where in argv the program is named */
};

/* Reads the options; what is wrong is printed, and ends the process. */
void run_said(int argc, char **argv, struct run_said *out);

struct run_outcome {
    bool known; /* else there was no program, or nothing is known of its end */
    enum run_result result;
    int status; /* as run_talk.h has it */
};

/* cmd_run(); `more`, NULL at the end, are options for the recorder besides its own. */
int run_with(int argc, char **argv, char *const *more, struct run_outcome *out);

#endif
