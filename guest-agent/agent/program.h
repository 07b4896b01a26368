/*
 * The program, as a process with its descriptors, and what of it the agent holds.
 */
#ifndef REPRISE_AGENT_PROGRAM_H
#define REPRISE_AGENT_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct start;

struct program {
    pid_t pid;    /* ... and its process group */
    int terminal; /* a pseudo-terminal's master; -1: none of its descriptors is one */
    int in;       /* to be written: the terminal, a pipe */
    int out[3];   /* [1], [2]: pipes to be read; -1: the terminal is, or nothing any more */
};

struct failure {
    uint32_t status; /* of struct agent_failed */
    char text[1000];
};

/* Starts it; comes back when it has been executed. False: `f` says why it could not be. */
bool program_start(struct program *p, const struct start *s, struct failure *f);

#endif
