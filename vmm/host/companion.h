/*
 * Programs of ours that run beside the machine, in processes of their own: reprise-gpu,
 * reprise-display. Built beside reprise, installed in ../libexec/reprise.
 */
#ifndef REPRISE_HOST_COMPANION_H
#define REPRISE_HOST_COMPANION_H

#include <sys/types.h>

#include "base/err.h"

#define COMPANION_FDS 4u

struct companion_config {
    const char *what;        /* "the renderer", for messages */
    const char *name;        /* of the program, beside this one */
    const char *program;     /* its path instead; NULL: that */
    const char *const *args; /* after its name, NULL at the end */
    int fds[COMPANION_FDS];  /* it has them from 3 on, and no others; they stay the caller's */
    unsigned nfds;
    int voice; /* its stderr; -1: ours */
};

/* "NAME" in the directory of this program, there or not. */
int companion_beside(const char *name, char *path, size_t size, struct err *err);
/* Where a program of ours is: beside this one, as it is built, or in ../libexec/reprise, as it is
 * installed. -ENOENT with a text that says where it was looked for. */
int companion_path(const char *name, char *path, size_t size, struct err *err);

/* Starts it, in a process group of its own (^C at the terminal is for the machine), with no
 * signals blocked. */
int companion_start(pid_t *pid, const struct companion_config *c, struct err *err);
/* The same in this very process, for outside.c; `sibling`: it becomes our parent's child. */
int companion_start_here(pid_t *pid, const struct companion_config *c, bool sibling,
                         struct err *err);

/* Kills it and waits for its end. The status as waitpid's. */
int companion_kill(pid_t pid);
/* It has closed its end: waits for it to be over, a second at most, then kills it. */
int companion_wait(pid_t pid);
/* "killed by signal 9 (Killed)" or "ended with status 1". */
void companion_how(int status, char *out, size_t size);

#endif
