/*
 * A recording's checkpoint files against its log. They come with the recording, so they are
 * somebody's claims: each must lie where the log goes on from its place. Whether the rest of what
 * they say is to be believed, checkpoint_notes.h knows. See checkpoint.h.
 */
#include "base/file_io.h"
#include "replay/checkpoint_format.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

/* NULL, or what is wrong. */
static const char *bound(const struct checkpoint_header *h, const struct recording *r,
                         struct log_reader *log, u32 sequence, u64 parent)
{
    struct record rec;
    struct err ignored;
    const char *why = checkpoint_header_wrong(h, sequence, parent, &r->machine_hash);
    if (why)
        return why;
    if (log_seek(log, &h->place.log, &ignored))
        return "its place is not in the log";
    if (log_next(log, &rec) && (rec.position < h->position || rec.time < h->time))
        return "its place in the log lies before it";
    return NULL;
}

int checkpoints_bound(const struct recording *r, struct log_reader *log, u32 *count, bool *old,
                      struct err *err)
{
    u64 parent = 0;
    int code = 0;
    *count = 0;
    *old = false;
    while (!code) {
        struct checkpoint_header h;
        char name[32];
        const char *why = "it was cut short";
        struct blob blob;
        struct err none;
        snprintf(name, sizeof(name), CHECKPOINT_DIR "/%06u", *count);
        int opened = recording_file(r, name, NEVER, &blob, &none);
        if (opened == -ENOENT)
            break;
        if (opened)
            why = none.text;
        else if (blob_read_at(&blob, &h, sizeof(h), 0))
            why = bound(&h, r, log, *count, parent);
        *old = why == checkpoint_older && !*count;
        if (*old) {
            blob_close(&blob);
            break;
        }
        if (why) {
            code =
                err_set(err, -EINVAL, "the checkpoint %s/%s is of no use: %s", r->path, name, why);
        } else {
            parent = h.header_check;
            ++*count;
        }
        blob_close(&blob);
    }
    log_rewind(log);
    return code;
}

u32 checkpoint_set_bind(struct checkpoint_set *s, struct log_reader *log, const struct sha256 *root,
                        bool *beyond)
{
    struct checkpoint_file *file = s->file;
    struct record rec = {.type = 0}, next;
    struct log_place place;
    struct sha256 link = *root;
    u64 inputs = 0;
    u32 n = 0, first;
    *beyond = false;
    do {
        struct instant before = {rec.position, rec.time};
        log_tell(log, &place);
        for (first = n; n < s->count && log_place_equal(&file[n].place.log, &place) &&
                        file[n].place.inputs == inputs && file[n].at.position >= before.position &&
                        file[n].at.time >= before.time;
             n++) {
            struct sha256 records = log_before(log);
            file[n].link = link = checkpoint_link(&link, &records, &file[n].digest);
        }
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
        inputs += rec.type && record_input(&rec, NULL);
    } while (rec.type && n < s->count);
    return n;
}

u32 checkpoint_set_believed(const struct checkpoint_set *s, const struct checkpoint_notes *notes)
{
    u32 n = s->count;
    while (n && !checkpoint_noted(notes, &s->file[n - 1].link))
        n--;
    return n;
}

bool checkpoint_log_before(struct log_reader *log, const struct log_place *place,
                           struct sha256 *out)
{
    struct record rec;
    struct log_place here;
    for (;;) {
        log_tell(log, &here);
        if (log_place_equal(&here, place))
            break;
        if (!log_next(log, &rec))
            return false;
    }
    *out = log_before(log);
    return true;
}
