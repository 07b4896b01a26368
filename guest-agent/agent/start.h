/*
 * What START carries, read: which program, and as whom.
 */
#ifndef REPRISE_AGENT_START_H
#define REPRISE_AGENT_START_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "guest-agent/agent/protocol.h"

enum { START_WHY = 128, START_GROUPS_MAX = 65536 };

struct start {
    uid_t uid;
    gid_t gid;
    mode_t umask;
    uint32_t terminals; /* bit N: descriptor N is one */
    struct agent_size size;
    struct timespec clock; /* of the host, since 1970 */
    struct agent_network network;
    size_t groups;
    gid_t *group;                        /* allocated */
    const char *host, *directory, *file; /* in the bytes that were read */
    char **arguments, **variables;       /* end in NULL; allocated, their texts are not */
    char **writes;                       /* ... directories whose changes the host wants */
    uint32_t window; /* bytes of output that the host has not taken, at most; 0: any */
};

/* Reads a START's `len` bytes, which must stay. False: `why` says what is wrong with them, and
 * there is nothing to free. */
bool start_read(struct start *s, char *bytes, size_t len, char why[START_WHY]);

void start_free(struct start *s);

#endif
