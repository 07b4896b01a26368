/*
 * Copies of files and directories over the port (protocol.h: PUT, GET), both ends of it: who reads
 * them, and who makes them. The agent and `reprise cp` have the same. Who makes them takes the
 * other side for hostile: names are of one component, links are made as they are and never
 * followed, and a file comes under its name when it is whole. Files are whose process this is, with
 * the permissions and times that they had; nothing is made set-user-ID.
 */
#ifndef REPRISE_AGENT_COPY_H
#define REPRISE_AGENT_COPY_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "guest-agent/agent/protocol.h"

#define COPY_WHY 700u /* bytes of a text with its NUL */

/* ---- reading ---- */

struct copy_source {
    /* One frame on its way; false: no more is wanted. */
    bool (*send)(void *opaque, uint32_t type, const void *data, size_t len);
    void *opaque;
    struct agent_copied done;
    char why[COPY_WHY]; /* "": send() said no */
};

/* Sends what is at `path` and, of a directory, all beneath it (AGENT_RECURSE; else it is refused),
 * then COPIED. A symbolic link that `path` is is followed. False: `why`. */
bool copy_send(struct copy_source *c, const char *path, uint32_t flags);

/* ---- making ---- */

struct copy_sink {
    unsigned depth; /* directories that were entered */
    int directory[AGENT_DEPTH + 1];
    struct agent_entry entered[AGENT_DEPTH + 1];
    int file; /* -1: none is being made */
    bool named;
    struct agent_entry entry; /* of that file */
    char name[NAME_MAX + 1], temporary[48];
    unsigned count;         /* of temporary names */
    char top[NAME_MAX + 1]; /* what the first entry is called here */
    uint64_t at;            /* no content may come before */
    bool begun, over;
    struct agent_copied done;
    char why[COPY_WHY];
};

/* `path` is where it goes: into it under the name `source` if it is a directory, else that becomes
 * its name. False: `why`. */
bool copy_open(struct copy_sink *c, const char *path, const char *source);
/* An entry's frame; c->over after COPIED. False: `why`, and no more can be taken. */
bool copy_take(struct copy_sink *c, uint32_t type, const void *data, size_t len);
/* Removes what is not whole. Safe after a copy_open() that failed. */
void copy_close(struct copy_sink *c);

#endif
