/* What the guest has printed, as a timeline knows it; and finding text in it. See timeline.h. */
#define _GNU_SOURCE
#include "replay/timeline_internal.h"

#include "base/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool append(struct transcript *x, const void *data, size_t len)
{
    if (!len)
        return true;
    if (x->room - x->len < len) {
        size_t room = MAX(2 * x->room, x->len + len + 4096);
        char *bigger = realloc(x->data, room);
        if (!bigger)
            return false;
        x->data = bigger;
        x->room = room;
    }
    memcpy(x->data + x->len, data, len);
    x->len += len;
    return true;
}

/* The machine printed; what is known already is the same text. */
void text_output(void *opaque, enum dev_output channel, const void *data, size_t len)
{
    struct timeline *t = opaque;
    struct transcript *x = &t->text[channel];
    u64 after;
    machine_output_digest(t->m, channel, &after);
    if (t->fork)
        return;
    if (after > x->len) {
        size_t fresh = (size_t)MIN(after - x->len, (u64)len);
        append(x, (const u8 *)data + (len - fresh), fresh);
    }
    if (t->stop_on_output && channel == OUT_CONSOLE && after >= t->stop_at_output)
        machine_stop(t->m);
}

int text_from_files(struct timeline *t, struct err *err)
{
    for (u32 n = 0; n < t->files.count; n++)
        for (int c = 0; c < OUT_COUNT; c++)
            if (!append(&t->text[c], t->files.file[n].output[c], t->files.file[n].output_len[c]))
                return err_set(err, -ENOMEM, "no memory for what the guest printed");
    return 0;
}

const char *timeline_output(const struct timeline *t, enum dev_output channel, size_t *known,
                            size_t *now)
{
    u64 bytes;
    machine_output_digest(t->m, channel, &bytes);
    *known = t->text[channel].len;
    *now = (size_t)MIN(bytes, (u64)*known);
    return t->text[channel].data ? t->text[channel].data : "";
}

/* Where the k-th match ends; 0: not in what is known. */
static size_t find(const struct transcript *x, const char *text, size_t len, u64 k)
{
    size_t at = 0;
    while (at < x->len) {
        const char *p = memmem(x->data + at, x->len - at, text, len);
        if (!p)
            return 0;
        at = (size_t)(p - x->data) + 1;
        if (--k == 0)
            return at - 1 + len;
    }
    return 0;
}

/* The last instant up to which output is known: from there on it has to be searched. */
static struct instant known_to(const struct timeline *t)
{
    struct instant best = {0, 0};
    for (u32 n = 0; n < t->files.count; n++)
        if (t->files.file[n].output_bytes[OUT_CONSOLE] <= t->text[OUT_CONSOLE].len)
            best = t->files.file[n].at;
    for (unsigned i = 0; i < t->count; i++)
        if (instant_before(best, t->list[i]->at))
            best = t->list[i]->at;
    return best;
}

/* The last checkpoint at which less than `bytes` had been printed. */
static struct instant before_output(const struct timeline *t, u64 bytes)
{
    struct instant best = {0, 0};
    for (u32 n = 0; n < t->files.count; n++)
        if (t->files.file[n].output_bytes[OUT_CONSOLE] < bytes)
            best = t->files.file[n].at;
    for (unsigned i = 0; i < t->count; i++)
        if (t->list[i]->output_bytes[OUT_CONSOLE] < bytes && instant_before(best, t->list[i]->at))
            best = t->list[i]->at;
    return best;
}

/* Runs until `bytes` have been printed on the console. */
static int run_to_output(struct timeline *t, size_t bytes, enum timeline_stop *stop,
                         struct err *err)
{
    t->stop_on_output = true;
    t->stop_at_output = bytes;
    int code = 0;
    *stop = TIMELINE_REACHED;
    for (;;) {
        u64 now;
        enum move what;
        machine_output_digest(t->m, OUT_CONSOLE, &now);
        if (now >= bytes)
            break;
        code = move(t, (struct instant){NEVER, 0}, &what, err);
        if (code || what == MOVE_END) {
            *stop = TIMELINE_END;
            break;
        }
        if (t->config.poll && t->config.poll(t->config.opaque, machine_position(t->m))) {
            *stop = TIMELINE_INTERRUPTED;
            break;
        }
    }
    t->stop_on_output = false;
    return code;
}

int timeline_seek_text(struct timeline *t, const char *text, size_t len, u64 k,
                       enum timeline_stop *stop, struct err *err)
{
    struct instant from = timeline_now(t);
    struct transcript *x = &t->text[OUT_CONSOLE];
    size_t end;
    if (!len || !k)
        return err_set(err, -EINVAL, "there is no text to look for");
    if (t->fork)
        return err_set(err, -EPERM, "this is a what-if branch; go back first");
    if (!(end = find(x, text, len, k))) {
        /* Not in what is known: replay on from there until it is printed. */
        int code = timeline_seek(t, known_to(t), stop, err);
        while (!code && *stop == TIMELINE_REACHED && !(end = find(x, text, len, k)))
            code = run_to_output(t, x->len + 1, stop, err);
        if (code)
            return code;
        if (!end && *stop == TIMELINE_END)
            end = find(x, text, len, k);
        if (!end) {
            bool cut = *stop == TIMELINE_INTERRUPTED;
            u64 found = 0;
            while (find(x, text, len, found + 1))
                found++;
            code = timeline_seek(t, from, stop, err);
            if (cut) {
                *stop = TIMELINE_INTERRUPTED;
                return code;
            }
            if (code)
                return code;
            char shown[128];
            snprintf(shown, sizeof(shown), "%.*s%s", (int)MIN(len, 100), text,
                     len > 100 ? "..." : "");
            text_printable(shown, shown, sizeof(shown));
            return found
                       ? err_set(err, -ENOENT, "the console shows '%s' %llu times, not %llu times",
                                 shown, (unsigned long long)found, (unsigned long long)k)
                       : err_set(err, -ENOENT, "the console never shows '%s'", shown);
        }
    }
    int code = timeline_seek(t, before_output(t, end), stop, err);
    if (!code && *stop != TIMELINE_INTERRUPTED)
        code = run_to_output(t, end, stop, err);
    return code;
}
