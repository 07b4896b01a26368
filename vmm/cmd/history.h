/*
 * What happened to the processes of a recording's guest, as a replay of it has shown: as much of it
 * as somebody asked for, once. It is kept as a cache of this user's own,
 *
 *     the private directory's processes/IDENTITY (private_dir.h)
 *
 * IDENTITY is the SHA-256 of machine.dtb. What lies there is believed only for the recording whose
 * kernel, initrd and log it was made from, and is not written after checkpoints of others were
 * believed unseen. Nothing of it lies in the recording.
 */
#ifndef REPRISE_CMD_HISTORY_H
#define REPRISE_CMD_HISTORY_H

#include "cmd/travel.h"
#include "inspect/life_search.h"
#include "inspect/lives_file.h"

struct history;

/* Before the process locks itself in. Where there can be no file it is made for this process only.
 * `trust`: as travel_with's. NULL: no memory. */
struct history *history_open(const char *dir, bool trust);
void history_close(struct history *h); /* NULL is safe */

/* Sees to it that all before `to` is known, and what happens right there (position NEVER: to the
 * recording's end): of what is not, the recording is replayed, and tr's machine moved. -ENOENT with
 * a text: there is no Linux; -EINTR. */
int history_reach(struct travel *tr, struct instant to, struct err *err);
/* The same for marks (LIFE_MARK), of guests of any kind: one that is no Linux has nothing else, and
 * says so in `lacks`. */
int history_reach_marks(struct travel *tr, struct instant to, struct err *err);
/* The same until `s` is found, at most to the end. -ESRCH: it is not there; the caller says so. */
int history_search(struct travel *tr, struct life_search *s, struct err *err);
const struct lives *history_lives(const struct travel *tr);
/* How the recording ends, if what is known goes so far. */
enum lives_end history_end(const struct travel *tr);

/* Goes to where a point of a process' life is, or a mark that a program made (point_takes_lives()).
 */
int history_seek(struct travel *tr, const struct point *p, enum timeline_stop *stop,
                 struct err *err);

#endif
