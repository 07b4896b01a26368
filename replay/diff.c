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

static bool in_list(const char *names, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = names; p && *p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (strcspn(p, ",") == n && !strncmp(p, name, n))
            return true;
    return false;
}

static void differ(struct log_difference *out, const char *field, const char *names,
                   const char *but)
{
    out->differ = true;
    snprintf(out->field, sizeof(out->field), "%s", field);
    const struct log_digests *a = components(&out->a), *b = components(&out->b);
    if (strcmp(field, "components") || !a || !b)
        return;
    for (u32 i = 0; i < a->count && i < b->count; i++) {
        char name[64];
        nth_name(names, i, name, sizeof(name));
        if (digest_at(a, i) == digest_at(b, i) || in_list(but, name))
            continue;
        out->component = true;
        out->digest[0] = digest_at(a, i);
        out->digest[1] = digest_at(b, i);
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

/* Do the components differ in those only that are looked past? */
static bool past(const struct record *ra, const struct record *rb, const char *names,
                 const char *but)
{
    const struct log_digests *a = components(ra), *b = components(rb);
    if (!*but || !a || !b || a->count != b->count)
        return false;
    for (u32 i = 0; i < a->count; i++) {
        char name[64];
        nth_name(names, i, name, sizeof(name));
        if (digest_at(a, i) != digest_at(b, i) && !in_list(but, name))
            return false;
    }
    return true;
}

static bool same(const struct record *a, const struct record *b, const char *names, const char *but,
                 const char **field)
{
    if (record_equal(a, b, field))
        return true;
    if (strcmp(*field, "components") || !past(a, b, names, but))
        return false;
    struct record copy = *a;
    if (copy.type == REC_PROGRESS) {
        copy.progress.components = b->progress.components;
    } else {
        copy.end.components = b->end.components;
        copy.end.ram = b->end.ram;
    }
    return record_equal(&copy, b, field);
}

void log_diff(struct log_reader *a, struct log_reader *b, struct log_difference *out)
{
    log_diff_but(a, b, "", out);
}

void log_diff_but(struct log_reader *a, struct log_reader *b, const char *but,
                  struct log_difference *out)
{
    memset(out, 0, sizeof(*out));
    char *names = start_names(a);
    out->has_a = next(a, &out->a);
    out->has_b = next(b, &out->b);
    while (out->has_a || out->has_b) {
        /* Memory differs with the machine: what its digests would say is known. */
        while (*but && out->has_a && out->a.type == REC_RAM)
            out->has_a = next(a, &out->a);
        while (*but && out->has_b && out->b.type == REC_RAM)
            out->has_b = next(b, &out->b);
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
            differ(out, "length", names, but);
            break;
        } else if (!same(&out->a, &out->b, names, but, &field)) {
            differ(out, field, names, but);
            break;
        } else {
            out->compared++;
            out->has_a = next(a, &out->a);
            out->has_b = next(b, &out->b);
        }
    }
    free(names);
}

static bool next_input(struct log_reader *r, struct record *rec)
{
    while (log_next(r, rec))
        if (record_input(rec, NULL))
            return true;
    return false;
}

/* The input itself, without where it came and what the CPU was then. */
static struct record bare(const struct record *rec)
{
    const struct record_desc *desc = record_desc(rec->type);
    struct record copy = *rec;
    copy.position = 0;
    copy.time = 0;
    for (size_t i = 0; desc && i < desc->nfields; i++)
        if (!strcmp(desc->fields[i].name, "cpu"))
            memset((u8 *)&copy + desc->fields[i].offset, 0, sizeof(u64));
    return copy;
}

void log_diff_inputs(struct log_reader *a, struct log_reader *b, struct input_difference *out)
{
    const char *field;
    memset(out, 0, sizeof(*out));
    for (;;) {
        out->has_a = next_input(a, &out->a);
        out->has_b = next_input(b, &out->b);
        if (!out->has_a && !out->has_b)
            return;
        struct record x = bare(&out->a), y = bare(&out->b);
        if (!out->has_a || !out->has_b || !record_equal(&x, &y, &field)) {
            out->differ = true;
            return;
        }
        out->same++;
        if (!out->moved && out->a.position != out->b.position) {
            out->moved = true;
            out->moved_at = out->same;
            out->moved_a = out->a.position;
            out->moved_b = out->b.position;
        }
    }
}
