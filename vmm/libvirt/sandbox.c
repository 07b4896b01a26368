/*
 * See sandbox.h. No new privileges, nobody's to trace; Landlock (where the kernel has it) without a
 * path; a filter of system calls, in which nothing is opened, connected to or started. All else
 * ends the process.
 */
#include "libvirt/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <seccomp.h>
#include <stdio.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/calls.h"
#include "base/limits.h"
#include "host/landlock.h"

#define MEMORY (512ull << 20) /* bytes: a tree of 4 MiB of XML, and what is made of it */

static const int allowed[] = {
    SCMP_SYS(read),          SCMP_SYS(write),
    SCMP_SYS(fstat),         SCMP_SYS(newfstatat),
    SCMP_SYS(lseek),         SCMP_SYS(close),
    SCMP_SYS(brk),           SCMP_SYS(munmap),
    SCMP_SYS(mremap),        SCMP_SYS(mprotect),
    SCMP_SYS(madvise),       SCMP_SYS(futex),
    SCMP_SYS(rt_sigaction),  SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),  SCMP_SYS(restart_syscall),
    SCMP_SYS(clock_gettime), SCMP_SYS(getrandom),
    SCMP_SYS(getpid),        SCMP_SYS(gettid),
    SCMP_SYS(exit),          SCMP_SYS(exit_group),
};

static int add_rules(scmp_filter_ctx filter)
{
    int r = 0;
    for (size_t i = 0; i < ARRAY_SIZE(allowed) && !r; i++)
        r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, allowed[i], 0);
    /* The C library looks for converters of other encodings, which XML may name. */
    if (!r)
        r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EACCES), SCMP_SYS(openat), 0);
    if (!r)
        r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1,
                             SCMP_A3(SCMP_CMP_MASKED_EQ, MAP_ANONYMOUS, MAP_ANONYMOUS));
    /* abort() */
    if (!r)
        r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1,
                             SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)getpid()));
    return r;
}

int sandbox_enter(struct err *err)
{
#ifndef REPRISE_NO_SANDBOX
    if (!limits_enter(MEMORY))
        return err_errno(err, "cannot lock the reader of XML in");
    int r = landlock_enter(NULL, 0);
    if (r && r != -ENOSYS)
        return err_set(err, r, "cannot lock the reader of XML in: Landlock");
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_KILL_PROCESS);
    r = filter ? add_rules(filter) : -ENOMEM;
    if (!r)
        r = seccomp_load(filter);
    if (filter)
        seccomp_release(filter);
    if (r)
        return err_set(err, r, "cannot lock the reader of XML in: seccomp");
#endif
    (void)err;
    return 0;
}

/* ---- the proof ---- */

static long try_open(void)
{
    return openat(AT_FDCWD, "/etc/passwd", O_RDONLY);
}

static long try_socket(void)
{
    return socket(AF_INET, SOCK_STREAM, 0);
}

static long try_unix(void)
{
    return socket(AF_UNIX, SOCK_STREAM, 0);
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

static long try_signal(void)
{
    return kill(getppid(), 0);
}

static const struct {
    const char *what;
    long (*fn)(void);
} probes[] = {{"opening a file", try_open}, {"a TCP socket", try_socket},
              {"a unix socket", try_unix},  {"execve", try_execute},
              {"fork", try_fork},           {"kill", try_signal}};

enum { PASSED, REFUSED, NO_SANDBOX };

unsigned sandbox_probe(void)
{
    unsigned wrong = 0;
    for (size_t i = 0; i < ARRAY_SIZE(probes); i++) {
        struct err err;
        int status = 0;
        pid_t child = fork();
        if (!child) {
            if (sandbox_enter(&err))
                _exit(NO_SANDBOX);
            _exit(probes[i].fn() < 0 && errno == EACCES ? REFUSED : PASSED);
        }
        bool failed = child < 0 || waitpid(child, &status, 0) < 0 ||
                      (WIFEXITED(status) && WEXITSTATUS(status) == NO_SANDBOX);
        if (!failed &&
            (WIFSIGNALED(status) ? WTERMSIG(status) == SIGSYS : WEXITSTATUS(status) == REFUSED))
            continue;
        fprintf(stderr, "reprise-libvirt: the sandbox %s: %s\n",
                failed ? "cannot be entered to try" : "lets through", probes[i].what);
        wrong++;
    }
    return wrong;
}
