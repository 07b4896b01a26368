/* See diff.h. */
#include "replay/diff.h"

#include <stdlib.h>
#include <string.h>

/* The next record that means something to the machine. */
static bool next(struct log_reader *r, struct record *rec)
{
    while (log_next(r, rec))
        if (rec->type < RECORD_REMARKS && rec->type != REC_START)
            return true;
    return false;
}

static bool before(const struct record *a, const struct record *b)
{
    return a->position != b->position ? a->position < b->position : a->time < b->time;
}

/* The index-th of names joined by commas. */
static void nth_name(const char *names, u32 index, char *out, size_t size)
{
    while (index-- && names)
        names = strchr(names, ',') ? strchr(names, ',') + 1 : NULL;
    snprintf(out, size, "%.*s", names ? (int)strcspn(names, ",") : 1, names ? names : "?");
}

static const struct log_digests *components(const struct record *rec)
{
    return rec->type == REC_PROGRESS ? &rec->progress.components
           : rec->type == REC_END    ? &rec->end.components
                                     : NULL;
}

static void differ(struct log_difference *out, const char *field, const char *names)
{
    out->differ = true;
    snprintf(out->field, sizeof(out->field), "%s", field);
    const struct log_digests *a = components(&out->a), *b = components(&out->b);
    if (strcmp(field, "components") || !a || !b)
        return;
    for (u32 i = 0; i < a->count && i < b->count; i++) {
        char name[64];
        if (digest_at(a, i) == digest_at(b, i))
            continue;
        nth_name(names, i, name, sizeof(name));
        snprintf(out->field, sizeof(out->field), "components (%s)", name);
        return;
    }
}

static char *start_names(struct log_reader *r)
{
    struct record rec;
    if (!log_next(r, &rec) || rec.type != REC_START)
        return NULL;
    return strndup((const char *)rec.start.components.data, rec.start.components.len);
}

void log_diff(struct log_reader *a, struct log_reader *b, struct log_difference *out)
{
    memset(out, 0, sizeof(*out));
    char *names = start_names(a);
    out->has_a = next(a, &out->a);
    out->has_b = next(b, &out->b);
    while (out->has_a || out->has_b) {
        bool pa = out->has_a && out->a.type == REC_PROGRESS;
        bool pb = out->has_b && out->b.type == REC_PROGRESS;
        bool same_instant =
            out->has_a && out->has_b && !before(&out->a, &out->b) && !before(&out->b, &out->a);
        const char *field;
        if (pa && !(pb && (same_instant || before(&out->b, &out->a)))) {
            out->has_a = next(a, &out->a);
        } else if (pb && !(pa && same_instant)) {
            out->has_b = next(b, &out->b);
        } else if (!out->has_a || !out->has_b) {
            differ(out, "length", names);
            break;
        } else if (!record_equal(&out->a, &out->b, &field)) {
            differ(out, field, names);
            break;
        } else {
            out->compared++;
            out->has_a = next(a, &out->a);
            out->has_b = next(b, &out->b);
        }
    }
    free(names);
}
