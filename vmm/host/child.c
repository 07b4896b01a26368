/* See child.h. */
#define _GNU_SOURCE /* pipe2 */
#include "host/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/clock.h"
#include "host/confine.h"

#define DIAGNOSTICS 4096u /* bytes of stderr that are kept */

struct stream {
    int fd;
    char *bytes;
    size_t len, room;
};

static void limit(int what, u64 value)
{
    struct rlimit r = {.rlim_cur = value, .rlim_max = value};
    setrlimit(what, &r);
}

/* In the child: nothing here may fail loudly, or allocate. Never returns. */
static void become(const char *program, const char *const *argv, const struct child_limits *l,
                   const struct confine *confine, int out, int diagnostics, int failed,
                   pid_t parent)
{
    static const char *const env[] = {CHILD_PATH, "LC_ALL=C", NULL};
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int s = 1; s < NSIG; s++)
        signal(s, SIG_DFL);
    int null = open("/dev/null", O_RDONLY), code = l->confined ? confine_enter(confine) : 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    setpgid(0, 0);
    if (getppid() != parent)
        _exit(127);
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_CPU, l->seconds + 1);
    limit(RLIMIT_AS, l->memory);
    limit(RLIMIT_FSIZE, l->file);
    if (!code && null >= 0 && dup2(null, 0) >= 0 && dup2(out, 1) >= 0 && dup2(diagnostics, 2) >= 0)
        execve(program, (char *const *)argv, (char *const *)env);
    code = code ? code : errno;
    if (write(failed, &code, sizeof(code)) < 0)
        _exit(126);
    _exit(127);
}

/* Takes what there is; false at the end of it. -EFBIG in *code when it is more than `max`. */
static bool take(struct stream *s, u64 max, int *code)
{
    if (s->len + 1 >= s->room) {
        size_t room = s->room ? 2 * s->room : 1 << 16;
        char *bytes = realloc(s->bytes, room);
        if (!bytes) {
            *code = -ENOMEM;
            return false;
        }
        s->bytes = bytes;
        s->room = room;
    }
    ssize_t n = read(s->fd, s->bytes + s->len, s->room - s->len - 1);
    if (n < 0)
        return errno == EINTR || errno == EAGAIN;
    s->len += (size_t)n;
    s->bytes[s->len] = 0;
    if (s->len > max)
        *code = -EFBIG;
    return n > 0 && !*code;
}

bool child_interrupted(void)
{
    sigset_t pending;
    return !sigpending(&pending) &&
           (sigismember(&pending, SIGINT) == 1 || sigismember(&pending, SIGTERM) == 1 ||
            sigismember(&pending, SIGHUP) == 1);
}

/* Until the child has ended: *status is how. */
static int collect(pid_t child, struct stream *out, struct stream *diagnostics,
                   const struct child_limits *l, int *status)
{
    u64 until = host_ns() + l->seconds * 1000000000ull;
    bool open = true, talks = true, ended = false;
    int code = 0;
    while (!ended && !code) {
        struct pollfd p[2] = {{.fd = open ? out->fd : -1, .events = POLLIN},
                              {.fd = talks ? diagnostics->fd : -1, .events = POLLIN}};
        if (host_ns() >= until)
            return -ETIMEDOUT;
        if (child_interrupted())
            return -EINTR;
        if (poll(p, 2, open || talks ? 100 : 1) < 0 && errno != EINTR)
            return -errno;
        if (p[0].revents)
            open = take(out, l->output, &code);
        if (p[1].revents) {
            int ignored = 0;
            talks = take(diagnostics, UINT64_MAX, &ignored) && !ignored;
            if (diagnostics->len > DIAGNOSTICS) { /* the last of it says why */
                memmove(diagnostics->bytes, diagnostics->bytes + diagnostics->len - DIAGNOSTICS,
                        DIAGNOSTICS);
                diagnostics->len = DIAGNOSTICS;
            }
        }
        if (!open && !talks)
            ended = waitpid(child, status, WNOHANG) == child;
    }
    return code;
}

/* The last line that says something, without what would control a terminal. */
static void last_line(struct stream *s, char *out, size_t size)
{
    size_t end = s->len, start, used = 0;
    while (end && (u8)s->bytes[end - 1] <= ' ')
        end--;
    for (start = end; start && s->bytes[start - 1] != '\n'; start--)
        ;
    for (; start < end && used + 1 < size; start++)
        out[used++] = (u8)s->bytes[start] < ' ' || s->bytes[start] == 127 ? '?' : s->bytes[start];
    out[used] = 0;
}

static int verdict(const char *name, int code, int status, int exec_error,
                   const struct child_limits *l, struct stream *diagnostics, struct err *err)
{
    char line[512];
    if (exec_error) {
        errno = abs(exec_error);
        return err_errno(err, exec_error < 0 ? "cannot confine %s" : "cannot run %s", name);
    }
    if (code == -ETIMEDOUT)
        return err_set(err, code, "%s took longer than %u s", name, l->seconds);
    if (code == -EFBIG)
        return err_set(err, code, "%s printed more than %llu bytes", name,
                       (unsigned long long)l->output);
    if (code == -EINTR)
        return err_set(err, code, "%s was interrupted", name);
    if (code)
        return err_set(err, code, "cannot read from %s: %s", name, strerror(-code));
    if (WIFSIGNALED(status))
        return err_set(err, -EIO, "%s was ended by signal %d", name, WTERMSIG(status));
    if (WEXITSTATUS(status)) {
        last_line(diagnostics, line, sizeof(line));
        return err_set(err, -EIO, "%s%s", *line ? "" : name, *line ? line : " failed");
    }
    return 0;
}

char *child_find(const char *name, struct err *err)
{
    const char *path = getenv("PATH");
    char *places, *rest, *dir, *found = NULL;
    if (strchr(name, '/')) {
        found = access(name, X_OK) ? NULL : strdup(name);
        if (!found)
            err_set(err, -ENOENT, "there is no program %s", name);
        return found;
    }
    if (asprintf(&places, "%s:/usr/sbin:/sbin", path && *path ? path : "/usr/bin:/bin") < 0) {
        err_set(err, -ENOMEM, "no memory to run %s", name);
        return NULL;
    }
    for (rest = places; !found && (dir = strsep(&rest, ":"));) {
        if (asprintf(&found, "%s/%s", *dir ? dir : ".", name) < 0)
            found = NULL;
        if (found && access(found, X_OK)) {
            free(found);
            found = NULL;
        }
    }
    free(places);
    if (!found)
        err_set(err, -ENOENT, "there is no program %s", name);
    return found;
}

int child_run(const char *const *argv, const struct child_limits *limits, char **out, size_t *size,
              struct err *err)
{
    struct stream printed = {.fd = -1}, diagnostics = {.fd = -1};
    int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}}, status = 0, exec_error = 0, code = 0;
    struct confine confine = {.npaths = 0};
    *out = NULL;
    char *program = child_find(argv[0], err);
    if (!program)
        return err->code;
    if (limits->confined)
        code = confine_prepare(&confine, program, limits->reads, limits->nreads, err);
    for (unsigned i = 0; i < 3 && !code; i++)
        if (pipe2(pipes[i], O_CLOEXEC))
            code = err_errno(err, "cannot make a pipe");
    pid_t parent = getpid(), child = code ? -1 : fork();
    if (!child)
        become(program, argv, limits, &confine, pipes[0][1], pipes[1][1], pipes[2][1], parent);
    if (!code && child < 0)
        code = err_errno(err, "cannot start a process for %s", argv[0]);
    for (unsigned i = 0; i < 3; i++)
        if (pipes[i][1] >= 0)
            close(pipes[i][1]);
    if (!code) {
        if (read(pipes[2][0], &exec_error, sizeof(exec_error)) != sizeof(exec_error))
            exec_error = 0;
        printed.fd = pipes[0][0];
        diagnostics.fd = pipes[1][0];
        int collected = collect(child, &printed, &diagnostics, limits, &status);
        if (collected) {
            kill(-child, SIGKILL); /* with what it started; or it has no group yet */
            kill(child, SIGKILL);
            while (waitpid(child, &status, 0) < 0 && errno == EINTR)
                ;
        }
        code = verdict(argv[0], collected, status, exec_error, limits, &diagnostics, err);
    }
    for (unsigned i = 0; i < 3; i++)
        if (pipes[i][0] >= 0)
            close(pipes[i][0]);
    free(program);
    confine_free(&confine);
    free(diagnostics.bytes);
    if (code || !printed.bytes) {
        free(printed.bytes);
        printed = (struct stream){.bytes = code ? NULL : calloc(1, 1)};
        if (!code && !printed.bytes)
            code = err_set(err, -ENOMEM, "no memory for what %s printed", argv[0]);
    }
    *out = printed.bytes;
    *size = printed.len;
    return code;
}
