/*
 * What reprise-net may still do once it listens: talk on the sockets that it has, make others for
 * TCP, UDP and pings of what the guest asks for, compute. What libraries try although they need not
 * is refused; all else that is not listed ends the process.
 *
 * Three layers: no capabilities, no new privileges, not to be traced by its user's other processes;
 * Landlock (where the kernel has it) without a path; a filter of system calls.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/calls.h"
#include "base/limits.h"
#include "host/landlock.h"
#include "netd/netd.h"

#define MEMORY (1ull << 30) /* bytes that may be mapped from then on: a guest opens connections */

static const int allowed[] = {
    /* the sockets that there are */
    SCMP_SYS(read),
    SCMP_SYS(write),
    SCMP_SYS(readv),
    SCMP_SYS(writev),
    SCMP_SYS(recvfrom),
    SCMP_SYS(recvmsg),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(accept),
    SCMP_SYS(accept4),
    SCMP_SYS(getsockname),
    SCMP_SYS(getpeername),
    SCMP_SYS(getsockopt),
    SCMP_SYS(setsockopt),
    SCMP_SYS(shutdown),
    SCMP_SYS(close),
    /* what is known of files, and the name server's file from its beginning */
    SCMP_SYS(fstat),
    SCMP_SYS(newfstatat),
    SCMP_SYS(lseek),
    /* memory */
    SCMP_SYS(brk),
    SCMP_SYS(munmap),
    SCMP_SYS(mprotect),
    SCMP_SYS(mremap),
    SCMP_SYS(madvise),
    /* locks, signals, time */
    SCMP_SYS(futex),
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(sigaltstack),
    SCMP_SYS(sched_yield),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(getrandom),
    SCMP_SYS(getpid),
    SCMP_SYS(gettid),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
};

static const unsigned ioctls[] = {FIONREAD, SIOCGIFINDEX};

static int add_sockets(scmp_filter_ctx filter, bool restricted)
{
    static const int families[] = {AF_INET, AF_INET6}, types[] = {SOCK_STREAM, SOCK_DGRAM};
    if (restricted) {
        int r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EACCES), SCMP_SYS(socket), 0);
        return r ? r : seccomp_rule_add(filter, SCMP_ACT_ERRNO(EACCES), SCMP_SYS(connect), 0);
    }
    int r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(connect), 0);
    for (size_t f = 0; f < ARRAY_SIZE(families) && !r; f++) {
        for (size_t t = 0; t < ARRAY_SIZE(types) && !r; t++)
            r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(socket), 2,
                                 SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)families[f]),
                                 SCMP_A1(SCMP_CMP_MASKED_EQ,
                                         ~(scmp_datum_t)(SOCK_CLOEXEC | SOCK_NONBLOCK),
                                         (scmp_datum_t)types[t]));
        /* For pings, where the host has no other way. */
        if (!r)
            r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EACCES), SCMP_SYS(socket), 2,
                                 SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)families[f]),
                                 SCMP_A1(SCMP_CMP_MASKED_EQ,
                                         ~(scmp_datum_t)(SOCK_CLOEXEC | SOCK_NONBLOCK), SOCK_RAW));
    }
    return r;
}

static int add_rules(scmp_filter_ctx filter, bool restricted)
{
    int r = add_sockets(filter, restricted);
    for (size_t i = 0; i < ARRAY_SIZE(allowed) && !r; i++)
        r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, allowed[i], 0);
    r = r ? r : calls_allow_fcntl(filter);
    /* A forwarded port that is shut down would connect by it, restricted or not. */
    if (!r)
        r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(sendto), 1,
                             SCMP_A3(SCMP_CMP_MASKED_EQ, MSG_FASTOPEN, 0));
    for (size_t i = 0; i < ARRAY_SIZE(ioctls) && !r; i++)
        r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1,
                             SCMP_A1(SCMP_CMP_EQ, ioctls[i]));
    if (!r)
        r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1,
                             SCMP_A3(SCMP_CMP_MASKED_EQ, MAP_ANONYMOUS, MAP_ANONYMOUS));
    /* Libraries look for settings, and do without. */
    if (!r)
        r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EACCES), SCMP_SYS(openat), 1,
                             SCMP_A2(SCMP_CMP_MASKED_EQ, O_ACCMODE | O_CREAT | O_TRUNC, O_RDONLY));
    /* abort() */
    if (!r)
        r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1,
                             SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)getpid()));
    return r;
}

static bool load_filter(bool restricted)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_KILL_PROCESS);
    int r = filter ? add_rules(filter, restricted) : -ENOMEM;
    if (!r)
        r = seccomp_load(filter);
    if (filter)
        seccomp_release(filter);
    errno = -r;
    return !r;
}

static bool drop_capabilities(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {0};
    return !syscall(SYS_capset, &head, none);
}

bool sandbox_enter(bool restricted)
{
    if (!limits_enter(MEMORY) || !drop_capabilities())
        return false;
    int r = restricted ? landlock_enter(NULL, 0) : landlock_enter_tcp(NULL, 0);
    if (r && r != -ENOSYS) {
        errno = -r;
        return false;
    }
    return load_filter(restricted);
}

/* ---- the proof ---- */

static long try_read(void)
{
    return open("/etc/passwd", O_RDONLY);
}

static long try_write(void)
{
    return open("/dev/null", O_WRONLY);
}

static long try_create(void)
{
    return open("/tmp/reprise-net", O_RDWR | O_CREAT, 0600);
}

static long try_temporary(void)
{
    return open("/tmp", O_TMPFILE | O_RDWR, 0600);
}

static long try_unlink(void)
{
    return unlink("/tmp/reprise-net");
}

static long try_memory_file(void)
{
    return memfd_create("probe", 0);
}

static long try_map(void)
{
    return (long)(intptr_t)mmap(NULL, PAGE_SIZE, PROT_READ, MAP_SHARED, 0, 0);
}

static long try_execute(void)
{
    char *const argv[] = {"true", NULL};
    return execve("/bin/true", argv, NULL);
}

static long try_fork(void)
{
    return syscall(SYS_fork);
}

static long try_thread(void)
{
    return syscall(SYS_clone, 0x10f00 /* of a thread */, 0, 0, 0, 0);
}

static long try_signal(void)
{
    return kill(getppid(), 0);
}

static long try_trace(void)
{
    return ptrace(PTRACE_ATTACH, getppid(), NULL, NULL);
}

static long try_dumpable(void)
{
    return prctl(PR_SET_DUMPABLE, 1);
}

static long try_owner(void)
{
    return fcntl(NETD_SOCKET, F_SETOWN, getppid());
}

static long try_async(void)
{
    return fcntl(NETD_SOCKET, F_SETFL, O_ASYNC);
}

static long try_fast_open(void)
{
    return sendto(NETD_SOCKET, "", 1, MSG_FASTOPEN, NULL, 0);
}

static long try_pair(void)
{
    int pair[2];
    return socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
}

static long try_unix(void)
{
    return socket(AF_UNIX, SOCK_STREAM, 0);
}

static long try_netlink(void)
{
    return socket(AF_NETLINK, SOCK_RAW, 0);
}

static long try_packet(void)
{
    return socket(AF_PACKET, SOCK_RAW, 0);
}

static long try_raw(void)
{
    return socket(AF_INET, SOCK_RAW, 1);
}

static long try_listen(void)
{
    return listen(NETD_SOCKET, 1);
}

static long try_socket(void)
{
    return socket(AF_INET, SOCK_STREAM, 0);
}

static long try_datagrams(void)
{
    return socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
}

static const struct {
    const char *what;
    long (*fn)(void);
    bool network; /* what NAT needs, unless it is restricted */
} probes[] = {
    {"reading a file", try_read, false},
    {"writing a file", try_write, false},
    {"creating a file", try_create, false},
    {"a temporary file", try_temporary, false},
    {"unlink", try_unlink, false},
    {"memfd_create", try_memory_file, false},
    {"mapping a file", try_map, false},
    {"execve", try_execute, false},
    {"fork", try_fork, false},
    {"clone", try_thread, false},
    {"kill", try_signal, false},
    {"ptrace", try_trace, false},
    {"prctl", try_dumpable, false},
    {"signals of a socket", try_owner, false},
    {"signals of whatever is open", try_async, false},
    {"connecting by sending", try_fast_open, false},
    {"a pair of sockets", try_pair, false},
    {"a unix socket", try_unix, false},
    {"a netlink socket", try_netlink, false},
    {"a packet socket", try_packet, false},
    {"a raw socket", try_raw, false},
    {"listen", try_listen, false},
    {"a TCP socket", try_socket, true},
    {"a UDP socket", try_datagrams, true},
};

enum { PASSED, REFUSED, NO_SANDBOX };

static bool refused(long (*fn)(void), bool restricted, bool *failed)
{
    int status = 0;
    pid_t pid = fork();
    if (!pid) {
        if (!sandbox_enter(restricted))
            _exit(NO_SANDBOX);
        long r = fn();
        _exit(r < 0 && errno == EACCES ? REFUSED : PASSED);
    }
    *failed = pid < 0 || waitpid(pid, &status, 0) < 0 ||
              (WIFEXITED(status) && WEXITSTATUS(status) == NO_SANDBOX);
    return WIFSIGNALED(status) ? WTERMSIG(status) == SIGSYS : WEXITSTATUS(status) == REFUSED;
}

unsigned sandbox_probe(bool restricted)
{
    unsigned wrong = 0;
    for (size_t i = 0; i < ARRAY_SIZE(probes); i++) {
        bool failed, wanted = !(probes[i].network && !restricted);
        bool is = refused(probes[i].fn, restricted, &failed);
        if (!failed && is == wanted)
            continue;
        fprintf(stderr, "reprise-net: the sandbox%s %s: %s\n",
                restricted ? " of a restricted network" : "",
                failed   ? "cannot be entered to try"
                : wanted ? "lets through"
                         : "refuses what is needed",
                probes[i].what);
        wrong++;
    }
    return wrong;
}
