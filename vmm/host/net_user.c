/* See net_user.h. */
#include "host/net_user.h"

#include <arpa/inet.h>
#include <errno.h>
#include <libslirp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* hostfwd=tcp|udp:[ADDRESS]:PORT-[ADDRESS]:PORT */
static int forward(Slirp *s, const char *text, struct err *err)
{
    char proto[4], host[32] = "", guest[32] = "";
    int hport, gport, end = 0;
    const char *p = text;
    struct in_addr ha = {htonl(INADDR_LOOPBACK)}, ga = {0};
    if (sscanf(p, "%3[a-z]:%n", proto, &end) != 1 || !end ||
        (strcmp(proto, "tcp") && strcmp(proto, "udp")))
        goto bad;
    p += end;
    end = 0;
    if (*p != ':' && (sscanf(p, "%31[0-9.]%n", host, &end) != 1))
        goto bad;
    p += end;
    end = 0;
    if (sscanf(p, ":%d-%n", &hport, &end) != 1 || !end)
        goto bad;
    p += end;
    end = 0;
    if (*p != ':' && sscanf(p, "%31[0-9.]%n", guest, &end) != 1)
        goto bad;
    p += end;
    end = 0;
    if (sscanf(p, ":%d%n", &gport, &end) != 1 || p[end])
        goto bad;
    if ((*host && !inet_aton(host, &ha)) || (*guest && !inet_aton(guest, &ga)) || hport < 1 ||
        hport > 65535 || gport < 1 || gport > 65535)
        goto bad;
    if (slirp_add_hostfwd(s, proto[0] == 'u', ha, hport, ga, gport))
        return err_errno(err, "--net user: cannot listen on port %d of the host", hport);
    return 0;
bad:
    return err_set(err, -EINVAL,
                   "--net user: '%s' is not hostfwd=tcp|udp:[ADDRESS]:PORT-[ADDRESS]:PORT", text);
}

int net_user_create(struct net *n, const char *options, struct net_identity *d, struct err *err)
{
    SlirpConfig c = {.version = 1, .in_enabled = true, .if_mtu = d->mtu, .if_mru = d->mtu};
    inet_aton("10.0.2.0", &c.vnetwork);
    inet_aton("255.255.255.0", &c.vnetmask);
    inet_aton("10.0.2.2", &c.vhost);
    inet_aton("10.0.2.15", &c.vdhcp_start);
    inet_aton("10.0.2.3", &c.vnameserver);
    struct user *u = calloc(1, sizeof(*u));
    if (!u)
        return err_set(err, -ENOMEM, "no memory for a network");
    u->net = n;
    u->slirp = slirp_new(&c, &callbacks, u);
    if (!u->slirp) {
        free(u);
        return err_set(err, -EIO, "--net user: libslirp does not start");
    }
    n->state = u;
    n->backend = &backend;
    int code = 0;
    while (*options && !code) {
        char one[256];
        size_t len = strcspn(++options, ",");
        snprintf(one, sizeof(one), "%.*s", (int)len, options);
        if (!strncmp(one, "hostfwd=", 8))
            code = forward(u->slirp, one + 8, err);
        else
            code = err_set(err, -EINVAL, "--net user: there is no option '%s'", one);
        options += len;
    }
    if (code)
        user_destroy(n);
    snprintf(d->backend, sizeof(d->backend), "user");
    return code;
}
