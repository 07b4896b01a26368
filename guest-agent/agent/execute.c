/* See execute.h. */
#include "execute.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "end.h"
#include "program.h"
#include "start.h"

static void say(struct failure *f, uint32_t status, const char *path, const char *what, int error)
{
    f->status = status;
    snprintf(f->text, sizeof(f->text), "%.700s: %s%s%s", path, what, *what ? ": " : "",
             strerror(error));
}

/* Whether the file's first line, or what there is of it, is text. */
static bool is_text(const char *path)
{
    char begin[128];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, begin, sizeof(begin));
    if (fd >= 0)
        close(fd);
    if (n < 0)
        return false;
    const char *line = memchr(begin, '\n', (size_t)n);
    return !memchr(begin, 0, line ? (size_t)(line - begin) : (size_t)n);
}

/* A script without #!. */
static void by_shell(const struct start *s, const char *path)
{
    size_t n = 0;
    while (s->arguments[n])
        n++;
    char **arguments = calloc(n + 2, sizeof(*arguments));
    if (!arguments)
        return;
    arguments[0] = "sh";
    arguments[1] = (char *)path;
    for (size_t i = 1; i < n; i++)
        arguments[i + 1] = s->arguments[i];
    execve("/bin/sh", arguments, s->variables);
    free(arguments);
}

/* True: it is there and cannot be executed, as `f` says. False: errno says why it is not there, or
 * EACCES. */
static bool attempt(const struct start *s, const char *path, struct failure *f)
{
    execve(path, s->arguments, s->variables);
    int error = errno;
    if (error == ENOEXEC && is_text(path)) {
        by_shell(s, path);
        say(f, STATUS_NOT_EXECUTABLE, path, "cannot be run by /bin/sh", errno);
    } else if (error == ENOEXEC) {
        say(f, STATUS_NOT_EXECUTABLE, path, "is no program for this machine", error);
    } else if (error == ENOENT && !access(path, F_OK)) {
        say(f, STATUS_NOT_EXECUTABLE, path, "the interpreter that it names is not there", error);
    } else if (error == ENOENT || error == ENOTDIR || error == EACCES || error == ENAMETOOLONG) {
        errno = error;
        return false;
    } else {
        say(f, STATUS_NOT_EXECUTABLE, path, "", error);
    }
    return true;
}

static const char *search_path(const struct start *s)
{
    for (char **v = s->variables; *v; v++)
        if (!strncmp(*v, "PATH=", 5))
            return *v + 5;
    return "/bin:/usr/bin"; /* as the C library has it */
}

void execute(const struct start *s, struct failure *f)
{
    bool denied = false;
    if (strchr(s->file, '/')) {
        if (!attempt(s, s->file, f))
            say(f, errno == EACCES ? STATUS_NOT_EXECUTABLE : STATUS_NOT_FOUND, s->file, "", errno);
        return;
    }
    for (const char *at = search_path(s), *end;; at = end + 1) {
        end = strchrnul(at, ':');
        char path[PATH_MAX];
        int n = snprintf(path, sizeof(path), "%.*s%s%s", (int)(end - at), at, end > at ? "/" : "./",
                         s->file);
        if (n < (int)sizeof(path)) {
            if (attempt(s, path, f))
                return;
            denied |= errno == EACCES;
        }
        if (!*end)
            break;
    }
    if (denied)
        say(f, STATUS_NOT_EXECUTABLE, s->file, "", EACCES);
    else
        say(f, STATUS_NOT_FOUND, s->file, "not found in PATH", ENOENT);
}
