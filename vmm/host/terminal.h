/*
 * The user's terminal: raw while a guest has it, and given back as it was on every way out.
 * What only works per process (exit and fatal-signal hooks) is kept in terminal.c.
 */
#ifndef REPRISE_TERMINAL_H
#define REPRISE_TERMINAL_H

#include "base/types.h"

/*
 * Puts the terminal `fd` into raw mode: no echo, no line editing, no signals from keys; output
 * processing stays. false (and nothing done) when fd is no terminal, another one is raw already,
 * or we are in the background, where touching the terminal would stop us.
 */
bool terminal_raw(int fd);

/* Gives it back. Safe without terminal_raw, twice, and in a signal handler. */
void terminal_restore(void);

#endif
