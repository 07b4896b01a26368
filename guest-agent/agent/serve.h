/*
 * A guest that runs its own system: sessions of the host's, one after another (protocol.h), each in
 * a process of its own, so that whatever becomes of it the next one finds the agent as it was.
 * Between them it waits, without waking up.
 */
#ifndef REPRISE_AGENT_SERVE_H
#define REPRISE_AGENT_SERVE_H

/* Comes back only if it cannot: 1, and said. */
int serve(void);

#endif
