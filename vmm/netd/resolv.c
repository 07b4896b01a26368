/*
 * The host's name server, which libslirp looks up in /etc/resolv.conf whenever that file has
 * changed. No file can be opened in the sandbox; so the file is opened before, and this is the
 * fopen that libslirp is linked with: it reads that file anew through the same descriptor. Like
 * every fopen it opens other files too, by name, as long as that is allowed.
 *
 * A file that is changed in place is seen; one that another took the place of is not, and the old
 * server stays.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "netd/netd.h"

#define RESOLV "/etc/resolv.conf"
#define FD     10 /* above what we were started with */

static int resolv_fd = -1;

void resolv_open(void)
{
    int fd = open(RESOLV, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return; /* no name server: the guest's questions stay without answer */
    resolv_fd = fcntl(fd, F_DUPFD_CLOEXEC, FD);
    close(fd);
}

/* The same symbol as the C library's, which it hides from libslirp. For reading only. */
FILE *fopen64(const char *path, const char *mode)
{
    int fd = -1;
    if (*mode != 'r' || strchr(mode, '+'))
        errno = EACCES;
    else if (resolv_fd >= 0 && !strcmp(path, RESOLV))
        fd = fcntl(resolv_fd, F_DUPFD_CLOEXEC, FD);
    else
        fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0)
        lseek(fd, 0, SEEK_SET);
    FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (fd >= 0 && !f)
        close(fd);
    return f;
}

/* The same symbol as the C library's: which interface a name server's %NAME means. The library asks
 * through a Unix socket, and there are none in the sandbox. */
unsigned if_nametoindex(const char *name)
{
    struct ifreq r = {0};
    int fd =
        strlen(name) < sizeof(r.ifr_name) ? socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;
    if (fd < 0)
        return 0;
    memcpy(r.ifr_name, name, strlen(name));
    bool known = !ioctl(fd, SIOCGIFINDEX, &r);
    close(fd);
    return known ? (unsigned)r.ifr_ifindex : 0;
}
