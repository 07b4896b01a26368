/* Where a server listens: parsing of endpoints, TCP and Unix sockets. */
#ifndef REPRISE_ENDPOINT_H
#define REPRISE_ENDPOINT_H

#include <sys/types.h>
#include <sys/un.h>

#include "base/err.h"

enum endpoint_kind { ENDPOINT_STDIO, ENDPOINT_UNIX, ENDPOINT_TCP };

struct endpoint {
    enum endpoint_kind kind;
    char host[256]; /* TCP: without brackets; "127.0.0.1" when none is given */
    char port[8];
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
};

/* "PORT", ":PORT", "HOST:PORT", "[ADDRESS]:PORT", "unix:PATH", "-". -EINVAL with a text. */
int endpoint_parse(struct endpoint *e, const char *text, struct err *err);

struct listener {
    int fd; /* -1: stdio, or closed */
    char address[320];
    bool made_file; /* the socket at `path`, with that identity, is ours to remove */
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
    dev_t device;
    ino_t inode;
};

#define LISTENER_CLOSED ((struct listener){.fd = -1})

int listener_open(struct listener *l, const struct endpoint *e, struct err *err);
/* A connected descriptor, not blocking; -1 when none waits. */
int listener_accept(const struct listener *l);
void listener_close(struct listener *l);

#endif
