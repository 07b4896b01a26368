/* Runs inside the guest: echoes on TCP and UDP ports 7 of both IP versions, to many at once; says
 * READY when it can. A client that sends "bye\n" as its last line ends it. */
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CLIENTS 64

static int bound(int type)
{
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_port = htons(7)};
    int fd = socket(AF_INET6, type, 0), off = 0;
    if (fd < 0 || setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) ||
        bind(fd, (struct sockaddr *)&at, sizeof(at)) || (type == SOCK_STREAM && listen(fd, 16))) {
        perror("echod");
        _exit(1);
    }
    return fd;
}

static int serve(int fd)
{
    static char buf[65536];
    ssize_t n = recv(fd, buf, sizeof(buf), 0);
    for (ssize_t at = 0, w; at < n; at += w) {
        w = write(fd, buf + at, (size_t)(n - at));
        if (w <= 0)
            return -1;
    }
    if (n >= 4 && !memcmp(buf + n - 4, "bye\n", 4)) {
        puts("BYE");
        fflush(stdout);
        _exit(0);
    }
    return n > 0 ? 0 : -1;
}

int main(void)
{
    static struct pollfd fds[CLIENTS];
    nfds_t n = 2;
    fds[0] = (struct pollfd){.fd = bound(SOCK_STREAM), .events = POLLIN};
    fds[1] = (struct pollfd){.fd = bound(SOCK_DGRAM), .events = POLLIN};
    puts("READY");
    fflush(stdout);
    while (poll(fds, n, -1) > 0) {
        for (nfds_t i = 2; i < n; i++)
            if (fds[i].revents && serve(fds[i].fd)) {
                close(fds[i].fd);
                fds[i--] = fds[--n];
            }
        if (fds[1].revents) {
            static char buf[65536];
            struct sockaddr_in6 from;
            socklen_t len = sizeof(from);
            ssize_t got = recvfrom(fds[1].fd, buf, sizeof(buf), 0, (struct sockaddr *)&from, &len);
            if (got >= 0)
                sendto(fds[1].fd, buf, (size_t)got, 0, (struct sockaddr *)&from, len);
        }
        if (fds[0].revents && n < CLIENTS) {
            int fd = accept(fds[0].fd, NULL, NULL);
            if (fd >= 0)
                fds[n++] = (struct pollfd){.fd = fd, .events = POLLIN};
        }
    }
    return 1;
}
