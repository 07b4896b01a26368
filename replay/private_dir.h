/*
 * Where this user's own programs note what they know of recordings, outside of them: what stands in
 * a recording is its author's word, who may be anybody.
 *
 *     $XDG_STATE_HOME/reprise/FOLDER   (without it: $HOME/.local/state)
 *
 * Directories and files are this user's, and nobody else can write them; what is not so is not
 * believed. Files have SHA-256 hashes as names. For disk_notes.h, checkpoint_notes.h and
 * vmm/cmd/history.h.
 */
#ifndef REPRISE_PRIVATE_DIR_H
#define REPRISE_PRIVATE_DIR_H

#include "base/err.h"

/* Opens the folder, with `make` after it was made. *path: its name. -1: *err; -ENOENT in it when
 * there is none, or no place for one. */
int private_open(const char *folder, bool make, char *path, size_t room, struct err *err);
/* Is the open file `path` ours alone? <0: *err says why not. */
int private_check(int fd, const char *path, struct err *err);
/* Of the files that are named by hashes, removes all but the `kept` that were used last. What
 * cannot be looked at stays. */
void private_prune(int dir, unsigned kept);

#endif
