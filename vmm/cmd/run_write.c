/* See run_write.h. */
#include "cmd/run_write.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "host/tree.h"

#define SAID_MAX 20u   /* sentences */
#define LINK_MAX 4095u /* bytes that a symbolic link has */
/* A file of the guest's has at least so much of its memory. */
#define ENTRY_BYTES 256u

struct run_write {
    char *path[AGENT_WRITES];
    struct tree *tree[AGENT_WRITES];
    unsigned n;
    u64 memory;
    struct agent_written left; /* of what WRITTEN said */
    bool announced, broken;
    struct tree *now; /* NULL: between two trees */
    unsigned next;    /* the first that may come */
    unsigned depth;   /* directories entered in it */
    unsigned nothing; /* ... of which the innermost so many are not followed into; the tree itself
                         is one */
    bool file;        /* CONTENT may come */
    u64 size, at;     /* of that file */
    struct tree_meta is[AGENT_DEPTH];
    bool meta[AGENT_DEPTH]; /* ... is to be set */
    unsigned said;
};

/* ---- directories of the user's ---- */

static void say(void *opaque, const char *text)
{
    struct run_write *w = opaque;
    if (w->said++ < SAID_MAX)
        fprintf(stderr, "reprise: --write: %s\n", text);
}

/* The guest has its own. */
static bool is_kernels(const char *path)
{
    static const char *const own[] = {"/dev", "/proc", "/sys"};
    for (size_t i = 0; i < ARRAY_SIZE(own); i++) {
        size_t n = strlen(own[i]);
        if (!strncmp(path, own[i], n) && (!path[n] || path[n] == '/'))
            return true;
    }
    return false;
}

static int add(struct run_write *w, const char *directory, struct err *err)
{
    if (w->n == AGENT_WRITES)
        return err_set(err, -E2BIG, "--write: %u directories are the most", AGENT_WRITES);
    char *path = realpath(directory, NULL);
    if (!path)
        return err_errno(err, "--write: %s", directory);
    w->path[w->n] = path;
    for (unsigned i = 0; i < w->n; i++)
        if (!strcmp(path, w->path[i])) {
            free(path);
            return 0; /* said twice */
        }
    if (is_kernels(path)) {
        err_set(err, -EINVAL, "--write: %s: the program's machine has its own /dev, /proc and /sys",
                path);
        free(path);
        return err->code;
    }
    const struct tree_config c = {.path = path, .depth = AGENT_DEPTH, .say = say, .opaque = w};
    if (tree_open(&w->tree[w->n], &c, err)) {
        free(path);
        return err_prefix(err, "--write");
    }
    w->n++;
    return 0;
}

int run_write_open(struct run_write **out, char *const *directories, unsigned n, u64 memory,
                   struct err *err)
{
    struct run_write *w = calloc(1, sizeof(*w));
    int code = w ? 0 : err_set(err, -ENOMEM, "no memory");
    *out = w;
    if (w)
        w->memory = memory;
    for (unsigned i = 0; !code && i < n; i++)
        code = add(w, directories[i], err);
    signal(SIGXFSZ, SIG_IGN); /* a file that may not be so large is said, like others */
    if (code) {
        run_write_close(w);
        *out = NULL;
    }
    return code;
}

void run_write_close(struct run_write *w)
{
    for (unsigned i = 0; w && i < w->n; i++) {
        tree_close(w->tree[i]);
        free(w->path[i]);
    }
    free(w);
}

unsigned run_write_count(const struct run_write *w)
{
    return w ? w->n : 0;
}

const char *run_write_path(const struct run_write *w, unsigned i)
{
    return w->path[i];
}

/* ---- frames ---- */

/* An entry's head and its name, which ends in NUL; what follows is returned in *rest. False: it is
 * none. */
static bool take(const u8 *data, size_t len, struct agent_entry *e, char name[TREE_NAME_MAX + 1],
                 const u8 **rest, size_t *left)
{
    if (len < sizeof(*e))
        return false;
    memcpy(e, data, sizeof(*e));
    len -= sizeof(*e);
    if (e->name_len > len || e->name_len > TREE_NAME_MAX || e->nanoseconds > 999999999 ||
        e->flags & ~(u32)AGENT_REPLACED)
        return false;
    memcpy(name, data + sizeof(*e), e->name_len);
    name[e->name_len] = 0;
    *rest = data + sizeof(*e) + e->name_len;
    *left = len - e->name_len;
    return !e->name_len || tree_name(name, e->name_len);
}

static struct tree_meta meta_of(const struct agent_entry *e)
{
    return (struct tree_meta){e->mode, {e->seconds, e->nanoseconds}};
}

static void end_file(struct run_write *w)
{
    if (w->file && !w->nothing)
        tree_file_end(w->now);
    w->file = false;
}

static bool on_tree(struct run_write *w, const struct agent_entry *e)
{
    if (w->now || e->name_len || e->size >= w->n || e->size < w->next)
        return false;
    w->now = w->tree[e->size];
    w->next = (unsigned)e->size + 1;
    w->depth = 0;
    w->is[0] = meta_of(e);
    w->meta[0] = e->mode != 0;
    w->nothing = 0;
    if (e->mode && !S_ISDIR(e->mode)) {
        tree_left(w->now, "",
                  "is no directory any more in the program's machine; nothing of it "
                  "is written");
        w->nothing = 1;
    } else if (e->flags & AGENT_REPLACED) {
        tree_empty(w->now);
    }
    return true;
}

static bool on_directory(struct run_write *w, const struct agent_entry *e, const char *name)
{
    if (!S_ISDIR(e->mode) || w->depth + 2 >= AGENT_DEPTH)
        return false;
    w->depth++;
    w->is[w->depth] = meta_of(e);
    w->meta[w->depth] = true;
    if (w->nothing) {
        w->nothing++;
        return true;
    }
    tree_enter(w->now, name);
    if (e->flags & AGENT_REPLACED)
        tree_empty(w->now);
    return true;
}

static bool on_leave(struct run_write *w)
{
    if (!w->now)
        return false;
    if (w->nothing)
        w->nothing--;
    else
        tree_leave(w->now, w->meta[w->depth] ? &w->is[w->depth] : NULL);
    if (!w->depth)
        w->now = NULL;
    else
        w->depth--;
    return true;
}

static bool on_file(struct run_write *w, const struct agent_entry *e, const char *name)
{
    const struct tree_meta is = meta_of(e);
    if (!S_ISREG(e->mode))
        return false;
    if (!w->nothing && e->mode & (S_ISUID | S_ISGID))
        tree_note(w->now, name, "is written without its set-user-ID or set-group-ID bit");
    if (!w->nothing)
        tree_file(w->now, name, &is, e->size);
    w->file = true;
    w->size = e->size;
    w->at = 0;
    return true;
}

static bool on_content(struct run_write *w, const u8 *data, size_t len)
{
    u64 offset;
    if (!w->file || len <= sizeof(offset))
        return false;
    memcpy(&offset, data, sizeof(offset));
    len -= sizeof(offset);
    if (len > w->left.bytes || offset < w->at || offset > w->size || len > w->size - offset)
        return false;
    w->left.bytes -= len;
    w->at = offset + len;
    if (!w->nothing)
        tree_file_data(w->now, data + sizeof(offset), len, offset);
    return true;
}

static bool on_link(struct run_write *w, const struct agent_entry *e, const char *name,
                    const u8 *rest, size_t left)
{
    char to[LINK_MAX + 1];
    const struct tree_meta is = meta_of(e);
    if (!S_ISLNK(e->mode) || left < 2 || left - 1 > LINK_MAX || rest[0] ||
        memchr(rest + 1, 0, left - 1))
        return false;
    memcpy(to, rest + 1, left - 1);
    to[left - 1] = 0;
    if (!w->nothing)
        tree_link(w->now, name, &is, to);
    return true;
}

static bool on_other(struct run_write *w, const struct agent_entry *e, const char *name)
{
    if (!w->nothing && S_ISDIR(e->mode))
        tree_left(w->now, name, "lies too deep to be written");
    else if (!w->nothing)
        tree_note(w->now, name, "is no file, directory or link, and is not written");
    return true;
}

static bool on_entry(struct run_write *w, enum agent_type type, const u8 *data, size_t len)
{
    struct agent_entry e;
    char name[TREE_NAME_MAX + 1];
    const u8 *rest;
    size_t left;
    if (!w->left.entries || !take(data, len, &e, name, &rest, &left))
        return false;
    w->left.entries--;
    if (left && type != AGENT_LINK)
        return false;
    if (type == AGENT_TREE)
        return on_tree(w, &e);
    if (!w->now || !e.name_len)
        return false;
    switch ((int)type) {
    case AGENT_DIRECTORY: return on_directory(w, &e, name);
    case AGENT_FILE: return on_file(w, &e, name);
    case AGENT_LINK: return on_link(w, &e, name, rest, left);
    case AGENT_OTHER: return on_other(w, &e, name);
    case AGENT_GONE:
        if (!w->nothing)
            tree_remove(w->now, name);
        return true;
    default: return false;
    }
}

/* How much it will be. All trees are asked: they may be on one file system. */
static bool on_written(struct run_write *w, const u8 *data, size_t len)
{
    if (w->announced || !w->n || len != sizeof(w->left))
        return false;
    memcpy(&w->left, data, len);
    if (w->left.bytes > w->memory || w->left.entries > w->memory / ENTRY_BYTES)
        return false;
    w->announced = true;
    for (unsigned i = 0; i < w->n; i++)
        tree_ask(w->tree[i], w->left.bytes);
    return true;
}

bool run_write_frame(struct run_write *w, enum agent_type type, const void *data, size_t len)
{
    if (!w || w->broken)
        return false;
    bool good;
    if (type == AGENT_WRITTEN) {
        good = on_written(w, data, len);
    } else if (type == AGENT_CONTENT) {
        good = on_content(w, data, len);
    } else {
        end_file(w);
        good = type == AGENT_LEAVE ? !len && on_leave(w) : on_entry(w, type, data, len);
    }
    w->broken = !good;
    return good;
}

bool run_write_end(struct run_write *w, bool ended, bool verbose)
{
    u64 done = 0, left = 0;
    bool whole = ended && w->announced && !w->now && !w->broken;
    for (unsigned i = 0; i < w->n; i++) {
        struct tree_counts c = tree_counts(w->tree[i]);
        done += c.done;
        left += c.left;
    }
    if (w->said > SAID_MAX)
        fprintf(stderr, "reprise: --write: ... and %u more\n", w->said - SAID_MAX);
    if (!whole)
        fprintf(
            stderr,
            "reprise: --write: %s of what the program wrote is there: its machine ended first\n",
            done ? "not all" : "nothing");
    else if (left)
        fprintf(stderr,
                "reprise: --write: not all of what the program wrote is there: %" PRIu64
                " of %" PRIu64 " entries are not\n",
                left, left + done);
    else if (verbose)
        fprintf(stderr, "reprise: --write: %" PRIu64 " entries are written\n", done);
    return whole && !left;
}
