/* Frames: going to where the guest had just shown one (timeline.h). */
#include <errno.h>

#include "replay/timeline_internal.h"

static u64 frames_now(const struct timeline *t)
{
    struct dev_screen s = {0};
    machine_screen(t->m, &s);
    return s.frames;
}

static void on_emit(void *opaque, enum dev_emit kind, unsigned unit, const void *data, size_t len)
{
    struct timeline *t = opaque;
    if (kind == EMIT_FRAME && frames_now(t) >= t->stop_at_frame)
        machine_stop(t->m);
}

/* Leaves the machine at the last file's place with less than n frames, or where it was. */
static int after_files(struct timeline *t, u64 n, enum timeline_stop *stop, struct err *err)
{
    u32 low = 0, high = t->files.count; /* files below `low` have less */
    while (low < high) {
        u32 mid = low + (high - low) / 2;
        int code = timeline_seek(t, t->files.file[mid].at, stop, err);
        if (code || *stop != TIMELINE_REACHED)
            return code;
        if (frames_now(t) < n)
            low = mid + 1;
        else
            high = mid;
    }
    struct instant best = low ? t->files.file[low - 1].at : (struct instant){0, 0};
    for (unsigned i = 0; i < t->count; i++)
        if (t->list[i]->frames < n && instant_before(best, t->list[i]->at))
            best = t->list[i]->at;
    return timeline_seek(t, best, stop, err);
}

int timeline_seek_frame(struct timeline *t, u64 n, enum timeline_stop *stop, struct err *err)
{
    struct instant from = timeline_now(t);
    struct dev_screen screen;
    if (!machine_screen(t->m, &screen))
        return err_set(err, -ENOTSUP, "this was recorded without a display (record --gpu)");
    if (!n)
        return err_set(err, -EINVAL, "frames are counted from 1");
    if (t->fork)
        return err_set(err, -EPERM, "this is a what-if branch; go back first");
    int code = after_files(t, n, stop, err);
    t->stop_at_frame = n;
    machine_set_emit(t->m, on_emit, t);
    while (!code && *stop == TIMELINE_REACHED && frames_now(t) < n) {
        enum move what;
        code = move(t, (struct instant){NEVER, 0}, &what, err);
        if (what == MOVE_END)
            *stop = TIMELINE_END;
        else if (t->config.poll && t->config.poll(t->config.opaque, machine_position(t->m)))
            *stop = TIMELINE_INTERRUPTED;
    }
    machine_set_emit(t->m, NULL, NULL);
    u64 shown = frames_now(t);
    if (code || shown >= n || *stop == TIMELINE_INTERRUPTED)
        return code;
    code = timeline_seek(t, from, stop, err);
    return code ? code
                : err_set(err, -ENOENT, "the guest shows %llu frames, not %llu",
                          (unsigned long long)shown, (unsigned long long)n);
}
