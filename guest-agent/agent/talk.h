/*
 * The agent's end of the port: frames, as protocol.h has them. A host that breaks a rule, or hangs
 * up, ends the machine.
 */
#ifndef REPRISE_AGENT_TALK_H
#define REPRISE_AGENT_TALK_H

#include <stdbool.h>
#include <stddef.h>

#include "guest-agent/agent/protocol.h"

/* The most of output in a frame: with its head, what the port takes at once. */
#define TALK_OUTPUT_MAX (AGENT_DATA_MAX - sizeof(struct agent_frame))

struct talk {
    int fd;      /* the port */
    size_t have; /* bytes of `bytes` that are there */
    struct {
        struct agent_frame head;
        uint8_t data[AGENT_DATA_MAX];
    } frame; /* ... of the host's next */
};

/* The open port; SIGIO is to be blocked. */
void talk_init(struct talk *t, int fd);

/* Waits until the host has opened its end, and reads START: `len` bytes, allocated. */
char *talk_start(struct talk *t, size_t *len);

/* True: t->frame is a whole one of the host's; talk_next() may be called again when it is done
 * with. */
bool talk_next(struct talk *t);
/* Waits for one. */
void talk_wait(struct talk *t);
/* Waits until the host has opened its end. */
void talk_await_host(struct talk *t);

/* The host's end is as long as this runs. Waits while the port is full. */
void talk_send(struct talk *t, uint32_t type, const void *data, size_t len);

/* struct agent_failed and its text. */
void talk_fail(struct talk *t, uint32_t status, const char *text);

#endif
