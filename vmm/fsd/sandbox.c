/*
 * What reprise-fs may still do once it serves: take requests, look at and read what is beneath the
 * share, compute. Three layers: no capabilities but, for root, that of reading what others own; no
 * new privileges, not to be traced by its user's other processes; Landlock (where the kernel has
 * it) with the share, for reading, as the only path; a filter of system calls, which has no way of
 * opening anything for writing. All else ends the process.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/calls.h"
#include "base/limits.h"
#include "fsd/fsd.h"
#include "host/landlock.h"

#define MEMORY (2ull << 30) /* bytes that may be mapped from then on: all nodes and handles */

static const int allowed[] = {
    /* the machine */
    SCMP_SYS(recvfrom),
    SCMP_SYS(write),
    /* what is there */
    SCMP_SYS(fstat),
    SCMP_SYS(newfstatat),
    SCMP_SYS(fstatfs),
    SCMP_SYS(readlinkat),
    SCMP_SYS(pread64),
    SCMP_SYS(getdents64),
    SCMP_SYS(lseek),
    SCMP_SYS(close),
    /* memory */
    SCMP_SYS(brk),
    SCMP_SYS(munmap),
    SCMP_SYS(mprotect),
    SCMP_SYS(mremap),
    SCMP_SYS(madvise),
    /* signals, time, the end */
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(futex),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(getrandom),
    SCMP_SYS(getpid),
    SCMP_SYS(gettid),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
};

static int add_rules(scmp_filter_ctx filter)
{
    const scmp_datum_t writes = O_ACCMODE | O_CREAT | O_TRUNC | O_APPEND;
    int r = 0;
    for (size_t i = 0; i < ARRAY_SIZE(allowed) && !r; i++)
        r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, allowed[i], 0);
    /* A path alone (O_PATH), and for reading. */
    if (!r)
        r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(openat), 1,
                             SCMP_A2(SCMP_CMP_MASKED_EQ, writes, O_RDONLY));
    if (!r)
        r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1,
                             SCMP_A3(SCMP_CMP_MASKED_EQ, MAP_ANONYMOUS, MAP_ANONYMOUS));
    /* abort() */
    if (!r)
        r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1,
                             SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)getpid()));
    return r;
}

static bool load_filter(void)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_KILL_PROCESS);
    int r = filter ? add_rules(filter) : -ENOMEM;
    if (!r)
        r = seccomp_load(filter);
    if (filter)
        seccomp_release(filter);
    errno = -r;
    return !r;
}

/* Root reads what it reads; others have none to keep. */
static bool drop_capabilities(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};
    if (syscall(SYS_capget, &head, data))
        return false;
    u32 keep = data[0].effective & 1u << CAP_DAC_READ_SEARCH;
    data[0] = (struct __user_cap_data_struct){.effective = keep, .permitted = keep};
    data[1] = (struct __user_cap_data_struct){0};
    return !syscall(SYS_capset, &head, data);
}

bool sandbox_enter(int share)
{
    const struct landlock_path path = {.fd = share, .may = LANDLOCK_READ};
    if (!limits_enter(MEMORY) || !drop_capabilities())
        return false;
    int r = landlock_enter(&path, 1);
    if (r && r != -ENOSYS) {
        errno = -r;
        return false;
    }
    return load_filter();
}

/* ---- the proof ---- */

struct place {
    int share, within, proc;
};

static long try_outside(const struct place *p)
{
    return openat(p->share, "../etc/passwd", O_RDONLY);
}

static long try_write(const struct place *p)
{
    return openat(p->share, "motd", O_WRONLY);
}

static long try_create(const struct place *p)
{
    return openat(p->share, "reprise-fs", O_RDWR | O_CREAT, 0600);
}

static long try_temporary(const struct place *p)
{
    return openat(p->share, ".", O_TMPFILE | O_RDWR, 0600);
}

static long try_unlink(const struct place *p)
{
    return unlinkat(p->share, "reprise-fs", 0);
}

static long try_mode(const struct place *p)
{
    return fchmod(p->within, 0777);
}

static long try_memory_file(const struct place *p)
{
    return memfd_create("probe", 0);
}

static long try_map(const struct place *p)
{
    return (long)(intptr_t)mmap(NULL, PAGE_SIZE, PROT_READ, MAP_SHARED, p->within, 0);
}

static long try_execute(const struct place *p)
{
    char *const argv[] = {"true", NULL};
    return execve("/bin/true", argv, NULL);
}

static long try_fork(const struct place *p)
{
    return syscall(SYS_fork);
}

static long try_signal(const struct place *p)
{
    return kill(getppid(), 0);
}

static long try_trace(const struct place *p)
{
    return ptrace(PTRACE_ATTACH, getppid(), NULL, NULL);
}

static long try_dumpable(const struct place *p)
{
    return prctl(PR_SET_DUMPABLE, 1);
}

static long try_socket(const struct place *p)
{
    return socket(AF_INET, SOCK_STREAM, 0);
}

static long try_unix(const struct place *p)
{
    return socket(AF_UNIX, SOCK_STREAM, 0);
}

static long try_send(const struct place *p)
{
    return sendto(p->within, "", 1, MSG_FASTOPEN, NULL, 0);
}

static long try_ioctl(const struct place *p)
{
    return fcntl(p->within, F_SETFL, O_ASYNC);
}

/* ... and what must be. */
static long try_share(const struct place *p)
{
    return openat(p->share, ".", O_RDONLY | O_DIRECTORY);
}

static long try_reopen(const struct place *p)
{
    char name[16];
    int fd = openat(p->share, ".", O_PATH | O_NOFOLLOW);
    snprintf(name, sizeof(name), "%d", fd);
    return fd < 0 ? fd : openat(p->proc, name, O_RDONLY);
}

static const struct {
    const char *what;
    long (*fn)(const struct place *p);
    bool wanted;   /* it must be possible */
    bool landlock; /* what forbids it */
} probes[] = {
    {"reading a file outside", try_outside, false, true},
    {"writing a file", try_write, false, false},
    {"creating a file", try_create, false, false},
    {"a temporary file", try_temporary, false, false},
    {"unlink", try_unlink, false, false},
    {"chmod", try_mode, false, false},
    {"memfd_create", try_memory_file, false, false},
    {"mapping a file", try_map, false, false},
    {"execve", try_execute, false, false},
    {"fork", try_fork, false, false},
    {"kill", try_signal, false, false},
    {"ptrace", try_trace, false, false},
    {"prctl", try_dumpable, false, false},
    {"a TCP socket", try_socket, false, false},
    {"a unix socket", try_unix, false, false},
    {"connecting by sending", try_send, false, false},
    {"signals of whatever is open", try_ioctl, false, false},
    {"reading the share", try_share, true, false},
    {"opening what was found", try_reopen, true, false},
};

enum { PASSED, REFUSED, NO_SANDBOX };

static bool refused(long (*fn)(const struct place *p), const struct place *p, bool *failed)
{
    int status = 0;
    pid_t pid = fork();
    if (!pid) {
        if (!sandbox_enter(p->share))
            _exit(NO_SANDBOX);
        long r = fn(p);
        _exit(r < 0 && errno == EACCES ? REFUSED : PASSED);
    }
    *failed = pid < 0 || waitpid(pid, &status, 0) < 0 ||
              (WIFEXITED(status) && WEXITSTATUS(status) == NO_SANDBOX);
    return WIFSIGNALED(status) ? WTERMSIG(status) == SIGSYS : WEXITSTATUS(status) == REFUSED;
}

unsigned sandbox_probe(void)
{
    unsigned wrong = 0;
    const struct place p = {.share = open("/usr", O_RDONLY | O_DIRECTORY),
                            .within = open("/usr", O_RDONLY),
                            .proc = open("/proc/self/fd", O_RDONLY | O_DIRECTORY)};
    for (size_t i = 0; i < ARRAY_SIZE(probes); i++) {
        bool failed;
        if (probes[i].landlock && !landlock_abi())
            continue; /* doctor says it of the kernel */
        bool is = refused(probes[i].fn, &p, &failed);
        if (!failed && is != probes[i].wanted)
            continue;
        fprintf(stderr, "reprise-fs: the sandbox %s: %s\n",
                failed             ? "cannot be entered to try"
                : probes[i].wanted ? "refuses what is needed"
                                   : "lets through",
                probes[i].what);
        wrong++;
    }
    return wrong;
}
