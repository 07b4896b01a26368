/*
 * Plays a gpu.log on a renderer, without any machine: to a frame, a command, a part of a SUBMIT_3D,
 * a position; on and back. What a scanout shows can be looked at anywhere.
 *
 * Any log is safe. What the device refused is not played; what a renderer refuses has no effect and
 * is counted. A renderer that dies ends playing with an error that names the command.
 */
#ifndef REPRISE_GPU_PLAYER_H
#define REPRISE_GPU_PLAYER_H

#include "base/err.h"
#include "virtio-gpu-log/play/drive.h"
#include "virtio-gpu-log/play/track.h"

struct gpu_player;
struct gpu_keyframe;

struct gpu_player_config {
    struct renderer_config renderer;
    /* Bytes of keyframes to keep, so that seeking back is quick; 0: none, it plays from the start.
     */
    u64 keyframes;
    /* Nanoseconds of playing between two; 0: so that they cost a tenth of it at most. */
    u64 keyframe_spacing;
    /* Compare what the log says that guests read with what this renderer gives. */
    bool compare;
};

/* The log stays the caller's, who leaves it alone as long as there is a player. */
int gpu_player_create(struct gpu_player **out, struct gpu_log_reader *log,
                      const struct gpu_player_config *config, struct err *err);
void gpu_player_destroy(struct gpu_player *p); /* NULL is safe */

/* How far it is. */
struct gpu_place {
    u64 commands;   /* done: those numbered below */
    u32 dword;      /* of the next, a SUBMIT_3D, the virgl commands in front of this are done too */
    u64 frames;     /* completed */
    pos_t position; /* of the last command or reset that is done */
    vns_t time;
};
const struct gpu_place *gpu_player_place(const struct gpu_player *p);

/* Does the next command; 1, 0 at the end of the log (gpu_log_damage says how it ended). */
int gpu_player_step(struct gpu_player *p, struct err *err);
/* The command that step() does next, all of it; NULL at the end. Valid until the next call. */
const struct gpu_command *gpu_player_peek(struct gpu_player *p, struct err *err);
/* Of the next command, which must be a SUBMIT_3D, the virgl commands that start in front of
 * `dword`. */
int gpu_player_part(struct gpu_player *p, u32 dword, struct err *err);

/* Back or on to where commands numbered below `command` are done, and no others. */
int gpu_player_seek_command(struct gpu_player *p, u64 command, struct err *err);
/* ... to where frame N (from 1) is complete; 0: the start. -ENOENT: there is none. */
int gpu_player_seek_frame(struct gpu_player *p, u64 frame, struct err *err);
/* ... to where everything up to that instant is done, itself included; time NEVER: up to the end of
 * the position. */
int gpu_player_seek_instant(struct gpu_player *p, pos_t position, vns_t time, struct err *err);

/* Where in the log the next command is, for reading it (gpu_log_return) when the player is done. */
void gpu_player_mark(const struct gpu_player *p, struct gpu_log_mark *out);

/* --- Looking --- */

/* What a scanout shows, with the cursor: rows of R, G, B bytes from the top. width 0: it is off. */
struct gpu_shot {
    u32 width, height;
    u32 resource; /* shown; 0: none */
    u8 *rgb;      /* gpu_shot_free */
    u64 hash;     /* XXH3-64 of the rows, seeded with width << 32 | height */
};
int gpu_player_shot(struct gpu_player *p, u32 scanout, struct gpu_shot *out, struct err *err);
void gpu_shot_free(struct gpu_shot *s);
/* The same in two parts, so that the renderer goes on meanwhile: asked for now, taken later, in
 * order. At most GPU_SHOTS at a time. */
#define GPU_SHOTS 4u
int gpu_player_ask_shot(struct gpu_player *p, u32 scanout, struct err *err);
int gpu_player_take_shot(struct gpu_player *p, struct gpu_shot *out, struct err *err);

/* The shown part of a scanout: resource 0 when it is off. */
struct gpu_shown {
    u32 resource, x, y, width, height;
};
void gpu_player_shown(const struct gpu_player *p, u32 scanout, struct gpu_shown *out);

/* Pixels of level 0, layer 0 of a resource as R, G, B, A, all of it; box NULL or a part. -ENOTSUP
 * when it cannot be read. */
int gpu_player_pixels(struct gpu_player *p, u32 resource, const struct wire_box *box,
                      struct gpu_shot *rgba, struct err *err);

/* What was set up by everything played so far; not after seeking back with keyframes. */
const struct gpu_track *gpu_player_track(const struct gpu_player *p);
/* Everything requested so far is done. */
int gpu_player_sync(struct gpu_player *p, struct err *err);

/* Commands that set up what there is at this place (keyframe.h): 1; 0 and *why when that cannot be
 * done here. The player keeps watching over it until it is given back. */
int gpu_player_keyframe(struct gpu_player *p, bool observe, struct gpu_keyframe **out,
                        const char **why, struct err *err);
void gpu_player_keyframe_free(struct gpu_player *p, struct gpu_keyframe *k);

/* Those that the player keeps by itself. */
struct gpu_player_keyframes {
    u32 count, broken; /* broken: what they relied on was looked at */
    u64 bytes;         /* of contents */
    u64 used;          /* how often playing went on from one */
};
void gpu_player_keyframes(const struct gpu_player *p, struct gpu_player_keyframes *out);

/* What went wrong on the way, since the start. */
struct gpu_tally {
    u64 refused;       /* commands that the renderer did not carry out */
    u64 first_refused; /* the first of them */
    char refusal[128]; /* ... and why */
    u64 compared;      /* read-backs (with `compare`) */
    u64 different;     /* ... that are not the log's */
    u64 first_different;
};
void gpu_player_tally(const struct gpu_player *p, struct gpu_tally *out);
/* The renderer. */
const struct renderer_about *gpu_player_about(const struct gpu_player *p);

#endif
