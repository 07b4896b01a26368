/*
 * Which of a recording's checkpoint files a timeline uses: those that lie in its log and that this
 * user's own programs made or checked. The others are said and left out. See timeline.h.
 */
#include "replay/timeline_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int files_prepare(struct timeline *t, struct err *err)
{
    u64 bytes;
    struct err none = {0};
    if (t->config.make_files)
        return checkpoint_notes_begin(&t->notes, &t->o.rec, &t->not_noted), 0;
    if (t->config.trust || t->config.ignore_files || !checkpoint_count(&t->o.rec, &bytes))
        return 0;
    if (checkpoint_notes_read(&t->notes, &t->o.rec, &none) && none.code != -ENOENT)
        t->not_noted = none;
    return none.code == -ENOMEM ? (*err = none, err->code) : 0;
}

static void warn(const struct timeline *t, const struct err *err)
{
    if (t->config.warn)
        t->config.warn(t->config.opaque, err->text);
}

/* Leaves out those that do not lie in the log; the others get their links. */
static int bind(struct timeline *t, struct err *err)
{
    struct opened other;
    struct sha256 root;
    bool beyond = false;
    int code = checkpoint_root(&t->o.rec, &t->o.desc, &root, err);
    if (!code)
        code = open_recording(&other, t->o.rec.path, err);
    if (code)
        return code;
    u32 n = checkpoint_set_bind(&t->files, other.log, &root, &beyond);
    close_recording(&other);
    if (n == t->files.count)
        return 0;
    struct err said;
    err_set(&said, -EINVAL,
            "the checkpoint %s/%s/%06u is of no use (it was made from another log); it and later "
            "ones are ignored",
            t->o.rec.path, CHECKPOINT_DIR, n);
    if (!beyond)
        warn(t, &said);
    checkpoint_set_cut(&t->files, n);
    return 0;
}

static void believe(struct timeline *t)
{
    u32 all = t->files.count, n = checkpoint_set_believed(&t->files, &t->notes);
    checkpoint_set_cut(&t->files, n);
    if (n == all || t->config.told)
        return;
    struct err said;
    const char *dir = t->o.quoted;
    err_set(
        &said, -EPERM,
        "checkpoints of %s that are not used, as this user neither made nor checked them: %u of "
        "%u%s%s%s; `reprise verify %s` checks and notes them, `reprise checkpoint %s` makes your "
        "own, --trust-checkpoints uses them unseen",
        dir, all - n, all, t->not_noted.code ? " (" : "", t->not_noted.text,
        t->not_noted.code ? ")" : "", dir, dir);
    warn(t, &said);
}

int files_open(struct timeline *t, struct err *err)
{
    struct err problem;
    if (t->config.ignore_files || t->config.make_files)
        return 0;
    checkpoint_set_open(&t->files, &t->o.rec, t->space.total, machine_state_size(t->m), &problem);
    if (problem.text[0])
        warn(t, &problem);
    int code = t->files.count ? bind(t, err) : 0;
    if (!code && !t->config.trust)
        believe(t);
    return code;
}
