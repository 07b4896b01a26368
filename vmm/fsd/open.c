/*
 * Descriptors of the file server. A name is looked for in its directory's descriptor, one at a
 * time, and never followed if it is a link: so nothing outside the share can be reached, whatever
 * is renamed meanwhile. What is found is opened as a path first (O_PATH), which does nothing to it,
 * and only once it is seen to be a regular file or a directory, and the one that is meant, for
 * reading, through /proc/self/fd.
 *
 * Descriptors are few and nodes many: those used longest ago are closed, and opened again by name
 * when they are needed.
 */
#define _GNU_SOURCE /* O_PATH, O_NOATIME */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "fsd/fsd.h"

#define DEPTH_MAX 2048u
#define RESERVED  32u /* descriptors for all else */
#define PATH_ONLY (O_PATH | O_NOFOLLOW | O_CLOEXEC)

/* What is no storage, but a kernel's or a device's own: beneath a share such directories are empty.
 * Their files wait, act or tell of the host itself. */
static const u64 not_shown[] = {
    PROC_SUPER_MAGIC,
    SYSFS_MAGIC,
    DEBUGFS_MAGIC,
    TRACEFS_MAGIC,
    SECURITYFS_MAGIC,
    CGROUP_SUPER_MAGIC,
    BPF_FS_MAGIC,
    CGROUP2_SUPER_MAGIC,
    PSTOREFS_MAGIC,
    EFIVARFS_MAGIC,
    BINFMTFS_MAGIC,
    DEVPTS_SUPER_MAGIC,
    SELINUX_MAGIC,
    SMACK_MAGIC,
    0x19800202 /* mqueue */,
    0x62656570 /* configfs */,
    0x65735543 /* fusectl */,
    0x67596969 /* rpc_pipefs */,
};

static bool shown(int fd)
{
    struct statfs fs;
    if (fstatfs(fd, &fs))
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(not_shown); i++)
        if ((u64)fs.f_type == not_shown[i])
            return false;
    return true;
}

/* ---- life ---- */

bool fsd_open(struct fsd *f, int root, u32 epoch, enum fsd_step *step)
{
    struct stat st;
    struct rlimit limit;
    memset(f, 0, sizeof(*f));
    f->root = root;
    f->proc = -1;
    *step = FSD_NO_DIRECTORY;
    if (fstat(root, &st))
        return false;
    if (!S_ISDIR(st.st_mode)) {
        errno = ENOTDIR;
        return false;
    }
    *step = FSD_NO_PROC;
    f->proc = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->proc < 0)
        return false;
    *step = FSD_NO_MEMORY;
    if (!nodes_init(&f->nodes, epoch, &st)) {
        errno = ENOMEM;
        return false;
    }
    if (!getrlimit(RLIMIT_NOFILE, &limit)) {
        limit.rlim_cur = MAX(limit.rlim_cur, MIN(limit.rlim_max, (rlim_t)65536));
        setrlimit(RLIMIT_NOFILE, &limit);
        getrlimit(RLIMIT_NOFILE, &limit);
    } else {
        limit.rlim_cur = 256;
    }
    u64 many = limit.rlim_cur > RESERVED ? limit.rlim_cur - RESERVED : 0;
    f->dirs = (u32)MAX(MIN(many / 4, (u64)FSD_DIRECTORIES), 8u);
    f->open_max =
        (u32)MAX(MIN(many - MIN(many, (u64)f->dirs), (u64)UINT32_MAX), (u64)FSD_FILES_LEAST);
    for (u32 i = 0; i < FSD_DIRECTORIES; i++)
        f->dir[i].fd = -1;
    f->free_handle = f->newest = f->oldest = UINT32_MAX;
    f->listing.handle = UINT32_MAX;
    f->dev[f->devs++] = st.st_dev;
    return true;
}

static void close_all(struct fsd *f)
{
    for (u32 i = 0; i < FSD_DIRECTORIES; i++)
        if (f->dir[i].fd >= 0) {
            close(f->dir[i].fd);
            f->dir[i].fd = -1;
        }
    for (u32 i = 0; i < f->handles; i++)
        if (f->handle[i].node != NODE_NONE && f->handle[i].fd >= 0)
            close(f->handle[i].fd);
    free(f->handle);
    f->handle = NULL;
    f->handles = f->handle_room = f->open = 0;
    f->free_handle = f->newest = f->oldest = UINT32_MAX;
    f->listing.handle = UINT32_MAX;
}

void fsd_reset(struct fsd *f)
{
    struct stat st;
    close_all(f);
    if (fstat(f->root, &st))
        memset(&st, 0, sizeof(st)); /* it is there, whatever can be said of it */
    struct nodes fresh;
    if (!nodes_init(&fresh, f->nodes.epoch, &st))
        _exit(1);
    nodes_fini(&f->nodes);
    f->nodes = fresh;
}

void fsd_close(struct fsd *f)
{
    close_all(f);
    nodes_fini(&f->nodes);
    if (f->proc >= 0)
        close(f->proc);
    f->proc = -1;
}

/* ---- directories ---- */

static void forget_directory(struct fsd *f, u32 i)
{
    close(f->dir[i].fd);
    f->dir[i].fd = -1;
    f->nodes.at[f->dir[i].node].cached = 0;
}

void fsd_node_gone(void *opaque, u32 node)
{
    struct fsd *f = opaque;
    if (f->nodes.at[node].cached)
        forget_directory(f, f->nodes.at[node].cached - 1u);
}

/* A place for one more, whose descriptor is `fd`. */
static void keep_directory(struct fsd *f, u32 node, int fd)
{
    u32 best = 0;
    for (u32 i = 0; i < f->dirs; i++) {
        if (f->dir[i].fd < 0) {
            best = i;
            break;
        }
        if (f->dir[i].used < f->dir[best].used)
            best = i;
    }
    if (f->dir[best].fd >= 0)
        forget_directory(f, best);
    f->dir[best].node = node;
    f->dir[best].fd = fd;
    f->dir[best].used = ++f->clock;
    f->nodes.at[node].cached = (u16)(best + 1);
}

/* The descriptor, if there is one. */
static int kept(struct fsd *f, u32 node)
{
    u16 cached = f->nodes.at[node].cached;
    if (node == NODE_ROOT)
        return f->root;
    if (!cached)
        return -1;
    f->dir[cached - 1].used = ++f->clock;
    return f->dir[cached - 1].fd;
}

static int open_directory(struct fsd *f, int parent, u32 node)
{
    const struct node *n = &f->nodes.at[node];
    struct stat st;
    int fd = openat(parent, n->name, PATH_ONLY | O_DIRECTORY);
    if (fd < 0)
        return errno == ENOTDIR || errno == ELOOP ? -ESTALE : -errno;
    int code = fstat(fd, &st) ? -errno : node_is(n, &st) ? 0 : -ESTALE;
    if (code) {
        close(fd);
        return code;
    }
    keep_directory(f, node, fd);
    return fd;
}

int fsd_directory(struct fsd *f, u32 node)
{
    u32 path[DEPTH_MAX], depth = 0;
    int fd;
    if (f->nodes.at[node].type != S_IFDIR)
        return -ENOTDIR;
    while ((fd = kept(f, node)) < 0) {
        if (depth == DEPTH_MAX)
            return -ENAMETOOLONG;
        path[depth++] = node;
        node = f->nodes.at[node].parent;
    }
    while (fd >= 0 && depth)
        fd = open_directory(f, fd, path[--depth]);
    return fd;
}

/* ---- what is there ---- */

int fsd_stat(struct fsd *f, u32 node, struct stat *st)
{
    const struct node *n = &f->nodes.at[node];
    if (node == NODE_ROOT)
        return fstat(f->root, st) ? -errno : 0;
    int dir = fsd_directory(f, n->parent);
    if (dir < 0)
        return dir;
    if (fstatat(dir, n->name, st, AT_SYMLINK_NOFOLLOW))
        return -errno;
    return node_is(n, st) ? 0 : -ESTALE;
}

int fsd_stat_name(struct fsd *f, u32 parent, const char *name, struct stat *st, bool *closed)
{
    int dir = fsd_directory(f, parent);
    if (dir < 0)
        return dir;
    if (fstatat(dir, name, st, AT_SYMLINK_NOFOLLOW))
        return -errno;
    *closed = f->hidden.ino && st->st_ino == f->hidden.ino && st->st_dev == f->hidden.dev;
    if (*closed || !S_ISDIR(st->st_mode) || st->st_dev == f->nodes.at[parent].dev)
        return 0;
    int fd = openat(dir, name, PATH_ONLY | O_DIRECTORY);
    *closed = fd < 0 || !shown(fd);
    if (fd >= 0)
        close(fd);
    return 0;
}

/* ---- handles ---- */

/* Opens it for reading. `st` is what it is. */
static int open_node(struct fsd *f, u32 node, bool directory, struct stat *st)
{
    const struct node *n = &f->nodes.at[node];
    char name[16];
    int path = f->root, fd;
    if (node != NODE_ROOT) {
        int dir = fsd_directory(f, n->parent);
        if (dir < 0)
            return dir;
        path = openat(dir, n->name, PATH_ONLY);
        if (path < 0)
            return -errno;
    }
    snprintf(name, sizeof(name), "%d", path);
    if (fstat(path, st))
        fd = -errno;
    else if (node != NODE_ROOT && !node_is(n, st))
        fd = -ESTALE;
    else if (directory && !S_ISDIR(st->st_mode))
        fd = -ENOTDIR;
    else if (!directory && !S_ISREG(st->st_mode))
        fd = S_ISDIR(st->st_mode) ? -EISDIR : S_ISLNK(st->st_mode) ? -ELOOP : -EACCES;
    else {
        int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | (directory ? O_DIRECTORY : 0);
        /* Nobody is to see when the guest read it, where that is ours to say. */
        fd = openat(f->proc, name, flags | O_NOATIME);
        if (fd < 0 && errno == EPERM)
            fd = openat(f->proc, name, flags);
        if (fd < 0)
            fd = -errno;
    }
    if (path != f->root)
        close(path);
    return fd;
}

static void unlink_open(struct fsd *f, u32 i)
{
    struct handle *h = &f->handle[i];
    if (h->newer == UINT32_MAX)
        f->newest = h->older;
    else
        f->handle[h->newer].older = h->older;
    if (h->older == UINT32_MAX)
        f->oldest = h->newer;
    else
        f->handle[h->older].newer = h->newer;
}

static void link_open(struct fsd *f, u32 i)
{
    struct handle *h = &f->handle[i];
    h->newer = UINT32_MAX;
    h->older = f->newest;
    if (f->newest == UINT32_MAX)
        f->oldest = i;
    else
        f->handle[f->newest].newer = i;
    f->newest = i;
}

static void shut(struct fsd *f, u32 i)
{
    if (f->handle[i].fd < 0)
        return;
    unlink_open(f, i);
    close(f->handle[i].fd);
    f->handle[i].fd = -1;
    f->open--;
    if (f->listing.handle == i)
        f->listing.handle = UINT32_MAX;
}

static void make_room(struct fsd *f)
{
    while (f->open >= f->open_max)
        shut(f, f->oldest);
}

static int new_handle(struct fsd *f, u32 *out)
{
    if (f->free_handle != UINT32_MAX) {
        *out = f->free_handle;
        f->free_handle = f->handle[*out].older;
        return 0;
    }
    if (f->handles == FSD_HANDLES_MAX)
        return -ENFILE;
    if (f->handles == f->handle_room) {
        u32 room = MAX(f->handle_room * 2, 64u);
        struct handle *more = realloc(f->handle, room * sizeof(*more));
        if (!more)
            return -ENOMEM;
        f->handle = more;
        f->handle_room = room;
    }
    *out = f->handles++;
    f->handle[*out] = (struct handle){.node = NODE_NONE, .fd = -1};
    return 0;
}

int fsd_handle_open(struct fsd *f, u32 node, bool directory, struct stat *st, u32 *out)
{
    make_room(f);
    int fd = open_node(f, node, directory, st);
    if (fd < 0)
        return fd;
    int code = new_handle(f, out);
    if (code) {
        close(fd);
        return code;
    }
    f->handle[*out] = (struct handle){.node = node, .fd = fd, .directory = directory};
    /* It keeps its node, by which it may have to be opened again. */
    f->nodes.at[node].users++;
    f->nodes.at[node].handles++;
    link_open(f, *out);
    f->open++;
    return 0;
}

static struct handle *find(struct fsd *f, u64 handle)
{
    return handle < f->handles && f->handle[handle].node != NODE_NONE ? &f->handle[handle] : NULL;
}

int fsd_handle_fd(struct fsd *f, u64 handle, bool directory)
{
    struct handle *h = find(f, handle);
    struct stat st;
    if (!h || h->directory != directory)
        return -EBADF;
    if (h->fd >= 0) {
        if (f->newest != handle) {
            unlink_open(f, (u32)handle);
            link_open(f, (u32)handle);
        }
        return h->fd;
    }
    make_room(f);
    int fd = open_node(f, h->node, directory, &st);
    if (fd < 0)
        return fd;
    h->fd = fd;
    link_open(f, (u32)handle);
    f->open++;
    return fd;
}

void fsd_handle_close(struct fsd *f, u64 handle)
{
    struct handle *h = find(f, handle);
    if (!h)
        return;
    u32 node = h->node;
    shut(f, (u32)handle);
    h->node = NODE_NONE;
    h->older = f->free_handle;
    f->free_handle = (u32)handle;
    f->nodes.at[node].users--;
    f->nodes.at[node].handles--;
    node_forget(&f->nodes, node, 0, fsd_node_gone, f);
}
