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
/* What was put in, by kind: row of this, its name in JSON, what it is for people. */
#define PACK_KEPT(X)                                                                               \
    X(typed, "typed", "bytes typed on the console")                                                \
    X(events, "events", "events of keyboard and tablet")                                           \
    X(port_bytes, "port_bytes", "bytes for ports")                                                 \
    X(frames, "frames", "frames that networks received")                                           \
    X(frame_bytes, "frame_bytes", "bytes in these")                                                \
    X(names, "share_bytes", "bytes of what shares said of files: names, attributes, links")        \
    X(pieces, "contents", "reads of shared files")                                                 \
    X(content_bytes, "content_bytes", "bytes in these")                                            \
    X(gpu_bytes, "gpu_bytes", "bytes that the renderer gave back")                                 \
    X(seeds, "seeds", "seeds and IDs for its randomness")

struct pack_kept {
#define X(field, name, what) u64 field;
    PACK_KEPT(X)
#undef X
    bool command_line; /* of the kernel */
};

/* The recording's log is read to its end. *kept is for redact. */
int pack_recording(struct pack_writer *w, struct opened *o, const struct pack_wish *wish,
                   struct pack_kept *kept, struct err *err);

#endif
