/* The tracker, shared by track.c (what is set up) and track_look.c (what is looked at). */
#ifndef REPRISE_GPU_TRACK_INTERNAL_H
#define REPRISE_GPU_TRACK_INTERNAL_H

#include "virtio-gpu-log/play/track.h"

/* Nobody relies on it any more. */
void track_live_ends(struct gpu_track *t, const struct track_live *l);
void track_query_ends(struct gpu_track *t, const struct track_object *o);
/* The result of a query is used. */
void track_query_seen(struct gpu_track *t, const struct track_object *o);
/* The contents of a resource may have changed; birth NEVER: of whichever has the id. */
void track_changed(struct gpu_track *t, u32 id, u64 birth);
/* DRAW_VBO and LAUNCH_GRID; CLEAR. */
void track_draws(struct gpu_track *t, struct track_sub *s, const struct virgl_command *c);
void track_clears(struct gpu_track *t, struct track_sub *s, const struct virgl_command *c);

#endif
