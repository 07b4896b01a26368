/* See written.h. */
#include "written.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "end.h"
#include "talk.h"

#define OPAQUE   "trusted.overlay.opaque"
#define NAME_LEN 255u
#define LINK_LEN 4096u

struct writer {
    struct talk *t; /* NULL: only counted */
    struct agent_written all;
    ino_t root[AGENT_WRITES]; /* of each directory in the layer; 0: it is not there */
    unsigned roots;
};

/* ---- frames ---- */

static struct agent_entry entry_of(const struct stat *st)
{
    return (struct agent_entry){.mode = st->st_mode,
                                .nanoseconds = (uint32_t)st->st_mtim.tv_nsec,
                                .seconds = st->st_mtim.tv_sec};
}

static void say(struct writer *w, uint32_t type, struct agent_entry e, const char *name,
                const char *link)
{
    char out[sizeof(e) + NAME_LEN + 1 + LINK_LEN];
    size_t len = strnlen(name, NAME_LEN), rest = link ? strnlen(link, LINK_LEN) : 0;
    w->all.entries++;
    if (!w->t)
        return;
    e.name_len = (uint32_t)len;
    memcpy(out, &e, sizeof(e));
    memcpy(out + sizeof(e), name, len);
    if (link) {
        out[sizeof(e) + len++] = 0;
        memcpy(out + sizeof(e) + len, link, rest);
    }
    talk_send(w->t, type, out, sizeof(e) + len + rest);
}

/* ---- entries ---- */

static void content(struct writer *w, int dir, const char *name)
{
    static struct {
        uint64_t offset;
        char bytes[TALK_OUTPUT_MAX - sizeof(uint64_t)];
    } out;
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        give_up("what was written cannot be read: %s: %s", name, strerror(errno));
    for (off_t at = 0, end; (at = lseek(fd, at, SEEK_DATA)) >= 0; at = end) {
        end = lseek(fd, at, SEEK_HOLE);
        for (off_t done = at; done < end;) {
            size_t want = sizeof(out.bytes);
            if (end - done < (off_t)want)
                want = (size_t)(end - done);
            ssize_t n = pread(fd, out.bytes, want, done);
            if (n <= 0)
                give_up("what was written cannot be read: %s: %s", name, strerror(errno));
            out.offset = (uint64_t)done;
            talk_send(w->t, AGENT_CONTENT, &out, sizeof(out.offset) + (size_t)n);
            done += n;
        }
    }
    close(fd);
}

static bool is_opaque(int dir)
{
    char value;
    return fgetxattr(dir, OPAQUE, &value, 1) == 1 && value == 'y';
}

static bool is_root(const struct writer *w, ino_t ino)
{
    for (unsigned i = 0; i < w->roots; i++)
        if (w->root[i] == ino)
            return true;
    return false;
}

static void directory(struct writer *w, int fd, unsigned depth);

static void one(struct writer *w, int dir, const char *name, unsigned depth)
{
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW))
        give_up("what was written cannot be looked at: %s: %s", name, strerror(errno));
    struct agent_entry e = entry_of(&st);
    if (S_ISCHR(st.st_mode) && !st.st_rdev) {
        say(w, AGENT_GONE, (struct agent_entry){0}, name, NULL);
    } else if (S_ISDIR(st.st_mode) && is_root(w, st.st_ino)) {
        return; /* a tree of its own */
    } else if (S_ISDIR(st.st_mode) && depth < AGENT_DEPTH) {
        int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
            give_up("what was written cannot be opened: %s: %s", name, strerror(errno));
        e.flags = is_opaque(fd) ? AGENT_REPLACED : 0;
        say(w, AGENT_DIRECTORY, e, name, NULL);
        directory(w, fd, depth + 1);
        if (w->t)
            talk_send(w->t, AGENT_LEAVE, NULL, 0);
    } else if (S_ISREG(st.st_mode)) {
        w->all.bytes += (uint64_t)st.st_blocks * 512;
        e.size = (uint64_t)st.st_size;
        say(w, AGENT_FILE, e, name, NULL);
        if (w->t)
            content(w, dir, name);
    } else if (S_ISLNK(st.st_mode)) {
        char link[LINK_LEN + 1];
        ssize_t n = readlinkat(dir, name, link, LINK_LEN);
        link[n > 0 ? n : 0] = 0;
        say(w, AGENT_LINK, e, name, link);
    } else {
        say(w, AGENT_OTHER, e, name, NULL);
    }
}

/* Of what is in it; takes over `fd`. */
static void directory(struct writer *w, int fd, unsigned depth)
{
    DIR *d = fdopendir(fd);
    if (!d)
        give_up("no memory for what was written");
    for (struct dirent *e; (e = readdir(d));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            one(w, fd, e->d_name, depth);
    closedir(d);
}

/* ---- trees ---- */

/* Where a path is in the layer: a descriptor, or -1. *e: what to say of it; its mode is 0 where the
 * directory is gone, and no directory's where it is none any more. False: nothing is to be said. */
static bool find(int layer, const char *path, int *fd, struct agent_entry *e)
{
    struct stat st;
    bool replaced = false;
    *e = (struct agent_entry){0};
    *fd = openat(layer, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (const char *at = path + strspn(path, "/"); *at; at += strspn(at, "/")) {
        char name[NAME_LEN + 1];
        size_t n = strcspn(at, "/");
        snprintf(name, sizeof(name), "%.*s", (int)n, at);
        at += n;
        int up = *fd;
        bool there = !fstatat(up, name, &st, AT_SYMLINK_NOFOLLOW);
        *fd = there ? openat(up, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
        close(up);
        bool gone = there && S_ISCHR(st.st_mode) && !st.st_rdev;
        if (*fd < 0) {
            e->mode = there && !gone ? st.st_mode : 0;
            e->flags = AGENT_REPLACED;
            return there || replaced;
        }
        replaced |= is_opaque(*fd);
    }
    if (*fd < 0 || fstat(*fd, &st))
        return false;
    *e = entry_of(&st);
    e->flags = replaced ? AGENT_REPLACED : 0;
    return true;
}

static void tree(struct writer *w, int layer, const char *path, unsigned number)
{
    int fd;
    struct agent_entry e;
    if (!find(layer, path, &fd, &e))
        return;
    e.size = number;
    say(w, AGENT_TREE, e, "", NULL);
    if (fd >= 0)
        directory(w, fd, 1);
    if (w->t)
        talk_send(w->t, AGENT_LEAVE, NULL, 0);
}

static void trees(struct writer *w, int layer, char *const *directories)
{
    for (unsigned i = 0; directories[i]; i++)
        tree(w, layer, directories[i], i);
}

/* All but this one, which is process 1. */
static void end_others(void)
{
    kill(-1, SIGKILL);
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
        ;
}

void written_send(struct talk *t, int layer, char *const *directories)
{
    struct writer w = {0};
    if (!directories[0])
        return;
    end_others();
    for (; directories[w.roots]; w.roots++) {
        int fd;
        struct stat st;
        struct agent_entry e;
        if (find(layer, directories[w.roots], &fd, &e) && fd >= 0 && !fstat(fd, &st))
            w.root[w.roots] = st.st_ino;
        if (fd >= 0)
            close(fd);
    }
    trees(&w, layer, directories);
    talk_send(t, AGENT_WRITTEN, &w.all, sizeof(w.all));
    w.t = t;
    trees(&w, layer, directories);
}
