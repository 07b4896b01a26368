/*
 * The connection: accepting a peer, reading and sending packets, and the functions of gdb.h. A
 * peer that vanishes, floods or does not read costs the owner nothing but the peer.
 */
#define _GNU_SOURCE
#include "replay/gdb/server.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SEND_TIMEOUT_MS 10000 /* a peer that reads nothing for so long is gone */
#define TURNED_AWAY_MAX 10    /* so many are named */

/* ---- the peer ---- */

void server_attach(struct gdb_server *s, int in, int out)
{
    int type;
    socklen_t size = sizeof(type);
    s->in = in;
    s->out = out;
    s->socket = !getsockopt(out, SOL_SOCKET, SO_TYPE, &type, &size);
    s->spoke = s->vanished = s->no_ack = s->tells_break = s->moved = s->told_moved = s->physical =
        false;
    s->running = s->interrupted = s->waiting = s->looked = false;
    s->multi = s->tells_fork = s->tells_vfork = s->tells_exec = false;
    memset(s->passes, 0, sizeof(s->passes));
    s->thread = 0;
    free(s->description);
    s->description = NULL;
    memset(&s->reader, 0, sizeof(s->reader));
    s->input_at = s->input_len = s->sent_len = 0;
    if (s->last.reason != GDB_STOP_EXITED)
        s->last = s->stands;
}

static void drop(struct gdb_server *s)
{
    points_clear(s);
    files_close(s);
    if (s->in > STDERR_FILENO)
        close(s->in);
    if (s->out > STDERR_FILENO && s->out != s->in)
        close(s->out);
    s->in = s->out = -1;
    s->input_at = s->input_len = 0; /* what else it said is not looked at */
    s->spoke = s->vanished = s->running = s->interrupted = s->waiting = false;
}

/* Somebody who is no gdb of this user: says so, and how often lest a flood hides the rest. */
static void turn_away(struct gdb_server *s, const char *why)
{
    char text[640];
    s->turned_away++;
    if (!s->target.warn || s->turned_away > TURNED_AWAY_MAX)
        return;
    snprintf(text, sizeof(text), "a connection to gdb's port %s was closed: %s%s",
             gdb_server_address(s), why,
             s->turned_away == TURNED_AWAY_MAX ? "; further ones are not named" : "");
    s->target.warn(s->target.opaque, text);
}

/* Takes the one who waits to be accepted, if it is this user's. */
static int accept_ours(struct gdb_server *s)
{
    char who[80], why[160];
    int fd = listener_accept(&s->listener);
    if (fd < 0 || s->open || listener_peer_ours(&s->listener, fd, who, sizeof(who)))
        return fd;
    close(fd);
    snprintf(why, sizeof(why), "it came from %s (with ,open after the port anybody may come)", who);
    turn_away(s, why);
    return -1;
}

static void close_refused(struct gdb_server *s)
{
    if (s->refused >= 0)
        close(s->refused);
    s->refused = -1;
}

/* One at a time: what else connects is told so, in the form of an error that gdb prints. The last
 * one is kept open: with its request unread, closing would take the message back (TCP reset). */
static void refuse_others(struct gdb_server *s)
{
    static const char text[] = "E.another debugger is connected to this machine";
    u8 message[sizeof(text) + 4] = "+"; /* for the request it is about to send */
    size_t len = 1 + packet_write(text, sizeof(text) - 1, message + 1);
    int fd = accept_ours(s);
    if (fd < 0)
        return;
    close_refused(s);
    if (send(fd, message, len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 || shutdown(fd, SHUT_WR))
        close(fd);
    else
        s->refused = fd;
}

/* write() that raises no SIGPIPE. */
static ssize_t quiet_write(int fd, const void *data, size_t len)
{
    static const struct timespec now = {0};
    sigset_t pipe, pending, old;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &pipe, &old);
    ssize_t n = write(fd, data, len);
    int code = errno;
    if (n < 0 && code == EPIPE && !sigismember(&pending, SIGPIPE))
        while (sigtimedwait(&pipe, NULL, &now) < 0 && errno == EINTR)
            ;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    errno = code;
    return n;
}

static void send_bytes(struct gdb_server *s, const u8 *data, size_t len)
{
    while (len > 0 && s->out >= 0 && !s->vanished) {
        struct pollfd p = {.fd = s->out, .events = POLLOUT};
        int ready = poll(&p, 1, SEND_TIMEOUT_MS);
        if (ready < 0 && errno == EINTR)
            continue;
        /* A pipe that is ready takes PIPE_BUF bytes without blocking. */
        ssize_t n = ready <= 0  ? -1
                    : s->socket ? send(s->out, data, len, MSG_NOSIGNAL | MSG_DONTWAIT)
                                : quiet_write(s->out, data, MIN(len, 4096u));
        if (n < 0 && ready > 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n <= 0) {
            s->vanished = true;
            return;
        }
        data += n;
        len -= (size_t)n;
    }
}

/* Frames and sends s->reply. */
static void server_send(struct gdb_server *s)
{
    s->sent_len = packet_write(s->reply.data, s->reply.len, s->sent);
    send_bytes(s, s->sent, s->sent_len);
}

void server_output(struct gdb_server *s, const char *text, size_t len)
{
    while (len > 0) {
        size_t part = MIN(len, sizeof(s->reply.data) / 2 - 1);
        reply_clear(&s->reply);
        reply_text(&s->reply, "O");
        reply_hex(&s->reply, text, part);
        server_send(s);
        text += part;
        len -= part;
    }
}

/* ---- what the peer sends ---- */

static void packet_done(struct gdb_server *s, enum packet_event event)
{
    bool bad = event == PACKET_BAD;
    if (!s->no_ack)
        send_bytes(s, (const u8 *)(bad ? "-" : "+"), 1);
    if (event == PACKET_READY) {
        s->waiting = true;
    } else if (!bad || s->no_ack) {
        reply_clear(&s->reply);
        reply_error(&s->reply, bad ? "wrong checksum" : "packet too long or malformed");
        server_send(s);
    }
}

/* Parses what was read, up to the end of a packet. */
static void parse_input(struct gdb_server *s)
{
    while (!s->waiting && !s->vanished && s->input_at < s->input_len) {
        enum packet_event event = packet_read(&s->reader, s->input[s->input_at++]);
        s->spoke |= event != PACKET_GARBAGE;
        switch (event) {
        case PACKET_NONE:
        case PACKET_ACK: break;
        case PACKET_NAK: send_bytes(s, s->sent, s->sent_len); break;
        case PACKET_INTERRUPT: s->interrupted = s->running; break;
        case PACKET_GARBAGE:
            turn_away(s, "what it sent is not gdb's protocol");
            s->vanished = true;
            break;
        default: packet_done(s, event);
        }
    }
}

/* Reads once, if there is room; the descriptor is ready. */
static void read_input(struct gdb_server *s)
{
    if (s->input_at < s->input_len)
        return;
    ssize_t n = read(s->in, s->input, sizeof(s->input));
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    s->input_at = 0;
    s->input_len = n > 0 ? (size_t)n : 0;
    if (n <= 0)
        s->vanished = true;
}

/* ---- gdb.h ---- */

int server_create_bare(struct gdb_server **out, const struct gdb_target *target, struct err *err)
{
    struct gdb_server *s = calloc(1, sizeof(*s));
    if (!s)
        return err_set(err, -ENOMEM, "out of memory");
    s->target = *target;
    s->listener = LISTENER_CLOSED;
    s->in = s->out = s->refused = -1;
    for (size_t i = 0; i < ARRAY_SIZE(s->files); i++)
        s->files[i].handle = -1;
    s->last.reason = GDB_STOP_TRAP;
    s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->wake < 0) {
        free(s);
        return err_errno(err, "cannot make an event descriptor");
    }
    *out = s;
    return 0;
}

int gdb_server_create(struct gdb_server **out, const char *endpoint,
                      const struct gdb_target *target, struct err *err)
{
    struct gdb_server *s;
    struct endpoint e;
    int code = endpoint_parse(&e, endpoint, err);
    if (!code)
        code = server_create_bare(&s, target, err);
    if (code)
        return code;
    code = listener_open(&s->listener, &e, err);
    if (code) {
        gdb_server_destroy(s);
        return code;
    }
    if (e.kind == ENDPOINT_STDIO)
        server_attach(s, STDIN_FILENO, STDOUT_FILENO);
    s->open = e.open;
    if (e.kind == ENDPOINT_TCP && !e.open && !listener_local(&s->listener)) {
        err_set(err, -EACCES,
                "%s: whoever reaches that address could read and change the guest; put ,open after "
                "it if that is meant (or go through ssh to a port of this host)",
                s->listener.address);
        gdb_server_destroy(s);
        return err->code;
    }
    *out = s;
    return 0;
}

void gdb_server_destroy(struct gdb_server *s)
{
    if (!s)
        return;
    drop(s);
    close_refused(s);
    listener_close(&s->listener);
    close(s->wake);
    free(s->description);
    free(s);
}

const char *gdb_server_address(const struct gdb_server *s)
{
    return s->listener.address;
}

bool gdb_server_open_to_all(const struct gdb_server *s)
{
    return s->open;
}

bool gdb_server_connected(const struct gdb_server *s)
{
    return s->in >= 0;
}

unsigned gdb_server_fds(const struct gdb_server *s, int fds[GDB_SERVER_FDS])
{
    unsigned n = 0;
    if (s->listener.fd >= 0)
        fds[n++] = s->listener.fd;
    if (s->in >= 0)
        fds[n++] = s->in;
    return n;
}

void gdb_server_wake(struct gdb_server *s)
{
    int code = errno;
    u64 one = 1;
    ssize_t n = write(s->wake, &one, sizeof(one));
    (void)n;
    errno = code;
}

static bool woken(struct gdb_server *s)
{
    u64 count;
    return read(s->wake, &count, sizeof(count)) == sizeof(count);
}

bool gdb_server_poll(struct gdb_server *s)
{
    struct pollfd p[GDB_SERVER_FDS] = {{.fd = s->listener.fd, .events = POLLIN},
                                       {.fd = s->in, .events = POLLIN}};
    if (s->spoke && (s->vanished || s->interrupted || s->waiting))
        return true;
    if (poll(p, ARRAY_SIZE(p), 0) <= 0)
        return false;
    if (p[1].revents) {
        read_input(s);
        parse_input(s);
    }
    if (!s->spoke && s->vanished) /* it was no gdb: nobody was here */
        drop(s);
    if (p[0].revents && s->in < 0) {
        int fd = accept_ours(s);
        if (fd >= 0)
            server_attach(s, fd, fd);
    } else if (p[0].revents && !s->vanished) { /* else it is the next one */
        refuse_others(s);
    }
    return s->spoke && (s->vanished || s->interrupted || s->waiting);
}

void gdb_server_stopped(struct gdb_server *s, const struct gdb_stop *stop)
{
    if (!s->running)
        return;
    s->last = *stop;
    size_t len = strnlen(stop->text, sizeof(stop->text));
    if (len) {
        server_output(s, stop->text, len);
        if (stop->text[len - 1] != '\n')
            server_output(s, "\n", 1);
    }
    s->running = s->interrupted = false;
    serve_stop_reply(s, stop);
    server_send(s);
}

void gdb_server_stands(struct gdb_server *s, const struct gdb_stop *stop)
{
    s->last = s->stands = *stop;
}

void gdb_server_print(struct gdb_server *s, const char *text)
{
    if (s->running)
        server_output(s, text, strlen(text));
}

/* Serves the packet that waits. True: the owner must act. */
static bool serve_waiting(struct gdb_server *s, struct gdb_resume *out)
{
    bool act = serve_packet(s, out);
    s->waiting = false;
    if (act && gdb_action_runs(out->action)) {
        out->tells = (s->tells_fork ? GDB_TELLS_FORK : 0) | (s->tells_vfork ? GDB_TELLS_VFORK : 0) |
                     (s->tells_exec ? GDB_TELLS_EXEC : 0);
        memcpy(out->passes, s->passes, sizeof(out->passes));
        s->running = true;
        return true;
    }
    if (!act || s->reply.len)
        server_send(s);
    if (act)
        drop(s);
    return act;
}

/* Waits for something to happen. */
static int wait_input(struct gdb_server *s, struct err *err)
{
    struct pollfd p[] = {{.fd = s->wake, .events = POLLIN},
                         {.fd = s->listener.fd, .events = POLLIN},
                         {.fd = s->in, .events = POLLIN}};
    if (poll(p, ARRAY_SIZE(p), -1) < 0)
        return errno == EINTR ? 0 : err_errno(err, "cannot wait for gdb");
    /* The peer first: if it has gone, who comes is the next one. */
    if (s->in >= 0 && p[2].revents) {
        read_input(s);
    } else if (p[1].revents && s->in >= 0) {
        refuse_others(s);
    } else if (p[1].revents) {
        int fd = accept_ours(s);
        if (fd >= 0)
            server_attach(s, fd, fd);
    }
    return 0;
}

int gdb_server_wait(struct gdb_server *s, struct gdb_resume *out, struct err *err)
{
    if (s->running && !s->vanished) {
        struct gdb_stop stop = {.reason = GDB_STOP_TRAP};
        gdb_server_stopped(s, &stop);
    }
    for (;;) {
        *out = (struct gdb_resume){.action = GDB_GONE};
        if (woken(s)) {
            out->action = GDB_INTERRUPTED;
            return 0;
        }
        parse_input(s);
        if (s->waiting) {
            if (serve_waiting(s, out))
                return 0;
        } else if (s->vanished || (s->in < 0 && s->listener.fd < 0)) {
            bool nobody = !s->spoke && s->listener.fd >= 0; /* it was no gdb */
            drop(s);
            if (!nobody)
                return 0;
        } else {
            int code = wait_input(s, err);
            if (code < 0)
                return code;
        }
    }
}
