/* See history.h. */
#include "cmd/history.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_io.h"
#include "cpu/vcpu.h"
#include "inspect/lives_watch.h"
#include "replay/checkpoint_notes.h"
#include "replay/private_dir.h"

#define FOLDER "processes"
#define KEPT   1000u /* files */
/* The kernel says what it is made of once it is unpacked: early, but when is its own affair. */
#define FIRST_LOOK 20000000u
/* So often a kernel that is there is asked for its types. */
#define LOOKS 3u

struct history {
    int fd;      /* -1: none */
    bool unkept; /* it is not to be written to */
    bool loaded; /* what the file has, if it is of this recording */
    char path[PATH_MAX];
    struct lives_head head;
    pos_t handled; /* where something happened that is in the list, last */
    struct lives lives;
    struct lives_watch watch; /* zeros: not learned by this process */
    bool watches;
    bool only_marks; /* are wanted: it need be no Linux */
};

const struct lives *history_lives(const struct travel *tr)
{
    return &tr->history->lives;
}

enum lives_end history_end(const struct travel *tr)
{
    return tr->history->head.end;
}

/* ---- the file ---- */

static int open_file(struct history *h, const struct recording *r, struct err *err)
{
    char name[SHA256_TEXT];
    struct sha256 identity = sha256_bytes(r->machine, r->machine_size);
    int dir = private_open(FOLDER, true, h->path, sizeof(h->path), err);
    if (dir < 0)
        return -1;
    sha256_text(&identity, name);
    size_t n = strlen(h->path);
    if ((size_t)snprintf(h->path + n, sizeof(h->path) - n, "/%s", name) >= sizeof(h->path) - n)
        h->path[n] = 0;
    int fd =
        openat(dir, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, FILE_PRIVATE);
    if (fd < 0)
        err_errno(err, "cannot open %s", h->path);
    else
        private_prune(dir, KEPT);
    close(dir);
    if (fd >= 0 && private_check(fd, h->path, err)) {
        close(fd);
        fd = -1;
    }
    if (fd >= 0)
        futimens(fd, NULL); /* it is used: behind the door that cannot be said */
    return fd;
}

struct history *history_open(const char *dir, bool trust)
{
    struct history *h = calloc(1, sizeof(*h));
    struct recording r;
    struct err ignored;
    if (!h)
        return NULL;
    lives_init(&h->lives);
    h->fd = -1;
    h->unkept = trust;
    h->handled = NEVER;
    if (!recording_open(&r, dir, &ignored)) /* who opens it next says why not */
        h->fd = open_file(h, &r, &ignored);
    recording_close(&r);
    return h;
}

void history_close(struct history *h)
{
    if (!h)
        return;
    if (h->fd >= 0)
        close(h->fd);
    lives_watch_free(&h->watch);
    lives_free(&h->lives);
    free(h);
}

/* What a replay comes from: machine, kernel, initrd and the whole log. */
static int find_key(const struct travel *tr, struct sha256 *key, struct err *err)
{
    const struct opened *o = timeline_recording(tr->t);
    struct opened other;
    struct record ignored;
    struct sha256 part[2];
    int code = checkpoint_root(&o->rec, &o->desc, &part[0], err);
    if (!code)
        code = open_recording(&other, o->rec.path, err);
    if (code)
        return code;
    while (log_next(other.log, &ignored))
        ;
    part[1] = log_before(other.log);
    close_recording(&other);
    *key = sha256_bytes(part, sizeof(part));
    return 0;
}

/* A file that cannot be used is said, and made anew. */
static int read_file(struct history *h, struct err *err)
{
    struct lives_head head;
    struct lives lives;
    struct stat st;
    struct err why = {0};
    /* While another one writes it there is nothing to be read, and nothing to wait for. */
    if (flock(h->fd, LOCK_SH | LOCK_NB) || fstat(h->fd, &st) || st.st_size <= 0)
        return flock(h->fd, LOCK_UN), 0;
    size_t size = (size_t)MIN((u64)st.st_size, (u64)LIVES_FILE_MAX + 1);
    u8 *data = size > LIVES_FILE_MAX ? NULL : malloc(size);
    int code = !data && size <= LIVES_FILE_MAX ? err_set(err, -ENOMEM, "no memory") : 0;
    if (!code && size > LIVES_FILE_MAX)
        err_set(&why, -EFBIG, "it is too large");
    else if (!code && !file_read_at(h->fd, data, size, 0))
        err_set(&why, -EIO, "it cannot be read");
    else if (!code && lives_unpack(&head, &lives, data, size, &why) == -ENOMEM)
        code = (*err = why, err->code);
    flock(h->fd, LOCK_UN);
    free(data);
    if (code)
        return code;
    if (why.code) {
        fprintf(stderr, "reprise: what is known of the guest's processes is found anew: %s: %s\n",
                h->path, why.text);
        return 0;
    }
    if (!sha256_equal(&head.key, &h->head.key)) {
        lives_free(&lives);
        return 0;
    }
    h->head = head;
    h->lives = lives;
    h->handled = head.pass ? head.upto.position : NEVER;
    return 0;
}

static int load(struct travel *tr, struct err *err)
{
    struct history *h = tr->history;
    if (h->loaded)
        return 0;
    int code = find_key(tr, &h->head.key, err);
    if (!code && h->fd >= 0)
        code = read_file(h, err);
    h->loaded = !code;
    return code;
}

/* Without it the next one finds out again: no error. A writer that is killed leaves a damaged one.
 */
static void save(struct history *h, bool by_branch)
{
    size_t size;
    /* A position that counts branches is no one place, at which another replay could go on. */
    if (h->fd < 0 || h->unkept || (by_branch && h->head.end == LIVES_GOES_ON) ||
        flock(h->fd, LOCK_EX | LOCK_NB))
        return;
    h->head.pass = h->handled == h->head.upto.position;
    u8 *data = lives_pack(&h->head, &h->lives, &size);
    bool kept = data && !ftruncate(h->fd, 0) && file_write_at(h->fd, data, size, 0);
    if (data && !kept && ftruncate(h->fd, 0)) /* half of one helps nobody */
        h->unkept = true;                     /* and cannot be removed: leave it */
    free(data);
    flock(h->fd, LOCK_UN);
}

/* ---- a replay ---- */

static int interrupted_there(struct err *err)
{
    return err_set(err, -EINTR, "interrupted");
}

static int seek(struct travel *tr, struct instant to, enum timeline_stop *stop, struct err *err)
{
    int code = timeline_seek(tr->t, to, stop, err);
    return !code && *stop == TIMELINE_INTERRUPTED ? interrupted_there(err) : code;
}

/* Goes to where the kernel can be asked, and back to where it was last not there: nothing had
 * happened then. */
static int learn_first(struct travel *tr, struct err *err)
{
    struct history *h = tr->history;
    struct instant before = {0, 0}, end = timeline_end(tr->t);
    enum timeline_stop stop = TIMELINE_REACHED;
    int code = -ENOENT;
    unsigned seen = 0;
    for (pos_t at = FIRST_LOOK; seen < LOOKS; at += at / 2) {
        bool last = at >= end.position;
        if (seek(tr, (struct instant){last ? end.position : at, 0}, &stop, err))
            return err->code;
        lives_free(&h->lives);
        lives_watch_free(&h->watch);
        code = lives_watch_learn(&h->watch, &h->lives, timeline_machine(tr->t), err);
        if (code == -ENOENT && !last && stop != TIMELINE_END)
            before = timeline_now(tr->t);
        else if (code || !h->lives.lacks[0] || last || stop == TIMELINE_END)
            break;
        seen += !code;
    }
    if (!code)
        code = seek(tr, before, &stop, err);
    if (!code) {
        struct instant now = timeline_now(tr->t);
        h->head.upto = (struct life_time){now.position, now.time};
        h->handled = NEVER;
        h->watches = true;
    } else {
        lives_free(&h->lives);
        lives_watch_free(&h->watch);
    }
    return code;
}

/* From power-on, for marks: what it knows is of no use to others, and not kept. */
static int watch_marks(struct travel *tr, struct err *err)
{
    struct history *h = tr->history;
    enum timeline_stop stop;
    h->watch = (struct lives_watch){.lives = &h->lives};
    h->watches = h->unkept = true;
    h->handled = NEVER;
    snprintf(h->lives.lacks, sizeof(h->lives.lacks), "%.*s", (int)sizeof(h->lives.lacks) - 1,
             err->text);
    *err = (struct err){0};
    return seek(tr, (struct instant){0, 0}, &stop, err);
}

/* To where what is known ends. */
static int stand_there(struct travel *tr, struct err *err)
{
    struct history *h = tr->history;
    enum timeline_stop stop;
    struct life_time upto = h->head.upto;
    if (!h->watches && !upto.position) {
        int first = learn_first(tr, err);
        return first == -ENOENT && h->only_marks ? watch_marks(tr, err) : first;
    }
    int code = seek(tr, (struct instant){upto.position, upto.time}, &stop, err);
    if (!code && !h->watches) {
        code = lives_watch_learn(&h->watch, &h->lives, timeline_machine(tr->t), err);
        h->watches = !code;
    }
    return code;
}

static void note_place(struct history *h, struct timeline *t)
{
    struct instant now = timeline_now(t);
    h->head.upto = (struct life_time){now.position, now.time};
}

/* Runs on from there, until `s` is found or `end` is reached. */
static int follow(struct travel *tr, struct life_search *s, struct instant end, bool *found,
                  struct err *err)
{
    struct history *h = tr->history;
    struct debug_point points[LIFE_POINTS + 1];
    enum life_point which[LIFE_POINTS + 1];
    enum timeline_stop stop = TIMELINE_REACHED;
    unsigned n = 0;
    for (unsigned i = 0; i < LIFE_POINTS; i++)
        if (h->watch.address[i]) {
            which[n] = (enum life_point)i;
            points[n++] = (struct debug_point){
                .kind = DEBUG_EXEC, .address = h->watch.address[i], .length = 1};
        }
    which[n] = LIFE_POINTS;
    points[n++] = (struct debug_point){.kind = DEBUG_MARK};
    int code = timeline_set_points(tr->t, points, n, err);
    while (!code && !*found && !h->lives.cut) {
        bool pass = h->handled == timeline_now(tr->t).position;
        code = timeline_forward(tr->t, end, pass, &stop, err);
        if (code)
            break;
        note_place(h, tr->t);
        if (stop != TIMELINE_HIT)
            break;
        enum life_point point = which[timeline_hit(tr->t)->point];
        code = point == LIFE_POINTS
                   ? lives_watch_mark(&h->watch, timeline_machine(tr->t), err)
                   : lives_watch_hit(&h->watch, timeline_machine(tr->t), point, err);
        h->handled = h->head.upto.position;
        *found = !code && s && life_search_on(s, &h->lives, false);
    }
    if (!code && stop == TIMELINE_INTERRUPTED)
        code = interrupted_there(err);
    if (!code && (stop == TIMELINE_END || stop == TIMELINE_REACHED)) {
        struct life_time at = h->head.upto;
        at.position = MIN(at.position, end.position - 1);
        code = lives_watch_look(&h->watch, timeline_machine(tr->t), at, err);
    }
    if (!code && stop == TIMELINE_END) {
        enum player_result result = timeline_result(tr->t);
        h->head.end = result == PLAYER_SAME     ? LIVES_ENDS
                      : result == PLAYER_DAMAGE ? LIVES_DAMAGED
                                                : LIVES_GOES_ON;
        if (h->head.end == LIVES_GOES_ON)
            h->unkept = true; /* not to be kept: it is not what was recorded */
    }
    return code;
}

static int go_on(struct travel *tr, struct life_search *s, struct instant end, bool *found,
                 struct err *err)
{
    struct history *h = tr->history;
    struct travel_aside a;
    struct err ignored;
    struct instant from = timeline_now(tr->t);
    if (timeline_branched(tr->t))
        return err_set(err, -EPERM, "this is a what-if branch; go back first");
    int code = travel_put_aside(tr, &a, err);
    if (code)
        return code;
    code = stand_there(tr, err);
    if (!code)
        code = follow(tr, s, end, found, err);
    if (h->watches && (!code || code == -EINTR))
        save(h, machine_by_branch(timeline_machine(tr->t)));
    if (code == -EINTR)
        timeline_return(tr->t, from, &ignored);
    return travel_put_back(tr, &a, code, err);
}

static bool is_complete(const struct history *h)
{
    return h->head.end != LIVES_GOES_ON || h->lives.cut;
}

int history_reach(struct travel *tr, struct instant to, struct err *err)
{
    struct history *h = tr->history;
    bool found = false;
    int code = load(tr, err);
    if (code || is_complete(h) || (to.position != NEVER && h->head.upto.position > to.position))
        return code;
    /* One further: what happens in front of that instruction is known then. */
    struct instant end = {to.position == NEVER ? NEVER : to.position + 1, 0};
    return go_on(tr, NULL, end, &found, err);
}

int history_reach_marks(struct travel *tr, struct instant to, struct err *err)
{
    tr->history->only_marks = true;
    return history_reach(tr, to, err);
}

int history_search(struct travel *tr, struct life_search *s, struct err *err)
{
    struct history *h = tr->history;
    int code = load(tr, err);
    if (code)
        return code;
    h->only_marks = h->only_marks || s->kind == SEARCH_MARK;
    bool found = life_search_on(s, &h->lives, is_complete(h));
    if (!found && !is_complete(h)) {
        code = go_on(tr, s, (struct instant){NEVER, 0}, &found, err);
        if (!code && !found)
            found = life_search_on(s, &h->lives, true);
    }
    if (!code && !found)
        code = err_set(err, -ESRCH, "it is not there");
    return code;
}
