/*
 * See net_user.h. libslirp's clock is the host's: its timers run against sockets of the host. It
 * never blocks; what it has for the guest waits in net.c's queue.
 */
#include "host/net_user.h"

#include <arpa/inet.h>
#include <errno.h>
#include <libslirp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/clock.h"

#define TIMERS 8

struct timer {
    bool used;
    SlirpTimerCb fn;
    void *opaque;
    u64 due; /* host_ns; NEVER: not armed */
};

struct user {
    struct net *net;
    Slirp *slirp;
    struct timer timer[TIMERS];
    struct pollfd *fds; /* while prepare() gathers */
    unsigned n, cap;
    const struct pollfd *ready; /* while serve() hands out */
};

static ssize_t on_packet(const void *frame, size_t len, void *opaque)
{
    struct user *u = opaque;
    net_arrived(u->net, frame, len);
    return (ssize_t)len;
}

static void on_guest_error(const char *text, void *opaque)
{
    /* A guest's malformed packets are its own affair. */
}

static int64_t on_clock(void *opaque)
{
    return (int64_t)host_ns();
}

static void *on_timer_new(SlirpTimerCb fn, void *fn_opaque, void *opaque)
{
    struct user *u = opaque;
    for (unsigned i = 0; i < TIMERS; i++)
        if (!u->timer[i].used) {
            u->timer[i] = (struct timer){true, fn, fn_opaque, NEVER};
            return &u->timer[i];
        }
    return NULL;
}

static void on_timer_free(void *timer, void *opaque)
{
    if (timer)
        ((struct timer *)timer)->used = false;
}

static void on_timer_mod(void *timer, int64_t expire_ms, void *opaque)
{
    if (timer)
        ((struct timer *)timer)->due = (u64)expire_ms * 1000000u;
}

static void on_poll_fd(int fd, void *opaque)
{
}

static void on_notify(void *opaque)
{
}

static const SlirpCb callbacks = {
    .send_packet = on_packet,
    .guest_error = on_guest_error,
    .clock_get_ns = on_clock,
    .timer_new = on_timer_new,
    .timer_free = on_timer_free,
    .timer_mod = on_timer_mod,
    .register_poll_fd = on_poll_fd,
    .unregister_poll_fd = on_poll_fd,
    .notify = on_notify,
};

static int add_poll(int fd, int events, void *opaque)
{
    struct user *u = opaque;
    short e =
        (short)((events & SLIRP_POLL_IN ? POLLIN : 0) | (events & SLIRP_POLL_OUT ? POLLOUT : 0) |
                (events & SLIRP_POLL_PRI ? POLLPRI : 0));
    if (u->n < u->cap)
        u->fds[u->n] = (struct pollfd){.fd = fd, .events = e};
    return (int)u->n++;
}

static int get_revents(int index, void *opaque)
{
    struct user *u = opaque;
    short e = u->ready ? u->ready[index].revents : 0;
    return (e & POLLIN ? SLIRP_POLL_IN : 0) | (e & POLLOUT ? SLIRP_POLL_OUT : 0) |
           (e & POLLPRI ? SLIRP_POLL_PRI : 0) | (e & POLLERR ? SLIRP_POLL_ERR : 0) |
           (e & POLLHUP ? SLIRP_POLL_HUP : 0);
}

static unsigned user_prepare(struct net *n, struct pollfd *fds, unsigned cap, u64 *until)
{
    struct user *u = n->state;
    uint32_t timeout = UINT32_MAX;
    u->fds = fds;
    u->cap = cap;
    u->n = 0;
    slirp_pollfds_fill(u->slirp, &timeout, add_poll, u);
    if (timeout != UINT32_MAX)
        *until = MIN(*until, host_ns() + (u64)timeout * 1000000u);
    for (unsigned i = 0; i < TIMERS; i++)
        if (u->timer[i].used)
            *until = MIN(*until, u->timer[i].due);
    return u->n;
}

static void user_serve(struct net *n, const struct pollfd *fds, unsigned count)
{
    struct user *u = n->state;
    u64 now = host_ns();
    u->ready = count ? fds : NULL;
    slirp_pollfds_poll(u->slirp, 0, get_revents, u);
    u->ready = NULL;
    for (unsigned i = 0; i < TIMERS; i++)
        if (u->timer[i].used && u->timer[i].due <= now) {
            u->timer[i].due = NEVER;
            u->timer[i].fn(u->timer[i].opaque);
        }
}

static void user_send(struct net *n, const void *frame, size_t len)
{
    struct user *u = n->state;
    slirp_input(u->slirp, frame, (int)len);
}

static void user_destroy(struct net *n)
{
    struct user *u = n->state;
    slirp_cleanup(u->slirp);
    free(u);
}

static const struct net_backend backend = {user_prepare, user_serve, user_send, user_destroy};

/* ---- creation ---- */

struct listing {
    int *fds;
    unsigned n, cap;
};

static int list_fd(int fd, int events, void *opaque)
{
    struct listing *l = opaque;
    if (l->n < l->cap)
        l->fds[l->n] = fd;
    return (int)l->n++;
}

/* libslirp does not say which socket it made: it is the one that was not there before. */
static int new_socket(Slirp *s, const struct listing *before)
{
    int fds[NET_FORWARDS + 8];
    struct listing now = {.fds = fds, .cap = ARRAY_SIZE(fds)};
    uint32_t timeout = UINT32_MAX;
    slirp_pollfds_fill(s, &timeout, list_fd, &now);
    for (unsigned i = 0; i < MIN(now.n, now.cap); i++) {
        bool known = false;
        for (unsigned k = 0; k < MIN(before->n, before->cap); k++)
            known = known || before->fds[k] == fds[i];
        if (!known)
            return fds[i];
    }
    return -1;
}

static int forward(struct net *n, const struct net_forward *f, struct err *err)
{
    struct user *u = n->state;
    struct in_addr host = {htonl(f->host)}, guest = {htonl(f->guest)};
    const char *proto = f->udp ? "udp" : "tcp";
    int fds[NET_FORWARDS + 8];
    struct listing before = {.fds = fds, .cap = ARRAY_SIZE(fds)};
    uint32_t timeout = UINT32_MAX;
    char text[16], text2[16];
    slirp_pollfds_fill(u->slirp, &timeout, list_fd, &before);
    if (slirp_add_hostfwd(u->slirp, f->udp, host, f->host_port, guest, f->guest_port))
        return err_errno(err, "--net user: cannot listen on %s port %u of %s for hostfwd", proto,
                         f->host_port, net_address_text(f->host, text));
    int fd = new_socket(u->slirp, &before);
    if (fd >= 0 && !f->udp)
        listen(fd, SOMAXCONN); /* its own limit is 1: a browser's second connection would wait */
    if (f->host_port)
        return 0;
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t len = sizeof(at);
    if (fd < 0 || getsockname(fd, (struct sockaddr *)&at, &len))
        return err_set(err, -EIO, "--net user: hostfwd from port 0: which port it is is not known");
    net_note(n, "reprise: network %u: %s port %u of %s leads to port %u of %s\n", n->unit, proto,
             ntohs(at.sin_port), net_address_text(f->host, text), f->guest_port,
             net_address_text(f->guest, text2));
    return 0;
}

/* Can anything here speak IPv6? */
static bool host_has_ipv6(void)
{
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool good = fd >= 0 && !bind(fd, (struct sockaddr *)&at, sizeof(at));
    if (fd >= 0)
        close(fd);
    return good;
}

int net_user_create(struct net *n, const struct net_options *o, struct net_identity *d,
                    struct err *err)
{
    bool ipv6 = o->ipv6 == NET_DEFAULT ? host_has_ipv6() : o->ipv6 == NET_ON;
    SlirpConfig c = {.version = 1,
                     .restricted = o->restricted == NET_ON,
                     .in_enabled = true,
                     .vnetwork.s_addr = htonl(o->net),
                     .vnetmask.s_addr = htonl(o->mask),
                     .vhost.s_addr = htonl(o->host),
                     .vdhcp_start.s_addr = htonl(o->dhcp),
                     .vnameserver.s_addr = htonl(o->dns),
                     .vhostname = *o->hostname ? o->hostname : NULL,
                     .in6_enabled = ipv6,
                     .vprefix_len = 64,
                     .if_mtu = d->mtu,
                     .if_mru = d->mtu};
    inet_pton(AF_INET6, "fec0::", &c.vprefix_addr6); /* as QEMU has it */
    inet_pton(AF_INET6, "fec0::2", &c.vhost6);
    inet_pton(AF_INET6, "fec0::3", &c.vnameserver6);
    struct user *u = calloc(1, sizeof(*u));
    if (!u)
        return err_set(err, -ENOMEM, "no memory for a network");
    u->net = n;
    n->state = u;
    n->backend = &backend;
    u->slirp = slirp_new(&c, &callbacks, u);
    if (!u->slirp) {
        free(u);
        return err_set(err, -EIO, "--net user: libslirp does not start");
    }
    int code = 0;
    for (unsigned i = 0; i < o->nforwards && !code; i++)
        code = forward(n, &o->forward[i], err);
    if (code)
        user_destroy(n);
    snprintf(d->backend, sizeof(d->backend), "user%s", c.restricted ? ", restricted" : "");
    return code;
}
