/* See disk_sources.h. Opens what the user or their own recorder named, and DIR/disks/N. */
#define _GNU_SOURCE /* asprintf */
#include "replay/disk_sources.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "replay/disk_search.h"
#include "replay/pack_disk.h"

struct sources {
    struct opened *o;
    bool looked; /* for notes */
    bool noted;
    struct disk_notes notes;
    struct err
        distrust; /* why there are notes that are not believed; code 0: nothing of the kind */
};

static const struct disk_note *note_of(struct sources *s, unsigned i)
{
    struct opened *o = s->o;
    struct sha256 identity;
    struct err err = {0};
    if (!s->looked) {
        s->looked = true;
        int code =
            disk_notes_identity(&o->desc, o->rec.machine, o->rec.machine_size, &identity, &err);
        if (!code)
            code = disk_notes_load(&identity, &s->notes, &err);
        s->noted = !code;
        if (code && code != -ENOENT)
            s->distrust = err;
    }
    return s->noted && i < s->notes.n ? &s->notes.disk[i] : NULL;
}

/* ---- the three ways ---- */

static int open_named(struct disk *d, const struct description_disk *k,
                      const struct disk_spec *spec, struct err *err)
{
    const struct disk_config config = {.file = spec->file,
                                       .format = spec->format[0] ? spec->format : NULL,
                                       .serial = k->serial,
                                       .readonly = k->readonly,
                                       .backing = spec->backing,
                                       .timeout = spec->timeout,
                                       .again = true};
    return disk_open(d, &config, err);
}

/* The blocks of it that came with the recording. */
static int open_packed(struct sources *s, unsigned i, struct blob image, struct err *err)
{
    const struct description_disk *k = &s->o->desc.disk[i];
    char *path;
    if (asprintf(&path, "%s/" RECORDING_DISKS "/%u", s->o->rec.path, i) < 0) {
        blob_close(&image);
        return err_set(err, -ENOMEM, "no memory");
    }
    const struct disk_config config = {
        .file = path, .blob = image, .serial = k->serial, .readonly = k->readonly, .again = true};
    int code = disk_open(&s->o->disks[i], &config, err);
    free(path);
    return code ? code : 1;
}

/* 1: it is there, and open. 0: it is not. */
static int open_inside(struct sources *s, unsigned i, struct err *err)
{
    struct opened *o = s->o;
    const struct description_disk *k = &o->desc.disk[i];
    char name[16], *path;
    struct stat st;
    struct blob packed;
    if (!pack_disk_blob(&o->rec, i, k->size, &packed, err))
        return open_packed(s, i, packed, err);
    int dir = openat(o->rec.dir, RECORDING_DISKS, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0)
        return 0;
    snprintf(name, sizeof(name), "%u", i);
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    int why = errno;
    close(dir);
    if (fd < 0 && why == ENOENT)
        return 0;
    if (fd < 0 && why != ELOOP) {
        errno = why;
        return err_errno(err, "cannot open %s/" RECORDING_DISKS "/%u", o->rec.path, i);
    }
    if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_nlink != 1) {
        if (fd >= 0)
            close(fd);
        return err_set(err, -EPERM,
                       "%s/" RECORDING_DISKS "/%u is a link or not a regular file: not opened",
                       o->rec.path, i);
    }
    if (asprintf(&path, "%s/" RECORDING_DISKS "/%u", o->rec.path, i) < 0) {
        close(fd);
        return err_set(err, -ENOMEM, "no memory");
    }
    const struct disk_config config = {
        .file = path, .fd = fd, .serial = k->serial, .readonly = k->readonly, .again = true};
    int code = disk_open(&o->disks[i], &config, err);
    free(path);
    return code ? code : 1;
}

static int open_noted(struct disk *d, const struct description_disk *k, const struct disk_note *n,
                      struct err *err)
{
    const struct disk_config config = {.file = n->file,
                                       .format = strcmp(n->format, "nbd") ? n->format : NULL,
                                       .serial = k->serial,
                                       .readonly = k->readonly,
                                       .backing = n->backing,
                                       .timeout = n->timeout,
                                       .again = true};
    return disk_open(d, &config, err);
}

/* Looks for it elsewhere. 1: something is open, and what it is shows behind the door. */
static int open_found(struct sources *s, unsigned i, struct err *err)
{
    struct opened *o = s->o;
    const struct description_disk *k = &o->desc.disk[i];
    struct disk_candidates *c = &o->candidates[i];
    int code = disk_search(o, i, c, err);
    if (code)
        return code;
    const struct disk_config config = {.file = c->path[0],
                                       .fd = fcntl(c->fd[0], F_DUPFD_CLOEXEC, 3),
                                       .serial = k->serial,
                                       .readonly = k->readonly,
                                       .again = true};
    if (config.fd < 0)
        return err_errno(err, "cannot open %s", c->path[0]);
    disk_close(&o->disks[i]);
    return disk_open(&o->disks[i], &config, err);
}

static int nobody_says(const struct sources *s, unsigned i, struct err *err)
{
    const struct description_disk *k = &s->o->desc.disk[i];
    char path[600], format[sizeof(k->format)];
    return err_set(
        err, -ENOENT,
        "disk %u of the recording is missing: recorded from \"%s\" (%s, %llu bytes), "
        "which is not opened only because a recording says so; if you have that image, "
        "name it: --disk %u=FILE%s%.300s",
        i, text_printable(k->path, path, sizeof(path)),
        text_printable(k->format, format, sizeof(format)), (unsigned long long)k->size, i,
        s->distrust.code ? ". What was noted when it was recorded is not believed: " : "",
        s->distrust.code ? s->distrust.text : "");
}

static int open_disk(struct sources *s, unsigned i, const struct disk_note **note, struct err *err)
{
    struct opened *o = s->o;
    struct disk *d = &o->disks[i];
    const struct description_disk *k = &o->desc.disk[i];
    const struct disk_spec *named = o->named && o->named->spec[i].file ? &o->named->spec[i] : NULL;
    int code = named ? open_named(d, k, named, err) : open_inside(s, i, err);
    *note = NULL;
    if (named || code)
        return code < 0 ? err_prefix(err, "disk %u of the recording", i) : 0;
    *note = note_of(s, i);
    struct err found = {0};
    code = *note ? open_noted(d, k, *note, err) : nobody_says(s, i, err);
    bool there = !code && d->size == k->size;
    if (there)
        return 0;
    if (!open_found(s, i, &found)) {
        *note = NULL;
        return 0;
    }
    if (!code)
        return 0; /* its size is said */
    size_t n = strlen(err->text);
    char elsewhere[80] = "";
    if (*note)
        snprintf(elsewhere, sizeof(elsewhere),
                 "; if it is elsewhere now: --disk %u=FILE, or --disk-path DIR", i);
    snprintf(err->text + n, sizeof(err->text) - n, "%s%s%s", elsewhere,
             o->named && o->named->npaths ? ". In --disk-path: " : "",
             o->named && o->named->npaths ? found.text : "");
    return *note ? err_prefix(err, "disk %u of the recording", i) : code;
}

/* ---- has it changed? ---- */

static char *when(u64 ns, char out[40])
{
    time_t t = (time_t)(ns / 1000000000u);
    struct tm tm;
    if (!localtime_r(&t, &tm) || !strftime(out, 40, "%Y-%m-%d %H:%M:%S", &tm))
        strcpy(out, "?");
    return out;
}

/* Compares an image with its note. What is behind a URI has no date. */
static void compare(struct player_disk *seen, unsigned i, const struct disk *d,
                    const struct disk_note *n)
{
    const struct disk_stamp *now = &d->stamp, *then = &n->stamp;
    char date[40], *text = NULL;
    seen->same = now->bytes && now->bytes == then->bytes && now->modified == then->modified;
    if (seen->same || !now->bytes)
        return;
    int r = now->bytes != then->bytes
                ? asprintf(&text,
                           "disk %u: %s has changed since it was recorded (%llu bytes then, %llu "
                           "now; modified %s)",
                           i, d->path, (unsigned long long)then->bytes,
                           (unsigned long long)now->bytes, when(now->modified, date))
                : asprintf(&text, "disk %u: %s has changed since it was recorded (modified %s)", i,
                           d->path, when(now->modified, date));
    seen->changed = r < 0 ? NULL : text;
}

int disk_sources_open(struct opened *o, struct disk **disks, unsigned *n, struct err *err)
{
    struct sources s = {.o = o};
    unsigned count = 0;
    while (count < DESCRIPTION_DISKS && o->desc.disk[count].size)
        count++;
    for (unsigned i = count; o->named && i < DESCRIPTION_DISKS; i++)
        if (o->named->spec[i].file)
            return err_set(err, -EINVAL, "--disk %u=%s: the recording has %u disk%s", i,
                           o->named->spec[i].file, count, count == 1 ? "" : "s");
    for (*n = 0; *n < count; ++*n) {
        const struct description_disk *k = &o->desc.disk[*n];
        const struct disk_note *note;
        struct disk *d = &o->disks[*n];
        int code = open_disk(&s, *n, &note, err);
        if (code)
            return code;
        if (d->size != k->size)
            return err_set(err, -EINVAL,
                           "disk %u of the recording: %s has %llu bytes, it had %llu when recorded",
                           *n, d->path, (unsigned long long)d->size, (unsigned long long)k->size);
        o->seen[*n].disk = d;
        if (note)
            compare(&o->seen[*n], *n, d, note);
        o->nseen = *n + 1;
        disk_overlay_in(d, o->rec.path);
        disks[*n] = d;
    }
    return 0;
}

/* ---- noting ---- */

/* Absolute; the URI as it is. */
static int note_disk(struct disk_note *n, const struct disk *d, struct err *err)
{
    char *real = strcmp(d->format, "nbd") ? realpath(d->path, NULL) : strdup(d->path);
    if (!real || strlen(real) >= sizeof(n->file)) {
        free(real);
        return err_set(err, -ENAMETOOLONG, "the path of the disk image %s is gone or too long",
                       d->path);
    }
    strcpy(n->file, real);
    free(real);
    strcpy(n->format, d->format);
    n->backing = d->backing;
    n->timeout = d->timeout;
    n->stamp = d->stamp;
    return 0;
}

void disk_sources_identify(struct machine_description *d)
{
    /* Without entropy there is no id, and so no note. */
    if (getrandom(d->recording_id, sizeof(d->recording_id), 0) != sizeof(d->recording_id))
        memset(d->recording_id, 0, sizeof(d->recording_id));
}

int disk_sources_note(const struct recording *r, const struct machine_description *d,
                      const struct disk *disks, struct err *err)
{
    struct disk_notes notes = {.n = 0};
    struct sha256 identity;
    int code = 0;
    /* What lies in the recording is found there. */
    for (unsigned i = 0; i < DESCRIPTION_DISKS && d->disk[i].size; i++)
        if (disks[i].base.ops)
            return 0;
    while (!code && notes.n < DESCRIPTION_DISKS && d->disk[notes.n].size) {
        code = note_disk(&notes.disk[notes.n], &disks[notes.n], err);
        notes.n++;
    }
    if (!notes.n)
        return 0;
    if (!code)
        code = disk_notes_identity(d, r->machine, r->machine_size, &identity, err);
    return code ? code : disk_notes_save(&identity, &notes, err);
}
