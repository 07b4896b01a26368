/* See peer.h. */
#include "host/peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#define ESTABLISHED 1 /* sockets in other states may be listed as root's */
#define TRIES       3 /* an entry may slip out of sight while others come and go */

/* An end of a connection as the tables write it: words of the host's byte order in hex. */
struct end {
    char address[33];
    unsigned port;
};

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_storage room;
};

void peer_tables_open(struct peer_tables *t)
{
    t->v4 = fopen("/proc/net/tcp", "re");
    t->v6 = fopen("/proc/net/tcp6", "re");
}

void peer_tables_close(struct peer_tables *t)
{
    if (t->v4)
        fclose(t->v4);
    if (t->v6)
        fclose(t->v6);
    *t = (struct peer_tables){NULL, NULL};
}

/* `mapped`: an IPv4 address as a socket of IPv6 has it. */
static bool write_end(struct end *e, const union address *a, bool mapped)
{
    u32 words[4] = {0, 0, htonl(0xffff), 0};
    if (a->any.sa_family == AF_INET6) {
        memcpy(words, &a->v6.sin6_addr, sizeof(words));
        e->port = ntohs(a->v6.sin6_port);
        mapped = true;
    } else if (a->any.sa_family == AF_INET) {
        words[3] = a->v4.sin_addr.s_addr;
        e->port = ntohs(a->v4.sin_port);
    } else {
        return false;
    }
    if (mapped)
        snprintf(e->address, sizeof(e->address), "%08X%08X%08X%08X", words[0], words[1], words[2],
                 words[3]);
    else
        snprintf(e->address, sizeof(e->address), "%08X", words[3]);
    return true;
}

/* The user of the socket with these ends, `local` being its own. */
static bool look_up(FILE *table, const struct end *local, const struct end *remote, uid_t *user)
{
    char line[512];
    if (!table)
        return false;
    rewind(table);
    while (fgets(line, sizeof(line), table)) {
        struct end l, r;
        unsigned state, uid;
        if (sscanf(line, " %*d: %32[0-9A-F]:%x %32[0-9A-F]:%x %x %*x:%*x %*x:%*x %*x %u", l.address,
                   &l.port, r.address, &r.port, &state, &uid) != 6)
            continue;
        if (state == ESTABLISHED && l.port == local->port && r.port == remote->port &&
            !strcmp(l.address, local->address) && !strcmp(r.address, remote->address)) {
            *user = uid;
            return true;
        }
    }
    return false;
}

bool peer_user(const struct peer_tables *t, int fd, uid_t *user)
{
    union address ours, theirs;
    socklen_t size = sizeof(ours), size2 = sizeof(theirs);
    if (getsockname(fd, &ours.any, &size) || getpeername(fd, &theirs.any, &size2))
        return false;
    for (unsigned i = 0; i < 2 * TRIES; i++) {
        bool mapped = i % 2;
        struct end local, remote;
        if (!write_end(&local, &theirs, mapped) || !write_end(&remote, &ours, mapped))
            return false;
        bool v6 = mapped || ours.any.sa_family == AF_INET6;
        if (look_up(v6 ? t->v6 : t->v4, &local, &remote, user))
            return true;
    }
    return false;
}
