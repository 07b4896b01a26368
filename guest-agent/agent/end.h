/*
 * How the machine ends: through the debug-exit port, with a status as a shell has it.
 */
#ifndef REPRISE_AGENT_END_H
#define REPRISE_AGENT_END_H

enum { STATUS_TROUBLE = 125, STATUS_NOT_EXECUTABLE, STATUS_NOT_FOUND };

/* Ends the machine with `status`, 0 to 255. */
void machine_end(int status) __attribute__((noreturn));

/* Says on the console what is wrong, and ends the machine with STATUS_TROUBLE. */
void give_up(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

#endif
