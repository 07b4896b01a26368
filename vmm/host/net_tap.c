/*
 * See net_tap.h. The device is made by somebody who may (`ip tuntap add`); here it is only opened,
 * as its owner. Its administrative state is the guest's link, watched through rtnetlink(7): when it
 * is set down or removed, the guest's cable is pulled.
 */
#include "host/net_tap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/if_tun.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define BURST 64 /* frames that are read at once */

struct tap {
    int fd;    /* -1 once it failed */
    int watch; /* rtnetlink; -1: cannot be watched */
    int ask;   /* a socket to ask for flags with; -1: none */
    unsigned index;
    char name[IFNAMSIZ];
    u8 buf[NET_MTU_MAX + 64];
};

/* The device is gone, or nothing more can be read from it. */
static void fail(struct net *n, const char *why)
{
    struct tap *t = n->state;
    if (t->fd < 0)
        return;
    fprintf(stderr,
            "reprise: network %u: the tap device %s is gone (%s); the guest's link is down from "
            "here on\n",
            n->unit, t->name, why);
    close(t->fd);
    t->fd = -1;
    net_link(n, false);
}

static void read_frames(struct net *n)
{
    struct tap *t = n->state;
    for (unsigned i = 0; i < BURST && net_open(n); i++) {
        ssize_t len = read(t->fd, t->buf, sizeof(t->buf));
        if (len > 0) {
            net_arrived(n, t->buf, (size_t)len);
        } else {
            if (len < 0 && errno != EAGAIN && errno != EINTR && errno != EIO)
                fail(n, strerror(errno));
            return;
        }
    }
}

static void look_at_message(struct net *n, const struct nlmsghdr *h)
{
    struct tap *t = n->state;
    const struct ifinfomsg *info = NLMSG_DATA(h);
    if (h->nlmsg_len < NLMSG_LENGTH(sizeof(*info)) || (unsigned)info->ifi_index != t->index)
        return;
    if (h->nlmsg_type == RTM_DELLINK)
        fail(n, "it was removed");
    else if (h->nlmsg_type == RTM_NEWLINK && t->fd >= 0)
        net_link(n, info->ifi_flags & IFF_UP);
}

static bool is_up(const struct tap *t)
{
    struct ifreq r = {0};
    memcpy(r.ifr_name, t->name, sizeof(r.ifr_name));
    return t->ask >= 0 && !ioctl(t->ask, SIOCGIFFLAGS, &r) && (r.ifr_flags & IFF_UP);
}

static void read_watch(struct net *n)
{
    struct tap *t = n->state;
    union {
        struct nlmsghdr header;
        u8 bytes[16384];
    } buf;
    ssize_t len = recv(t->watch, &buf, sizeof(buf), MSG_DONTWAIT);
    if (len < 0 && errno == ENOBUFS && t->fd >= 0) /* messages were lost: ask */
        net_link(n, is_up(t));
    unsigned left = len > 0 ? (unsigned)len : 0;
    for (struct nlmsghdr *h = &buf.header; NLMSG_OK(h, left); h = NLMSG_NEXT(h, left))
        look_at_message(n, h);
}

static unsigned tap_prepare(struct net *n, struct pollfd *fds, unsigned cap, u64 *until)
{
    const struct tap *t = n->state;
    const struct pollfd mine[2] = {{.fd = net_open(n) ? t->fd : -1, .events = POLLIN},
                                   {.fd = t->watch, .events = POLLIN}};
    for (unsigned i = 0; i < 2 && i < cap; i++)
        fds[i] = mine[i];
    return 2;
}

static void tap_serve(struct net *n, const struct pollfd *fds, unsigned count)
{
    struct tap *t = n->state;
    if (count > 1 && fds[1].revents)
        read_watch(n);
    if (count > 0 && fds[0].revents && t->fd >= 0)
        read_frames(n);
}

static void tap_send(struct net *n, const void *frame, size_t len)
{
    struct tap *t = n->state;
    if (t->fd < 0)
        return;
    ssize_t done = write(t->fd, frame, len);
    /* A full queue, a device that is down, a frame it does not like: lost, as on a wire. */
    if (done < 0 && (errno == EBADFD || errno == ENODEV || errno == ENXIO))
        fail(n, strerror(errno));
}

static void tap_destroy(struct net *n)
{
    struct tap *t = n->state;
    if (t->fd >= 0)
        close(t->fd);
    if (t->watch >= 0)
        close(t->watch);
    if (t->ask >= 0)
        close(t->ask);
    free(t);
}

static const struct net_backend backend = {
    .prepare = tap_prepare, .serve = tap_serve, .send = tap_send, .destroy = tap_destroy};

static int open_watch(void)
{
    struct sockaddr_nl at = {.nl_family = AF_NETLINK, .nl_groups = RTMGRP_LINK};
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
    if (fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof(at))) {
        close(fd);
        return -1;
    }
    return fd;
}

static int attach(struct tap *t, struct err *err)
{
    struct ifreq r = {.ifr_flags = IFF_TAP | IFF_NO_PI};
    t->fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (t->fd < 0 && (errno == ENOENT || errno == ENODEV || errno == ENXIO))
        return err_errno(err, "--net tap: this host has no tap devices (as root: `modprobe tun`): "
                              "/dev/net/tun");
    if (t->fd < 0)
        return err_errno(err, "--net tap: cannot open /dev/net/tun, which everybody may open as a "
                              "rule (as root: `chmod 666 /dev/net/tun`)");
    memcpy(r.ifr_name, t->name, sizeof(r.ifr_name));
    if (!ioctl(t->fd, TUNSETIFF, &r)) {
        /* What another program wanted of it: checksums that are left to us, large segments. */
        ioctl(t->fd, TUNSETOFFLOAD, 0);
        return 0;
    }
    if (errno == EPERM || errno == EACCES)
        return err_errno(err,
                         "--net tap: %s is not yours; give it to you with `ip tuntap add dev %s "
                         "mode tap user $USER` (as root, after `ip link del %s`)",
                         t->name, t->name, t->name);
    if (errno == EBUSY)
        return err_errno(err,
                         "--net tap: another program uses %s; a recording needs a tap device "
                         "of its own",
                         t->name);
    if (errno == EINVAL)
        return err_errno(err,
                         "--net tap: %s is no tap device (made by `ip tuntap add dev NAME "
                         "mode tap user $USER`)",
                         t->name);
    return err_errno(err, "--net tap: cannot open %s", t->name);
}

static u32 device_mtu(const struct tap *t)
{
    struct ifreq r = {0};
    memcpy(r.ifr_name, t->name, sizeof(r.ifr_name));
    bool known = t->ask >= 0 && !ioctl(t->ask, SIOCGIFMTU, &r) && r.ifr_mtu > 0;
    u32 mtu = known ? (u32)r.ifr_mtu : 1500;
    return MIN(MAX(mtu, NET_MTU_MIN), NET_MTU_MAX);
}

int net_tap_create(struct net *n, const struct net_options *o, struct net_identity *d,
                   struct err *err)
{
    /* TUNSETIFF would make one, if we may: then it would be gone with us, without an address. */
    unsigned index = if_nametoindex(o->ifname);
    if (!index)
        return err_set(err, -ENODEV,
                       "--net tap: there is no network device %s; make it (as root) with `ip "
                       "tuntap add dev %s mode tap user $USER` and `ip link set %s up`",
                       o->ifname, o->ifname, o->ifname);
    struct tap *t = calloc(1, sizeof(*t));
    if (!t)
        return err_set(err, -ENOMEM, "no memory for a network");
    t->fd = -1;
    t->index = index;
    snprintf(t->name, sizeof(t->name), "%s", o->ifname);
    t->watch = open_watch(); /* first, so that no change is missed */
    /* Of a kind that sends nothing to anybody: it stays open in the sandbox. */
    t->ask = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    n->state = t;
    n->backend = &backend;
    int code = attach(t, err);
    if (code) {
        tap_destroy(n);
        return code;
    }
    if (!o->mtu)
        d->mtu = (u16)device_mtu(t);
    snprintf(d->backend, sizeof(d->backend), "tap %s", t->name);
    if (!is_up(t)) {
        net_link(n, false);
        net_note(n,
                 "reprise: network %u: %s is down, and so is the guest's link until (as root) `ip "
                 "link set %s up`\n",
                 n->unit, t->name, t->name);
    }
    return 0;
}
