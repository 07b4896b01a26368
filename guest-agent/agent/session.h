/* One session: what the host wants after HELLO (protocol.h). */
#ifndef REPRISE_AGENT_SESSION_H
#define REPRISE_AGENT_SESSION_H

#include <stdint.h>

struct talk;

/* Until it is over. A host that breaks a rule, or hangs up, ends the process. */
void session(struct talk *t, uint64_t number);

#endif
