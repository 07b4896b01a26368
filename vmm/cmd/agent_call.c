#define _GNU_SOURCE
/* See agent_call.h. */
#include "cmd/agent_call.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/file_io.h"
#include "base/sha256.h"
#include "cmd/cmd.h"
#include "guest-agent/agent/sync.h"
#include "host/clock.h"

#define SUFFIX     ".agent"
#define NAME_SHOWN 24u         /* bytes of a recording's name in its socket's */
#define AGAIN_NS   1000000000u /* HELLO is said again after so long */
#define TELL_NS    2000000000u /* ... and the user told that there is no answer */
#define ANYBODY_NS 100000000   /* between two attempts to connect */

/* ---- where it is ---- */

/* This user's own directory for sockets. */
static int place(char out[AGENT_PATH_MAX], bool make, struct err *err)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    struct stat st;
    int n = runtime && *runtime == '/'
                ? snprintf(out, AGENT_PATH_MAX, "%s/reprise", runtime)
                : snprintf(out, AGENT_PATH_MAX, "/tmp/reprise-%u", (unsigned)geteuid());
    if (n >= (int)(AGENT_PATH_MAX - NAME_SHOWN - 20))
        return err_set(err, -ENAMETOOLONG, "XDG_RUNTIME_DIR is too long for sockets' names: %s",
                       runtime);
    if (make && mkdir(out, DIRECTORY_PRIVATE) && errno != EEXIST)
        return err_errno(err, "cannot make %s", out);
    if (lstat(out, &st))
        return err_errno(err, "%s", out);
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || st.st_mode & 077)
        return err_set(err, -EPERM,
                       "%s is not a directory of yours alone: others could have made "
                       "what is in it",
                       out);
    return 0;
}

/* The same for one recording by whatever path, before it is there and after. */
static char *full_path(const char *recording)
{
    char *there = realpath(recording, NULL), *copy = there ? NULL : strdup(recording);
    if (!copy)
        return there;
    size_t n = strlen(copy);
    while (n > 1 && copy[n - 1] == '/')
        copy[--n] = 0;
    char *slash = strrchr(copy, '/'), *all = NULL;
    const char *name = slash ? slash + 1 : copy;
    char *parent = slash == copy ? strdup("/") : NULL;
    if (!parent) {
        char last = slash ? *slash : 0;
        if (slash)
            *slash = 0;
        parent = realpath(slash ? copy : ".", NULL);
        if (slash)
            *slash = last;
    }
    if (parent && asprintf(&all, "%s/%s", strcmp(parent, "/") ? parent : "", name) < 0)
        all = NULL;
    free(parent);
    free(copy);
    return all;
}

static int socket_name(const char *recording, bool make, char out[AGENT_PATH_MAX], struct err *err)
{
    char text[SHA256_TEXT], shown[NAME_SHOWN + 1];
    int code = place(out, make, err);
    char *path = code ? NULL : full_path(recording);
    if (code)
        return code;
    if (!path)
        return err_errno(err, "%s", recording);
    struct sha256 hash = sha256_bytes(path, strlen(path));
    sha256_text(&hash, text);
    snprintf(shown, sizeof(shown), "%s", strrchr(path, '/') + 1);
    for (char *c = shown; *c; c++)
        if (*c < '-' || *c > 'z')
            *c = '_';
    size_t n = strlen(out);
    snprintf(out + n, AGENT_PATH_MAX - n, "/%s-%.8s" SUFFIX, shown, text);
    free(path);
    return 0;
}

int agent_socket_name(const char *recording, char out[AGENT_PATH_MAX], struct err *err)
{
    return socket_name(recording, true, out, err);
}

static bool ends_so(const char *name)
{
    size_t n = strlen(name);
    return n > strlen(SUFFIX) && !strcmp(name + n - strlen(SUFFIX), SUFFIX);
}

static int try_connect(const char *path, struct err *err)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(name.sun_path))
        return err_set(err, -ENAMETOOLONG, "%s: the path of a socket has at most %zu characters",
                       path, sizeof(name.sun_path) - 1);
    strcpy(name.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_errno(err, "cannot make a socket");
    if (!connect(fd, (const struct sockaddr *)&name, sizeof(name)))
        return fd;
    int code = err_errno(err, "%s", path);
    close(fd);
    return code;
}

/* Does anybody? Not asked by connecting: the guest would see that. */
static bool listens(const char *path)
{
    FILE *f = fopen("/proc/net/unix", "re");
    char line[512];
    bool found = false;
    while (f && !found && fgets(line, sizeof(line), f)) {
        unsigned flags;
        int at = 0;
        line[strcspn(line, "\n")] = 0;
        found = sscanf(line, "%*s %*x %*x %x %*x %*x %*u %n", &flags, &at) == 1 && at &&
                flags & 0x10000 && !strcmp(line + at, path);
    }
    if (f)
        fclose(f);
    return found;
}

/* The only socket at which a recorder listens. */
static int find_only(char out[AGENT_PATH_MAX], struct err *err)
{
    char dir[AGENT_PATH_MAX];
    struct err ignored;
    DIR *d = place(dir, false, &ignored) ? NULL : opendir(dir);
    unsigned found = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[AGENT_PATH_MAX + NAME_MAX + 2];
        snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
        if (!ends_so(e->d_name) || strlen(path) >= AGENT_PATH_MAX)
            continue;
        if (!listens(path))
            continue;
        found++;
        strcpy(out, path);
    }
    if (d)
        closedir(d);
    if (found == 1)
        return 0;
    return found ? err_set(err, -EINVAL,
                           "%u recordings with --agent are being made: which one? Say "
                           "its DIR",
                           found)
                 : err_set(err, -ENOENT,
                           "no recording with an agent is being made: `reprise record "
                           "--agent` makes one");
}

static int find_socket(const char *where, char out[AGENT_PATH_MAX], struct err *err)
{
    struct stat st;
    if (!where)
        return find_only(out, err);
    if (!stat(where, &st) && S_ISSOCK(st.st_mode)) {
        if (strlen(where) >= AGENT_PATH_MAX)
            return err_set(err, -ENAMETOOLONG, "%s: too long for the path of a socket", where);
        strcpy(out, where);
        return 0;
    }
    int code = socket_name(where, false, out, err);
    if (code == -ENOENT || (!code && access(out, F_OK)))
        return err_set(err, -ENOENT, "%s is not being recorded with --agent now", where);
    return code;
}

/* ---- the beginning ---- */

struct opening {
    const struct agent_call *how;
    int fd;
    u64 began, deadline, said;
    bool told, flushed;
    struct sync sync;
    struct {
        struct agent_frame head;
        struct agent_hello body;
    } hello;
    struct agent_welcome welcome;
};

static void make_hello(struct opening *o)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    o->hello.head = (struct agent_frame){AGENT_HELLO, sizeof(o->hello.body)};
    struct agent_hello *h = &o->hello.body;
    sync_magic(AGENT_HELLO, h->magic);
    if (!h->number && getrandom(&h->number, sizeof(h->number), 0) != sizeof(h->number))
        h->number = host_ns();
    h->version = AGENT_VERSION;
    h->flags = o->how->flags;
    h->seconds = (u64)now.tv_sec;
    h->nanoseconds = (u32)now.tv_nsec;
    h->size = o->how->size;
}

/* Into an empty socket all of it goes at once; what does not is said again. */
static bool put(struct opening *o, const void *data, size_t len)
{
    return send(o->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)len;
}

/* A session that was cut off in a frame takes a HELLO for what it lacks: so much of nothing makes
 * it whole, whatever it was. */
static void say_again(struct opening *o)
{
    static const u8 nothing[AGENT_DATA_MAX + sizeof(struct agent_frame)];
    if (!o->flushed)
        put(o, nothing, sizeof(nothing));
    o->flushed = true;
    put(o, &o->hello, sizeof(o->hello));
    put(o, &o->hello, sizeof(o->hello));
}

static int no_answer(const struct opening *o, struct err *err)
{
    return err_set(err, -ETIMEDOUT,
                   "no agent answers in the guest within %g s: none runs there (yet), or another "
                   "command has it (--timeout SECONDS waits longer; docs/agent.md has how a guest "
                   "gets one)",
                   o->how->timeout > 0 ? o->how->timeout : AGENT_TIMEOUT);
}

static int listen_for(struct opening *o, struct err *err)
{
    u8 bytes[4096];
    ssize_t n = recv(o->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        return err_set(err, -ECONNRESET,
                       "the recording has ended, or its recorder has dropped this command");
    size_t len = n > 0 ? (size_t)n : 0;
    for (size_t at = 0; at < len;) {
        at += sync_take(&o->sync, bytes + at, len - at);
        if (!o->sync.found)
            continue;
        sync_found(&o->sync, &o->welcome, sizeof(o->welcome));
        if (o->welcome.number == o->hello.body.number)
            return at == len ? 1 : err_set(err, -EPROTO, "the agent says more than it was asked");
        sync_init(&o->sync, AGENT_WELCOME); /* the answer to somebody before */
    }
    return 0;
}

static int open_session(struct opening *o, struct err *err)
{
    for (int code;;) {
        u64 now = host_ns();
        if (now >= o->deadline)
            return no_answer(o, err);
        if (now - o->said >= AGAIN_NS) {
            if (o->said)
                say_again(o);
            else
                put(o, &o->hello, sizeof(o->hello));
            o->said = now;
        }
        if (!o->told && !o->how->quiet && now - o->began >= TELL_NS) {
            fprintf(stderr, "reprise: no agent answers in the guest yet; waiting\n");
            o->told = true;
        }
        struct pollfd p = {.fd = o->fd, .events = POLLIN};
        u64 until = MIN(o->deadline, o->said + AGAIN_NS);
        if (poll(&p, 1, (int)((until - now) / 1000000) + 1) < 0 && errno != EINTR)
            return err_errno(err, "poll");
        if (p.revents && (code = listen_for(o, err)))
            return code < 0 ? code : 0;
    }
}

static int check_welcome(const struct opening *o, struct err *err)
{
    u32 theirs = o->welcome.version, refused = o->welcome.refused;
    if (theirs != AGENT_VERSION)
        return err_set(err, -EPROTO,
                       "the agent in the guest speaks version %u of the protocol, this reprise "
                       "version %u: %s",
                       theirs, AGENT_VERSION,
                       theirs < AGENT_VERSION ? "put the agent of this version into the guest"
                                              : "use the reprise that the agent is from");
    if (refused & AGENT_SET_TIME)
        return err_set(err, -EPERM, "the agent could not set the guest's clock");
    if (refused & AGENT_SET_CONSOLE)
        return err_set(err, -ENOTTY, "the agent could not set the size of the guest's console");
    return 0;
}

/* While a backlog is full nobody is let in. */
static int connect_by(const char *path, u64 deadline, struct err *err)
{
    for (;;) {
        int fd = try_connect(path, err);
        if (fd >= 0)
            return fd;
        if (fd == -ECONNREFUSED)
            return err_set(err, fd, "%s: its recorder has ended", path);
        if (fd != -EAGAIN || host_ns() >= deadline)
            return fd == -EAGAIN
                       ? err_set(err, fd, "%s: too many commands wait for the agent", path)
                       : fd;
        const struct timespec tick = {.tv_nsec = ANYBODY_NS};
        nanosleep(&tick, NULL);
    }
}

int agent_call(const struct agent_call *how, struct err *err)
{
    char path[AGENT_PATH_MAX];
    struct opening o = {.how = how, .began = host_ns()};
    double seconds = how->timeout > 0 ? how->timeout : AGENT_TIMEOUT;
    o.deadline = o.began + (u64)(seconds * 1e9);
    int code = find_socket(how->where, path, err);
    if (code)
        return code;
    o.fd = connect_by(path, o.deadline, err);
    if (o.fd < 0)
        return o.fd;
    sync_init(&o.sync, AGENT_WELCOME);
    make_hello(&o);
    code = open_session(&o, err);
    if (!code)
        code = check_welcome(&o, err);
    if (code) {
        close(o.fd);
        return code;
    }
    return o.fd;
}

void agent_option_timeout(struct argp_state *state, const char *arg, struct agent_call *call)
{
    call->timeout = option_seconds(state, arg, "--timeout");
    if (call->timeout <= 0)
        argp_error(state, "--timeout: must be more than 0");
}

int agent_send(int fd, u32 type, const void *data, size_t len, struct err *err)
{
    u8 bytes[sizeof(struct agent_frame) + AGENT_DATA_MAX];
    const struct agent_frame head = {type, (u32)len};
    memcpy(bytes, &head, sizeof(head));
    if (len)
        memcpy(bytes + sizeof(head), data, len);
    len += sizeof(head);
    for (size_t at = 0; at < len;) {
        ssize_t n = send(fd, bytes + at, len - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        if (n > 0)
            at += (size_t)n;
        else if (errno == EAGAIN)
            poll(&p, 1, -1);
        else if (errno != EINTR)
            return err_set(err, -ECONNRESET, "the recording has ended");
    }
    return 0;
}
