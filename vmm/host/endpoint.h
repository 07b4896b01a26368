/* Where a server listens: parsing of endpoints, TCP and Unix sockets, and who connects to them. */
#ifndef REPRISE_ENDPOINT_H
#define REPRISE_ENDPOINT_H

#include <sys/types.h>
#include <sys/un.h>

#include "base/err.h"
#include "host/peer.h"

enum endpoint_kind { ENDPOINT_STDIO, ENDPOINT_UNIX, ENDPOINT_TCP, ENDPOINT_PRIVATE };

struct endpoint {
    enum endpoint_kind kind;
    bool open;      /* TCP: whoever can connect may */
    char host[256]; /* TCP: without brackets; "127.0.0.1" when none is given */
    char port[8];
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
};

/* "PORT", ":PORT", "HOST:PORT", "[ADDRESS]:PORT", each perhaps with ",open"; "unix:PATH", "-".
 * NULL: a Unix socket in a directory that is made for it, which only this user can look into.
 * -EINVAL with a text. */
int endpoint_parse(struct endpoint *e, const char *text, struct err *err);

struct listener {
    int fd; /* -1: stdio, or closed */
    char address[320];
    struct peer_tables tables; /* TCP */
    bool made_file;            /* the socket at `path`, with that identity, is ours to remove */
    bool made_dir;             /* ... and the directory it is in */
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
    dev_t device;
    ino_t inode;
};

#define LISTENER_CLOSED ((struct listener){.fd = -1})

int listener_open(struct listener *l, const struct endpoint *e, struct err *err);
/* Nothing but this host can connect there. */
bool listener_local(const struct listener *l);
/* A connected descriptor, not blocking; -1 when none waits. */
int listener_accept(const struct listener *l);
/* Whether the other end of `fd`, accepted here, is a process of this user. A Unix socket's mode has
 * seen to that. False: *who says in words who it is. */
bool listener_peer_ours(const struct listener *l, int fd, char *who, size_t size);
void listener_close(struct listener *l);

#endif
