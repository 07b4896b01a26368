/*
 * See nbd.h. libnbd's asynchronous calls throughout, because only they can be given up on. The
 * protocol: NetworkBlockDevice/nbd doc/proto.md; how a server is handed its socket:
 * sd_listen_fds(3).
 */
#define _GNU_SOURCE
#include "host/nbd.h"

#include <errno.h>
#include <fcntl.h>
#include <libnbd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/child.h"
#include "host/clock.h"
#include "host/confine.h"
#include "host/outside.h"

#define LARGEST    (1u << 20)  /* bytes of one read */
#define MANNERS    2000000000u /* ns for a server that is asked to end */
#define MILLISEC   1000000u
#define SAFE_FD    10 /* above those that a child's are moved to */
#define STDERR_MAX 600u
#define WORDS_MAX  (1u << 20) /* bytes that the child may print */

struct pending {
    struct nbd_source *source;
    struct pending *next;
    int *error;
    unsigned parts; /* reads of at most LARGEST that are not answered yet */
    int failed;     /* errno of one of them */
};

struct nbd_source {
    struct nbd_handle *nbd;
    u64 size, answered; /* answered: counts */
    u32 largest;
    unsigned timeout;
    struct pending *pending;
    struct err failed; /* of the connection; code 0: it stands */
    pid_t child;       /* qemu-nbd; 0: none, or it was waited for */
    int status;        /* of the child when it has ended */
    int said;          /* memfd with what the child printed; -1: no child */
};

bool nbd_source_uri(const char *text)
{
    return !strncmp(text, "nbd:", 4) || !strncmp(text, "nbds:", 5) || !strncmp(text, "nbd+", 4) ||
           !strncmp(text, "nbds+", 5);
}

/* ---- the child ---- */

/* Has it ended? Waits so long. */
static bool child_ended(struct nbd_source *s, u64 ns)
{
    u64 until = host_ns() + ns;
    while (s->child) {
        pid_t r = waitpid(s->child, &s->status, WNOHANG);
        if (r == s->child || (r < 0 && errno != EINTR)) {
            s->child = 0;
            return true;
        }
        if (host_ns() >= until)
            return false;
        usleep(1000);
    }
    return true;
}

static void end_child(struct nbd_source *s)
{
    if (!s->child)
        return;
    outside_kill(s->child, SIGTERM);
    if (!child_ended(s, MANNERS)) {
        outside_kill(s->child, SIGKILL);
        child_ended(s, MANNERS);
    }
}

/* The last lines that it printed, as one; "": nothing. */
static void child_words(const struct nbd_source *s, char out[STDERR_MAX])
{
    out[0] = 0;
    if (s->said < 0)
        return;
    off_t size = lseek(s->said, 0, SEEK_END);
    off_t from = size > (off_t)STDERR_MAX - 1 ? size - ((off_t)STDERR_MAX - 1) : 0;
    ssize_t n = pread(s->said, out, STDERR_MAX - 1, from);
    n = n < 0 ? 0 : n;
    while (n && (u8)out[n - 1] <= ' ')
        n--;
    out[n] = 0;
    for (ssize_t i = 0; i < n; i++)
        if ((u8)out[i] < ' ' || out[i] == 0x7f)
            out[i] = out[i] == '\n' ? ';' : '?';
}

/* Why there is no connection: what the child says, or how it ended, or `otherwise`. */
static int lost(struct nbd_source *s, const char *otherwise)
{
    char words[STDERR_MAX];
    if (s->failed.code)
        return s->failed.code;
    if (s->said < 0)
        return err_set(&s->failed, -EIO, "%s", otherwise);
    bool ended = child_ended(s, MANNERS / 4);
    child_words(s, words);
    if (ended && WIFSIGNALED(s->status))
        return err_set(&s->failed, -EIO, "qemu-nbd was ended by signal %d (%s)%s%s",
                       WTERMSIG(s->status), strsignal(WTERMSIG(s->status)), words[0] ? ": " : "",
                       words);
    if (words[0])
        return err_set(&s->failed, -EIO, "%s", words);
    if (ended)
        return err_set(&s->failed, -EIO, "qemu-nbd ended with status %d", WEXITSTATUS(s->status));
    return err_set(&s->failed, -EIO, "%s", otherwise);
}

/* ---- the connection ---- */

/* Nothing is under way any more: what was has failed. */
static void give_up(struct nbd_source *s)
{
    nbd_close(s->nbd); /* no buffer is written from here on */
    s->nbd = NULL;
    while (s->pending) {
        struct pending *p = s->pending;
        s->pending = p->next;
        *p->error = EIO;
        free(p);
    }
}

static bool broken(const struct nbd_source *s)
{
    return nbd_aio_is_dead(s->nbd) == 1 || nbd_aio_is_closed(s->nbd) == 1;
}

/* Lets libnbd work until something moved. False: the server is given up. */
static bool turn(struct nbd_source *s, u64 *since)
{
    u64 waited = (host_ns() - *since) / MILLISEC, before = s->answered;
    u64 limit = s->timeout * 1000ull;
    if (waited >= limit) {
        err_set(&s->failed, -ETIMEDOUT, "%s did not answer within %u s",
                s->said < 0 ? "the NBD server" : "qemu-nbd", s->timeout);
        return false;
    }
    int r = nbd_poll(s->nbd, (int)MIN(limit - waited, 1000ull));
    if (broken(s) || (r < 0 && nbd_get_errno() != EINTR)) {
        const char *why = nbd_get_error();
        lost(s, r < 0 && why ? why : "the NBD server closed the connection");
        return false;
    }
    if (s->answered != before)
        *since = host_ns();
    return true;
}

static int fail(struct nbd_source **out, struct nbd_source *s, struct err *err)
{
    *err = s->failed;
    nbd_source_close(s);
    *out = NULL;
    return err->code;
}

static struct nbd_source *create(unsigned timeout, struct err *err)
{
    struct nbd_source *s = calloc(1, sizeof(*s));
    if (!s || !(s->nbd = nbd_create())) {
        err_set(err, -ENOMEM, "no memory for an NBD connection");
        free(s);
        return NULL;
    }
    s->said = -1;
    s->timeout = timeout;
    nbd_set_pread_initialize(s->nbd, false);
    /* With them, qemu-nbd 7.2 ends the connection where it cannot read. */
    nbd_set_request_structured_replies(s->nbd, false);
    return s;
}

/* After the connection was begun. */
static int negotiate(struct nbd_source *s)
{
    u64 since = host_ns();
    while (nbd_aio_is_connecting(s->nbd) == 1 || nbd_aio_is_negotiating(s->nbd) == 1)
        if (!turn(s, &since))
            return s->failed.code;
    if (broken(s) || nbd_aio_is_ready(s->nbd) != 1)
        return lost(s, "the NBD server closed the connection");
    int64_t size = nbd_get_size(s->nbd);
    int64_t largest = nbd_get_block_size(s->nbd, LIBNBD_SIZE_MAXIMUM);
    int64_t least = nbd_get_block_size(s->nbd, LIBNBD_SIZE_MINIMUM);
    if (size < 0)
        return err_set(&s->failed, -EIO, "%s", nbd_get_error());
    if (least > (int64_t)PAGE_SIZE)
        return err_set(&s->failed, -ENOTSUP,
                       "the NBD server sends no less than %lld bytes at once, more than %u",
                       (long long)least, PAGE_SIZE);
    s->size = (u64)size;
    s->largest = largest > 0 && largest < LARGEST ? (u32)largest & ~(PAGE_SIZE - 1) : LARGEST;
    if (!s->largest)
        return err_set(&s->failed, -EIO, "the NBD server allows reads of %lld bytes only",
                       (long long)largest);
    return 0;
}

int nbd_source_connect(struct nbd_source **out, const char *uri, unsigned timeout, struct err *err)
{
    struct nbd_source *s = create(timeout, err);
    const char *at = strstr(uri, "?socket=");
    if (!s)
        return err->code;
    if (strncmp(uri, "nbd://", 6) && strncmp(uri, "nbd+unix://", 11))
        err_set(&s->failed, -EINVAL,
                "the URI is neither nbd://HOST[:PORT]/EXPORT nor nbd+unix:///EXPORT?socket=PATH");
    else if (at && at[8] != '/' && strncasecmp(at + 8, "%2f", 3))
        err_set(&s->failed, -EINVAL, "the socket's path in the URI is not absolute");
    else if (nbd_aio_connect_uri(s->nbd, uri) < 0)
        err_set(&s->failed, -(nbd_get_errno() ? nbd_get_errno() : EIO), "%s", nbd_get_error());
    else
        negotiate(s);
    if (s->failed.code)
        return fail(out, s, err);
    *out = s;
    return 0;
}

/* ---- a server of our own ---- */

/*
 * A connection to a listening socket that nobody else can reach: its name is gone before anybody is
 * there to accept, so that no file is left behind however we end.
 */
static int private_socket(int *listening, int *connected, struct err *err)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    const char *tmp = getenv("TMPDIR");
    char dir[sizeof(a.sun_path) - 5]; /* "/nbd" after it */
    if (!tmp || tmp[0] != '/' || strlen(tmp) + sizeof("/reprise-XXXXXX") > sizeof(dir))
        tmp = "/tmp";
    snprintf(dir, sizeof(dir), "%s/reprise-XXXXXX", tmp);
    *listening = *connected = -1;
    if (!mkdtemp(dir))
        return err_errno(err, "cannot make a directory in %s", tmp);
    snprintf(a.sun_path, sizeof(a.sun_path), "%s/nbd", dir);
    int l = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int c = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int code = 0;
    if (l < 0 || c < 0 || bind(l, (struct sockaddr *)&a, sizeof(a)) || listen(l, 1) ||
        connect(c, (struct sockaddr *)&a, sizeof(a)))
        code = err_errno(err, "cannot make a socket in %s", dir);
    unlink(a.sun_path);
    rmdir(dir);
    if (code) {
        if (l >= 0)
            close(l);
        if (c >= 0)
            close(c);
        return code;
    }
    *listening = l;
    *connected = c;
    return 0;
}

static int moved_up(int fd)
{
    int high = fcntl(fd, F_DUPFD_CLOEXEC, SAFE_FD);
    close(fd);
    return high;
}

struct launch {
    int listening, said, report; /* report: errno of an exec that failed; below 0: not confined */
    char *pid_text;              /* where the number goes */
    char *program, **argv, **env;
    struct confine confine;
    pid_t parent;
};

static void tell(const struct launch *l, int why)
{
    if (write(l->report, &why, sizeof(why)) < 0)
        _exit(126);
    _exit(127);
}

/* In the child, which may only call what is safe in a signal handler. */
static void __attribute__((noreturn)) become_server(const struct launch *l)
{
    char digits[16];
    int null = open("/dev/null", O_RDWR), n = 0;
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    const struct rlimit no_core = {0, 0}, words = {WORDS_MAX, WORDS_MAX};
    setsid(); /* the terminal's signals are not for it */
    setrlimit(RLIMIT_CORE, &no_core);
    setrlimit(RLIMIT_FSIZE, &words);
    int unconfined = confine_enter(&l->confine);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != l->parent)
        _exit(0);
    if (unconfined)
        tell(l, unconfined);
    for (pid_t p = getpid(); p; p /= 10)
        digits[n++] = (char)('0' + p % 10);
    for (int i = 0; i < n; i++)
        l->pid_text[i] = digits[n - 1 - i];
    l->pid_text[n] = 0;
    if (null >= 0 && dup2(null, 0) == 0 && dup2(null, 1) == 1 && dup2(l->said, 2) == 2 &&
        dup2(l->listening, 3) == 3 && !close_range(4, ~0u, CLOSE_RANGE_CLOEXEC))
        execve(l->program, l->argv, l->env);
    tell(l, errno);
    _exit(127);
}

/* `l` has the program and what it may open. */
static int start_server(struct nbd_source *s, struct launch *l, int listening, const char *path,
                        const char *format, struct err *err)
{
    static const char start[] = "LISTEN_PID=";
    char listen_pid[sizeof(start) + 16], option[40];
    char *argv[] = {(char *)(uintptr_t) "qemu-nbd",
                    (char *)(uintptr_t) "--read-only",
                    (char *)(uintptr_t) "--shared=1",
                    option,
                    (char *)(uintptr_t) "--",
                    (char *)(uintptr_t)path,
                    NULL};
    char *env[] = {(char *)(uintptr_t)CHILD_PATH, (char *)(uintptr_t) "LC_ALL=C",
                   (char *)(uintptr_t) "LISTEN_FDS=1", listen_pid, NULL};
    int report[2], why = 0;
    snprintf(option, sizeof(option), "--format=%s", format);
    strcpy(listen_pid, start);
    s->said = memfd_create("qemu-nbd", MFD_CLOEXEC);
    if (s->said < 0 || pipe2(report, O_CLOEXEC)) {
        close(listening);
        return err_errno(err, "cannot start qemu-nbd");
    }
    l->listening = moved_up(listening);
    l->report = moved_up(report[1]);
    l->pid_text = listen_pid + sizeof(start) - 1;
    l->argv = argv;
    l->env = env;
    l->parent = getpid();
    l->said = s->said = moved_up(s->said);
    s->child = fork();
    if (s->child == 0)
        become_server(l);
    int code = s->child < 0 ? err_errno(err, "cannot start qemu-nbd") : 0;
    s->child = MAX(s->child, 0);
    close(l->listening);
    close(l->report);
    ssize_t n;
    while ((n = read(report[0], &why, sizeof(why))) < 0 && errno == EINTR)
        continue;
    close(report[0]);
    if (code || n != sizeof(why))
        return code;
    errno = abs(why);
    return err_errno(err, why < 0 ? "cannot confine qemu-nbd" : "cannot start qemu-nbd");
}

/* What is to be started, and what it may open. */
static int prepare(struct launch *l, const char *format, const struct landlock_path *files,
                   size_t nfiles, struct err *err)
{
    l->program = child_find("qemu-nbd", err);
    if (!l->program)
        return err_set(err, -ENOENT,
                       "qemu-nbd, which reads %s images, is not installed (Debian package "
                       "qemu-utils)",
                       format);
    return confine_prepare(&l->confine, l->program, files, nfiles, err);
}

int nbd_source_start(struct nbd_source **out, const char *path, const char *format,
                     const struct landlock_path *files, size_t nfiles, unsigned timeout,
                     struct err *err)
{
    int listening, connected;
    struct launch l = {.program = NULL};
    struct nbd_source *s = create(timeout, err);
    if (!s)
        return err->code;
    if (private_socket(&listening, &connected, &s->failed))
        return fail(out, s, err);
    if (prepare(&l, format, files, nfiles, &s->failed))
        close(listening);
    else
        start_server(s, &l, listening, path, format, &s->failed);
    confine_free(&l.confine);
    free(l.program);
    if (s->failed.code) {
        close(connected);
        return fail(out, s, err);
    }
    if (nbd_aio_connect_socket(s->nbd, connected) < 0) /* takes the descriptor */
        lost(s, nbd_get_error());
    else
        negotiate(s);
    if (s->failed.code)
        return fail(out, s, err);
    *out = s;
    return 0;
}

void nbd_source_close(struct nbd_source *s)
{
    if (!s)
        return;
    if (s->nbd)
        give_up(s);
    end_child(s);
    if (s->said >= 0)
        close(s->said);
    free(s);
}

u64 nbd_source_size(const struct nbd_source *s)
{
    return s->size;
}

/* ---- reading ---- */

static int answered(void *opaque, int *error)
{
    struct pending *p = opaque;
    struct nbd_source *s = p->source;
    s->answered++;
    p->failed = p->failed ? p->failed : *error;
    if (--p->parts)
        return 1;
    *p->error = p->failed;
    for (struct pending **q = &s->pending; *q; q = &(*q)->next)
        if (*q == p) {
            *q = p->next;
            break;
        }
    free(p);
    return 1; /* libnbd forgets the command */
}

void nbd_source_read(struct nbd_source *s, u64 offset, void *buf, u32 len, int *error)
{
    struct pending *p = s->failed.code ? NULL : calloc(1, sizeof(*p));
    *error = EIO;
    if (!p)
        return;
    *error = NBD_SOURCE_PENDING;
    *p = (struct pending){.source = s, .next = s->pending, .error = error, .parts = 1};
    s->pending = p;
    for (u32 done = 0; done < len; done += s->largest) {
        p->parts++;
        if (nbd_aio_pread(s->nbd, (u8 *)buf + done, MIN(len - done, s->largest), offset + done,
                          (nbd_completion_callback){.callback = answered, .user_data = p}, 0) < 0) {
            p->failed = nbd_get_errno() ? nbd_get_errno() : EIO;
            p->parts--; /* never begun */
            if (broken(s))
                lost(s, "the NBD server closed the connection");
            break;
        }
    }
    int none = 0;
    answered(p, &none); /* the one that it began with */
}

void nbd_source_wait(struct nbd_source *s)
{
    u64 since = host_ns();
    while (s->pending)
        if (!turn(s, &since))
            give_up(s);
}

int nbd_source_explain(struct nbd_source *s, int error, struct err *err)
{
    if (s->failed.code) {
        *err = s->failed;
        return err->code;
    }
    return err_set(err, -error, "%s: %s", s->said < 0 ? "the NBD server says" : "qemu-nbd says",
                   strerror(error));
}
