/*
 * A program's file, found in PATH and executed.
 */
#ifndef REPRISE_AGENT_EXECUTE_H
#define REPRISE_AGENT_EXECUTE_H

struct failure;
struct start;

/* As execvp() does with the variables of START; comes back if that fails, with `f` saying why. A
 * file that is no text is not given to the shell. */
void execute(const struct start *s, struct failure *f);

#endif
