/* What timeline.c (moving), timeline_keep.c (checkpoints) and timeline_text.c (output) share. */
#ifndef REPRISE_TIMELINE_INTERNAL_H
#define REPRISE_TIMELINE_INTERNAL_H

#include "replay/timeline.h"

struct transcript {
    char *data;
    size_t len, room;
};

struct timeline_skip {
    bool any;
    struct instant at;
    u64 address;
};

struct timeline {
    struct timeline_config config;
    struct opened o;
    struct log_summary summary;
    struct kept kept; /* parts of files, by the log */
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
    struct checkpoint_notes notes; /* those that are believed */
    struct err not_noted;          /* why the notes are of no use; code 0: they are */
    struct page_space space;
    u32 *loaded; /* by file: is it in the list? */
    /* Debug points. */
    bool armed;
    unsigned npoints;
    struct debug_point *points;
    struct debug_hit hit;
    struct timeline_skip *skipped; /* as many as points */
    struct {                       /* hits of a piece that are decided in front of the access */
        struct debug_hit *list;
        size_t n, room;
    } open;
    bool direct; /* move() takes no checkpoints on the way */
    struct {     /* for the last hit before `from`; the piece at hand is from `start` to `end` */
        bool on;
        pos_t from, start, end;
        u64 near;   /* the next piece is no longer than that */
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

/* timeline_files.c: what is needed of this user's notes, before the machine is there; then the
 * files that are used. */
int files_prepare(struct timeline *t, struct err *err);
int files_open(struct timeline *t, struct err *err);

/* timeline_text.c */
void text_output(void *opaque, enum dev_output channel, const void *data, size_t len);
int text_from_files(struct timeline *t, struct err *err);

/* timeline.c: towards `to`, until something happens */
enum move { MOVE_PAUSE, MOVE_REACHED, MOVE_HIT, MOVE_END };
int move(struct timeline *t, struct instant to, enum move *what, struct err *err);
/* Does the owner want it to end? Asked as often as it likes to be. */
bool move_interrupted(struct timeline *t);
/* ... to it, without stops at debug points. */
int run_to(struct timeline *t, struct instant to, enum timeline_stop *stop, struct err *err);
/* To a place that is known and near, which is not interrupted. */
int return_to(struct timeline *t, struct instant from, struct err *err);

/* timeline_skip.c: hits that do not count, and hits that are decided in front of the access. */
void skip_forget(struct timeline *t);
void skip_note(struct timeline *t, const struct debug_hit *hit, struct instant at);
int skip_open(struct timeline *t, const struct debug_hit *hit, struct err *err);
/* Decides those of the piece from `start` on that lie after *last, if *found: which is the last
 * that counts. *cut: interrupted. */
int skip_decide(struct timeline *t, struct instant start, struct debug_hit *last, bool *found,
                bool *cut, struct err *err);

#endif
