/*
 * Checkpoints while recording: every so often the machine's state and the pages written since the
 * last time are copied aside, and a thread writes them into a checkpoint file. The guest waits for
 * the copy only. A host that cannot write ends the checkpoints, not the recording.
 */
#ifndef REPRISE_KEEPER_H
#define REPRISE_KEEPER_H

#include "replay/checkpoint.h"

struct keeper;

struct keeper_config {
    const struct recording *recording;
    const struct machine_description *is;
    u64 every_ns;                   /* 0: only when told to */
    u64 keep_free;                  /* so much of the file system stays free (room.h) */
    struct checkpoint_notes *notes; /* where they are noted; taken over also on error */
    /* The machine stands where the last of so many files is that are there already; NULL: at
     * power-on. */
    const struct checkpoint_file *last;
    u32 files;
};
int keeper_create(struct keeper **out, const struct keeper_config *config, struct machine *m,
                  struct err *err);
/* What the machine prints, all of it. */
void keeper_output(struct keeper *k, enum dev_output channel, const void *data, size_t len);
/* Is it time, and is the last one on disk? */
bool keeper_due(const void *keeper, u64 host_ns);
/* From take(), with nothing due at this instant any more. `log`: log_writer_before(). */
void keeper_take(void *keeper, struct machine *m, const struct player_place *place,
                 const struct sha256 *log, u64 host_ns);
/* Waits for the thread. *files and *bytes: what was written; <0 with a text if writing failed.
 * *not_noted: why they, or the last of them, were not noted; code 0: they were. */
int keeper_finish(struct keeper *k, u32 *files, u64 *bytes, struct err *not_noted, struct err *err);
void keeper_destroy(struct keeper *k); /* NULL is safe; finishes */

#endif
