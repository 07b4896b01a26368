/* See network.h. */
#include "network.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <net/route.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CARD      "eth0"
#define RESOLVER  "/etc/resolv.conf"
#define WAIT_TICK 1000000 /* ns */
#define WAIT_MAX  5000    /* ticks until the link has to be up */

static struct sockaddr_in internet(uint32_t address)
{
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(address)};
}

static bool set_address(int fd, unsigned long what, uint32_t address)
{
    struct ifreq r = {.ifr_name = CARD};
    struct sockaddr_in a = internet(address);
    memcpy(&r.ifr_addr, &a, sizeof(a));
    return !ioctl(fd, what, &r);
}

static bool set_route(int fd, uint32_t gateway)
{
    struct rtentry r = {.rt_flags = RTF_UP | RTF_GATEWAY};
    struct sockaddr_in to = internet(0), by = internet(gateway);
    memcpy(&r.rt_dst, &to, sizeof(to));
    memcpy(&r.rt_genmask, &to, sizeof(to));
    memcpy(&r.rt_gateway, &by, sizeof(by));
    return !ioctl(fd, SIOCADDRT, &r);
}

static bool bring_up(int fd)
{
    struct ifreq r = {.ifr_name = CARD, .ifr_flags = IFF_UP | IFF_RUNNING};
    const struct timespec tick = {.tv_nsec = WAIT_TICK};
    if (ioctl(fd, SIOCSIFFLAGS, &r))
        return false;
    for (unsigned i = 0; i < WAIT_MAX; i++, nanosleep(&tick, NULL))
        if (!ioctl(fd, SIOCGIFFLAGS, &r) && r.ifr_flags & IFF_RUNNING)
            return true;
    errno = ENETDOWN;
    return false;
}

/* The name server lies over what the host has, which may be a link to a file of a service that does
 * not run here, or to none. */
static bool set_resolver(int file, uint32_t address)
{
    char from[64];
    bool written = dprintf(file, "nameserver %u.%u.%u.%u\n", address >> 24, address >> 16 & 255,
                           address >> 8 & 255, address & 255) > 0;
    snprintf(from, sizeof(from), "/proc/self/fd/%d", file);
    if (written && mount(from, RESOLVER, NULL, MS_BIND, NULL) && errno == ENOENT) {
        unlink(RESOLVER);
        int fd = open(RESOLVER, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        if (fd >= 0)
            close(fd);
        return fd >= 0 && !mount(from, RESOLVER, NULL, MS_BIND, NULL);
    }
    return written;
}

bool network_begin(const struct agent_network *n, int resolver, char *why, size_t size)
{
    if (!n->address)
        return true;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const char *what = !set_address(fd, SIOCSIFADDR, n->address)   ? "its address"
                       : !set_address(fd, SIOCSIFNETMASK, n->mask) ? "its netmask"
                       : !bring_up(fd)                             ? "its link"
                       : !set_route(fd, n->gateway)                ? "the way out"
                       : !set_resolver(resolver, n->name_server)   ? RESOLVER
                                                                   : NULL;
    if (what)
        snprintf(why, size, "the network, %s: %s", what, strerror(errno));
    if (fd >= 0)
        close(fd);
    return !what;
}
