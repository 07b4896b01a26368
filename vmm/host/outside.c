/*
 * See outside.h. One request and one reply at a time on a socket pair; descriptors travel with
 * them. Forks, executes reprise-gpu, makes and renames the files of -o: all asked for by the user's
 * command line, whose bounds were fixed before anything of a recording was believed.
 */
#define _GNU_SOURCE /* CLONE_PARENT */
#include "host/outside.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "host/output_file.h"

#define FILES   8u
#define REMOVED 8u
#define FDS_MAX (COMPANION_FDS + 1u)

enum request_kind { ASK_CREATE, ASK_NAME, ASK_DROP, ASK_SPAWN, ASK_KILL };

struct request {
    u32 kind;
    i32 number; /* of a file; a process */
    i32 signal;
    bool replace, voice;
    char text[1024]; /* a path; the driver, "" for the default */
};

struct reply {
    i32 code;   /* 0 or -errno */
    i32 number; /* of the file; the process */
    char text[1024];
};

/* One a process: what it is asked for, and what it does, is about this process. */
static struct {
    int fd; /* ours; 0: it does not run */
    pid_t pid, us;
    struct outside_rules rules;
    struct output_file *file[FILES]; /* before it starts: where they are; in it: its own copies */
    struct {
        char path[1024];
        bool replace;
    } named[FILES]; /* by the user: the first ones that were opened */
    unsigned nnamed;
    struct {
        char path[4096];
        dev_t device;
        ino_t inode;
    } removed[REMOVED];
    unsigned nremoved;
} outside;

bool outside_runs(void)
{
    return outside.fd > 0;
}

/* ---- messages ---- */

static int send_with(int to, const void *data, size_t size, const int *fds, unsigned n)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(FDS_MAX * sizeof(int))];
    } control = {0};
    struct iovec iov = {(void *)(uintptr_t)data, size};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    if (n) {
        m.msg_control = &control;
        m.msg_controllen = CMSG_SPACE(n * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(n * sizeof(int));
        memcpy(CMSG_DATA(c), fds, n * sizeof(int));
    }
    ssize_t r;
    do
        r = sendmsg(to, &m, MSG_NOSIGNAL);
    while (r < 0 && errno == EINTR);
    return r == (ssize_t)size ? 0 : -1;
}

/* How many descriptors came with it; -1: the end, or nonsense. */
static int receive_with(int from, void *data, size_t size, int *fds)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(FDS_MAX * sizeof(int))];
    } control;
    struct iovec iov = {data, size};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = sizeof(control)};
    ssize_t r;
    int n = 0;
    do
        r = recvmsg(from, &m, MSG_CMSG_CLOEXEC);
    while (r < 0 && errno == EINTR);
    if (r != (ssize_t)size)
        return -1;
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
        n = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(fds, CMSG_DATA(c), (size_t)n * sizeof(int));
    }
    return n;
}

static void close_all(const int *fds, int n)
{
    for (int i = 0; i < n; i++)
        close(fds[i]);
}

/* ---- outside: files ---- */

/* The rest of a path in the directory that was named, as the command put it together. */
static const char *in_directory(const char *path)
{
    const char *dir = outside.rules.directory;
    size_t n = dir ? strlen(dir) : 0;
    if (!dir || strncmp(path, dir, n) || path[n] != '/' || strchr(path + n + 1, '/'))
        return NULL;
    return path + n + 1;
}

static bool may_create(const struct request *q)
{
    size_t n = strlen(q->text);
    for (unsigned i = 0; i < outside.nnamed; i++)
        if (!strcmp(q->text, outside.named[i].path) && q->replace <= outside.named[i].replace)
            return true;
    bool picture = n > 4 && !strcmp(q->text + n - 4, ".png");
    return in_directory(q->text) || (outside.rules.pictures && picture && !q->replace);
}

static int create(const struct request *q, struct reply *a, int *fd)
{
    struct err err = {0};
    unsigned i = 0;
    while (i < FILES && outside.file[i])
        i++;
    if (!may_create(q))
        err_set(&err, -EPERM,
                "%s is not written: from here only new files whose names end in .png are", q->text);
    else if (i == FILES || !(outside.file[i] = calloc(1, sizeof(*outside.file[i]))))
        err_set(&err, -ENOMEM, "no memory for another file");
    else if (output_open_here(outside.file[i], q->text, q->replace, &err)) {
        free(outside.file[i]);
        outside.file[i] = NULL;
    }
    a->number = (i32)i;
    snprintf(a->text, sizeof(a->text), "%s", err.text);
    if (err.code)
        return err.code;
    *fd = fileno(outside.file[i]->file);
    return 0;
}

static int finish(i32 number, bool name)
{
    if (number < 0 || number >= (i32)FILES || !outside.file[number])
        return -EBADF;
    struct output_file *o = outside.file[number];
    int code = name ? output_name_here(o) : 0;
    output_discard_here(o);
    free(o);
    outside.file[number] = NULL;
    return code;
}

/* ---- outside: processes ---- */

static int spawn(const struct request *q, const int *fds, int n, pid_t *pid, struct err *err)
{
    const char *driver = *q->text ? q->text : NULL;
    bool known = !driver;
    for (unsigned i = 0; i < ARRAY_SIZE(outside.rules.driver) && driver; i++)
        known |= outside.rules.driver[i] && !strcmp(outside.rules.driver[i], driver);
    known |= driver && (!strcmp(driver, "llvmpipe") || !strcmp(driver, "softpipe"));
    if (!outside.rules.renderer || !known || n < 1 + q->voice)
        return err_set(err, -EPERM, "no renderer was asked for on the command line");
    const char *const args[] = {driver ? "--driver" : NULL, driver, NULL};
    struct companion_config c = {.what = "the renderer",
                                 .name = "reprise-gpu",
                                 .args = args,
                                 .fds = {fds[0]},
                                 .nfds = 1,
                                 .voice = q->voice ? fds[1] : -1};
    return companion_start_here(pid, &c, true, err);
}

/* Only what is a child of ours, and not yet waited for: its number is nobody else's. */
static int end_process(pid_t pid, int sig)
{
    char path[40], line[512] = "";
    int parent = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *f = pid > 1 ? fopen(path, "re") : NULL;
    size_t n = f ? fread(line, 1, sizeof(line) - 1, f) : 0;
    if (f)
        fclose(f);
    line[n] = 0;
    const char *after = strrchr(line, ')');
    if (!after || sscanf(after, ") %*c %d", &parent) != 1 || parent != outside.us)
        return -EPERM;
    return kill(pid, sig) ? -errno : 0;
}

/* ---- outside: its life ---- */

static void remove_all(void)
{
    struct stat st;
    for (unsigned i = 0; i < FILES; i++)
        finish((i32)i, false);
    for (unsigned i = 0; i < outside.nremoved; i++) {
        const char *path = outside.removed[i].path;
        ino_t was = outside.removed[i].inode; /* 0: it was not there yet */
        if (lstat(path, &st) ||
            (was && (st.st_dev != outside.removed[i].device || st.st_ino != was)))
            continue;
        if (S_ISDIR(st.st_mode))
            rmdir(path);
        else
            unlink(path);
    }
}

/* Descriptors of ours would keep pipes and recordings open. */
static void let_go(int keep)
{
    DIR *d = opendir("/proc/self/fd");
    struct dirent *e;
    while (d && (e = readdir(d))) {
        int fd = atoi(e->d_name);
        bool wanted = fd == keep || fd == dirfd(d);
        for (unsigned i = 0; i < FILES; i++)
            wanted |= outside.file[i] && fd == outside.file[i]->dir;
        if (fd > STDERR_FILENO && !wanted)
            close(fd);
    }
    if (d)
        closedir(d);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; null >= 0 && fd <= STDERR_FILENO; fd++)
        dup2(null, fd);
}

static _Noreturn void serve(int fd)
{
    struct request q;
    int fds[FDS_MAX], n;
    for (int s = 1; s < NSIG; s++)
        if (s == SIGINT || s == SIGTERM || s == SIGHUP || s == SIGQUIT || s == SIGPIPE ||
            s == SIGTSTP || s == SIGALRM || s == SIGUSR1 || s == SIGUSR2)
            signal(s, SIG_IGN);
        else if (s == SIGCHLD)
            signal(s, SIG_DFL);
    prctl(PR_SET_NAME, "reprise-outside");
    setsid();
    let_go(fd);
    while ((n = receive_with(fd, &q, sizeof(q), fds)) >= 0) {
        struct reply a = {0};
        struct err err = {0};
        int made = -1;
        pid_t pid = 0;
        q.text[sizeof(q.text) - 1] = 0;
        switch (q.kind) {
        case ASK_CREATE: a.code = create(&q, &a, &made); break;
        case ASK_NAME: a.code = finish(q.number, true); break;
        case ASK_DROP: a.code = finish(q.number, false); break;
        case ASK_KILL: a.code = end_process(q.number, q.signal); break;
        case ASK_SPAWN:
            a.code = spawn(&q, fds, n, &pid, &err);
            a.number = pid;
            snprintf(a.text, sizeof(a.text), "%s", err.text);
            break;
        default: a.code = -EINVAL;
        }
        close_all(fds, n);
        if (send_with(fd, &a, sizeof(a), &made, made >= 0))
            break;
    }
    remove_all();
    _exit(0);
}

/* Its own copies: ours go on changing. */
static void take_files(void)
{
    for (unsigned i = 0; i < FILES; i++) {
        struct output_file *copy = outside.file[i] ? malloc(sizeof(*copy)) : NULL;
        if (copy) {
            *copy = *outside.file[i];
            copy->file = NULL; /* what is in its buffer is not ours to write */
        }
        outside.file[i] = copy;
    }
}

int outside_start(const struct outside_rules *rules, struct err *err)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
        return err_errno(err, "cannot make a socket");
    outside.rules = *rules;
    outside.us = getpid();
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        close(pair[0]); /* where let_go() has no descriptor left to look with, too */
        take_files();
        serve(pair[1]);
    }
    int code = pid < 0 ? err_errno(err, "cannot start a process") : 0;
    close(pair[1]);
    if (code) {
        close(pair[0]);
        return code;
    }
    outside.fd = pair[0];
    outside.pid = pid;
    atexit(outside_end);
    return 0;
}

void outside_end(void)
{
    if (!outside_runs() || getpid() != outside.us)
        return;
    close(outside.fd);
    outside.fd = 0;
    while (waitpid(outside.pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

/* ---- inside ---- */

static int ask(const struct request *q, const int *fds, unsigned n, struct reply *a, int *fd)
{
    int came[FDS_MAX], ncame = -1;
    if (!send_with(outside.fd, q, sizeof(*q), fds, n))
        ncame = receive_with(outside.fd, a, sizeof(*a), came);
    if (ncame < 0)
        return -EPIPE;
    a->text[sizeof(a->text) - 1] = 0;
    if (fd && ncame == 1 && !a->code)
        *fd = came[0];
    else
        close_all(came, ncame);
    return a->code;
}

void outside_remove(const char *path)
{
    unsigned n = outside.nremoved;
    struct stat st;
    if (outside_runs() || n == REMOVED || strlen(path) >= sizeof(outside.removed[n].path))
        return;
    strcpy(outside.removed[n].path, path);
    if (!lstat(path, &st)) {
        outside.removed[n].device = st.st_dev;
        outside.removed[n].inode = st.st_ino;
    }
    outside.nremoved++;
}

void outside_keep(struct output_file *o)
{
    o->outside = -1;
    for (unsigned i = 0; i < FILES && !outside_runs() && o->outside < 0; i++)
        if (!outside.file[i]) {
            outside.file[i] = o;
            o->outside = (int)i;
        }
    unsigned n = outside.nnamed;
    if (n < FILES && !outside_runs() && strlen(o->path) < sizeof(outside.named[n].path)) {
        strcpy(outside.named[n].path, o->path);
        outside.named[n].replace = o->replace;
        outside.nnamed++;
    }
}

void outside_forget(const struct output_file *o)
{
    if (o->outside >= 0 && !outside_runs())
        outside.file[o->outside] = NULL;
}

int outside_create(struct output_file *o, const char *path, bool replace, struct err *err)
{
    struct request q = {.kind = ASK_CREATE, .replace = replace};
    struct reply a = {0};
    int fd = -1;
    *o = OUTPUT_CLOSED;
    if (strlen(path) >= sizeof(q.text))
        return err_set(err, -ENAMETOOLONG, "the name %s is too long", path);
    strcpy(q.text, path);
    int code = ask(&q, NULL, 0, &a, &fd);
    if (code || fd < 0)
        return err_set(err, code ? code : -EPIPE, "%s", *a.text ? a.text : "cannot make a file");
    o->outside = a.number;
    o->path = strdup(path);
    o->file = o->path ? fdopen(fd, "w+") : NULL;
    if (o->file)
        return 0;
    close(fd);
    outside_drop(o);
    free(o->path);
    *o = OUTPUT_CLOSED;
    return err_set(err, -ENOMEM, "no memory for a file's name");
}

int outside_name(const struct output_file *o)
{
    struct request q = {.kind = ASK_NAME, .number = o->outside};
    struct reply a;
    return ask(&q, NULL, 0, &a, NULL);
}

void outside_drop(const struct output_file *o)
{
    struct request q = {.kind = ASK_DROP, .number = o->outside};
    struct reply a;
    ask(&q, NULL, 0, &a, NULL);
}

int outside_spawn(pid_t *pid, const struct companion_config *c, struct err *err)
{
    struct request q = {.kind = ASK_SPAWN, .voice = c->voice >= 0};
    struct reply a = {0};
    int fds[FDS_MAX];
    for (unsigned i = 0; i < c->nfds; i++)
        fds[i] = c->fds[i];
    fds[c->nfds] = c->voice;
    if (c->nfds != 1 || c->program)
        return err_set(err, -EPERM, "cannot start %s any more", c->what);
    if (c->args && c->args[0] && c->args[1])
        snprintf(q.text, sizeof(q.text), "%s", c->args[1]);
    int code = ask(&q, fds, c->nfds + q.voice, &a, NULL);
    *pid = a.number;
    return code ? err_set(err, code, "%s", *a.text ? a.text : "cannot start a process any more")
                : 0;
}

int outside_kill(pid_t pid, int sig)
{
    struct request q = {.kind = ASK_KILL, .number = pid, .signal = sig};
    struct reply a;
    if (!outside_runs())
        return kill(pid, sig) ? -errno : 0;
    return ask(&q, NULL, 0, &a, NULL);
}
