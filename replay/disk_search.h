/*
 * A disk's image that is not where it was: looked for in the directories that the user names
 * (--disk-path), and in the one that the recording lies in. By name, size and, where the recording
 * has a map of what was read of it (pack_disk.h), by what is in it. Of the files beside the
 * recording, which nobody named, one is taken only if it has all of that, and nothing else is read
 * of it: a recording gets no more of them than it knows.
 *
 * Files are opened before the door, and looked at behind it. Called by disk_sources.c only.
 */
#ifndef REPRISE_DISK_SEARCH_H
#define REPRISE_DISK_SEARCH_H

#include "replay/opened.h"

/* Opens what disk i could be: raw images of its size. *err says what was found if it is none. */
int disk_search(struct opened *o, unsigned i, struct disk_candidates *out, struct err *err);
void disk_candidates_close(struct disk_candidates *c); /* safe on zeros, and twice */

/* Behind the door: of several images the one that is the recording's, and whether one that was
 * named or noted is, as far as its map says. */
int disk_search_settle(struct opened *o, struct err *err);

#endif
