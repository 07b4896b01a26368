/*
 * Between the host and the program, until that ends.
 */
#ifndef REPRISE_AGENT_RELAY_H
#define REPRISE_AGENT_RELAY_H

#include <stdint.h>

struct program;
struct talk;

/* Passes on what is typed, sent and printed, and reaps what is left to process 1. `window`:
 * START's. Returns how the program ended, as waitpid() says it, when what it printed has been sent.
 * SIGCHLD is to be blocked. */
int relay(struct talk *t, struct program *p, uint32_t window);

#endif
