/* What timeline.c (moving), timeline_keep.c (checkpoints) and timeline_text.c (output) share. */
#ifndef REPRISE_TIMELINE_INTERNAL_H
#define REPRISE_TIMELINE_INTERNAL_H

#include "replay/timeline.h"

struct transcript {
    char *data;
    size_t len, room;
};

struct timeline {
    struct timeline_config config;
    struct opened o;
    struct log_summary summary;
    struct machine *m;
    struct player *player;
    struct transcript text[OUT_COUNT];
    /* The end, once it has been reached. */
    bool at_end, end_known;
    struct instant end;
    struct run_end how;
    enum player_result result;
    char end_text[1100];
    /* Checkpoints, in order of time; [0] is power-on. */
    struct checkpoint **list;
    unsigned count, room;
    struct page_store store;
    u64 budget;
    struct page_image *base; /* what RAM was when machine_written() was last reset */
    u64 cost;                /* as struct checkpoint's, of the present instant */
    u64 polled;              /* host time of the last poll */
    u64 last_kept;           /* cost of the checkpoint last taken or restored */
    struct checkpoint_set files;
    struct page_space space;
    u32 *loaded; /* by file: is it in the list? */
    /* Debug points. */
    bool armed;
    unsigned npoints;
    struct debug_point *points;
    struct debug_hit hit;
    struct { /* for the last hit before `from`; the piece at hand is from `start` to `end` */
        bool on;
        pos_t from, start, end;
        u64 window; /* positions of a piece at most, as fast as it goes of late */
    } search;
    /* A branch. */
    struct checkpoint *fork;
    struct input_source branch;
    /* Searching the console. */
    bool stop_on_output;
    size_t stop_at_output;
    u64 stop_at_frame;
};

/* timeline_keep.c */
int keep_start(struct timeline *t, struct err *err);
int keep_take(struct timeline *t, struct checkpoint **out, struct err *err);
int keep_add(struct timeline *t, struct err *err);
int keep_restore(struct timeline *t, const struct checkpoint *c, struct err *err);
/* To the checkpoint that keep_find() gives. One from a file that proves to be of no use is left
 * out, with a warning, and an earlier one taken. */
int keep_go_back(struct timeline *t, struct instant to, bool strict, struct err *err);
/* The last checkpoint that is not after `to` in either, in memory or loaded from a file. `strict`:
 * before it. Never NULL without error. */
const struct checkpoint *keep_find(struct timeline *t, struct instant to, bool strict,
                                   struct err *err);
void keep_free(struct timeline *t);

/* timeline_files.c: leaves out checkpoint files that do not lie in this recording. */
void files_check(struct timeline *t);

/* timeline_text.c */
void text_output(void *opaque, enum dev_output channel, const void *data, size_t len);
int text_from_files(struct timeline *t, struct err *err);

/* timeline.c: towards `to`, until something happens */
enum move { MOVE_PAUSE, MOVE_REACHED, MOVE_HIT, MOVE_END };
int move(struct timeline *t, struct instant to, enum move *what, struct err *err);

#endif
