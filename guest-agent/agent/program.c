/* See program.h. */
#include "program.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "end.h"
#include "execute.h"
#include "start.h"

enum { TTY_GROUP = 5 };

static bool failed(struct failure *f, const char *what)
{
    f->status = STATUS_TROUBLE;
    snprintf(f->text, sizeof(f->text), "%s: %s", what, strerror(errno));
    return false;
}

/* ---- descriptors ---- */

/* The terminal's two ends. What it is for is the user's, as after a login. */
static bool terminal(struct program *p, const struct start *s, int *slave)
{
    struct winsize size = {.ws_row = s->size.rows, .ws_col = s->size.columns};
    int zero = 0, number;
    char name[32];
    p->terminal = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    if (p->terminal < 0 || ioctl(p->terminal, TIOCSPTLCK, &zero) ||
        ioctl(p->terminal, TIOCGPTN, &number) || ioctl(p->terminal, TIOCSWINSZ, &size))
        return false;
    snprintf(name, sizeof(name), "/dev/pts/%d", number);
    *slave = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    return *slave >= 0 && !fchown(*slave, s->uid, TTY_GROUP);
}

/* `end[i]` becomes the program's descriptor i. */
static bool descriptors(struct program *p, const struct start *s, int end[3])
{
    int slave = -1;
    if (s->terminals && !terminal(p, s, &slave))
        return false;
    for (int i = 0; i < 3; i++) {
        int pair[2];
        if (s->terminals & 1u << i) {
            end[i] = slave;
            continue;
        }
        if (pipe2(pair, O_CLOEXEC))
            return false;
        end[i] = pair[i > 0];
        int ours = pair[i == 0];
        /* /dev/stdout and the like are opened as files. */
        if (fchown(end[i], s->uid, s->gid) || fcntl(ours, F_SETFL, O_NONBLOCK))
            return false;
        *(i ? &p->out[i] : &p->in) = ours;
    }
    if (s->terminals & 1)
        p->in = p->terminal;
    return true;
}

/* ---- in the child ---- */

static void signals(void)
{
    sigset_t none;
    for (int i = 1; i < NSIG; i++)
        signal(i, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* As after a login; the kernel's own for all others are that. */
static void limits(void)
{
    const struct rlimit files = {1024, 1048576};
    setrlimit(RLIMIT_NOFILE, &files);
}

static bool become(const struct start *s, const int end[3], int terminal_end, struct failure *f)
{
    if (setsid() < 0 || (terminal_end >= 0 && ioctl(terminal_end, TIOCSCTTY, 0)))
        return failed(f, "the program's session");
    for (int i = 0; i < 3; i++)
        if (dup2(end[i], i) < 0)
            return failed(f, "the program's descriptors");
    signals();
    limits();
    umask(s->umask);
    if (setgroups(s->groups, s->group) || setresgid(s->gid, s->gid, s->gid) ||
        setresuid(s->uid, s->uid, s->uid))
        return failed(f, "the program's user and groups");
    /* A session that ends before it takes it along. */
    if (getppid() != 1 && prctl(PR_SET_PDEATHSIG, SIGHUP))
        return failed(f, "the program's end with its session");
    if (chdir(s->directory)) {
        f->status = STATUS_TROUBLE;
        snprintf(f->text, sizeof(f->text), "cannot enter the working directory %s: %s",
                 s->directory, strerror(errno));
        return false;
    }
    return true;
}

bool program_start(struct program *p, const struct start *s, struct failure *f)
{
    int end[3] = {-1, -1, -1}, said[2], terminal_end = -1;
    *p = (struct program){.terminal = -1, .in = -1, .out = {-1, -1, -1}};
    if (!descriptors(p, s, end) || pipe2(said, O_CLOEXEC))
        return failed(f, "descriptors for the program");
    for (int i = 0; i < 3; i++)
        if (s->terminals & 1u << i)
            terminal_end = end[i];
    p->pid = fork();
    if (p->pid < 0)
        return failed(f, "a process for the program");
    if (!p->pid) {
        if (become(s, end, terminal_end, f))
            execute(s, f);
        if (write(said[1], f, sizeof(*f)) < 0)
            _exit(STATUS_TROUBLE);
        _exit((int)f->status);
    }
    close(said[1]);
    /* The terminal's end stays: with none, its master would say at once and always that it is
     * closed. */
    for (int i = 0; i < 3; i++)
        if (end[i] != terminal_end)
            close(end[i]);
    ssize_t n = read(said[0], f, sizeof(*f));
    close(said[0]);
    while (n && waitpid(p->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return n == 0;
}
