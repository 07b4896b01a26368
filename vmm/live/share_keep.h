/*
 * What a recording keeps of the programs and libraries that its guest had opened, beside what the
 * guest read: names, lines and unwind tables, so that a debugger has them where the files are not.
 * Asked of the same server, once the machine has ended: of files that the guest has opened itself
 * and that are what they were then.
 */
#ifndef REPRISE_LIVE_SHARE_KEEP_H
#define REPRISE_LIVE_SHARE_KEEP_H

#include "live/share.h"

/* One part of a file, which has `length` bytes in all; 1 to INPUT_CONTENT_MAX. False: no more. */
struct share_keeper {
    bool (*keep)(void *opaque, u64 inode, u64 length, u64 offset, const u8 *data, u32 size);
    void *opaque;
};

/* Keeps what there is. Files that it cannot read, or that are none as their heads say, are left
 * out. */
void share_keep(struct share_host *h, const struct share_keeper *to);

#endif
