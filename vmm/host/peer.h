/*
 * Whose process is at the other end of a TCP connection on this host. The kernel lists each TCP
 * socket with its user in /proc/net/tcp and tcp6; both are opened when listening starts, so that a
 * process which locks itself in afterwards can still look.
 */
#ifndef REPRISE_PEER_H
#define REPRISE_PEER_H

#include <stdio.h>
#include <sys/types.h>

#include "base/err.h"

struct peer_tables {
    FILE *v4, *v6; /* NULL: not there, or closed */
};

void peer_tables_open(struct peer_tables *t);
void peer_tables_close(struct peer_tables *t);

/* The user of the socket that `fd` is connected to; false: it is not on this host, has been closed,
 * or the tables are not there. */
bool peer_user(const struct peer_tables *t, int fd, uid_t *user);

#endif
