/*
 * The host's end of a named port of the virtio console while a machine is recorded: a feed of the
 * bytes that arrive, and where the guest's bytes go. A replay has none.
 *
 *     NAME=unix:PATH               a Unix socket, where one program at a time connects
 *     NAME=none                    nobody is there; a recording that begins in this one may have
 * somebody NAME=in:FILE                 the guest reads FILE (also a FIFO or device) NAME=out:FILE
 * FILE, which must not exist or be a FIFO or device, gets its output NAME=in:FILE,out:FILE both; a
 * comma in a name is doubled
 *
 * The guest sees a port closed while no program is connected, and when all of an `in:` without
 * `out:` has been read. A reader that is slower than the guest holds the machine up (virtual time
 * does not pass meanwhile); one that takes nothing for PORT_STALL_MS while PORT_WAITING_MAX bytes
 * wait is disconnected, and that is said.
 */
#ifndef REPRISE_LIVE_PORT_H
#define REPRISE_LIVE_PORT_H

#include "base/err.h"
#include "base/room.h"
#include "live/feed.h"

#define PORT_NAME_MAX    31u        /* bytes */
#define PORT_WAITING_MAX (1u << 20) /* bytes, in either direction */
#define PORT_STALL_MS    2000

struct port;

/* What of it the guest sees, and what it was. */
struct port_identity {
    char name[PORT_NAME_MAX + 1];
    char backend[64]; /* for people */
};

/* `spec` is what --port was given, `unit` its number, from 1. Opens sockets and files, so that what
 * is wrong with them is said before the machine starts. */
int port_create(struct port **out, const char *spec, unsigned unit, struct port_identity *id,
                struct err *err);
struct feed *port_feed(struct port *p);
/* The guest had somebody else at the other end: it is told that they are gone, first of all. */
void port_lost(struct port *p);
/* What it is connected to: this socket, which is the port's from now on; of one that has nobody. */
void port_connect(struct port *p, int fd);
/* So much of the file system stays free of its output, if that is a file. Before the machine runs;
 * otherwise it is ROOM_DEFAULT. */
void port_keep_free(struct port *p, u64 bytes);
/* Bytes from the guest. */
void port_send(struct port *p, const void *data, size_t len);
/* Writes what still waits, within PORT_STALL_MS; a file that got nothing because the machine never
 * ran is removed again. NULL is safe. */
void port_destroy(struct port *p);

#endif
