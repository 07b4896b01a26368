/*
 * Which checkpoint files this user's own programs wrote or checked. A checkpoint is a claim of what
 * the machine was, and whoever sent the recording may have made it; so one is believed only if it
 * is noted here.
 *
 *     the private directory's checkpoints/IDENTITY (private_dir.h)
 *
 * IDENTITY is the SHA-256 of machine.dtb: a recording that was moved or copied keeps its notes. A
 * line for each file has its *link*, a SHA-256 over what a replay to it comes from (kernel, initrd,
 * the log up to its place), the files before it and its own bytes, of pages by their hashes
 * (docs/format.md). So a note holds for no other recording, nor for the same one with another log.
 *
 * Written by `record`, `checkpoint` and `verify`, read by whoever goes to a point.
 */
#ifndef REPRISE_CHECKPOINT_NOTES_H
#define REPRISE_CHECKPOINT_NOTES_H

#include "base/sha256.h"
#include "board/description.h"
#include "replay/recording.h"

#define CHECKPOINT_NOTES_KEPT 1000u      /* files */
#define CHECKPOINT_NOTES_FULL (4u << 20) /* bytes of one, after which its older half goes */

struct checkpoint_notes {
    int fd;               /* to add to; -1: only read */
    struct sha256 *known; /* sorted */
    size_t n;
};
#define CHECKPOINT_NOTES_NONE                                                                      \
    {                                                                                              \
        .fd = -1                                                                                   \
    }

/* Those of an opened recording. <0: none are believed, and why; -ENOENT: there are none. Close it
 * in any case. */
int checkpoint_notes_read(struct checkpoint_notes *n, const struct recording *r, struct err *err);
/* The same, to add to: before a process locks itself in. <0: nothing can be noted. */
int checkpoint_notes_begin(struct checkpoint_notes *n, const struct recording *r, struct err *err);
bool checkpoint_noted(const struct checkpoint_notes *n, const struct sha256 *link);
/* Notes one, for later readers. Any thread, one at a time. */
int checkpoint_note(struct checkpoint_notes *n, const struct sha256 *link, struct err *err);
void checkpoint_notes_close(struct checkpoint_notes *n); /* safe twice */

/* What the first link follows: machine, kernel and initrd. Reads the latter. */
int checkpoint_root(const struct recording *r, const struct machine_description *d,
                    struct sha256 *out, struct err *err);
/* `log`: log_before() of its place; `file`: of its header and meta (struct checkpoint_file). */
struct sha256 checkpoint_link(const struct sha256 *before, const struct sha256 *log,
                              const struct sha256 *file);

#endif
