/*
 * Room for the log's end. Blocks of the host's disk are reserved ahead of the log's last byte
 * (fallocate), so that a disk that fills up meanwhile, whoever fills it, does not keep a recording
 * from ending as it should: the writer is told while what is left still takes the end. The file's
 * size is not touched. Called by log_write.c.
 */
#ifndef REPRISE_LOG_ROOM_H
#define REPRISE_LOG_ROOM_H

#include "base/types.h"

struct log_room {
    u64 end;  /* reserved up to there; 0: nothing, the host's file system cannot */
    u64 step; /* bytes reserved at once */
    bool low; /* no more can be reserved, and less than half a step is left; stays so */
};

/* `size` is what the file has. */
void log_room_open(struct log_room *r, int fd, u64 size);
/* After the file grew to `size`. */
void log_room_grow(struct log_room *r, int fd, u64 size);
/* Gives back what was not needed. */
void log_room_close(struct log_room *r, int fd, u64 size);

#endif
