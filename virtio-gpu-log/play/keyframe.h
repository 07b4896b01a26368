/*
 * Keyframes: commands that set up what a stream had set up at one point, instead of all that came
 * before it. Live objects and what is bound come from the tracker; contents of resources were read
 * from the renderer and go up again.
 *
 * The rule that makes them exact: what can neither be read back nor be said again (contents of
 * multisampled and some depth resources, results of queries, resources that are gone but still
 * bound) must not be looked at after the keyframe before it is set anew: cleared whole, counted
 * anew, bound anew. Whether that is so the tracker says while the stream goes on; a keyframe for
 * which it is not so is no keyframe.
 */
#ifndef REPRISE_GPU_KEYFRAME_H
#define REPRISE_GPU_KEYFRAME_H

#include "virtio-gpu-log/play/drive.h"
#include "virtio-gpu-log/play/track.h"

/* What a resource held; shared by keyframes between which it did not change. */
struct keyframe_contents {
    u32 references;
    u32 levels;
    u64 changes; /* of the resource, then */
    u64 size;
    u64 *shared; /* bytes of all contents there are */
    struct {
        u64 offset, size;
    } level[16];
    u8 *data;
};
void keyframe_forget(struct keyframe_contents *c); /* NULL is safe */

/* One command of it, as in a log. */
struct keyframe_command {
    u8 *bytes;
    u32 size, queue;
    bool has_upload;
    u32 use; /* not 0: contents, needed if pending.needed[use - 1] (with `observe`) */
    struct gpu_range upload; /* its bytes are contents' */
};

struct gpu_keyframe {
    struct keyframe_command *list;
    u32 count;
    size_t room;
    struct keyframe_contents **contents;
    u32 contents_count;
    size_t contents_room;
    struct track_pending pending; /* watched by the tracker */
};

/* 1: made, and watched; 0: it cannot be done at this point, *why says what is in the way; -EPIPE:
 * the renderer died; -ENOMEM. The renderer must have done what the tracker has followed. `observe`:
 * note, while the stream goes on, which contents are needed at all. `bytes`: sum of what all
 * contents hold. */
int gpu_keyframe_make(struct gpu_keyframe **out, struct gpu_track *t, struct gpu_drive *d,
                      bool observe, u64 *bytes, const char **why, struct err *err);
void gpu_keyframe_destroy(struct gpu_keyframe *k, struct gpu_track *t); /* NULL is safe */

/* Drives its commands; the renderer was reset before. -ENOMEM: not all. */
int gpu_keyframe_drive(const struct gpu_keyframe *k, struct gpu_drive *d, struct err *err);

#endif
