/*
 * The beginning of a session, looked for among whatever is left of the one before (protocol.h):
 * HELLO by the agent, WELCOME by the host. Shared by both.
 */
#ifndef REPRISE_AGENT_SYNC_H
#define REPRISE_AGENT_SYNC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "guest-agent/agent/protocol.h"

#define SYNC_HEAD  (sizeof(struct agent_frame) + AGENT_MAGIC_SIZE)
#define SYNC_LEAST (AGENT_MAGIC_SIZE + 12u) /* magic, number, version */

struct sync {
    uint32_t type; /* AGENT_HELLO, AGENT_WELCOME */
    size_t have;   /* bytes of it that are there */
    bool found;    /* all are */
    uint8_t bytes[sizeof(struct agent_frame) + AGENT_HELLO_MAX];
};

void sync_init(struct sync *s, uint32_t type);
/* Looks at what comes; how much of it was used: all, or up to the end of what is found. */
size_t sync_take(struct sync *s, const void *data, size_t len);
/* What was found: its length, and into `out` as much of it as there is room for; zeros behind. */
size_t sync_found(const struct sync *s, void *out, size_t size);
/* The magic of a HELLO or a WELCOME. */
void sync_magic(uint32_t type, uint8_t out[AGENT_MAGIC_SIZE]);

#endif
