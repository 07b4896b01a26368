/*
 * libslirp for one network. Its clock is the host's: its timers run against sockets of the host. It
 * opens, and connects to, what the guest asks for; it listens where the user said (hostfwd).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <libslirp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/clock.h"
#include "netd/fragments.h"
#include "netd/netd.h"

#define TIMERS 8
#define FDS    64 /* room for descriptors at first */

struct timer {
    bool used;
    SlirpTimerCb fn;
    void *opaque;
    u64 due; /* host_ns; NEVER: not armed */
};

struct nat {
    Slirp *slirp;
    nat_out *out;
    void *opaque;
    struct timer timer[TIMERS];
    struct pollfd *fds; /* while prepare() gathers */
    unsigned n, room;
    const struct pollfd *ready; /* while serve() hands out; NULL: nothing is ready */
    unsigned nready;
    struct fragments *fragments;
};

static ssize_t on_packet(const void *frame, size_t len, void *opaque)
{
    struct nat *n = opaque;
    n->out(n->opaque, frame, len);
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
    struct nat *n = opaque;
    for (unsigned i = 0; i < TIMERS; i++)
        if (!n->timer[i].used) {
            n->timer[i] = (struct timer){true, fn, fn_opaque, NEVER};
            return &n->timer[i];
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

static bool enlarge(struct nat *n)
{
    if (n->n < n->room)
        return true;
    unsigned room = 2 * n->room;
    struct pollfd *more = realloc(n->fds, room * sizeof(*more));
    if (!more)
        return false;
    n->fds = more;
    n->room = room;
    return true;
}

static int add_poll(int fd, int events, void *opaque)
{
    struct nat *n = opaque;
    short e =
        (short)((events & SLIRP_POLL_IN ? POLLIN : 0) | (events & SLIRP_POLL_OUT ? POLLOUT : 0) |
                (events & SLIRP_POLL_PRI ? POLLPRI : 0));
    if (!enlarge(n))
        return -1; /* not waited for this time */
    n->fds[n->n] = (struct pollfd){.fd = fd, .events = e};
    return (int)n->n++;
}

static int get_revents(int index, void *opaque)
{
    struct nat *n = opaque;
    bool known = n->ready && index >= 0 && (unsigned)index < n->nready;
    short e = known ? n->ready[index].revents : 0;
    return (e & POLLIN ? SLIRP_POLL_IN : 0) | (e & POLLOUT ? SLIRP_POLL_OUT : 0) |
           (e & POLLPRI ? SLIRP_POLL_PRI : 0) | (e & POLLERR ? SLIRP_POLL_ERR : 0) |
           (e & POLLHUP ? SLIRP_POLL_HUP : 0);
}

unsigned nat_prepare(struct nat *n, struct pollfd **fds, unsigned first, u64 *until)
{
    uint32_t timeout = UINT32_MAX;
    n->n = first;
    slirp_pollfds_fill(n->slirp, &timeout, add_poll, n);
    *fds = n->fds;
    if (timeout != UINT32_MAX)
        *until = MIN(*until, host_ns() + (u64)timeout * 1000000u);
    for (unsigned i = 0; i < TIMERS; i++)
        if (n->timer[i].used)
            *until = MIN(*until, n->timer[i].due);
    return n->n;
}

void nat_serve(struct nat *n, const struct pollfd *fds, unsigned count)
{
    u64 now = host_ns();
    n->ready = fds;
    n->nready = count;
    slirp_pollfds_poll(n->slirp, 0, get_revents, n);
    n->ready = NULL;
    for (unsigned i = 0; i < TIMERS; i++)
        if (n->timer[i].used && n->timer[i].due <= now) {
            n->timer[i].due = NEVER;
            n->timer[i].fn(n->timer[i].opaque);
        }
}

void nat_input(struct nat *n, const void *frame, size_t len)
{
    const u8 *whole;
    size_t size = fragments_take(n->fragments, frame, len, host_ns_coarse(), &whole);
    if (size)
        slirp_input(n->slirp, whole, (int)size);
}

/* ---- creation ---- */

struct listing {
    int *fds;
    unsigned n, room;
};

static int list_fd(int fd, int events, void *opaque)
{
    struct listing *l = opaque;
    if (l->n < l->room)
        l->fds[l->n] = fd;
    return (int)l->n++;
}

/* libslirp does not say which socket it made: it is the one that was not there before. */
static int new_socket(Slirp *s, const struct listing *before)
{
    int fds[NET_FORWARDS + 8];
    struct listing now = {.fds = fds, .room = ARRAY_SIZE(fds)};
    uint32_t timeout = UINT32_MAX;
    slirp_pollfds_fill(s, &timeout, list_fd, &now);
    for (unsigned i = 0; i < MIN(now.n, now.room); i++) {
        bool known = false;
        for (unsigned k = 0; k < MIN(before->n, before->room); k++)
            known = known || before->fds[k] == fds[i];
        if (!known)
            return fds[i];
    }
    return -1;
}

static enum netd_step forward(struct nat *n, const struct net_forward *f, u16 *port)
{
    struct in_addr host = {htonl(f->host)}, guest = {htonl(f->guest)};
    int fds[NET_FORWARDS + 8];
    struct listing before = {.fds = fds, .room = ARRAY_SIZE(fds)};
    uint32_t timeout = UINT32_MAX;
    slirp_pollfds_fill(n->slirp, &timeout, list_fd, &before);
    if (slirp_add_hostfwd(n->slirp, f->udp, host, f->host_port, guest, f->guest_port))
        return NETD_NO_LISTEN;
    int fd = new_socket(n->slirp, &before);
    if (fd >= 0 && !f->udp)
        listen(fd, SOMAXCONN); /* its own limit is 1: a browser's second connection would wait */
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t len = sizeof(at);
    bool told = fd >= 0 && !getsockname(fd, (struct sockaddr *)&at, &len);
    *port = told ? ntohs(at.sin_port) : f->host_port;
    return *port ? NETD_READY : NETD_NO_PORT;
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

const char *nat_version(void)
{
    return slirp_version_string();
}

struct nat *nat_create(const struct netd_start *start, struct netd_hello *hello, nat_out *out,
                       void *opaque)
{
    const struct net_options *o = &start->options;
    SlirpConfig c = {.version = 1,
                     .restricted = o->restricted == NET_ON,
                     .in_enabled = true,
                     .in6_enabled = o->ipv6 == NET_DEFAULT ? host_has_ipv6() : o->ipv6 == NET_ON,
                     .vnetwork.s_addr = htonl(o->network.net),
                     .vnetmask.s_addr = htonl(o->network.mask),
                     .vhost.s_addr = htonl(o->host),
                     .vdhcp_start.s_addr = htonl(o->dhcp),
                     .vnameserver.s_addr = htonl(o->dns),
                     .vhostname = *o->hostname ? o->hostname : NULL,
                     .vprefix_len = 64,
                     .if_mtu = start->mtu,
                     .if_mru = start->mtu};
    inet_pton(AF_INET6, "fec0::", &c.vprefix_addr6); /* as QEMU has it */
    inet_pton(AF_INET6, "fec0::2", &c.vhost6);
    inet_pton(AF_INET6, "fec0::3", &c.vnameserver6);
    struct nat *n = calloc(1, sizeof(*n));
    struct fragments *fragments = calloc(1, fragments_size());
    hello->step = NETD_NO_LIBRARY;
    hello->error = ENOMEM;
    if (!n || !fragments || !(n->fds = calloc(FDS, sizeof(*n->fds))))
        return NULL;
    n->room = FDS;
    n->fragments = fragments;
    n->out = out;
    n->opaque = opaque;
    n->slirp = slirp_new(&c, &callbacks, n);
    hello->error = EIO;
    if (!n->slirp)
        return NULL;
    for (u32 i = 0; i < o->forwards.n; i++) {
        hello->forward = i;
        hello->step = forward(n, &o->forwards.at[i], &hello->port[i]);
        hello->error = hello->step == NETD_NO_LISTEN ? errno : EIO;
        if (hello->step != NETD_READY)
            return NULL;
    }
    hello->step = NETD_READY;
    hello->error = 0;
    return n;
}
