/*
 * Pictures of the screen at multiples of an interval of virtual time, as files. The machine stops
 * there exactly (feed.h, looks), so a replay makes the same ones, byte for byte. Where nothing was
 * shown since the picture before there is none: an idle guest fills no disk, and a busy one leaves
 * what is to stay free of it.
 */
#define _GNU_SOURCE /* O_TMPFILE */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_io.h"
#include "host/sandbox.h"
#include "live/display.h"
#include "host/picture.h"

#define BLOCK 4096u /* of a file system: a file takes whole ones */

struct png {
    struct display display; /* first */
    vns_t every;
    char dir[4200];
    int fd;                  /* the directory; -1: not opened yet */
    vns_t next;              /* the next picture; NEVER: nothing new was shown */
    bool wanted;             /* it is to be taken, as soon as there is one */
    struct dev_screen shown; /* the last one */
    struct room room;        /* of all pictures, as if they were one file */
    u64 bytes;               /* theirs so far, in whole blocks */
    struct err failed;
};

static struct png *self(struct feed *f)
{
    return (struct png *)f;
}

static int open_directory(struct png *p, struct err *err)
{
    if (p->fd >= 0)
        return 0;
    if (mkdirat(AT_FDCWD, p->dir, DIRECTORY_PRIVATE) && errno != EEXIST)
        return err_errno(err, "cannot make the directory %s", p->dir);
    p->fd = open(p->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return p->fd < 0 ? err_errno(err, "cannot open the directory %s", p->dir) : 0;
}

/* Is the picture there already, from a run before? */
static bool same(struct png *p, const char *name, const void *data, size_t size)
{
    struct stat st;
    void *there = malloc(size);
    int fd = openat(p->fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    bool is = there && fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) &&
              (size_t)st.st_size == size && file_read_at(fd, there, size, 0) &&
              !memcmp(there, data, size);
    if (fd >= 0)
        close(fd);
    free(there);
    return is;
}

/* Whole, under its name, or not at all; and never in the place of another file. */
static int keep(struct png *p, const char *name, const void *data, size_t size, struct err *err)
{
    char temporary[128], text[96];
    int code = open_directory(p, err);
    if (code)
        return code;
    p->bytes += (size + BLOCK - 1) / BLOCK * BLOCK;
    if (room_ask(&p->room, p->fd, p->bytes))
        return err_set(err, -ENOSPC, "%s", room_text(&p->room, text, sizeof(text)));
    snprintf(temporary, sizeof(temporary), "%s.%d.tmp", name, (int)getpid());
    int fd = file_create_at(p->fd, temporary);
    if (fd < 0)
        return err_errno(err, "cannot write %s/%s", p->dir, temporary);
    if (!file_write_at(fd, data, size, 0))
        code = err_errno(err, "cannot write %s/%s", p->dir, name);
    close(fd);
    if (!code && linkat(p->fd, temporary, p->fd, name, 0)) {
        if (errno != EEXIST)
            code = err_errno(err, "cannot make %s/%s", p->dir, name);
        else if (!same(p, name, data, size))
            code = err_set(err, -EEXIST,
                           "%s/%s is there already and shows something else; give another directory"
                           " (png-every=SECONDS,DIR)",
                           p->dir, name);
    }
    unlinkat(p->fd, temporary, 0);
    return code;
}

static int take(struct png *p, struct machine *m, const struct dev_screen *screen, struct err *err)
{
    char name[96], *data = NULL;
    size_t size = 0;
    vns_t now = machine_now(m);
    FILE *f = open_memstream(&data, &size);
    if (!f)
        return err_set(err, -ENOMEM, "no memory for a picture");
    int code = picture_write(f, screen->width, screen->height, p->display.source.row,
                             p->display.source.opaque, err);
    fclose(f);
    snprintf(name, sizeof(name), "time-%05" PRIu64 ".%09" PRIu64 "-insn-%" PRIu64 ".png",
             now / 1000000000, now % 1000000000, machine_position(m));
    if (!code)
        code = keep(p, name, data, size, err);
    free(data);
    return code;
}

/* Not possible: that is the end of pictures, not of the machine. */
static void give_up(struct png *p)
{
    p->next = NEVER;
    p->wanted = false;
    fprintf(stderr, "reprise: no more pictures of the screen: %s\n", p->failed.text);
}

static void look(struct png *p, struct machine *m)
{
    struct screen_source *source = &p->display.source;
    struct dev_screen screen;
    vns_t now = machine_now(m);
    if (p->failed.code || !source->show(source->opaque, &screen))
        return;
    if (now >= p->next) {
        p->wanted = true;
        p->next = NEVER;
    }
    if (p->wanted) {
        enum screen_answer answer = source->fetch(source->opaque, &screen);
        p->wanted = answer == SCREEN_LATER;
        if (answer == SCREEN_READY) {
            p->shown = screen;
            if (screen.width && take(p, m, &screen, &p->failed))
                give_up(p);
        }
    }
    if (!p->failed.code && !p->wanted && p->next == NEVER && !screen_same(&screen, &p->shown))
        p->next = (now / p->every + 1) * p->every;
}

/* ---- the feed: it gives nothing, it looks ---- */

static unsigned feed_prepare(struct feed *f, struct pollfd *fds, unsigned cap, u64 *until)
{
    return 0;
}

static void feed_serve(struct feed *f, const struct pollfd *fds, unsigned n)
{
}

static bool feed_peek(struct feed *f, struct machine *m, struct input *in)
{
    look(self(f), m);
    return false;
}

static void feed_taken(struct feed *f, const struct input *in)
{
}

static vns_t feed_looks(const struct feed *f)
{
    return ((const struct png *)f)->next;
}

static bool feed_live(const struct feed *f)
{
    return false;
}

static const struct feed_ops feed_ops = {.prepare = feed_prepare,
                                         .serve = feed_serve,
                                         .peek = feed_peek,
                                         .taken = feed_taken,
                                         .looks = feed_looks,
                                         .live = feed_live};

/* ---- */

static const char *notice(const struct display *d)
{
    return "";
}

static int finish(struct display *d, struct err *err)
{
    struct png *p = (struct png *)d;
    if (p->failed.code)
        *err = p->failed;
    return p->failed.code;
}

static void destroy(struct display *d)
{
    struct png *p = (struct png *)d;
    if (p->fd >= 0)
        close(p->fd);
    free(p);
}

static const struct display_ops display_ops = {notice, finish, destroy};

int display_png_create(struct display **out, const struct display_spec *s,
                       const struct display_config *c, struct err *err)
{
    struct png *p = calloc(1, sizeof(*p));
    if (!p)
        return err_set(err, -ENOMEM, "no memory for a display");
    p->display = (struct display){{&feed_ops}, c->source, &display_ops};
    p->every = s->every;
    p->fd = -1;
    p->next = NEVER;
    p->room.keep = c->keep_free;
    int n = *s->dir ? snprintf(p->dir, sizeof(p->dir), "%s", s->dir)
                    : snprintf(p->dir, sizeof(p->dir), "%s/screens", c->recording);
    if (n < 0 || (size_t)n >= sizeof(p->dir)) {
        free(p);
        return err_set(err, -ENAMETOOLONG, "the name of the directory for pictures is too long");
    }
    /* Who locks itself in can make no directory later, but in a recording that it makes. */
    bool later = c->later && !*s->dir;
    int code = sandbox_planned() && !later ? open_directory(p, err) : 0;
    if (code) {
        free(p);
        return code;
    }
    if (!later)
        sandbox_write(p->dir);
    *out = &p->display;
    return 0;
}
