/* See port.h. */
#include "live/port.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file_io.h"
#include "host/endpoint.h"
#include "machine/machine.h"

#define READ_AHEAD (64u << 10) /* bytes from the host that wait for the guest */

struct port {
    struct feed feed; /* first */
    unsigned unit;
    char name[PORT_NAME_MAX + 1];
    struct listener listener; /* fd -1: files */
    int in, out;              /* descriptors; -1: none (any more). The same for a socket. */
    bool regular;             /* `in` is: it is there at once, and does not make time real */
    bool hung_up;             /* the socket's peer reads no more */
    bool connected;           /* somebody is there, or was and is not reported gone yet */
    bool told;                /* what the guest was told last */
    bool lost;                /* port_lost(), which it was not told yet */
    bool nobody;              /* "none" */
    bool given;               /* port_connect() */
    bool started;             /* the machine ran */
    char *made;               /* the file that we made; NULL: none */
    struct room room;         /* ... and what it may take */
    u64 written;
    u8 *ahead; /* READ_AHEAD */
    size_t ahead_at, ahead_len;
    u8 *waiting; /* output, PORT_WAITING_MAX */
    size_t waiting_at, waiting_len;
};

static struct port *self(struct feed *f)
{
    return (struct port *)f;
}

static bool is_socket(const struct port *p)
{
    return p->listener.fd >= 0 || p->given;
}

static void close_out(struct port *p)
{
    if (p->out >= 0 && p->out != p->in)
        close(p->out);
    p->out = -1;
    p->waiting_at = p->waiting_len = 0;
}

static void close_in(struct port *p)
{
    if (p->in >= 0 && p->in != p->out)
        close(p->in);
    p->in = -1;
}

static void complain(const struct port *p, const char *what)
{
    fprintf(stderr, "reprise: port %s: %s; what the guest sends to it from here on is lost\n",
            p->name, what);
}

/* ---- output ---- */

/* As much as the reader takes at once; false: it has gone, and so has the output. */
static bool write_some(struct port *p)
{
    while (p->waiting_len) {
        const u8 *from = p->waiting + p->waiting_at;
        if (p->made && room_ask(&p->room, p->out, p->written + p->waiting_len)) {
            char text[96];
            complain(p, room_text(&p->room, text, sizeof(text)));
            close_out(p);
            return false;
        }
        ssize_t n = is_socket(p) ? send(p->out, from, p->waiting_len, MSG_NOSIGNAL | MSG_DONTWAIT)
                                 : write(p->out, from, p->waiting_len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return true;
        if (n < 0) {
            if (!is_socket(p)) /* a program that has gone is nothing special */
                complain(p, strerror(errno));
            p->hung_up = true;
            close_out(p);
            return false;
        }
        p->written += (size_t)n;
        p->waiting_at += (size_t)n;
        p->waiting_len -= (size_t)n;
    }
    p->waiting_at = 0;
    return true;
}

/* Until all is written but `rest` bytes; false: the reader has gone, or took nothing for too long.
 */
static bool drain(struct port *p, size_t rest)
{
    while (p->waiting_len > rest) {
        struct pollfd fd = {.fd = p->out, .events = POLLOUT};
        int n = poll(&fd, 1, p->given ? -1 : PORT_STALL_MS); /* ours takes its time */
        if (n < 0 && errno != EINTR)
            return false;
        if (n == 0) {
            complain(p, "its reader does not read");
            if (is_socket(p))
                shutdown(p->out, SHUT_RDWR);
            p->hung_up = true;
            close_out(p);
            return false;
        }
        if (n > 0 && !write_some(p))
            return false;
    }
    return true;
}

void port_send(struct port *p, const void *data, size_t len)
{
    const u8 *from = data;
    while (len && p->out >= 0) {
        if (p->waiting_len == PORT_WAITING_MAX && !drain(p, PORT_WAITING_MAX / 2))
            return;
        if (p->waiting_at) {
            memmove(p->waiting, p->waiting + p->waiting_at, p->waiting_len);
            p->waiting_at = 0;
        }
        size_t n = MIN(len, PORT_WAITING_MAX - p->waiting_len);
        memcpy(p->waiting + p->waiting_len, from, n);
        p->waiting_len += n;
        from += n;
        len -= n;
        if (!write_some(p))
            return;
    }
}

/* ---- input ---- */

static size_t ahead_room(const struct port *p)
{
    return READ_AHEAD - p->ahead_len;
}

/* Nothing more comes from there. A peer that only has no more to say still listens. */
static void input_over(struct port *p)
{
    if (is_socket(p) && !p->hung_up) {
        p->in = -1; /* `out` keeps the descriptor */
        return;
    }
    close_in(p);
    if (is_socket(p))
        close_out(p);
}

static void read_ahead(struct port *p)
{
    memmove(p->ahead, p->ahead + p->ahead_at, p->ahead_len);
    p->ahead_at = 0;
    ssize_t n = read(p->in, p->ahead + p->ahead_len, ahead_room(p));
    if (n > 0)
        p->ahead_len += (size_t)n;
    else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        if (n < 0 && is_socket(p))
            p->hung_up = true;
        input_over(p);
    }
}

static unsigned feed_prepare(struct feed *f, struct pollfd *fds, unsigned cap, u64 *until)
{
    struct port *p = self(f);
    struct pollfd want[2];
    unsigned n = 0;
    bool reads = p->in >= 0 && ahead_room(p), writes = p->out >= 0 && p->waiting_len;
    p->started = true;
    if (p->listener.fd >= 0 && !p->connected)
        want[n++] = (struct pollfd){.fd = p->listener.fd, .events = POLLIN};
    /* A socket is watched for its end also when nothing is wanted of it; but an end that was seen
     * is seen all the time. */
    if (p->in >= 0 && p->in == p->out ? reads || !p->hung_up : reads)
        want[n++] = (struct pollfd){
            .fd = p->in,
            .events = (short)((reads ? POLLIN : 0) | (writes && p->in == p->out ? POLLOUT : 0))};
    if (p->out >= 0 && p->out != p->in && (writes || is_socket(p)))
        want[n++] = (struct pollfd){.fd = p->out, .events = writes ? POLLOUT : 0};
    for (unsigned i = 0; i < n && i < cap; i++)
        fds[i] = want[i];
    return n;
}

static void serve_socket(struct port *p, const struct pollfd *fd)
{
    if (fd->revents & (POLLHUP | POLLERR)) {
        p->hung_up = true;
        p->waiting_at = p->waiting_len = 0;
    }
    if (p->waiting_len && (fd->revents & POLLOUT) && !write_some(p))
        return;
    if (p->in >= 0 && (fd->revents & POLLIN) && ahead_room(p))
        read_ahead(p);
    else if (p->in < 0 && p->hung_up)
        close_out(p);
}

static void feed_serve(struct feed *f, const struct pollfd *fds, unsigned n)
{
    struct port *p = self(f);
    for (unsigned i = 0; i < n; i++) {
        if (!fds[i].revents)
            continue;
        if (p->listener.fd >= 0 && fds[i].fd == p->listener.fd) {
            p->in = p->out = listener_accept(&p->listener);
            p->connected = p->in >= 0;
            p->hung_up = false;
        } else if (is_socket(p)) {
            serve_socket(p, &fds[i]);
        } else if (fds[i].fd == p->in) {
            read_ahead(p);
        } else if (fds[i].fd == p->out) {
            write_some(p);
        }
    }
}

/* Is anybody left at the other end? */
static bool alive(const struct port *p)
{
    return p->in >= 0 || p->out >= 0;
}

static bool feed_peek(struct feed *f, struct machine *m, struct input *in)
{
    struct port *p = self(f);
    *in = (struct input){.kind = INPUT_PORT_OPEN, .unit = p->unit, .arg = !p->lost};
    if (p->lost)
        return true;
    if (p->connected && !p->told)
        return true;
    if (p->ahead_len) {
        *in = (struct input){.kind = INPUT_PORT, .unit = p->unit, .data = p->ahead + p->ahead_at};
        in->len = (u32)MIN(p->ahead_len, (size_t)machine_room(m, INPUT_PORT, p->unit));
        return in->len;
    }
    in->arg = 0;
    return p->told && !alive(p);
}

static void feed_taken(struct feed *f, const struct input *in)
{
    struct port *p = self(f);
    if (in->kind == INPUT_PORT) {
        p->ahead_at += in->len;
        p->ahead_len -= in->len;
        return;
    }
    p->told = in->arg;
    if (!p->lost)
        p->connected = in->arg;
    p->lost = false;
}

static bool feed_live(const struct feed *f)
{
    const struct port *p = (const struct port *)f;
    return p->listener.fd >= 0 || (p->in >= 0 && !p->regular);
}

static const struct feed_ops ops = {.prepare = feed_prepare,
                                    .serve = feed_serve,
                                    .peek = feed_peek,
                                    .taken = feed_taken,
                                    .live = feed_live};

/* ---- creation ---- */

static int open_in(struct port *p, const char *path, struct err *err)
{
    struct stat st;
    if (stat(path, &st))
        return err_errno(err, "--port %s: %s", p->name, path);
    if (S_ISDIR(st.st_mode) || S_ISBLK(st.st_mode) || S_ISSOCK(st.st_mode))
        return err_set(err, -EINVAL, "--port %s: %s is neither a file nor a FIFO", p->name, path);
    /* A FIFO is opened for both, so that it has no end while writers come and go. */
    p->in =
        open(path, (S_ISFIFO(st.st_mode) ? O_RDWR : O_RDONLY) | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    p->regular = S_ISREG(st.st_mode);
    return p->in < 0 ? err_errno(err, "--port %s: cannot open %s", p->name, path) : 0;
}

static int open_out(struct port *p, const char *path, struct err *err)
{
    struct stat st;
    if (stat(path, &st)) {
        if (errno != ENOENT)
            return err_errno(err, "--port %s: %s", p->name, path);
        p->out = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, FILE_PRIVATE);
        if (p->out >= 0 && !(p->made = strdup(path)))
            return err_set(err, -ENOMEM, "no memory for a port");
    } else if (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode)) {
        p->out = open(path, (S_ISFIFO(st.st_mode) ? O_RDWR : O_WRONLY) | O_NONBLOCK | O_NOCTTY |
                                O_CLOEXEC);
    } else {
        return err_set(err, -EEXIST, "--port %s: %s exists; choose another file for its output",
                       p->name, path);
    }
    return p->out < 0 ? err_errno(err, "--port %s: cannot open %s", p->name, path) : 0;
}

/* The text up to a comma that is not doubled, from *at on; malloc'ed. */
static char *next_part(const char **at)
{
    const char *from = *at;
    char *part = malloc(strlen(from) + 1), *to = part;
    if (!part)
        return NULL;
    for (; *from && (*from != ',' || from[1] == ','); from++) {
        from += *from == ',';
        *to++ = *from;
    }
    *to = 0;
    *at = *from ? from + 1 : from;
    return part;
}

static int open_socket(struct port *p, const char *path, struct err *err)
{
    struct endpoint e = {.kind = ENDPOINT_UNIX};
    if (!*path || strlen(path) >= sizeof(e.path))
        return err_set(err, -EINVAL, "--port %s: the path of a socket has 1 to %zu bytes", p->name,
                       sizeof(e.path) - 1);
    strcpy(e.path, path);
    int code = listener_open(&p->listener, &e, err);
    return code ? err_prefix(err, "--port %s", p->name) : 0;
}

/* What follows the prefix; NULL: the text begins otherwise. */
static const char *after(const char *text, const char *prefix)
{
    while (*prefix)
        if (*text++ != *prefix++)
            return NULL;
    return text;
}

static int open_ends(struct port *p, const char *at, struct err *err)
{
    int code = 0;
    bool first = true;
    if (!*at)
        return err_set(err, -EINVAL,
                       "--port %s: connected to what? unix:PATH, in:FILE, out:FILE, none", p->name);
    if (!strcmp(at, "none")) {
        p->nobody = true;
        return 0;
    }
    while (*at && !code) {
        char *part = next_part(&at);
        if (!part)
            return err_set(err, -ENOMEM, "no memory for a port");
        const char *path;
        if ((path = after(part, "unix:")) && first && !*at)
            code = open_socket(p, path, err);
        else if ((path = after(part, "in:")) && p->in < 0)
            code = open_in(p, path, err);
        else if ((path = after(part, "out:")) && p->out < 0)
            code = open_out(p, path, err);
        else
            code = err_set(
                err, -EINVAL,
                "--port %s: '%s' is neither unix:PATH nor in:FILE nor out:FILE nor none, or "
                "one too many",
                p->name, part);
        first = false;
        free(part);
    }
    return code;
}

/* The guest makes a file name of it. */
static bool good_name(const char *name, size_t len)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    return len && len <= PORT_NAME_MAX && *name != '.' && strspn(name, letters) >= len;
}

int port_create(struct port **out, const char *spec, unsigned unit, struct port_identity *id,
                struct err *err)
{
    const char *equals = strchr(spec, '=');
    if (!equals || !good_name(spec, (size_t)(equals - spec)))
        return err_set(err, -EINVAL,
                       "--port %s: NAME=... is missing; a name has at most %u letters, digits, "
                       "'.', '-' and '_'",
                       spec, PORT_NAME_MAX);
    struct port *p = calloc(1, sizeof(*p));
    if (!p)
        return err_set(err, -ENOMEM, "no memory for a port");
    p->feed.ops = &ops;
    p->unit = unit;
    p->in = p->out = -1;
    p->room.keep = ROOM_DEFAULT;
    p->listener = LISTENER_CLOSED;
    snprintf(p->name, sizeof(p->name), "%.*s", (int)(equals - spec), spec);
    p->ahead = malloc(READ_AHEAD);
    p->waiting = malloc(PORT_WAITING_MAX);
    int code = p->ahead && p->waiting ? open_ends(p, equals + 1, err)
                                      : err_set(err, -ENOMEM, "no memory for a port");
    if (code) {
        port_destroy(p);
        return code;
    }
    p->connected = !is_socket(p) && !p->nobody;
    memcpy(id->name, p->name, sizeof(id->name));
    snprintf(id->backend, sizeof(id->backend), "%s", equals + 1);
    *out = p;
    return 0;
}

struct feed *port_feed(struct port *p)
{
    return &p->feed;
}

void port_lost(struct port *p)
{
    p->lost = true;
}

void port_connect(struct port *p, int fd)
{
    CHECK(p->nobody, "port %s has somebody", p->name);
    p->in = p->out = fd;
    p->nobody = false;
    p->given = p->connected = true;
}

void port_keep_free(struct port *p, u64 bytes)
{
    p->room = (struct room){.keep = bytes};
}

void port_destroy(struct port *p)
{
    if (!p)
        return;
    drain(p, 0);
    close_in(p);
    close_out(p);
    if (p->made && !p->started)
        unlink(p->made);
    listener_close(&p->listener);
    free(p->made);
    free(p->ahead);
    free(p->waiting);
    free(p);
}
