/*
 * Which file each disk of an opened recording is read from. A recording is somebody's: what it
 * calls its images is shown, never opened, asked about or connected to. In this order:
 *
 *   1. what the user names for this command (--disk N=FILE),
 *   2. DIR/disks/N: a raw image, as a regular file, that lies in the recording itself,
 *   3. what this user's own recorder noted for it (disk_notes.h).
 *
 * Called by build_machine() only.
 */
#ifndef REPRISE_DISK_SOURCES_H
#define REPRISE_DISK_SOURCES_H

#include "host/disk_spec.h"
#include "replay/disk_notes.h"
#include "replay/opened.h"

/* Opens them into o->disks. *n: how many there are. o->seen says which one looks changed since it
 * was recorded. */
int disk_sources_open(struct opened *o, struct disk **disks, unsigned *n, struct err *err);

/* Gives the description of a recording with disks that is to be made an id. */
void disk_sources_identify(struct machine_description *d);

/*
 * Notes for later replays where the disks of a recording that was just made come from. Nothing is
 * done for one without disks.
 */
int disk_sources_note(const struct recording *r, const struct machine_description *d,
                      const struct disk *disks, struct err *err);

#endif
