/* See share.h. All that the server says is taken for hostile: the guest may have taken it over. */
#define _GNU_SOURCE /* memfd_create */
#include "host/share.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/parts.h"
#include "host/clock.h"
#include "host/companion.h"
#include "host/share_protocol.h"

#define NAME        "reprise-fs"
#define START_MS    20000
#define STALL_MS    10000u /* so long it may take nothing */
#define SOCKET_ROOM (1 << 20)

enum slot_state { SLOT_FREE, SLOT_ASKED, SLOT_THERE, SLOT_DROPPED };

struct share {
    unsigned unit;
    int fd;    /* -1: the server has gone */
    pid_t pid; /* 0: none */
    u8 *memory;
    enum slot_state state[FSD_SLOTS];
    u32 size[FSD_SLOTS];
};

/* The server is over; wrong: because we say so, and why. */
static void lost(struct share *s, const char *wrong)
{
    char how[128];
    close(s->fd);
    s->fd = -1;
    int status = wrong ? companion_kill(s->pid) : companion_wait(s->pid);
    s->pid = 0;
    companion_how(status, how, sizeof(how));
    fprintf(stderr,
            "reprise: share %u: " NAME
            " is gone (%s); the guest gets an error for all that it asks "
            "of it from here on\n",
            s->unit, wrong ? wrong : how);
}

/* All replies that have come. */
static void listen_to(struct share *s)
{
    while (s->fd >= 0) {
        struct fsd_reply r;
        ssize_t n = recv(s->fd, &r, sizeof(r), MSG_DONTWAIT | MSG_TRUNC);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            lost(s, NULL);
            return;
        }
        if (n != sizeof(r) || r.slot >= FSD_SLOTS || r.size > FSD_SLOT_SIZE ||
            (s->state[r.slot] != SLOT_ASKED && s->state[r.slot] != SLOT_DROPPED)) {
            lost(s, "it sent nonsense");
            return;
        }
        s->state[r.slot] = s->state[r.slot] == SLOT_ASKED ? SLOT_THERE : SLOT_FREE;
        s->size[r.slot] = r.size;
    }
}

/* Until there is `events`, or it is lost. A machine that asks more than the server takes stands
 * still. */
static bool wait_for(struct share *s, short events)
{
    u64 until = host_ns() + STALL_MS * 1000000ull, now;
    int ready;
    do {
        struct pollfd fd = {.fd = s->fd, .events = events};
        now = host_ns();
        ready = poll(&fd, 1, now < until ? (int)((until - now) / 1000000u) + 1 : 0);
    } while (ready < 0 && errno == EINTR);
    if (ready <= 0)
        lost(s, events & POLLOUT ? "it takes nothing" : "it does not answer");
    return ready > 0;
}

static bool say(struct share *s, const struct fsd_head *head, const u8 *body, size_t len)
{
    struct iovec parts[] = {{(void *)(uintptr_t)head, sizeof(*head)},
                            {(void *)(uintptr_t)body, len}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    while (s->fd >= 0) {
        if (sendmsg(s->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
            return true;
        if (errno != EAGAIN && errno != EINTR && errno != ENOBUFS)
            lost(s, NULL);
        else if (errno != EINTR)
            wait_for(s, POLLOUT);
    }
    return false;
}

void share_hide(struct share *s, int dir)
{
    const struct fsd_head head = {.kind = FSD_HIDE, .slot = FSD_NO_SLOT};
    struct stat st;
    if (fstat(dir, &st))
        return;
    const struct fsd_hidden hidden = {st.st_dev, st.st_ino};
    say(s, &head, (const u8 *)&hidden, sizeof(hidden));
}

static u32 free_slot(const struct share *s)
{
    for (u32 i = 0; i < FSD_SLOTS; i++)
        if (s->state[i] == SLOT_FREE)
            return i;
    return FSD_NO_SLOT;
}

int share_request(struct share *s, const u8 *request, u32 size, u64 total, u32 room, bool awaited)
{
    struct fsd_head head = {.kind = FSD_REQUEST, .slot = FSD_NO_SLOT, .total = total, .room = room};
    if (s->fd < 0)
        return -1;
    if (awaited) {
        /* Only what was dropped and is still to come can have taken them all. */
        while ((head.slot = free_slot(s)) == FSD_NO_SLOT && s->fd >= 0 && wait_for(s, POLLIN))
            listen_to(s);
        if (s->fd < 0)
            return -1;
        s->state[head.slot] = SLOT_ASKED;
    }
    return say(s, &head, request, size) && awaited ? (int)head.slot : -1;
}

int share_reply(struct share *s, int slot, u32 milliseconds, const u8 **data, u32 *size)
{
    if (slot < 0)
        return -1;
    for (u64 until = host_ns() + milliseconds * 1000000ull;;) {
        if (s->state[slot] == SLOT_ASKED)
            listen_to(s);
        if (s->state[slot] == SLOT_THERE) {
            *data = s->memory + (size_t)slot * FSD_SLOT_SIZE;
            *size = s->size[slot];
            return 1;
        }
        u64 now = host_ns();
        if (s->fd < 0)
            return -1;
        if (now >= until)
            return 0;
        struct pollfd fd = {.fd = s->fd, .events = POLLIN};
        poll(&fd, 1, (int)((until - now) / 1000000u) + 1);
    }
}

void share_free(struct share *s, int slot)
{
    if (slot >= 0)
        s->state[slot] = s->state[slot] == SLOT_ASKED ? SLOT_DROPPED : SLOT_FREE;
}

void share_reset(struct share *s)
{
    const struct fsd_head head = {.kind = FSD_RESET, .slot = FSD_NO_SLOT};
    for (int i = 0; i < (int)FSD_SLOTS; i++)
        if (s->state[i] != SLOT_DROPPED)
            share_free(s, i);
    say(s, &head, NULL, 0);
}

void share_destroy(struct share *s)
{
    if (!s)
        return;
    if (s->fd >= 0)
        close(s->fd);
    if (s->pid)
        companion_wait(s->pid);
    if (s->memory)
        munmap(s->memory, FSD_MEMORY_SIZE);
    free(s);
}

/* ---- creation ---- */

/* DIR[,tag=NAME]: names of directories may have commas, too. */
static int read_text(const char *text, unsigned unit, char *dir, size_t room,
                     struct share_identity *id, struct err *err)
{
    const char *tag = strstr(text, ",tag="), *more;
    while (tag && (more = strstr(tag + 1, ",tag=")))
        tag = more;
    size_t n = tag ? (size_t)(tag - text) : strlen(text);
    if (!n)
        return err_set(err, -EINVAL, "--share: the directory has no name");
    if (n >= room)
        return err_set(err, -ENAMETOOLONG, "--share %s: its path is too long", text);
    memcpy(dir, text, n);
    dir[n] = 0;
    if (tag) {
        tag += 5;
        size_t len = strlen(tag);
        if (!len || len >= sizeof(id->tag))
            return err_set(err, -EINVAL, "--share %s: a tag has 1 to %zu bytes", dir,
                           sizeof(id->tag) - 1);
        for (const char *c = tag; *c; c++)
            if (*c <= ' ' || *c > '~')
                return err_set(err, -EINVAL, "--share %s: a tag is made of printable ASCII", dir);
        memcpy(id->tag, tag, len + 1);
    } else if (unit) {
        snprintf(id->tag, sizeof(id->tag), "share%u", unit);
    } else {
        snprintf(id->tag, sizeof(id->tag), "share");
    }
    return 0;
}

/* The directory, opened; what cannot be shared is refused here. */
static int open_directory(const char *dir, struct share_identity *id, struct err *err)
{
    char *real = realpath(dir, NULL);
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK), code = 0;
    if (fd < 0)
        code = err_errno(err, "--share: cannot open the directory %s", dir);
    else if (!real || strlen(real) >= sizeof(id->path))
        code = err_set(err, -ENAMETOOLONG, "--share %s: its path is too long", dir);
    else
        strcpy(id->path, real);
    free(real);
    if (code && fd >= 0)
        close(fd);
    return code ? code : fd;
}

/* Memory that neither end can cut: reading what is gone would be a signal. */
static int make_memory(struct share *s, struct err *err)
{
    int fd = memfd_create("reprise-fs", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return err_errno(err, "--share: no memory for replies");
    if (ftruncate(fd, (off_t)FSD_MEMORY_SIZE) ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
        int code = err_errno(err, "--share: no memory for replies");
        close(fd);
        return code;
    }
    void *p = mmap(NULL, FSD_MEMORY_SIZE, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
        int code = err_errno(err, "--share: no memory for replies");
        close(fd);
        return code;
    }
    s->memory = p;
    return fd;
}

static int start(struct share *s, int dir, struct err *err)
{
    int pair[2], memory = make_memory(s, err);
    if (memory < 0)
        return memory;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) {
        close(memory);
        return err_errno(err, "cannot make a socket for a share");
    }
    s->fd = pair[0];
    setsockopt(s->fd, SOL_SOCKET, SO_SNDBUF, &(int){SOCKET_ROOM}, sizeof(int));
    struct companion_config c = {.what = "the file server",
                                 .name = NAME,
                                 .fds = {pair[1], memory, dir},
                                 .nfds = 3,
                                 .voice = -1};
    int code = companion_start(&s->pid, &c, err);
    close(pair[1]);
    close(memory);
    return code;
}

/* What it said of its start, in words. */
static int explain(const struct fsd_hello *hello, const char *dir, struct err *err)
{
    errno = hello->error;
    switch (hello->step) {
    case FSD_READY: return 0;
    case FSD_NO_MEMORY: return err_errno(err, "--share: " NAME " has no memory");
    case FSD_NO_DIRECTORY: return err_errno(err, "--share: cannot read the directory %s", dir);
    case FSD_NO_PROC: return err_errno(err, "--share: " NAME " needs /proc, which is not there");
    case FSD_NO_SANDBOX: return err_errno(err, "--share: " NAME " cannot lock itself in");
    default: return err_set(err, -EPROTO, "--share: " NAME " is of another version");
    }
}

static int greet(struct share *s, u32 epoch, const char *dir, struct err *err)
{
    const struct fsd_start start = {FSD_MAGIC, FSD_VERSION, epoch};
    struct fsd_hello hello = {0};
    struct pollfd fd = {.fd = s->fd, .events = POLLIN};
    int ready = 0;
    ssize_t n = -1;
    if (send(s->fd, &start, sizeof(start), MSG_NOSIGNAL) == sizeof(start)) {
        while ((ready = poll(&fd, 1, START_MS)) < 0 && errno == EINTR)
            ;
        if (!ready)
            return err_set(err, -ETIMEDOUT, "--share: " NAME " did not start within %u s",
                           START_MS / 1000);
        n = recv(s->fd, &hello, sizeof(hello), 0);
    }
    if (n != sizeof(hello) || hello.magic != FSD_MAGIC || hello.version != FSD_VERSION)
        return err_set(err, -EPROTO,
                       "--share: " NAME " did not start, or is of another version (`reprise "
                       "doctor` tries it)");
    return explain(&hello, dir, err);
}

int share_create(struct share **out, const char *text, unsigned unit, u32 epoch,
                 struct share_identity *id, struct err *err)
{
    char dir[4096];
    int code = read_text(text, unit, dir, sizeof(dir), id, err);
    if (code)
        return code;
    int fd = open_directory(dir, id, err);
    if (fd < 0)
        return fd;
    struct share *s = calloc(1, sizeof(*s));
    if (!s) {
        close(fd);
        return err_set(err, -ENOMEM, "no memory for a share");
    }
    s->unit = unit;
    s->fd = -1;
    code = start(s, fd, err);
    close(fd);
    if (!code)
        code = greet(s, epoch, id->path, err);
    if (code) {
        share_destroy(s);
        return code;
    }
    *out = s;
    return 0;
}
