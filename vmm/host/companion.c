/* See companion.h. */
#define _GNU_SOURCE
#include "host/companion.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/outside.h"

#define FIRST_FD 3
#define ARGS_MAX 16u

int companion_beside(const char *name, char *path, size_t size, struct err *err)
{
    ssize_t n = readlink("/proc/self/exe", path, size - 1);
    if (n < 0)
        return err_errno(err, "cannot tell where this program is");
    path[n] = 0;
    char *slash = strrchr(path, '/');
    size_t used = slash ? (size_t)(slash + 1 - path) : 0;
    if ((size_t)snprintf(path + used, size - used, "%s", name) >= size - used)
        return err_set(err, -ENAMETOOLONG, "the path of this program is too long");
    return 0;
}

#define LIBEXEC "../libexec/reprise/"

int companion_path(const char *name, char *path, size_t size, struct err *err)
{
    char installed[64];
    snprintf(installed, sizeof(installed), LIBEXEC "%s", name);
    int code = companion_beside(name, path, size, err);
    if (code || !access(path, X_OK))
        return code;
    code = companion_beside(installed, path, size, err);
    if (code || !access(path, X_OK))
        return code;
    code = companion_beside("", path, size, err);
    return code ? code
                : err_set(err, -ENOENT,
                          "%s is missing, a program of reprise's own: it is neither %s%s nor "
                          "%s" LIBEXEC "%s. Install reprise anew, or build it: make",
                          name, path, name, path, name);
}

static int spawn(pid_t *pid, const char *program, const struct companion_config *c, const int *high)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t none, all;
    char *argv[ARGS_MAX + 2] = {(char *)(uintptr_t)program};
    for (unsigned i = 0; i < ARGS_MAX && c->args && c->args[i]; i++)
        argv[i + 1] = (char *)(uintptr_t)c->args[i];
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDWR, 0);
    posix_spawn_file_actions_adddup2(&files, 0, 1);
    if (c->voice >= 0)
        posix_spawn_file_actions_adddup2(&files, c->voice, 2);
    for (unsigned i = 0; i < c->nfds; i++)
        posix_spawn_file_actions_adddup2(&files, high[i], FIRST_FD + (int)i);
    posix_spawn_file_actions_addclosefrom_np(&files, FIRST_FD + (int)c->nfds);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                        POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    int e = posix_spawn(pid, program, &files, &attr, argv, environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&files);
    return e;
}

/* As spawn(), with the parent that posix_spawn() cannot give. */
static int spawn_sibling(pid_t *pid, const char *program, const struct companion_config *c,
                         const int *high)
{
    char *argv[ARGS_MAX + 2] = {(char *)(uintptr_t)program};
    int report[2], why = 0;
    for (unsigned i = 0; i < ARGS_MAX && c->args && c->args[i]; i++)
        argv[i + 1] = (char *)(uintptr_t)c->args[i];
    if (pipe2(report, O_CLOEXEC))
        return errno;
    *pid = (pid_t)syscall(SYS_clone, CLONE_PARENT | SIGCHLD, NULL, NULL, NULL, NULL);
    if (*pid == 0) {
        sigset_t none;
        for (int s = 1; s < NSIG; s++)
            signal(s, SIG_DFL);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        setpgid(0, 0);
        int told = fcntl(report[1], F_DUPFD_CLOEXEC, 100);
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        bool good = told >= 0 && null >= 0 && dup2(null, 0) >= 0 && dup2(null, 1) >= 0 &&
                    (c->voice < 0 || dup2(c->voice, 2) >= 0);
        for (unsigned i = 0; i < c->nfds; i++)
            good = good && dup2(high[i], FIRST_FD + (int)i) >= 0;
        if (good && !close_range(FIRST_FD + c->nfds, ~0u, CLOSE_RANGE_CLOEXEC))
            execve(program, argv, environ);
        why = errno;
        if (write(told, &why, sizeof(why)) < 0)
            _exit(126);
        _exit(127);
    }
    int e = *pid < 0 ? errno : 0;
    close(report[1]);
    if (!e && read(report[0], &why, sizeof(why)) == sizeof(why))
        e = why;
    close(report[0]);
    return e;
}

int companion_start(pid_t *pid, const struct companion_config *c, struct err *err)
{
    return outside_runs() ? outside_spawn(pid, c, err) : companion_start_here(pid, c, false, err);
}

int companion_start_here(pid_t *pid, const struct companion_config *c, bool sibling,
                         struct err *err)
{
    char path[4096];
    const char *program = c->program;
    int high[COMPANION_FDS], e = 0;
    if (!program) {
        int code = companion_path(c->name, path, sizeof(path), err);
        if (code)
            return err_prefix(err, "cannot start %s", c->what);
        program = path;
    }
    /* Out of the way of the numbers that they get. */
    for (unsigned i = 0; i < c->nfds; i++) {
        high[i] = fcntl(c->fds[i], F_DUPFD_CLOEXEC, 10);
        if (high[i] < 0)
            e = errno;
    }
    if (!e)
        e = sibling ? spawn_sibling(pid, program, c, high) : spawn(pid, program, c, high);
    for (unsigned i = 0; i < c->nfds; i++)
        if (high[i] >= 0)
            close(high[i]);
    return e ? err_set(err, -e, "cannot start %s '%s': %s", c->what, program, strerror(e)) : 0;
}

int companion_kill(pid_t pid)
{
    int status = 0;
    outside_kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}

int companion_wait(pid_t pid)
{
    int status = 0;
    for (int i = 0; i < 100; i++) {
        if (waitpid(pid, &status, WNOHANG))
            return status;
        poll(NULL, 0, 10);
    }
    return companion_kill(pid);
}

void companion_how(int status, char *out, size_t size)
{
    if (WIFSIGNALED(status))
        snprintf(out, size, "killed by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(out, size, "ended with status %d", WEXITSTATUS(status));
}
