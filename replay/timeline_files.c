/*
 * The checkpoint files of a recording against its log. They come with the recording, so they are
 * somebody's claims: each must lie where the log goes on from its place. What else they say is seen
 * at the first progress record after one (player_seek()). See timeline.h.
 */
#include "replay/timeline_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool same_place(const struct log_place *a, const struct log_place *b)
{
    return a->offset == b->offset && a->taken == b->taken && a->seed == b->seed &&
           a->index == b->index && a->position == b->position && a->time == b->time &&
           a->sequence == b->sequence && a->last_type == b->last_type;
}

/* How many of the files lie in the log, each between the records that its place says. *beyond: the
 * next one only lies after all that a killed recorder left of it. */
static u32 in_log(struct timeline *t, struct log_reader *log, bool *beyond)
{
    struct checkpoint_file *file = t->files.file;
    struct record rec = {.type = 0}, next;
    struct log_place place;
    u32 n = 0, first;
    do {
        struct instant before = {rec.position, rec.time};
        log_tell(log, &place);
        for (first = n; n < t->files.count && same_place(&file[n].place.log, &place) &&
                        file[n].at.position >= before.position && file[n].at.time >= before.time;
             n++)
            ;
        if (!log_next(log, &next)) {
            next.position = before.position; /* nothing is known of what came then */
            next.time = before.time;
            next.type = 0;
        }
        for (u32 k = first; k < n; k++)
            if (file[k].at.position > next.position || file[k].at.time > next.time) {
                *beyond = !next.type && log_damage(log)->state == CHUNKS_KILLED;
                return k;
            }
        rec = next;
    } while (rec.type);
    return n;
}

void files_check(struct timeline *t)
{
    struct opened other;
    struct err err;
    if (!t->files.count || open_recording(&other, t->o.rec.path, &err))
        return;
    bool beyond = false;
    u32 n = in_log(t, other.log, &beyond);
    close_recording(&other);
    if (n == t->files.count)
        return;
    err_set(&err, -EINVAL,
            "the checkpoint %s/%s/%06u is of no use (it was made from another log); it and later "
            "ones are ignored",
            t->o.rec.path, CHECKPOINT_DIR, n);
    if (t->config.warn && !beyond)
        t->config.warn(t->config.opaque, err.text);
    checkpoint_set_cut(&t->files, n);
}
