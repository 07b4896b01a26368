/*
 * See net_user.h. All that the companion says is taken for hostile: the guest may have taken it
 * over. It says frames and that it has come so far; what it says too much waits in its socket.
 */
#define _GNU_SOURCE
#include "host/net_user.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "host/clock.h"
#include "host/companion.h"
#include "host/net_protocol.h"

#define NAME        "reprise-net"
#define START_MS    20000
#define STALL_MS    10000u /* so long it may take nothing, or owe an answer */
#define BURST       512u   /* messages that are read at once */
#define SOCKET_ROOM (1 << 20)

struct user {
    int fd;            /* -1: the companion has gone */
    pid_t pid;         /* 0: none */
    u64 asked, synced; /* NETD_SYNC: the last one sent, and come back */
    bool sent;         /* frames since then */
    struct netd_message in;
};

/* The companion is over; wrong: because we say so, and why. */
static void lost(struct net *n, const char *wrong)
{
    struct user *u = n->state;
    char how[128];
    close(u->fd);
    u->fd = -1;
    int status = wrong ? companion_kill(u->pid) : companion_wait(u->pid);
    u->pid = 0;
    companion_how(status, how, sizeof(how));
    fprintf(stderr,
            "reprise: network %u: " NAME " is gone (%s); the guest's link is down from here on\n",
            n->unit, wrong ? wrong : how);
    net_link(n, false);
}

/* false: no companion says that. */
static bool take_message(struct net *n, size_t size)
{
    struct user *u = n->state;
    if (size < sizeof(u->in.head))
        return false;
    size_t len = size - sizeof(u->in.head);
    u64 number;
    switch (u->in.head.kind) {
    case NETD_FRAME:
        if (len < NETD_FRAME_MIN || len > NETD_FRAME_MAX)
            return false;
        net_arrived(n, u->in.body, len);
        return true;
    case NETD_SYNC:
        if (len != sizeof(number) || u->synced == u->asked)
            return false;
        memcpy(&number, u->in.body, sizeof(number));
        u->synced = number;
        return number == u->asked;
    default: return false;
    }
}

/* What has come, but not for ever: a companion that floods must not stop the machine. */
static void listen_to(struct net *n)
{
    struct user *u = n->state;
    for (unsigned i = 0; i < BURST && u->fd >= 0; i++) {
        ssize_t got = recv(u->fd, &u->in, sizeof(u->in), MSG_DONTWAIT | MSG_TRUNC);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (got <= 0)
            lost(n, NULL);
        else if ((size_t)got > sizeof(u->in) || !take_message(n, (size_t)got))
            lost(n, "it sent nonsense");
    }
}

/* Until there is `events`, or it is lost. A machine that sends more than it takes stands still. */
static bool wait_for(struct net *n, short events)
{
    struct user *u = n->state;
    struct pollfd fd = {.fd = u->fd, .events = events};
    u64 until = host_ns() + STALL_MS * 1000000ull, now;
    int ready;
    do {
        now = host_ns();
        ready = poll(&fd, 1, now < until ? (int)((until - now) / 1000000u) + 1 : 0);
    } while (ready < 0 && errno == EINTR);
    if (ready <= 0)
        lost(n, events & POLLOUT ? "it takes nothing" : "it does not answer");
    return ready > 0;
}

static void say(struct net *n, enum netd_kind kind, const void *body, size_t len)
{
    struct user *u = n->state;
    struct netd_head head = {kind};
    struct iovec parts[] = {{&head, sizeof(head)}, {(void *)(uintptr_t)body, len}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    while (u->fd >= 0 && sendmsg(u->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        if (errno != EAGAIN && errno != EINTR && errno != ENOBUFS)
            lost(n, NULL);
        else if (errno != EINTR)
            wait_for(n, POLLOUT);
    }
}

static unsigned user_prepare(struct net *n, struct pollfd *fds, unsigned cap, u64 *until)
{
    const struct user *u = n->state;
    if (u->fd < 0)
        return 0;
    if (cap)
        fds[0] = (struct pollfd){.fd = u->fd, .events = POLLIN};
    return 1;
}

static void user_serve(struct net *n, const struct pollfd *fds, unsigned count)
{
    if (count && fds[0].revents)
        listen_to(n);
}

static void user_send(struct net *n, const void *frame, size_t len)
{
    struct user *u = n->state;
    if (len > NETD_FRAME_MAX)
        return;
    u->sent = true;
    say(n, NETD_FRAME, frame, len);
}

static void user_settle(struct net *n)
{
    struct user *u = n->state;
    if (u->fd < 0 || !u->sent)
        return;
    u->sent = false;
    u->asked++;
    say(n, NETD_SYNC, &u->asked, sizeof(u->asked));
    u64 until = host_ns() + STALL_MS * 1000000ull;
    while (u->fd >= 0 && u->synced != u->asked && wait_for(n, POLLIN)) {
        listen_to(n);
        if (host_ns() > until && u->fd >= 0 && u->synced != u->asked)
            lost(n, "it does not answer");
    }
}

static void user_destroy(struct net *n)
{
    struct user *u = n->state;
    if (u->fd >= 0)
        close(u->fd);
    if (u->pid)
        companion_wait(u->pid);
    free(u);
}

static const struct net_backend backend = {.prepare = user_prepare,
                                           .serve = user_serve,
                                           .send = user_send,
                                           .settle = user_settle,
                                           .destroy = user_destroy};

/* ---- creation ---- */

static int start(struct user *u, struct err *err)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
        return err_errno(err, "cannot make a socket for a network");
    u->fd = pair[0];
    setsockopt(u->fd, SOL_SOCKET, SO_SNDBUF, &(int){SOCKET_ROOM}, sizeof(int));
    struct companion_config c = {
        .what = "the network", .name = NAME, .fds = {pair[1]}, .nfds = 1, .voice = -1};
    int code = companion_start(&u->pid, &c, err);
    close(pair[1]);
    return code;
}

/* What it said of its start, in words. */
static int explain(const struct netd_hello *hello, const struct net_options *o, struct err *err)
{
    const struct net_forward *f = &o->forwards.at[MIN(hello->forward, MAX(o->forwards.n, 1u) - 1)];
    char text[16];
    errno = hello->error;
    switch (hello->step) {
    case NETD_READY: return 0;
    case NETD_NO_LIBRARY: return err_errno(err, "--net user: libslirp does not start");
    case NETD_NO_LISTEN:
        return err_errno(err, "--net user: cannot listen on %s port %u of %s for hostfwd",
                         f->udp ? "udp" : "tcp", f->host_port, net_address_text(f->host, text));
    case NETD_NO_PORT:
        return err_set(err, -EIO, "--net user: hostfwd from port 0: which port it is is not known");
    case NETD_NO_SANDBOX: return err_errno(err, "--net user: " NAME " cannot lock itself in");
    default: return err_set(err, -EPROTO, "--net user: " NAME " is of another version");
    }
}

static int greet(struct user *u, const struct netd_start *s, struct netd_hello *hello,
                 struct err *err)
{
    struct pollfd fd = {.fd = u->fd, .events = POLLIN};
    int ready = 0;
    ssize_t n = -1;
    if (send(u->fd, s, sizeof(*s), MSG_NOSIGNAL) == sizeof(*s)) {
        while ((ready = poll(&fd, 1, START_MS)) < 0 && errno == EINTR)
            ;
        if (!ready)
            return err_set(err, -ETIMEDOUT, "--net user: " NAME " did not start within %u s",
                           START_MS / 1000);
        n = recv(u->fd, hello, sizeof(*hello), 0);
    }
    if (n != sizeof(*hello) || hello->magic != NETD_MAGIC || hello->version != NETD_VERSION)
        return err_set(err, -EPROTO,
                       "--net user: " NAME " did not start, or is of another version (`reprise "
                       "doctor` tries it)");
    return explain(hello, &s->options, err);
}

int net_user_create(struct net *n, const struct net_options *o, struct net_identity *d,
                    struct err *err)
{
    const struct netd_start s = {
        .magic = NETD_MAGIC, .version = NETD_VERSION, .mtu = d->mtu, .options = *o};
    struct netd_hello hello;
    char from[16], to[16];
    struct user *u = calloc(1, sizeof(*u));
    if (!u)
        return err_set(err, -ENOMEM, "no memory for a network");
    u->fd = -1;
    n->state = u;
    n->backend = &backend;
    int code = start(u, err);
    if (!code)
        code = greet(u, &s, &hello, err);
    if (code) {
        user_destroy(n);
        return code;
    }
    for (unsigned i = 0; i < o->forwards.n; i++) {
        const struct net_forward *f = &o->forwards.at[i];
        if (!f->host_port)
            net_note(n, "reprise: network %u: %s port %u of %s leads to port %u of %s\n", n->unit,
                     f->udp ? "udp" : "tcp", hello.port[i], net_address_text(f->host, from),
                     f->guest_port, net_address_text(f->guest, to));
    }
    snprintf(d->backend, sizeof(d->backend), "user%s",
             o->restricted == NET_ON ? ", restricted" : "");
    return 0;
}
