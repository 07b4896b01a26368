/*
 * What the agent in a guest and who runs a program in it say to each other, over a port of the
 * virtio console named AGENT_PORT: frames, a struct agent_frame and `len` bytes, little-endian.
 * Each side takes the other for hostile: a frame of a type that it does not await, or that is too
 * long, ends the talk.
 *
 * The host begins with START; the agent answers STARTED or FAILED. Then INPUT, SIZE, SIGNAL
 * and CLOSED go one way, OUTPUT and ERROR_OUTPUT the other, until ENDED or FAILED, the last frame.
 * Everything that the host says is input of the machine and recorded.
 *
 * If START names directories whose contents the host wants, then between the last output and ENDED
 * comes what was changed beneath them: WRITTEN, then for each that has changed TREE, its entries,
 * LEAVE. Entries of a directory lie between DIRECTORY and LEAVE; CONTENT follows its FILE, in
 * ascending order, without holes' bytes. The host answers none of it.
 */
#ifndef REPRISE_AGENT_PROTOCOL_H
#define REPRISE_AGENT_PROTOCOL_H

#include <stdint.h>

#define AGENT_PORT      "reprise.agent"
#define AGENT_VERSION   2u
#define AGENT_DATA_MAX  (32u << 10) /* bytes of a frame, */
#define AGENT_START_MAX (4u << 20)  /* ... of START */
#define AGENT_NAME_MAX  64u         /* bytes of the host's name */
#define AGENT_WRITES    16u         /* directories that are written out, */
#define AGENT_DEPTH     200u        /* ... levels below one, itself the first */

struct agent_frame {
    uint32_t type; /* enum agent_type */
    uint32_t len;
};

enum agent_type {
    /* The host's. */
    AGENT_START = 1, /* struct agent_start, groups, texts */
    AGENT_INPUT,     /* bytes of standard input; none: it ends there */
    AGENT_SIZE,      /* struct agent_size; only where there is a terminal */
    AGENT_SIGNAL,    /* uint32_t: a signal for the program's process group */
    AGENT_CLOSED,    /* uint32_t: nobody reads what it writes to descriptor 1 or 2 any more */
    /* The agent's. */
    AGENT_STARTED = 64, /* nothing: the program is there */
    AGENT_OUTPUT,       /* bytes of standard output; the terminal's, if that is one */
    AGENT_ERROR_OUTPUT, /* ... of standard error; the terminal's, if only that is one */
    AGENT_ENDED,        /* uint32_t: as waitpid() says it */
    AGENT_FAILED,       /* struct agent_failed, text without NUL: why there is no program */
    AGENT_WRITTEN,      /* struct agent_written: how much will follow */
    AGENT_TREE,         /* struct agent_entry: one of START's directories, size says which */
    AGENT_DIRECTORY,    /* struct agent_entry, name */
    AGENT_LEAVE,        /* nothing: the end of a directory or tree */
    AGENT_FILE,         /* struct agent_entry, name: a regular file */
    AGENT_CONTENT,      /* uint64_t offset, bytes: of that file */
    AGENT_LINK,         /* struct agent_entry, name, NUL, what the symbolic link says */
    AGENT_GONE,         /* struct agent_entry of zeros, name: there is none any more */
    AGENT_OTHER, /* struct agent_entry, name: a FIFO, socket, device, or beyond AGENT_DEPTH */
};

struct agent_failed {
    uint32_t status; /* as a shell has it: 127 not found, 126 cannot be executed, 125 all else */
};

struct agent_written {
    uint64_t bytes;   /* of CONTENT without their offsets, at most */
    uint64_t entries; /* frames that have a struct agent_entry */
};

enum { AGENT_REPLACED = 1 }; /* what the directory had on the host is gone */

struct agent_entry {
    uint32_t mode;        /* with its type; a TREE of 0: the directory itself is gone */
    uint32_t flags;       /* of a directory: AGENT_REPLACED */
    uint32_t nanoseconds; /* when it was changed, since 1970 */
    uint32_t name_len;    /* bytes of the name; a TREE has none */
    int64_t seconds;
    uint64_t size; /* of a FILE its length, of a TREE its number in START */
};

/* IPv4, in the host's byte order. */
struct agent_network {
    uint32_t address; /* the guest's; 0: it has none, and the others are 0 */
    uint32_t mask, gateway, name_server;
};

struct agent_size {
    uint16_t rows, columns;
};

/* Followed by `groups` uint32_t, then by texts that each end in NUL: the host's name, the working
 * directory, the program's file as execve() takes it or as it is looked for in PATH, `arguments`
 * (the first is the program's name), `variables` (NAME=VALUE) and `writes` (paths from / on,
 * without links, "." and ".."). */
struct agent_start {
    uint32_t version; /* AGENT_VERSION */
    uint32_t uid, gid, groups;
    uint32_t umask;
    uint32_t terminals; /* bit N: descriptor N is one */
    struct agent_size size;
    uint32_t arguments, variables;
    uint32_t nanoseconds; /* the host's clock, since 1970: the guest's is set to it */
    uint64_t seconds;
    uint32_t writes; /* directories whose changes are sent at the end */
    uint32_t zero;
    struct agent_network network;
};

#endif
