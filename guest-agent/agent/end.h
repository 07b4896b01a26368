/*
 * How the machine ends: through the debug-exit port, with a status as a shell has it. Of a guest
 * that runs its own system only the session ends, which is a process of its own (serve.h).
 */
#ifndef REPRISE_AGENT_END_H
#define REPRISE_AGENT_END_H

enum { STATUS_TROUBLE = 125, STATUS_NOT_EXECUTABLE, STATUS_NOT_FOUND };

/* Ends the machine with `status`, 0 to 255. */
void machine_end(int status) __attribute__((noreturn));

/* Says on standard error what is wrong, and ends the machine, or the session, with STATUS_TROUBLE.
 */
void give_up(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* The host has hung up: the same, but there is nobody to be told. */
void host_gone(void) __attribute__((noreturn));

#endif
