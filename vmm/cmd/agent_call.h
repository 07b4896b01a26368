/*
 * The agent in a guest that is being recorded (`record --agent`), called by programs of this user:
 * where its socket is, and the beginning of a session (guest-agent/agent/protocol.h).
 */
#ifndef REPRISE_CMD_AGENT_CALL_H
#define REPRISE_CMD_AGENT_CALL_H

#include <argp.h>

#include "base/err.h"
#include "base/types.h"
#include "guest-agent/agent/protocol.h"

#define AGENT_PATH_MAX 100u

/* Where the recorder of `recording`, which need not be there yet, listens; the directory is made.
 */
int agent_socket_name(const char *recording, char out[AGENT_PATH_MAX], struct err *err);

/* What all commands that call it say. */
struct agent_call {
    const char *where; /* a recording, or a socket; NULL: the only one that there is */
    double timeout;    /* seconds until it has answered; 0: AGENT_TIMEOUT */
    u32 flags;         /* of struct agent_hello; the time is added */
    struct agent_size size;
    bool quiet; /* while it waits */
};
#define AGENT_TIMEOUT 10.0
/* The row of --timeout SECONDS, and what is done with it; a key of its own in each of them. */
#define AGENT_TIMEOUT_KEY 0x3000
#define AGENT_TIMEOUT_ROW                                                                          \
    {                                                                                              \
        "timeout", AGENT_TIMEOUT_KEY, "SECONDS", 0,                                                \
            "Wait so long for the agent to answer (default 10)", 0                                 \
    }
void agent_option_timeout(struct argp_state *state, const char *arg, struct agent_call *call);

/* Connects and says HELLO. A connected socket, on which the agent is in a session of our version,
 * or <0 with a text. */
int agent_call(const struct agent_call *how, struct err *err);

/* Sends all of it, or says why not. What the agent says meanwhile stays to be read. */
int agent_send(int fd, u32 type, const void *data, size_t len, struct err *err);

#endif
