/*
 * What a program wrote beneath the directories of `reprise run --write`, as its guest's agent tells
 * it (guest-agent/agent/protocol.h: WRITTEN to LEAVE), taken to the host's (host/tree.h). Any
 * frames are safe.
 */
#ifndef REPRISE_CMD_RUN_WRITE_H
#define REPRISE_CMD_RUN_WRITE_H

#include "base/err.h"
#include "guest-agent/agent/protocol.h"

struct run_write;

/* Of directories that the user named, at most AGENT_WRITES; `memory`: bytes of the machine's, more
 * is not written. */
int run_write_open(struct run_write **out, char *const *directories, unsigned n, u64 memory,
                   struct err *err);
/* NULL is safe. What is not whole is removed. */
void run_write_close(struct run_write *w);

/* Their paths, as the guest has them. */
unsigned run_write_count(const struct run_write *w);
const char *run_write_path(const struct run_write *w, unsigned i);

/* A frame of the agent's; false: that was none that may come now. */
bool run_write_frame(struct run_write *w, enum agent_type type, const void *data, size_t len);
/* After the last frame, or when there will be none: true if all that was written is there. Says how
 * much was not, and with `verbose` how much was. */
bool run_write_end(struct run_write *w, bool ended, bool verbose);

#endif
