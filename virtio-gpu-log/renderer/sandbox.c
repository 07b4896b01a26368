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
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* The sanitizers map terabytes of address space, and look at /proc when they report. */
#if defined(__SANITIZE_ADDRESS__)
#define LIMIT_MEMORY false
#else
#define LIMIT_MEMORY true
#endif

static const int allowed[] = {
    /* the client, and complaints on stderr */
    SCMP_SYS(read),
    SCMP_SYS(write),
    SCMP_SYS(readv),
    SCMP_SYS(writev),
    SCMP_SYS(recvfrom),
    SCMP_SYS(recvmsg),
    SCMP_SYS(sendto),
    SCMP_SYS(sendmsg),
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

static bool limit(int what, u64 value)
{
    struct rlimit now;
    if (getrlimit(what, &now))
        return false;
    if (now.rlim_max != RLIM_INFINITY)
        value = MIN(value, now.rlim_max);
    return !setrlimit(what, &(struct rlimit){value, value});
}

/* Bytes of address space in use. */
static u64 mapped(void)
{
    u64 pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f) {
        unsigned long long n;
        pages = fscanf(f, "%llu", &n) == 1 ? n : 0;
        fclose(f);
    }
    return pages * PAGE_SIZE;
}

static int add_rules(scmp_filter_ctx filter, bool device)
{
    int r = 0;
    for (size_t i = 0; i < ARRAY_SIZE(allowed) && !r; i++)
        r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, allowed[i], 0);
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

bool sandbox_enter(bool device, u64 memory, char *text, size_t size)
{
    /* No core files: they would hold what the guest draws. */
    if (!limit(RLIMIT_CORE, 0) || !limit(RLIMIT_MEMLOCK, 0) ||
        (LIMIT_MEMORY && !limit(RLIMIT_AS, mapped() + memory)) || prctl(PR_SET_DUMPABLE, 0) ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) {
        snprintf(text, size, "cannot limit the renderer: %s", strerror(errno));
        return false;
    }
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_KILL_PROCESS);
    int r = filter ? add_rules(filter, device) : -ENOMEM;
    /* All threads: the rasterizer's were started before. */
    if (!r)
        r = seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);
    if (!r)
        r = seccomp_load(filter);
    if (filter)
        seccomp_release(filter);
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
    {"open", try_open},          {"creating a file", try_create},
    {"memfd_create", try_memfd}, {"socket", try_socket},
    {"a unix socket", try_unix}, {"execve", try_execve},
    {"fork", try_fork},          {"kill", try_kill},
    {"ptrace", try_ptrace},      {"unlink", try_unlink},
    {"mapping a file", try_map}, {"prctl", try_prctl},
};

/* What a child's end means. */
enum { REFUSED = 0, WORKED = 1, NO_SANDBOX = 2 };

unsigned sandbox_probe(bool device, u64 memory)
{
    unsigned holes = 0;
    for (size_t i = 0; i < ARRAY_SIZE(probes); i++) {
        char text[512];
        int status = 0;
        fflush(NULL);
        pid_t child = fork();
        if (!child) {
            if (!sandbox_enter(device, memory, text, sizeof(text)))
                _exit(NO_SANDBOX);
            _exit(probes[i].attempt() < 0 && errno == EPERM ? REFUSED : WORKED);
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
