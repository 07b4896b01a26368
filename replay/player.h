/*
 * The player: an input source fed from a log. It gives the machine each input at the position and
 * time at which it was recorded, compares what the log knows about the machine, and names the first
 * thing that differs. No host input of any kind is read.
 *
 * Compared always: position, time, the CPU's digest at each input, output at each progress record,
 * and at the end everything, RAM by regions of 2 MiB. With `verify` every component's digest at
 * each progress record too.
 */
#ifndef REPRISE_PLAYER_H
#define REPRISE_PLAYER_H

#include "board/description.h"
#include "host/disk.h"
#include "machine/source.h"
#include "replay/contents.h"
#include "replay/log.h"

struct player;

/* "poweroff", "exit with 3", "quit (user)". */
void run_end_text(u64 reason, u64 arg, char out[64]);

enum player_result {
    PLAYER_SAME,     /* nothing differed up to the end of the recording */
    PLAYER_DIVERGED, /* replay and recording differ */
    PLAYER_DAMAGE,   /* nothing differed up to where the log is damaged, cut off or ends early */
    PLAYER_ERROR,    /* the host failed */
};

/* A disk of the machine: what others can change of a recording. */
struct player_disk {
    const struct disk *disk;
    char *changed; /* a sentence, without full stop: it looks changed since it was recorded; or NULL
                    */
    bool same;     /* it looks as it did then; neither: nothing is known */
};

struct player_config {
    struct log_reader *log;          /* owned by the player from player_create on, also on error */
    const char *dir;                 /* the recording, for the commands that reports suggest */
    const struct player_disk *disks; /* they outlive the player; NULL: none */
    unsigned ndisks;                 /* at most DESCRIPTION_DISKS */
    struct contents *contents;       /* of shares; outlive the player; NULL: none */
    bool verify;
    bool by_branch; /* the log's positions are branches, the machine's are instructions */
    /* Test only: alters the N-th input (from 1; 0: none), so that a divergence must be found: a
     * typed byte gets a bit flipped, anything else comes one position late. */
    u64 perturb;
};

/* The machine is at power-on. Fails when the log was recorded with other components. */
int player_create(struct player **out, const struct player_config *config, struct machine *m,
                  struct err *err);
struct input_source *player_source(struct player *p);

/* The player's share of a checkpoint: which record comes next. */
struct player_place {
    struct log_place log;
    u64 inputs; /* input records before it */
};
void player_tell(const struct player *p, struct player_place *out);
/* Goes on from there with a machine that was put there too. <0: the log has no such place; the
 * player then stands at the log's start. `unsure`: the machine is as a file claims, so the next
 * progress record is compared in full. */
int player_seek(struct player *p, const struct player_place *place, bool unsure, struct err *err);
/* The next record is an input of this very instant: a run up to here would have taken it. */
bool player_due(struct player *p, struct machine *m);
/* The next record is the wish to quit, of this very instant. */
bool player_quits(struct player *p, struct machine *m);
/* No progress record has been compared since such a seek. */
bool player_unsure(const struct player *p);

/*
 * After machine_run ended for good (not RUN_STOP): compares the end. *err gets one line for any
 * result but PLAYER_SAME; `run_err` is what machine_run said if it failed for a reason that is not
 * the player's.
 */
enum player_result player_finish(struct player *p, struct machine *m, const struct run_end *end,
                                 const struct err *run_err, struct err *err);

/* Several lines about a divergence: the last events, what to do next. "" if there is none. */
const char *player_report(const struct player *p);

/* Destroys the player, but not its log, which is the caller's from now on. */
struct log_reader *player_release(struct player *p);
void player_destroy(struct player *p); /* NULL is safe */

#endif
