/*
 * Seeing the processes of a Linux guest live, while its machine runs: what the kernel's own
 * functions are called with (LIFE_POINT of life_events.def) becomes events of a struct lives. It
 * needs the kernel's symbols and type information (BTF); of a kernel without the latter only oopses
 * and panics are seen.
 */
#ifndef REPRISE_LIVES_WATCH_H
#define REPRISE_LIVES_WATCH_H

#include "inspect/lives.h"
#include "inspect/process.h"

enum life_point {
#define LIFE_POINT(name, function, other, needed) AT_##name,
#include "inspect/life_events.def"
#undef LIFE_POINT
    LIFE_POINTS
};

struct lives_watched {
    u32 next;     /* of those that live, in the same place of the hash; LIVES_NONE at the end */
    bool leaving; /* its process ends, and what ends it is known: in its first thread */
};

struct lives_watch {
    struct lives *lives;
    u32 *hash;                /* by task: those that live */
    struct lives_watched *of; /* each of the lives */
    u32 room;
    struct process_layout current;
    u32 parent_at, mm_at, start_at, end_at; /* members of the task and of its mm */
    u32 tgid_at, pid_at, comm_at;
    bool has_program;
    u32 program_at, path_at, name_at; /* of mm, of its file, of that's directory entry */
    u64 address[LIFE_POINTS];         /* where the machine has to stop; 0: the kernel has none */
};

/* Learns from the kernel where the machine stands. `l` has what happened before, up to here;
 * nothing: its first task is added. -ENOENT with a text: no kernel is to be seen (yet). 0 with
 * l->lacks: not all can be known. */
int lives_watch_learn(struct lives_watch *w, struct lives *l, struct machine *m, struct err *err);
/* The machine stands at w->address[point]. -ENOMEM. */
int lives_watch_hit(struct lives_watch *w, struct machine *m, enum life_point point,
                    struct err *err);
/* A program in it has just made a mark (DEBUG_MARK). Also of a watch of zeros but for `lives`: a
 * guest that is no Linux. -ENOMEM. */
int lives_watch_mark(struct lives_watch *w, struct machine *m, struct err *err);
/* Names and parents of those that live, as they are where the machine stands now, as of `at`: for
 * kernels that lack a point. -ENOMEM. */
int lives_watch_look(struct lives_watch *w, struct machine *m, struct life_time at,
                     struct err *err);
void lives_watch_free(struct lives_watch *w); /* safe on zeros */

#endif
