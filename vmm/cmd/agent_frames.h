/*
 * What a guest's agent says (guest-agent/agent/protocol.h), taken apart: of a program that runs for
 * us, and of one in a replay. Any bytes are safe; those that are no frame of the agent's end it.
 */
#ifndef REPRISE_CMD_AGENT_FRAMES_H
#define REPRISE_CMD_AGENT_FRAMES_H

#include "base/types.h"
#include "guest-agent/agent/protocol.h"

struct agent_frames {
    /* Standard output (1) and standard error (2), as it comes. */
    void (*output)(void *opaque, int fd, const void *data, size_t len);
    /* All others, whole. */
    void (*frame)(void *opaque, enum agent_type type, const void *data, size_t len);
    void *opaque;
    bool broken; /* it said something else */
    struct agent_frame head;
    u32 have; /* bytes of the header, then of the frame */
    bool within;
    u8 text[AGENT_DATA_MAX];
};

void agent_frames_take(struct agent_frames *a, const void *data, size_t len);

#endif
