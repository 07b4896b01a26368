/*
 * How far the files that a guest makes grow may grow on the host: a file system of which so much
 * stays free whatever the guest does, and a limit of the file's own. Asked before a file grows;
 * called by what writes disk overlays, gpu.log, checkpoints, the output of ports and pictures.
 */
#ifndef REPRISE_ROOM_H
#define REPRISE_ROOM_H

#include "base/types.h"

/* For room.keep, found out when the file is first asked for: a twentieth of the file system, and at
 * least 1 GiB; of both at most half of what is free then, so that small ones can be used, too. */
#define ROOM_DEFAULT UINT64_MAX
/* For what was recorded and has to be done again: a twentieth, but at most 1 GiB, or half of what
 * is free. */
#define ROOM_LEAST (UINT64_MAX - 1)

enum room_answer { ROOM_FINE, ROOM_LIMIT, ROOM_KEPT };

/* All zero: nothing is kept free, there is no limit. */
struct room {
    u64 keep;                /* bytes of the file system that stay free */
    u64 limit;               /* bytes of the file; 0: none */
    u64 granted;             /* private: so large it may become without being asked again */
    enum room_answer answer; /* the last one */
    bool nearly;             /* four fifths of what it may have are taken; stays so */
};

/* May the file of `fd` become `size` bytes long? ROOM_FINE also where the host does not say. */
enum room_answer room_ask(struct room *r, int fd, u64 size);

/* What the last answer was, for people: "its limit of 8.0 GiB is reached". Returns `out`. */
char *room_text(const struct room *r, char *out, size_t size);

#endif
