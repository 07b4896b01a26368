/* What the verbs of `reprise gpu` share that draw a stream. */
#ifndef REPRISE_CMD_GPU_PLAY_H
#define REPRISE_CMD_GPU_PLAY_H

#include "base/json.h"
#include "cmd/gpu.h"
#include "virtio-gpu-log/play/player.h"
#include "virtio-gpu-log/play/who.h"

/* "A..B", "A..", "..B", "A": numbered from 1. argp_error when it is none. */
struct frame_range {
    u64 first, last; /* last: UINT64_MAX when open */
    bool given;
};
void option_frames(struct argp_state *state, const char *arg, struct frame_range *out);

/* The number of a scanout. */
u32 gpu_option_scanout(struct argp_state *state, const char *arg);

/* Opens a log and a player for it. A driver that lacks something of the capability model is used
 * all the same, with a line on stderr. */
int gpu_play_open(const char *path, const char *driver, u64 keyframes, bool compare,
                  struct gpu_log_reader **log, struct gpu_player **out, struct err *err);
/* The second half of it, for a log that is open; with an error *log is closed. */
int gpu_play_start(struct gpu_log_reader **log, const char *driver, u64 keyframes, bool compare,
                   struct gpu_player **out, struct err *err);

/* Who drew a pixel, in words or as a JSON object: the command, its shaders, what it drew to. `path`
 * is the log's; the log is read anew. */
int gpu_who_report(FILE *out, const char *path, const struct gpu_who *w, struct gpu_log_reader *log,
                   bool json, struct err *err);

/* Writes a picture as PNG. */
int gpu_shot_write(const struct gpu_shot *s, const char *path, bool force, struct err *err);
/* Makes a directory for pictures, if it is not there. */
int gpu_pictures_directory(const char *path, struct err *err);

/* How far it is, on a terminal, from two seconds on. */
struct gpu_progress {
    u64 began, next;
    bool on, shown;
};
void gpu_progress_start(struct gpu_progress *p);
void gpu_progress(struct gpu_progress *p, const char *what, u64 n);
void gpu_progress_end(struct gpu_progress *p);

#endif
