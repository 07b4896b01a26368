/*
 * Stands in for qemu-nbd and grub-fstest, as reprise starts them, and tries what they must not be
 * able to do. The image is the argument DIR/image-PORT.SUFFIX; a listener waits on that port of
 * 127.0.0.1, another on DIR/sock, one for datagrams on DIR/datagrams. What came of it is its last
 * line on stderr. Called from a folder named "dies", it does. --abi: the kernel's Landlock version.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "host/landlock.h"

static void tell(const char *what, bool could)
{
    fprintf(stderr, "%s=%s ", what, could ? "yes" : "no");
}

static void opens(const char *what, const char *dir, const char *name, int flags)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    tell(what, open(path, flags | O_CLOEXEC) >= 0);
}

static void connects(const char *what, const struct sockaddr *a, socklen_t size)
{
    int s = socket(a->sa_family, SOCK_STREAM, 0);
    tell(what, s >= 0 && !connect(s, a, size));
}

/* A pair that sends datagrams to whomever it likes. */
static bool pairs(const struct sockaddr *a, socklen_t size)
{
    int pair[2];
    return !socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) && sendto(pair[0], "", 1, 0, a, size) == 1;
}

/* Signals to a stranger that a descriptor sends, by the upper bits of a number that only has 32
 * too. */
static bool owns(int fd)
{
    int parent = getppid();
    return !fcntl(fd, F_SETOWN, parent) || !syscall(SYS_fcntl, fd, 1l << 32 | F_SETOWN, parent) ||
           !fcntl(fd, F_SETSIG, SIGKILL) || !fcntl(fd, F_SETFL, O_ASYNC) ||
           !ioctl(fd, FIOSETOWN, &parent) || !syscall(SYS_ioctl, fd, 1l << 32 | FIOASYNC, &parent);
}

static bool limits(void)
{
    struct rlimit now;
    return !getrlimit(RLIMIT_CPU, &now) && !prlimit(getppid(), RLIMIT_CPU, &now, NULL);
}

static bool dies(void)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
    path[n < 0 ? 0 : n] = 0;
    return strstr(path, "/dies/");
}

int main(int argc, char **argv)
{
    char *image = NULL;
    struct sockaddr_in tcp = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_un local = {.sun_family = AF_UNIX}, datagrams = local;
    struct rlimit core;
    u8 ring[256] = {0};
    if (argc == 2 && !strcmp(argv[1], "--abi")) {
        printf("%d\n", landlock_abi());
        return 0;
    }
    if (dies())
        __builtin_trap();
    for (int i = 1; i < argc && !image; i++)
        image = strstr(argv[i], "/image-") ? argv[i] : NULL;
    if (!image)
        return 2;
    char *name = strrchr(image, '/'), *dir = strndup(image, (size_t)(name - image));
    tcp.sin_port = htons((u16)strtoul(name + strlen("/image-"), NULL, 10));
    if ((size_t)snprintf(local.sun_path, sizeof(local.sun_path), "%s/sock", dir) >=
            sizeof(local.sun_path) ||
        (size_t)snprintf(datagrams.sun_path, sizeof(datagrams.sun_path), "%s/datagrams", dir) >=
            sizeof(datagrams.sun_path))
        return 2;
    fputs("tried: ", stderr);
    opens("image", dir, name + 1, O_RDONLY);
    opens("backing", dir, "base.raw", O_RDONLY);
    opens("other", dir, "other.raw", O_RDONLY);
    opens("write", dir, name + 1, O_WRONLY);
    tell("list", opendir(dir));
    connects("tcp", (struct sockaddr *)&tcp, sizeof(tcp));
    connects("unix", (struct sockaddr *)&local, sizeof(local));
    tell("pair", pairs((struct sockaddr *)&datagrams, sizeof(datagrams)));
    tell("address",
         !sendto(3, "", 0, 0, (struct sockaddr *)&datagrams, sizeof(datagrams)) || errno != EACCES);
    tell("owner", owns(STDERR_FILENO));
    tell("limits", limits());
    tell("uring", syscall(SYS_io_uring_setup, 4, ring) >= 0 || errno != EACCES);
    tell("parent", !kill(getppid(), 0));
    getrlimit(RLIMIT_CORE, &core);
    fprintf(stderr, "core=%llu\n", (unsigned long long)core.rlim_cur);
    return 3;
}
