/*
 * Where the recordings of `reprise run` are when nobody says where:
 *
 *     $XDG_DATA_HOME/reprise/PROGRAM-N   (without it: $HOME/.local/share), N from 0 on
 *     .../latest                         a link to the last one
 */
#ifndef REPRISE_CMD_RUN_PLACE_H
#define REPRISE_CMD_RUN_PLACE_H

#include "base/err.h"

#define RUN_LATEST "latest"

/* Our directory below the one that `variable` names, without it below HOME's `usual`; made if
 * `make` says so. `hint` ends the sentence that there is neither. malloc'ed, NULL with *err. */
char *run_home(const char *variable, const char *usual, const char *hint, bool make,
               struct err *err);
/* The directory, made if `make` says so; malloc'ed, NULL with *err. */
char *run_place(bool make, struct err *err);
/* A name in it that nothing has, for that program; malloc'ed, NULL with *err. No other `run` gets
 * it until run_place_taken(), when the recording is there, or there will be none. */
char *run_place_new(const char *program, int *lock, struct err *err);
void run_place_taken(const char *path, int lock); /* -1 is safe */
/* The one that the link names, for good; NULL: there is none. */
const char *run_place_last(void);
/* Points the link at that recording, which is in it; NULL: there is none, and no link then. */
int run_place_latest(const char *recording, struct err *err);

#endif
