/*
 * Requests of FUSE and their answers (fsd.h). A request is looked at where it lies: its length,
 * what its opcode needs, its name's end. An answer is written where it goes, after room for its
 * header.
 *
 * The guest may keep what it was told for CACHE_SECONDS of its time without asking again, and the
 * contents of a file for as long as opening it finds the same time and size.
 */
#define _GNU_SOURCE /* SEEK_DATA */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fuse.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

#include "fsd/fsd.h"

#define MINOR_LEAST   27u /* Linux 4.20 */
#define CACHE_SECONDS 10u
#define READ_AHEAD    (1u << 20)
#define READ_PAGES    256u

#define WANTED                                                                                     \
    (FUSE_ASYNC_READ | FUSE_AUTO_INVAL_DATA | FUSE_DO_READDIRPLUS | FUSE_READDIRPLUS_AUTO |        \
     FUSE_PARALLEL_DIROPS | FUSE_MAX_PAGES | FUSE_CACHE_SYMLINKS)

struct nothing {
};
/* What INIT had before it became longer. */
struct init_in {
    u32 major, minor, max_readahead, flags;
};

struct request {
    struct fsd *f;
    struct fuse_in_header h;
    u32 node;
    const void *body; /* aligned as the request is: copied before it is used */
    u32 size;         /* of it */
    const char *name; /* NULL: it has none */
    u8 *out;          /* of what follows the header */
    u32 room;
};

/* Bytes of the answer after its header, or -errno. */
typedef int handler(struct request *r);

static int answer(struct request *r, const void *bytes, u32 size)
{
    if (size > r->room)
        return -EIO;
    memcpy(r->out, bytes, size);
    return (int)size;
}

/* ---- attributes ---- */

/* Two file systems beneath one share have the same numbers. */
static u64 number_of(struct fsd *f, u64 dev, u64 ino)
{
    u32 i = 0;
    while (i < f->devs && f->dev[i] != dev)
        i++;
    if (i == f->devs && i < ARRAY_SIZE(f->dev))
        f->dev[f->devs++] = dev;
    return ino ^ (i < ARRAY_SIZE(f->dev) ? (u64)i << 48 : XXH3_64bits(&dev, sizeof(dev)));
}

static void put_attr(struct fsd *f, const struct stat *st, struct fuse_attr *a)
{
    *a = (struct fuse_attr){.ino = number_of(f, st->st_dev, st->st_ino),
                            .size = (u64)st->st_size,
                            .blocks = (u64)st->st_blocks,
                            .atime = (u64)st->st_atim.tv_sec,
                            .mtime = (u64)st->st_mtim.tv_sec,
                            .ctime = (u64)st->st_ctim.tv_sec,
                            .atimensec = (u32)st->st_atim.tv_nsec,
                            .mtimensec = (u32)st->st_mtim.tv_nsec,
                            .ctimensec = (u32)st->st_ctim.tv_nsec,
                            .mode = st->st_mode,
                            .nlink = (u32)st->st_nlink,
                            .uid = st->st_uid,
                            .gid = st->st_gid,
                            .rdev = (u32)st->st_rdev,
                            .blksize = (u32)st->st_blksize};
}

/* Something else whenever the contents are. */
static u64 version_of(const struct stat *st)
{
    const u64 what[] = {(u64)st->st_mtim.tv_sec, (u64)st->st_mtim.tv_nsec, (u64)st->st_ctim.tv_sec,
                        (u64)st->st_ctim.tv_nsec, (u64)st->st_size};
    u64 hash = XXH3_64bits(what, sizeof(what));
    return hash ? hash : 1;
}

/* The node of a name, which the guest knows from here on. */
static int put_entry(struct request *r, u32 parent, const char *name, u32 len,
                     const struct stat *st, bool closed, struct fuse_entry_out *e)
{
    bool other;
    u32 node = node_child(&r->f->nodes, parent, name, len, st, &other);
    if (node == NODE_NONE)
        return -ENOMEM;
    if (other)
        fsd_node_gone(r->f, node);
    struct node *n = &r->f->nodes.at[node];
    n->closed = closed;
    n->lookups++;
    n->told = version_of(st);
    *e = (struct fuse_entry_out){.nodeid = node_id(&r->f->nodes, node),
                                 .generation = n->generation,
                                 .entry_valid = CACHE_SECONDS,
                                 .attr_valid = CACHE_SECONDS};
    put_attr(r->f, st, &e->attr);
    return 0;
}

static int do_lookup(struct request *r)
{
    struct fuse_entry_out e = {.entry_valid = CACHE_SECONDS};
    struct stat st;
    bool closed;
    size_t len = strlen(r->name);
    if (len > NAME_LENGTH)
        return -ENAMETOOLONG;
    if (!len || strchr(r->name, '/') || !strcmp(r->name, ".") || !strcmp(r->name, ".."))
        return -EINVAL;
    int code = r->f->nodes.at[r->node].closed ? -ENOENT
                                              : fsd_stat_name(r->f, r->node, r->name, &st, &closed);
    if (code == -ENOENT)
        return answer(r, &e, sizeof(e)); /* that there is none is worth to be remembered */
    if (!code)
        code = put_entry(r, r->node, r->name, (u32)len, &st, closed, &e);
    return code ? code : answer(r, &e, sizeof(e));
}

static int do_forget(struct request *r)
{
    struct fuse_forget_in in;
    memcpy(&in, r->body, sizeof(in));
    node_forget(&r->f->nodes, r->node, in.nlookup, fsd_node_gone, r->f);
    return 0;
}

static int do_batch_forget(struct request *r)
{
    struct fuse_batch_forget_in in;
    memcpy(&in, r->body, sizeof(in));
    const u8 *at = (const u8 *)r->body + sizeof(in);
    u32 many = (r->size - (u32)sizeof(in)) / (u32)sizeof(struct fuse_forget_one);
    for (u32 i = 0; i < MIN(in.count, many); i++) {
        struct fuse_forget_one one;
        memcpy(&one, at + i * sizeof(one), sizeof(one));
        u32 node = node_of(&r->f->nodes, one.nodeid);
        if (node != NODE_NONE)
            node_forget(&r->f->nodes, node, one.nlookup, fsd_node_gone, r->f);
    }
    return 0;
}

static int do_getattr(struct request *r)
{
    struct fuse_getattr_in in;
    struct fuse_attr_out out = {.attr_valid = CACHE_SECONDS};
    struct stat st;
    memcpy(&in, r->body, sizeof(in));
    int code = fsd_stat(r->f, r->node, &st);
    /* A file that is open is there although its name is not. */
    if (code && in.getattr_flags & FUSE_GETATTR_FH) {
        int fd = fsd_handle_fd(r->f, in.fh, false);
        code = fd < 0 ? fd : fstat(fd, &st) ? -errno : 0;
    }
    if (code)
        return code;
    r->f->nodes.at[r->node].told = version_of(&st);
    put_attr(r->f, &st, &out.attr);
    return answer(r, &out, sizeof(out));
}

static int do_readlink(struct request *r)
{
    struct stat st;
    int code = fsd_stat(r->f, r->node, &st);
    if (code)
        return code;
    if (!S_ISLNK(st.st_mode))
        return -EINVAL;
    const struct node *n = &r->f->nodes.at[r->node];
    int dir = fsd_directory(r->f, n->parent);
    ssize_t len = dir < 0 ? 0 : readlinkat(dir, n->name, (char *)r->out, r->room);
    return dir < 0 ? dir : len < 0 ? -errno : (int)len;
}

static int do_statfs(struct request *r)
{
    struct fuse_statfs_out out = {0};
    struct statvfs s;
    u32 node = r->f->nodes.at[r->node].type == S_IFDIR ? r->node : r->f->nodes.at[r->node].parent;
    int dir = fsd_directory(r->f, node);
    if (dir < 0)
        return dir;
    if (fstatvfs(dir, &s))
        return -errno;
    out.st = (struct fuse_kstatfs){.blocks = s.f_blocks,
                                   .bfree = s.f_bfree,
                                   .bavail = s.f_bavail,
                                   .files = s.f_files,
                                   .ffree = s.f_ffree,
                                   .bsize = (u32)s.f_bsize,
                                   .namelen = (u32)s.f_namemax,
                                   .frsize = (u32)s.f_frsize};
    return answer(r, &out, sizeof(out));
}

/* ---- files ---- */

/* Has it changed since the guest was told of its size and times? Then ESTALE has it look for the
 * name anew and come again, once: it would read what is there to the end that was. */
static bool look_again(struct node *n, u64 version)
{
    n->asked_again = n->told != version && !n->asked_again;
    return n->asked_again;
}

static int open_node(struct request *r, bool directory)
{
    struct fuse_open_in in;
    struct fuse_open_out out = {0};
    struct stat st;
    u32 handle;
    memcpy(&in, r->body, sizeof(in));
    if ((in.flags & O_ACCMODE) != O_RDONLY || in.flags & O_TRUNC)
        return -EROFS;
    if (r->room < sizeof(out))
        return -EIO;
    int code = fsd_handle_open(r->f, r->node, directory, &st, &handle);
    if (code)
        return code;
    u64 version = version_of(&st);
    if (!directory && look_again(&r->f->nodes.at[r->node], version)) {
        fsd_handle_close(r->f, handle);
        return -ESTALE;
    }
    out.fh = handle;
    if (r->f->nodes.at[r->node].version == version)
        out.open_flags = FOPEN_KEEP_CACHE;
    if (directory)
        out.open_flags |= FOPEN_CACHE_DIR;
    r->f->nodes.at[r->node].version = version;
    return answer(r, &out, sizeof(out));
}

static int do_open(struct request *r)
{
    return open_node(r, false);
}

/* It could do without, as files could; but then who may not read it finds it empty. */
static int do_opendir(struct request *r)
{
    return open_node(r, true);
}

static int do_release(struct request *r)
{
    struct fuse_release_in in;
    memcpy(&in, r->body, sizeof(in));
    fsd_handle_close(r->f, in.fh);
    return 0;
}

static int do_read(struct request *r)
{
    struct fuse_read_in in;
    memcpy(&in, r->body, sizeof(in));
    int fd = fsd_handle_fd(r->f, in.fh, false);
    if (fd < 0)
        return fd;
    if (in.offset > INT64_MAX)
        return -EINVAL;
    u32 want = MIN(in.size, r->room), done = 0;
    while (done < want) {
        ssize_t n = pread(fd, r->out + done, want - done, (off_t)(in.offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && !done)
            return -errno;
        if (n <= 0)
            break;
        done += (u32)n;
    }
    return (int)done;
}

static int do_lseek(struct request *r)
{
    struct fuse_lseek_in in;
    struct fuse_lseek_out out;
    memcpy(&in, r->body, sizeof(in));
    int fd = fsd_handle_fd(r->f, in.fh, false);
    if (fd < 0)
        return fd;
    if ((in.whence != SEEK_DATA && in.whence != SEEK_HOLE) || in.offset > INT64_MAX)
        return -EINVAL;
    off_t at = lseek(fd, (off_t)in.offset, (int)in.whence);
    if (at < 0)
        return -errno;
    out.offset = (u64)at;
    return answer(r, &out, sizeof(out));
}

/* ---- directories ---- */

/* The entry at `offset` of a directory that is read; NULL: none, or *code says why. */
static const struct dirent64 *entry_at(struct fsd *f, u64 handle, u64 offset, int *code)
{
    *code = 0;
    if (f->listing.handle != handle || f->listing.offset != offset ||
        f->listing.at >= f->listing.end) {
        int fd = fsd_handle_fd(f, handle, true);
        f->listing.handle = UINT32_MAX;
        if (fd < 0 || offset > INT64_MAX) {
            *code = fd < 0 ? fd : -EINVAL;
            return NULL;
        }
        if (lseek(fd, (off_t)offset, SEEK_SET) < 0) {
            *code = -errno;
            return NULL;
        }
        ssize_t n = getdents64(fd, f->listing.data, sizeof(f->listing.data));
        if (n <= 0) {
            *code = n < 0 ? -errno : 0;
            return NULL;
        }
        f->listing.handle = (u32)handle;
        f->listing.offset = offset;
        f->listing.at = 0;
        f->listing.end = (u32)n;
    }
    return (const struct dirent64 *)(f->listing.data + f->listing.at);
}

static void entry_past(struct fsd *f, const struct dirent64 *d)
{
    f->listing.at += d->d_reclen;
    f->listing.offset = (u64)d->d_off;
}

static bool is_dots(const char *name)
{
    return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
}

/* One entry; its bytes, 0: no room. */
static u32 put_dirent(struct request *r, const struct dirent64 *d, bool plus, u8 *out, u32 room)
{
    u32 len = (u32)strlen(d->d_name), head = plus ? sizeof(struct fuse_entry_out) : 0;
    u32 size = (u32)FUSE_DIRENT_ALIGN(head + FUSE_NAME_OFFSET + len);
    struct fuse_entry_out e = {0};
    struct stat st;
    bool closed;
    if (size > room)
        return 0;
    struct fuse_dirent f = {.ino = number_of(r->f, r->f->nodes.at[r->node].dev, d->d_ino),
                            .off = (u64)d->d_off,
                            .namelen = len,
                            .type = d->d_type};
    /* One that is gone by now, or has no room among the nodes, is an entry without more. */
    if (plus && !is_dots(d->d_name) && !fsd_stat_name(r->f, r->node, d->d_name, &st, &closed) &&
        !put_entry(r, r->node, d->d_name, len, &st, closed, &e)) {
        f.ino = e.attr.ino;
        f.type = (st.st_mode & S_IFMT) >> 12;
    }
    memset(out, 0, size);
    memcpy(out, &e, head);
    memcpy(out + head, &f, FUSE_NAME_OFFSET);
    memcpy(out + head + FUSE_NAME_OFFSET, d->d_name, len);
    return size;
}

static int list(struct request *r, bool plus)
{
    struct fuse_read_in in;
    memcpy(&in, r->body, sizeof(in));
    u32 want = MIN(in.size, r->room), done = 0;
    int code = fsd_handle_fd(r->f, in.fh, true);
    /* The handle's own directory, whatever the request says. */
    if (code >= 0 && r->f->handle[in.fh].node != r->node)
        code = -EBADF;
    if (code < 0)
        return code;
    u64 offset = in.offset;
    for (;;) {
        const struct dirent64 *d = entry_at(r->f, in.fh, offset, &code);
        bool hidden = d && ((r->f->nodes.at[r->node].closed && !is_dots(d->d_name)) ||
                            strlen(d->d_name) > NAME_LENGTH);
        u32 size = d && !hidden ? put_dirent(r, d, plus, r->out + done, want - done) : 0;
        if (!d || (!size && !hidden))
            break;
        done += size;
        offset = (u64)d->d_off;
        entry_past(r->f, d);
    }
    return done ? (int)done : code;
}

static int do_readdir(struct request *r)
{
    return list(r, false);
}

static int do_readdirplus(struct request *r)
{
    return list(r, true);
}

/* ---- the session ---- */

static int do_init(struct request *r)
{
    struct init_in in;
    memcpy(&in, r->body, sizeof(in));
    struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION,
                                .minor = FSD_MINOR,
                                .max_readahead = MIN(in.max_readahead, READ_AHEAD),
                                .flags = in.flags & WANTED,
                                .max_background = FSD_SLOTS,
                                .congestion_threshold = FSD_SLOTS * 3 / 4,
                                .max_write = PAGE_SIZE,
                                .time_gran = 1,
                                .max_pages = READ_PAGES};
    if (in.major < FUSE_KERNEL_VERSION ||
        (in.major == FUSE_KERNEL_VERSION && in.minor < MINOR_LEAST))
        return -EPROTO;
    return answer(r, &out, sizeof(out));
}

static int do_destroy(struct request *r)
{
    fsd_reset(r->f);
    return 0;
}

/* What it would interrupt is done already: one request after the other. */
static int do_interrupt(struct request *r)
{
    (void)r;
    return 0;
}

/* ---- one request ---- */

static const struct row {
    handler *fn;
    u32 least; /* bytes of its body */
    bool named, writes;
} rows[] = {
#define REQUEST(OPCODE, function, body, has_name)                                                  \
    [FUSE_##OPCODE] = {.fn = function, .least = sizeof(body), .named = (has_name)},
#define WRITES(OPCODE) [FUSE_##OPCODE] = {.writes = true},
#include "fsd/requests.def"
#undef REQUEST
#undef WRITES
};

static bool has_reply(u32 opcode)
{
    return opcode != FUSE_FORGET && opcode != FUSE_BATCH_FORGET && opcode != FUSE_INTERRUPT;
}

static bool needs_node(u32 opcode)
{
    return opcode != FUSE_INIT && opcode != FUSE_DESTROY && opcode != FUSE_BATCH_FORGET &&
           opcode != FUSE_INTERRUPT;
}

static int serve(struct request *r, u64 total)
{
    const struct row *row = r->h.opcode < ARRAY_SIZE(rows) ? &rows[r->h.opcode] : NULL;
    if (row && row->writes)
        return -EROFS;
    if (!row || !row->fn)
        return -ENOSYS;
    if (r->h.len != total || r->size < row->least)
        return -EINVAL;
    if (row->named) {
        r->name = (const char *)r->body + row->least;
        if (!memchr(r->name, 0, r->size - row->least))
            return -EINVAL;
    }
    r->node = node_of(&r->f->nodes, r->h.nodeid);
    if (r->node == NODE_NONE && needs_node(r->h.opcode))
        return -ESTALE;
    return row->fn(r);
}

u32 fsd_serve(struct fsd *f, const u8 *request, u32 size, u64 total, u8 *out, u32 room)
{
    struct fuse_out_header h = {.len = sizeof(h)};
    struct request r = {.f = f};
    if (size < sizeof(r.h))
        return 0;
    memcpy(&r.h, request, sizeof(r.h));
    bool replies = has_reply(r.h.opcode);
    if (replies && room < sizeof(h))
        return 0;
    r.body = request + sizeof(r.h);
    r.size = size - (u32)sizeof(r.h);
    r.out = out + sizeof(h);
    r.room = room - (replies ? (u32)sizeof(h) : 0);
    int n = serve(&r, total);
    if (!replies)
        return 0;
    h.error = MIN(n, 0);
    h.len += (u32)MAX(n, 0);
    h.unique = r.h.unique;
    memcpy(out, &h, sizeof(h));
    return h.len;
}
