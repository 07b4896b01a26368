/*
 * A pack of an opened recording: what goes in, and what does not. All that a replay needs and
 * nothing else: of `contents` the pieces that the log names (a recording that began in another one
 * has all that the other ever read), of disks what was read of them; no pictures, and no
 * checkpoints unless they are asked for.
 */
#ifndef REPRISE_PACK_MAKE_H
#define REPRISE_PACK_MAKE_H

#include "replay/opened.h"
#include "replay/pack_write.h"

struct pack_wish {
    bool checkpoints;     /* with its checkpoint files */
    bool redact;          /* without what a replay can do without and people may not want to show */
    int scratch;          /* an empty file, with redact */
    enum pack_disk disks; /* what of the disks */
    struct disk *const *disk; /* of its machine, with what was read of them; ndisks of them */
    unsigned ndisks;
};

/* What the log has of people and of others, which no replay can do without. */
struct pack_kept {
    u64 typed, events, frames, frame_bytes, port_bytes, pieces;
    bool command_line; /* of the kernel */
};

/* The recording's log is read to its end. *kept is for redact. */
int pack_recording(struct pack_writer *w, struct opened *o, const struct pack_wish *wish,
                   struct pack_kept *kept, struct err *err);

#endif
