/* See landlock.h. Opens only the paths that its caller names, O_PATH. */
#define _GNU_SOURCE /* O_PATH */
#include "host/landlock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* <linux/landlock.h> is as old as the distribution, the kernel may be newer: the interface in our
 * own words. Bits and structs only grow with the version. */
#define SYS_RULESET 444
#define SYS_RULE    445
#define SYS_ENTER   446

#define GET_VERSION  1u
#define PATH_BENEATH 1

#define FS_EXECUTE     (1ull << 0)
#define FS_WRITE_FILE  (1ull << 1)
#define FS_READ_FILE   (1ull << 2)
#define FS_READ_DIR    (1ull << 3)
#define FS_REMOVE_DIR  (1ull << 4)
#define FS_REMOVE_FILE (1ull << 5)
#define FS_MAKE_DIR    (1ull << 7)
#define FS_MAKE_REG    (1ull << 8)
#define FS_REFER       (1ull << 13)
#define FS_TRUNCATE    (1ull << 14)
#define FS_IOCTL_DEV   (1ull << 15)
#define NET_TCP        3ull /* bind, connect */
#define SCOPES         3ull /* abstract Unix sockets, signals */

/* What can be asked of a rule about a single file. */
#define OF_FILES (FS_EXECUTE | FS_WRITE_FILE | FS_READ_FILE | FS_TRUNCATE | FS_IOCTL_DEV)

struct ruleset {
    u64 fs, net, scopes;
};

struct beneath {
    u64 allowed;
    i32 parent;
} __attribute__((packed));

/* All that each version can forbid. */
static struct ruleset handled(int abi)
{
    struct ruleset r = {.fs = (1ull << 13) - 1};
    r.fs |= abi >= 2 ? FS_REFER : 0;
    r.fs |= abi >= 3 ? FS_TRUNCATE : 0;
    r.fs |= abi >= 5 ? FS_IOCTL_DEV : 0;
    r.net = abi >= 4 ? NET_TCP : 0;
    r.scopes = abi >= 6 ? SCOPES : 0;
    return r;
}

static size_t ruleset_size(int abi)
{
    return abi >= 6 ? sizeof(struct ruleset) : abi >= 4 ? 2 * sizeof(u64) : sizeof(u64);
}

static u64 rights(unsigned may)
{
    u64 r = 0;
    r |= may & (LANDLOCK_READ | LANDLOCK_EXECUTE) ? FS_READ_FILE | FS_READ_DIR : 0;
    r |= may & LANDLOCK_EXECUTE ? FS_EXECUTE : 0;
    r |= may & LANDLOCK_WRITE ? FS_WRITE_FILE | FS_TRUNCATE : 0;
    r |= may & LANDLOCK_CREATE ? FS_WRITE_FILE | FS_TRUNCATE | FS_MAKE_DIR | FS_MAKE_REG |
                                     FS_REMOVE_DIR | FS_REMOVE_FILE | FS_REFER
                               : 0;
    r |= may & LANDLOCK_LIST ? FS_READ_DIR : 0;
    r |= may & LANDLOCK_DEVICE ? FS_IOCTL_DEV : 0;
    return r;
}

int landlock_abi(void)
{
    long n = syscall(SYS_RULESET, NULL, 0, GET_VERSION);
    return n > 0 ? (int)n : 0;
}

static int add(int rules, const struct landlock_path *p, u64 can)
{
    struct stat st;
    int fd = p->path ? open(p->path, O_PATH | O_CLOEXEC) : p->fd, code = 0;
    if (fd < 0)
        return p->optional ? 0 : p->path ? -errno : -EBADF;
    struct beneath b = {rights(p->may) & can, fd};
    if (fstat(fd, &st))
        code = -errno;
    else if (!S_ISDIR(st.st_mode))
        b.allowed &= OF_FILES;
    /* A rule that allows nothing is refused as senseless; a pipe or socket has no path. */
    if (!code && b.allowed && syscall(SYS_RULE, rules, PATH_BENEATH, &b, 0) && errno != EBADFD)
        code = -errno;
    if (p->path)
        close(fd);
    return code;
}

static int enter(const struct landlock_path *paths, size_t n, bool tcp)
{
    int abi = landlock_abi(), code = 0;
    if (!abi)
        return -ENOSYS;
    struct ruleset r = handled(abi);
    if (tcp)
        r.net = 0;
    int rules = (int)syscall(SYS_RULESET, &r, ruleset_size(abi), 0);
    if (rules < 0)
        return -errno;
    for (size_t i = 0; i < n && !code; i++)
        code = add(rules, &paths[i], r.fs);
    if (!code && (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_ENTER, rules, 0)))
        code = -errno;
    close(rules);
    return code;
}

int landlock_enter(const struct landlock_path *paths, size_t n)
{
    return enter(paths, n, false);
}

int landlock_enter_tcp(const struct landlock_path *paths, size_t n)
{
    return enter(paths, n, true);
}
