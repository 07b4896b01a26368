/* The player, shared by player.c (the log, places, keyframes), play_wait.c (what the renderer owes)
 * and play_look.c (pictures). */
#ifndef REPRISE_GPU_PLAY_INTERNAL_H
#define REPRISE_GPU_PLAY_INTERNAL_H

#include "virtio-gpu-log/play/keyframe.h"
#include "virtio-gpu-log/play/player.h"
#include "virtio-gpu-log/play/screen.h"

/* A reply that will come, in the order of the requests. */
enum owed_kind { OWED_FENCE, OWED_DOWN, OWED_SHOT };
struct owed_reply {
    enum owed_kind kind;
    u64 seq;
    u64 number;   /* the command that it belongs to */
    bool compare; /* what it says of guest memory is the command's */
    u32 shot;     /* OWED_SHOT: which, and which part of it */
    bool cursor;
};
#define OWED_MAX 64u

/* Requests of a command since the last fence that was looked at. */
struct requested {
    u64 first, last, number;
    u32 type; /* of the command */
};

/* What a command gave, until the log says what it gave then. */
struct answer {
    u64 number;
    struct renderer_reply *reply;
};
#define ANSWERS_MAX 64u

/* A picture that was asked for. */
struct asked_shot {
    bool on;
    struct gpu_scanout scanout;
    u32 format, cursor_format, cursor_width, cursor_height;
    struct renderer_reply *picture, *cursor;
    bool wants_cursor;
};

/* A keyframe that is kept, and where it is. */
struct kept_keyframe {
    struct gpu_keyframe *keyframe;
    struct gpu_place place;
    struct gpu_log_mark mark;
    struct gpu_screen screen;
    u64 records;
};

enum loaded { LOADED_NOTHING, LOADED_COMMAND, LOADED_RESET };

struct gpu_player {
    struct gpu_log_reader *log;
    struct gpu_player_config config;
    struct gpu_drive *drive;
    struct gpu_track *track;
    struct gpu_screen screen;
    struct gpu_place place;
    u64 records;       /* commands and resets that are done */
    u64 frame_records; /* ... when the last frame was complete */
    /* How far the tracker is: ahead of the place after seeking back. */
    u64 tracked;
    u32 tracked_dword;
    /* The next command or reset, with bytes of our own. */
    enum loaded loaded;
    struct gpu_log_mark mark; /* in front of it */
    struct gpu_record record;
    u8 *words;
    size_t words_room;
    struct gpu_command command;
    struct gpu_range *uploads;
    u32 upload_count, upload_room;
    u8 *bytes; /* of uploads */
    size_t bytes_room;
    u8 *cut; /* part of a submit */
    size_t cut_room;
    /* What the renderer owes. */
    struct owed_reply owed[OWED_MAX];
    u32 owed_count;
    struct requested *requested;
    u32 requested_count;
    size_t requested_room;
    struct answer answers[ANSWERS_MAX];
    u32 answer_count;
    u64 done; /* commands that the renderer has surely carried out */
    bool pinning;
    struct err failed; /* set: nothing more can be played */
    bool lost;         /* when this was recorded, the renderer was gone here: answers are none */
    struct gpu_tally tally;
    struct asked_shot shots[GPU_SHOTS];
    u32 shot_first, shot_count;
    /* Keyframes, in the order of their places. */
    struct kept_keyframe *kept;
    u32 kept_count;
    size_t kept_room;
    u64 kept_bytes, kept_used;
    u64 last_kept, kept_cost;  /* host_ns */
    struct gpu_keyframe *base; /* what this place was reached from; NULL: the start */
};

/* play_wait.c */

/* The renderer was given a command: notes what it owes. `number`: whose. */
int play_requested(struct gpu_player *p, u64 number, const struct gpu_driven *driven,
                   struct err *err);
/* A fence; `compare`: what changes of guest memory is the command's. */
int play_fence(struct gpu_player *p, u64 number, bool compare, struct err *err);
/* Notes a reply that will come. */
int play_owe(struct gpu_player *p, const struct owed_reply *o, struct err *err);
/* Takes replies until no more than `left` are owed. */
int play_settle(struct gpu_player *p, u32 left, struct err *err);
/* Compares a reply of the log. */
int play_compare(struct gpu_player *p, const struct gpu_record *reply, struct err *err);
/* Forgets all that is owed and kept. */
void play_forget(struct gpu_player *p);

/* player.c */
int play_restart(struct gpu_player *p, struct err *err);
int play_no_memory(struct err *err);

/* play_look.c */
void play_shot_reply(struct gpu_player *p, const struct owed_reply *o,
                     struct renderer_reply *reply);
void play_forget_shots(struct gpu_player *p);

#endif
