/* What player.c (feeding the machine) and player_check.c (comparing) share. */
#ifndef REPRISE_PLAYER_INTERNAL_H
#define REPRISE_PLAYER_INTERNAL_H

#include "replay/digests.h"
#include "replay/player.h"

#define EVENTS 20

struct past_event {
    struct record rec; /* its bytes are in `data` */
    u8 data[INPUT_MAX];
};

struct player {
    struct input_source src;
    struct player_config config;
    char *dir;
    struct log_reader *log;
    struct log_place place; /* of `rec`, or of the ram records ahead of it */
    bool have;              /* `rec` is the next record */
    struct record rec;      /* ram records are gathered, never here */
    u64 inputs;             /* input records reached so far */
    bool quit_given;        /* since the start or the last player_seek() */
    enum player_result result;
    struct err failed;  /* of `result` */
    char *names;        /* components, joined by commas, as in the start record */
    u64 *ram;           /* recorded digests of regions */
    unsigned ram_count; /* regions of this machine; ram has as many */
    bool unsure;        /* player_unsure() */
    pos_t agreed;       /* last position at which recording and replay were seen to agree */
    bool agreed_any;
    u64 agreed_reads[DESCRIPTION_DISKS]; /* base_reads of the disks there */
    u64 nevents;                         /* consumed ever; the last EVENTS are kept */
    struct past_event events[EVENTS];
    char *report;
    /* A machine that counts branches and comes to none: since when (player.c, between()). */
    struct {
        pos_t branches, insns;
        u64 stops, same;
        struct engine_place place;
    } still;
    struct digests now;
    u8 data[INPUT_CONTENT_MAX]; /* of the input handed out last */
};

/* Where the machine is, as the log counts. */
static inline pos_t player_position(const struct player *p, const struct machine *m)
{
    return p->config.by_branch ? machine_branches(m) : machine_position(m);
}

/* Sets result, text and report. Returns the error code for take() and idle(). */
int player_diverge(struct player *p, struct machine *m, struct err *err, const char *fmt, ...)
    PRINTF(4, 5);
/* Compare p->rec, a due record of that type, with the machine; 0 or what player_diverge returns. */
int player_check_progress(struct player *p, struct machine *m, struct err *err);
int player_check_reached(struct player *p, struct machine *m, struct err *err);
int player_check_cpu(struct player *p, struct machine *m, u64 recorded, struct err *err);
int player_check_end(struct player *p, struct machine *m, const struct run_end *end,
                     struct err *err);
void player_remember(struct player *p);
/* A record in a sentence: "console input", "the end (poweroff)". */
void player_name_record(const struct record *rec, char out[96]);

#endif
