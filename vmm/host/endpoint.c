/* See endpoint.h. */
#define _GNU_SOURCE
#include "host/endpoint.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/outside.h"

static int parse_unix(struct endpoint *e, const char *path, struct err *err)
{
    e->kind = ENDPOINT_UNIX;
    if (!*path)
        return err_set(err, -EINVAL, "unix: needs the path of a socket");
    if (strlen(path) >= sizeof(e->path))
        return err_set(err, -EINVAL,
                       "unix:%.60s...: too long; the path of a socket has at most %zu characters",
                       path, sizeof(e->path) - 1);
    strcpy(e->path, path);
    return 0;
}

static int parse_tcp(struct endpoint *e, const char *text, struct err *err);

int endpoint_parse(struct endpoint *e, const char *text, struct err *err)
{
    static const char open[] = ",open";
    *e = (struct endpoint){.kind = ENDPOINT_TCP};
    if (!text) {
        e->kind = ENDPOINT_PRIVATE;
        return 0;
    }
    if (!strcmp(text, "-")) {
        e->kind = ENDPOINT_STDIO;
        return 0;
    }
    if (!strncmp(text, "unix:", 5))
        return parse_unix(e, text + 5, err);
    size_t len = strlen(text), tail = strlen(open);
    char address[320];
    if (len >= sizeof(address))
        return err_set(err, -EINVAL, "the host's name is too long");
    strcpy(address, text);
    if (len >= tail && !strcmp(text + len - tail, open)) {
        e->open = true;
        address[len - tail] = 0;
    }
    return parse_tcp(e, address, err);
}

static int parse_tcp(struct endpoint *e, const char *text, struct err *err)
{
    const char *host = text, *colon = strrchr(text, ':'), *port = colon ? colon + 1 : text;
    size_t len = colon ? (size_t)(colon - text) : 0;
    if (len && *host == '[') {
        if (host[len - 1] != ']' || len < 3)
            return err_set(err, -EINVAL, "%s: an address in brackets is [ADDRESS]:PORT", text);
        host++;
        len -= 2;
    } else if (len && memchr(host, ':', len)) {
        return err_set(err, -EINVAL, "%s: write an IPv6 address as [ADDRESS]:PORT", text);
    }
    if (len >= sizeof(e->host))
        return err_set(err, -EINVAL, "the host's name is too long");
    char *end;
    unsigned long number = strtoul(port, &end, 10);
    if (*port < '0' || *port > '9' || *end || number > 65535)
        return err_set(err, -EINVAL,
                       "%s: no place to listen; give PORT, HOST:PORT, unix:PATH or - (PORT is 0 to "
                       "65535; ,open may follow it)",
                       text);
    snprintf(e->port, sizeof(e->port), "%lu", number);
    if (len)
        memcpy(e->host, host, len);
    else
        strcpy(e->host, "127.0.0.1");
    return 0;
}

static void tcp_address(struct listener *l)
{
    struct sockaddr_storage a;
    socklen_t size = sizeof(a);
    char host[256], port[16];
    if (getsockname(l->fd, (struct sockaddr *)&a, &size) ||
        getnameinfo((struct sockaddr *)&a, size, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV))
        return;
    snprintf(l->address, sizeof(l->address), strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
}

static int open_tcp(struct listener *l, const struct endpoint *e, struct err *err)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE | AI_NUMERICSERV},
                    *list;
    int code = getaddrinfo(e->host, e->port, &hints, &list);
    if (code)
        return err_set(err, -EINVAL, "%s: %s", e->host, gai_strerror(code));
    code = 0;
    for (struct addrinfo *a = list; a && l->fd < 0; a = a->ai_next) {
        int one = 1;
        int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
        if (fd < 0) {
            code = errno;
            continue;
        }
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
        if (bind(fd, a->ai_addr, a->ai_addrlen) || listen(fd, 4)) {
            code = errno;
            close(fd);
            continue;
        }
        l->fd = fd;
    }
    freeaddrinfo(list);
    if (l->fd < 0) {
        errno = code;
        return err_errno(err, "cannot listen on %s port %s", e->host, e->port);
    }
    tcp_address(l);
    peer_tables_open(&l->tables);
    return 0;
}

/* Removes a socket that nobody listens at. */
static int remove_stale(const struct sockaddr_un *name, struct err *err)
{
    const char *path = name->sun_path;
    struct stat st;
    if (lstat(path, &st))
        return errno == ENOENT ? 0 : err_errno(err, "%s", path);
    if (!S_ISSOCK(st.st_mode))
        return err_set(err, -EEXIST, "%s exists and is not a socket", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_errno(err, "cannot make a socket");
    bool refused =
        connect(fd, (const struct sockaddr *)name, sizeof(*name)) && errno == ECONNREFUSED;
    close(fd);
    if (!refused)
        return err_set(err, -EADDRINUSE, "%s is in use by another program", path);
    return unlink(path) && errno != ENOENT ? err_errno(err, "cannot remove %s", path) : 0;
}

static int open_unix(struct listener *l, const struct endpoint *e, struct err *err)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    struct stat st;
    strcpy(name.sun_path, e->path);
    int code = remove_stale(&name, err);
    if (code)
        return code;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_errno(err, "cannot make a socket");
    if (bind(fd, (struct sockaddr *)&name, sizeof(name))) {
        err_errno(err, "cannot make the socket %s", e->path);
        close(fd);
        return err->code;
    }
    /* Nobody connects before listen(): it is never open to others. */
    if (chmod(e->path, 0600) || listen(fd, 4) || lstat(e->path, &st)) {
        err_errno(err, "cannot listen at %s", e->path);
        unlink(e->path);
        close(fd);
        return err->code;
    }
    l->fd = fd;
    l->made_file = true;
    l->device = st.st_dev;
    l->inode = st.st_ino;
    strcpy(l->path, e->path);
    outside_remove(l->path);
    snprintf(l->address, sizeof(l->address), "%s", e->path);
    return 0;
}

/* A directory of this user's alone for a socket: where sessions have such, or where temporary files
 * are, if the path is short enough for a socket's name. */
static int make_private(char *path, size_t size, struct err *err)
{
    const char *places[] = {getenv("XDG_RUNTIME_DIR"), getenv("TMPDIR"), "/tmp"};
    for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
        if (!places[i] || *places[i] != '/' ||
            snprintf(path, size, "%s/reprise-XXXXXX", places[i]) >= (int)size)
            continue;
        if (mkdtemp(path))
            return 0;
        err_errno(err, "cannot make a directory in %s", places[i]);
    }
    return err->code;
}

static int open_private(struct listener *l, struct err *err)
{
    static const char name[] = "/gdb";
    struct endpoint e = {.kind = ENDPOINT_UNIX};
    int code = make_private(e.path, sizeof(e.path) - sizeof(name), err);
    if (code)
        return code;
    size_t len = strlen(e.path);
    strcpy(e.path + len, name);
    code = open_unix(l, &e, err);
    e.path[len] = 0;
    if (code) {
        rmdir(e.path);
    } else {
        l->made_dir = true;
        outside_remove(e.path);
    }
    return code;
}

int listener_open(struct listener *l, const struct endpoint *e, struct err *err)
{
    *l = LISTENER_CLOSED;
    switch (e->kind) {
    case ENDPOINT_STDIO: strcpy(l->address, "-"); return 0;
    case ENDPOINT_UNIX: return open_unix(l, e, err);
    case ENDPOINT_PRIVATE: return open_private(l, err);
    default: return open_tcp(l, e, err);
    }
}

bool listener_local(const struct listener *l)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } a = {.any.sa_family = AF_UNSPEC};
    socklen_t size = sizeof(a);
    if (getsockname(l->fd, &a.any, &size))
        return false;
    return a.any.sa_family == AF_UNIX ||
           (a.any.sa_family == AF_INET && ntohl(a.v4.sin_addr.s_addr) >> 24 == 127) ||
           (a.any.sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&a.v6.sin6_addr));
}

bool listener_peer_ours(const struct listener *l, int fd, char *who, size_t size)
{
    uid_t user;
    if (l->made_file)
        return true;
    if (!peer_user(&l->tables, fd, &user)) {
        snprintf(who, size, "a user who cannot be made out");
        return false;
    }
    snprintf(who, size, "the user with the number %u", (unsigned)user);
    return user == geteuid();
}

int listener_accept(const struct listener *l)
{
    int one = 1, idle = 30;
    int fd = l->fd < 0 ? -1 : accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0 && !l->made_file) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        /* A host that vanishes is noticed after some minutes. */
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle, sizeof(idle));
    }
    return fd;
}

void listener_close(struct listener *l)
{
    struct stat st;
    /* Locked in, we remove nothing: who stays outside does when we end. */
    if (l->made_file && !outside_runs() && !lstat(l->path, &st) && st.st_dev == l->device &&
        st.st_ino == l->inode)
        unlink(l->path);
    if (l->made_dir && !outside_runs()) {
        *strrchr(l->path, '/') = 0;
        rmdir(l->path);
    }
    if (l->fd >= 0)
        close(l->fd);
    peer_tables_close(&l->tables);
    *l = LISTENER_CLOSED;
}
