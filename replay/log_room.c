/* See log_room.h. */
#define _GNU_SOURCE /* fallocate */
#include "replay/log_room.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define STEP_MOST  (8u << 20) /* half of it takes the digests of a terabyte of RAM */
#define STEP_LEAST (512u << 10)

static bool reserve(int fd, u64 from, u64 size)
{
    int r;
    do
        r = fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)size);
    while (r && errno == EINTR);
    return !r;
}

void log_room_open(struct log_room *r, int fd, u64 size)
{
    *r = (struct log_room){0};
    for (u64 step = STEP_MOST; step >= STEP_LEAST && !r->end; step /= 2)
        if (reserve(fd, size, step))
            *r = (struct log_room){.end = size + step, .step = step};
}

void log_room_grow(struct log_room *r, int fd, u64 size)
{
    if (!r->end || size + r->step / 2 <= r->end)
        return;
    if (reserve(fd, size, r->step))
        r->end = size + r->step;
    else
        r->low = true;
}

void log_room_close(struct log_room *r, int fd, u64 size)
{
    if (!r->end)
        return;
    /* Some file systems give blocks back by the one way only, some by the other. */
    if (r->end > size)
        (void)!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)size,
                         (off_t)(r->end - size));
    (void)!ftruncate(fd, (off_t)size);
    r->end = 0;
}
