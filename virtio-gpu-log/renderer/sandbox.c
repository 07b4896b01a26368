/* See sandbox.h. */
#define _GNU_SOURCE
#include "virtio-gpu-log/renderer/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/calls.h"
#include "base/limits.h"

static const int allowed[] = {
    /* the client, and complaints on stderr */
    SCMP_SYS(read),
    SCMP_SYS(write),
    SCMP_SYS(readv),
    SCMP_SYS(writev),
    SCMP_SYS(recvfrom),
    SCMP_SYS(recvmsg),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(close),
    SCMP_SYS(fstat),
    SCMP_SYS(newfstatat),
    SCMP_SYS(lseek),
    SCMP_SYS(dup),
    /* memory */
    SCMP_SYS(brk),
    SCMP_SYS(munmap),
    SCMP_SYS(mprotect),
    SCMP_SYS(mremap),
    SCMP_SYS(madvise),
    /* threads, signals, time */
    SCMP_SYS(futex),
    SCMP_SYS(set_robust_list),
    SCMP_SYS(rseq),
    SCMP_SYS(sched_yield),
    SCMP_SYS(sched_getaffinity),
    SCMP_SYS(sched_setaffinity),
    SCMP_SYS(sched_setscheduler),
    SCMP_SYS(membarrier),
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(sigaltstack),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_getres),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(nanosleep),
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(getrandom),
    SCMP_SYS(getpid),
    SCMP_SYS(gettid),
    SCMP_SYS(getrusage),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
};

/* Tried by libraries that go on without: EPERM. */
static const int optional[] = {
    /* Mesa: shader cache, drirc, what the CPU is; glibc: locales, conversions */
    SCMP_SYS(open),
    SCMP_SYS(openat),
    SCMP_SYS(stat),
    SCMP_SYS(statx),
    SCMP_SYS(access),
    SCMP_SYS(faccessat2),
    SCMP_SYS(readlink),
    SCMP_SYS(mkdir),
    SCMP_SYS(getcwd),
    /* Mesa: whether two descriptors are one */
    SCMP_SYS(kcmp),
    /* Mesa: threads of less weight; libc: how many there may be */
    SCMP_SYS(setpriority),
    SCMP_SYS(sched_getparam),
    SCMP_SYS(sched_getscheduler),
    SCMP_SYS(prlimit64),
    SCMP_SYS(sysinfo),
    SCMP_SYS(uname),
    /* is that a terminal? */
    SCMP_SYS(ioctl),
};

static int add_rules(scmp_filter_ctx filter, bool device)
{
    int r = 0;
    for (size_t i = 0; i < ARRAY_SIZE(allowed) && !r; i++)
        r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, allowed[i], 0);
    r = r ? r : calls_allow_send(filter);
    /* Memory of its own; of a render node also the device's. */
    if (!r)
        r = device ? seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 0)
                   : seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1,
                                      SCMP_A3(SCMP_CMP_MASKED_EQ, MAP_ANONYMOUS, MAP_ANONYMOUS));
    /* Threads, not processes. What clone3() is asked for lies in memory that a filter cannot see;
     * without it the C library falls back to clone(). */
    if (!r)
        r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1,
                             SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD));
    if (!r)
        r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
    /* abort() and names of threads. */
    if (!r)
        r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1,
                             SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)getpid()));
    if (!r)
        r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(prctl), 1,
                             SCMP_A0(SCMP_CMP_EQ, PR_SET_NAME));
    if (!r && device)
        r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 0);
    for (size_t i = 0; i < ARRAY_SIZE(optional) && !r; i++)
        if (!device || optional[i] != SCMP_SYS(ioctl))
            r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), optional[i], 0);
    return r;
}

/* Loads the filter for all threads (the rasterizer's were started before) unless r < 0; releases
 * it. NULL is safe. */
static int load(scmp_filter_ctx filter, int r)
{
    if (!r)
        r = seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);
    if (!r)
        r = seccomp_load(filter);
    if (filter)
        seccomp_release(filter);
    return r;
}

/* A device's driver has ioctls that nobody can list. Those of any descriptor that have signals sent
 * are refused by a filter of their own, as one cannot say "all but these". */
static int load_exceptions(void)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    return load(filter, filter ? calls_forbid_signals(filter) : -ENOMEM);
}

bool sandbox_enter(bool device, u64 memory, char *text, size_t size)
{
    if (!limits_enter(memory)) {
        snprintf(text, size, "cannot limit the renderer: %s", strerror(errno));
        return false;
    }
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_KILL_PROCESS);
    int r = filter ? add_rules(filter, device) : -ENOMEM;
    if (!r && device)
        r = load_exceptions();
    r = load(filter, r);
    if (r)
        snprintf(text, size, "cannot load the renderer's system call filter: %s", strerror(-r));
    return !r;
}

/* ---- the proof ---- */

static long try_open(void)
{
    return open("/etc/passwd", O_RDONLY | O_CLOEXEC);
}

static long try_create(void)
{
    return open("/tmp/reprise-gpu", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
}

static long try_memfd(void)
{
    return memfd_create("probe", MFD_CLOEXEC);
}

static long try_socket(void)
{
    return socket(AF_INET, SOCK_STREAM, 0);
}

static long try_unix(void)
{
    return socket(AF_UNIX, SOCK_STREAM, 0);
}

static long try_pair(void)
{
    int pair[2];
    return socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
}

static long try_address(void)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX, .sun_path = "/nobody"};
    return sendto(STDERR_FILENO, "", 1, 0, (struct sockaddr *)&to, sizeof(to));
}

static long try_owner(void)
{
    return fcntl(STDERR_FILENO, F_SETOWN, getppid());
}

static long try_owner_ioctl(void)
{
    int parent = getppid();
    return ioctl(STDERR_FILENO, FIOSETOWN, &parent);
}

static long try_signals(void)
{
    int on = 1;
    return ioctl(STDERR_FILENO, FIOASYNC, &on);
}

static long try_execve(void)
{
    char *const argv[] = {"true", NULL};
    return execve("/bin/true", argv, NULL);
}

static long try_fork(void)
{
    return syscall(SYS_fork);
}

static long try_kill(void)
{
    return syscall(SYS_kill, getppid(), 0);
}

static long try_ptrace(void)
{
    return ptrace(PTRACE_ATTACH, getppid(), NULL, NULL);
}

static long try_unlink(void)
{
    return unlink("/tmp/reprise-gpu");
}

static long try_map(void)
{
    return (long)(intptr_t)mmap(NULL, PAGE_SIZE, PROT_READ, MAP_SHARED, 0, 0);
}

static long try_prctl(void)
{
    return prctl(PR_SET_DUMPABLE, 1);
}

/* 0: it worked, which it must not. */
static const struct {
    const char *what;
    long (*attempt)(void);
} probes[] = {
    {"open", try_open},
    {"creating a file", try_create},
    {"memfd_create", try_memfd},
    {"socket", try_socket},
    {"a unix socket", try_unix},
    {"a pair of sockets", try_pair},
    {"sending to an address", try_address},
    {"the owner of a descriptor", try_owner},
    {"an owner by ioctl", try_owner_ioctl},
    {"signals from a descriptor", try_signals},
    {"execve", try_execve},
    {"fork", try_fork},
    {"kill", try_kill},
    {"ptrace", try_ptrace},
    {"unlink", try_unlink},
    {"mapping a file", try_map},
    {"prctl", try_prctl},
};

/* What a child's end means. */
enum { REFUSED = 0, WORKED = 1, NO_SANDBOX = 2 };

unsigned sandbox_probe(bool device, u64 memory)
{
    unsigned holes = 0;
    for (size_t i = 0; i < ARRAY_SIZE(probes); i++) {
        char text[512];
        int status = 0;
        if (device && probes[i].attempt == try_map) /* a device's memory is */
            continue;
        fflush(NULL);
        pid_t child = fork();
        if (!child) {
            if (!sandbox_enter(device, memory, text, sizeof(text)))
                _exit(NO_SANDBOX);
            _exit(probes[i].attempt() < 0 && (errno == EPERM || errno == EACCES) ? REFUSED
                                                                                 : WORKED);
        }
        while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
            ;
        bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS;
        if (child > 0 && (killed || (WIFEXITED(status) && WEXITSTATUS(status) == REFUSED)))
            continue;
        fprintf(stderr, "reprise-gpu: the sandbox lets through: %s\n", probes[i].what);
        holes++;
    }
    return holes;
}
