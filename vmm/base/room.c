/* See room.h. */
#include "base/room.h"

#include <stdio.h>
#include <sys/statvfs.h>

#define GIB  (1ull << 30)
#define STEP (1ull << 20) /* asked for at once: a look at the file system takes a microsecond */

static void choose(struct room *r, u64 total, u64 free)
{
    if (r->keep == ROOM_DEFAULT)
        r->keep = MIN(MAX(GIB, total / 20), free / 2);
    else if (r->keep == ROOM_LEAST)
        r->keep = MIN(MIN(GIB, total / 20), free / 2);
}

enum room_answer room_ask(struct room *r, int fd, u64 size)
{
    struct statvfs s;
    r->answer = ROOM_FINE;
    if (size <= r->granted || (!r->keep && !r->limit))
        return r->answer;
    u64 more = size - r->granted, left = NEVER;
    if (r->limit)
        left = r->limit - MIN(r->limit, size);
    if (r->limit && size > r->limit)
        return r->answer = ROOM_LIMIT;
    if (r->keep && !fstatvfs(fd, &s) && s.f_blocks) {
        u64 free = (u64)s.f_bavail * s.f_frsize;
        choose(r, (u64)s.f_blocks * s.f_frsize, free);
        u64 may = free - MIN(free, r->keep);
        if (more > may)
            return r->answer = ROOM_KEPT;
        left = MIN(left, may - more);
    }
    r->nearly = r->nearly || size / 4 >= left;
    r->granted = size + MIN(STEP, left);
    return r->answer;
}

char *room_text(const struct room *r, char *out, size_t size)
{
    bool kept = r->answer == ROOM_KEPT;
    double bytes = (double)(kept ? r->keep : r->limit);
    const char *unit = bytes >= (double)GIB ? "GiB" : "MiB";
    bytes /= bytes >= (double)GIB ? (double)GIB : (double)(1 << 20);
    if (r->answer == ROOM_FINE)
        snprintf(out, size, "there is room");
    else if (kept)
        snprintf(out, size, "the last %.1f %s of the file system stay free", bytes, unit);
    else
        snprintf(out, size, "its limit of %.1f %s is reached", bytes, unit);
    return out;
}
