/*
 * A process beside `record --agent` that tells the guest's agent what only the host knows: the size
 * of the terminal where its console is, and the time when the machine has stood still: this host
 * was suspended, the recorder stopped, or gdb held it. It is a program of this user like any that
 * calls the agent, so what it says is an input like theirs. A guest without an agent hears nothing.
 */
#ifndef REPRISE_CMD_AGENT_MINDER_H
#define REPRISE_CMD_AGENT_MINDER_H

#include <stdbool.h>

#include "base/err.h"

struct agent_minder {
    int wake; /* -1: none */
};

#define AGENT_MINDER_NONE                                                                          \
    {                                                                                              \
        .wake = -1                                                                                 \
    }

/* Before this process locks itself in, and has threads. `late`: the guest's clock is from another
 * day. It ends with this process. */
int agent_minder_begin(struct agent_minder *m, const char *socket, bool late, struct err *err);
/* The machine goes on after it stood still. */
void agent_minder_resumed(const struct agent_minder *m);
void agent_minder_end(struct agent_minder *m);

#endif
