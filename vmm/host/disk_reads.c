/* See disk_reads.h. A table of groups, each of which is there when something in it was read. */
#include "host/disk_reads.h"

#include <stdlib.h>

#define GROUP  4096u /* pages */
#define SECTOR 512u

struct disk_reads {
    u64 pages, groups;
    bool failed;
    u8 *group[]; /* a byte for each page */
};

struct disk_reads *disk_reads_create(u64 size)
{
    u64 pages = (size + PAGE_SIZE - 1) / PAGE_SIZE, groups = (pages + GROUP - 1) / GROUP;
    struct disk_reads *r = calloc(1, sizeof(*r) + groups * sizeof(r->group[0]));
    if (r) {
        r->pages = pages;
        r->groups = groups;
    }
    return r;
}

void disk_reads_destroy(struct disk_reads *r)
{
    for (u64 g = 0; r && g < r->groups; g++)
        free(r->group[g]);
    free(r);
}

void disk_reads_add(struct disk_reads *r, u64 offset, u64 len)
{
    if (!r || !len)
        return;
    for (u64 s = offset / SECTOR; s <= (offset + len - 1) / SECTOR; s++) {
        u64 page = s / DISK_SECTOR_OF_PAGE, g = page / GROUP;
        if (g >= r->groups)
            return;
        if (!r->group[g] && !(r->group[g] = calloc(GROUP, 1))) {
            r->failed = true;
            return;
        }
        r->group[g][page % GROUP] |= (u8)(1u << s % DISK_SECTOR_OF_PAGE);
    }
}

bool disk_reads_next(const struct disk_reads *r, u64 *page, u8 *sectors)
{
    for (u64 p = *page; p < r->pages; p++) {
        const u8 *group = r->group[p / GROUP];
        if (!group) {
            p |= GROUP - 1;
        } else if (group[p % GROUP]) {
            *page = p;
            *sectors = group[p % GROUP];
            return true;
        }
    }
    return false;
}

bool disk_reads_failed(const struct disk_reads *r)
{
    return r->failed;
}
