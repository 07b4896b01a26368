/* What of sandbox.h holds on this kernel, tried in children that lock themselves in. */
#define _GNU_SOURCE /* F_SETSIG, prlimit */
#include "host/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/landlock.h"

/* Each: below 0 with EACCES, or the end of the process, is a refusal. */
static long try_open(const int *pair)
{
    return open("/etc/passwd", O_RDONLY | O_CLOEXEC);
}

static long try_socket(const int *pair)
{
    return socket(AF_INET, SOCK_STREAM, 0);
}

static long try_unix(const int *pair)
{
    return socket(AF_UNIX, SOCK_DGRAM, 0);
}

static long try_datagrams(const int *pair)
{
    int p[2];
    return socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, p);
}

/* The kernel makes a pair of datagrams of it. */
static long try_raw(const int *pair)
{
    int p[2];
    return socketpair(AF_UNIX, SOCK_RAW, 0, p);
}

static long try_address(const int *pair)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX, .sun_path = "/nobody"};
    return sendto(pair[0], "", 1, 0, (struct sockaddr *)&to, sizeof(to));
}

static long try_fast_open(const int *pair)
{
    struct msghdr m = {.msg_iov = NULL};
    return sendmsg(pair[0], &m, MSG_FASTOPEN);
}

static long try_owner(const int *pair)
{
    return fcntl(pair[0], F_SETOWN, getppid());
}

static long try_owner_group(const int *pair)
{
    struct f_owner_ex owner = {.type = F_OWNER_PID, .pid = getppid()};
    return fcntl(pair[0], F_SETOWN_EX, &owner);
}

static long try_which_signal(const int *pair)
{
    return fcntl(pair[0], F_SETSIG, SIGKILL);
}

static long try_signals(const int *pair)
{
    return fcntl(pair[0], F_SETFL, O_ASYNC);
}

static long try_owner_ioctl(const int *pair)
{
    int parent = getppid();
    return ioctl(pair[0], FIOSETOWN, &parent);
}

static long try_kill(const int *pair)
{
    return kill(getppid(), 0);
}

static long try_trace(const int *pair)
{
    return ptrace(PTRACE_ATTACH, getppid(), NULL, NULL);
}

static long try_limit(const int *pair)
{
    struct rlimit core = {0, 0};
    return prlimit(getppid(), RLIMIT_CORE, &core, NULL);
}

static long try_fork(const int *pair)
{
    return syscall(SYS_fork);
}

static long try_execute(const int *pair)
{
    char *const argv[] = {"true", NULL};
    return execve("/bin/true", argv, NULL);
}

static long try_send(const int *pair)
{
    return send(pair[0], "", 1, MSG_NOSIGNAL);
}

static long try_own_signals(const int *pair)
{
    return fcntl(pair[0], F_SETOWN, getpid());
}

static long try_pair(const int *pair)
{
    int p[2];
    return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p);
}

static long try_flags(const int *pair)
{
    return fcntl(pair[0], F_SETFL, O_NONBLOCK);
}

#define ALL (~0u)

static const struct {
    const char *what;
    long (*fn)(const int *pair);
    unsigned by; /* the plan has to have one of these, or it is refused */
    bool landlock;
} probes[] = {
    {"opening a file", try_open, 0, true},
    {"a socket", try_socket, 0, false},
    {"a Unix socket", try_unix, 0, false},
    {"a pair for datagrams", try_datagrams, 0, false},
    {"a raw pair", try_raw, 0, false},
    {"sending to an address", try_address, 0, false},
    {"connecting by sending", try_fast_open, 0, false},
    {"a stranger as the owner of a descriptor", try_owner, 0, false},
    {"an owner that a filter does not see", try_owner_group, 0, false},
    {"a descriptor's signal", try_which_signal, SANDBOX_KVM, false},
    {"signals from a descriptor", try_signals, SANDBOX_KVM, false},
    {"an owner by ioctl", try_owner_ioctl, 0, false},
    {"kill", try_kill, 0, false},
    {"ptrace", try_trace, 0, false},
    {"limits of a stranger", try_limit, 0, false},
    {"fork", try_fork, 0, false},
    {"execve", try_execute, 0, false},
    {"sending to a peer", try_send, ALL, false},
    {"a pair of streams", try_pair, ALL, false},
    {"signals to itself", try_own_signals, SANDBOX_KVM, false},
    {"flags of a descriptor", try_flags, ALL, false},
};

enum { DID = 0, REFUSED = 1, FAILED = 2, NO_SANDBOX = 3 };

/* In a child. */
static int try_it(long (*fn)(const int *pair), unsigned needs)
{
    struct rlimit none = {0, 0};
    struct err err;
    int pair[2];
    setrlimit(RLIMIT_CORE, &none);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0)
        dup2(null, STDERR_FILENO);
    sandbox_plan(needs);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) || sandbox_enter(&err))
        return NO_SANDBOX;
    return fn(pair) >= 0 ? DID : errno == EACCES ? REFUSED : FAILED;
}

/* What is let through, or refused although it is needed; NULL: nothing. */
static const char *hole(unsigned needs)
{
    for (size_t i = 0; i < ARRAY_SIZE(probes); i++) {
        int status = 0;
        if (probes[i].landlock && !landlock_abi())
            continue;
        fflush(NULL);
        pid_t child = fork();
        if (!child)
            _exit(try_it(probes[i].fn, needs));
        while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
            ;
        bool ended = WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS;
        bool refused = ended || (WIFEXITED(status) && WEXITSTATUS(status) == REFUSED);
        bool did = WIFEXITED(status) && WEXITSTATUS(status) == DID;
        if (child < 0 || !(probes[i].by & needs ? did : refused))
            return probes[i].what;
    }
    return NULL;
}

bool sandbox_check(char *text, size_t size)
{
    /* Of commands, with KVM too, and of what shows a screen over a network. */
    static const unsigned needs[] = {SANDBOX_READ | SANDBOX_CODE,
                                     SANDBOX_READ | SANDBOX_CODE | SANDBOX_KVM,
                                     SANDBOX_LISTEN | SANDBOX_ALONE};
    const char *through = NULL;
    int abi = landlock_abi();
    if (!sandbox_locks()) {
        snprintf(text, size, "not in this build (sanitizers, coverage)");
        return false;
    }
    for (size_t i = 0; i < ARRAY_SIZE(needs) && !through; i++)
        through = hole(needs[i]);
    if (through)
        snprintf(text, size, "it does not hold here: %s", through);
    else if (!abi)
        snprintf(text, size, "seccomp holds; the kernel has no Landlock");
    else
        snprintf(text, size, "seccomp and Landlock (version %d) hold", abi);
    return !through && abi;
}
