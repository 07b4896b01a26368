/* A checkpoint file taken apart and put together again with its checksums right, whatever was done
 * to its header and to what it packs: for forgeries. */
#ifndef REPRISE_CHECKPOINT_EDIT_H
#define REPRISE_CHECKPOINT_EDIT_H

#include "replay/checkpoint_format.h"

struct checkpoint_edit {
    struct checkpoint_header h;
    u8 *meta; /* the machine's state, output, tables */
    u32 raw;  /* its bytes */
    u8 *data; /* the file up to it */
    size_t head;
};

/* false: there is none, or it is damaged. */
bool checkpoint_edit_open(struct checkpoint_edit *e, const char *path);
/* Frees it; the file stays as it is. */
void checkpoint_edit_drop(struct checkpoint_edit *e);
/* Writes it, not compressed, in the place of `path`, and frees. Returns the header's checksum,
 * which the next file repeats. */
u64 checkpoint_edit_close(struct checkpoint_edit *e, const char *path);

#endif
