/*
 * What the agent in a guest and the host say to each other, over a port of the virtio console named
 * AGENT_PORT: frames, a struct agent_frame and `len` bytes, little-endian; frames.def has them all.
 * Each side takes the other for hostile: a frame of a type that it does not await, or of another
 * length, ends the talk. Everything that the host says is input of the machine and recorded.
 *
 * A program of its own machine (`reprise run`): the host begins with START; the agent, process 1,
 * answers STARTED or FAILED. Then INPUT, SIZE, SIGNAL and CLOSED go one way, OUTPUT and
 * ERROR_OUTPUT the other, until ENDED or FAILED, the last frame.
 *
 * If START names directories whose contents the host wants, then between the last output and ENDED
 * comes what was changed beneath them: WRITTEN, then for each that has changed TREE, its entries,
 * LEAVE. Entries of a directory lie between DIRECTORY and LEAVE; CONTENT follows its FILE, in
 * ascending order, without holes' bytes. The host answers none of it.
 *
 * A guest that runs its own system (`reprise-agent serve`): sessions, one after another. The host
 * says HELLO, and nothing more before WELCOME: both have a magic that is looked for among whatever
 * may come before, and the host's number, so that a session that was cut off anywhere does not
 * matter to the next. Both stay readable for ever: of another version the host says so, and the
 * agent goes on. Then, in the same version:
 *   nothing: HELLO has said it all;
 *   START as above, without what only a machine of its own has;
 *   PUT, entries, COPIED; the agent answers COPIED or FAILED;
 *   GET; the agent answers with entries and COPIED, or FAILED;
 *   POWER; the agent answers GOING or FAILED.
 * What one side sends and the other one has not said to have taken (ROOM, TAKEN) is AGENT_WINDOW
 * bytes of data at most, so that each always reads, and sees when the other one is gone.
 */
#ifndef REPRISE_AGENT_PROTOCOL_H
#define REPRISE_AGENT_PROTOCOL_H

#include <stdint.h>

#define AGENT_PORT      "reprise.agent"
#define AGENT_VERSION   3u
#define AGENT_DATA_MAX  (32u << 10) /* bytes of a frame, */
#define AGENT_START_MAX (4u << 20)  /* ... of START, */
#define AGENT_TEXT_MAX  1024u       /* ... of FAILED, */
#define AGENT_HELLO_MAX 256u        /* ... of HELLO and WELCOME, of any version */
#define AGENT_NAME_MAX  64u         /* bytes of the host's name */
#define AGENT_WRITES    16u         /* directories that are written out, */
#define AGENT_DEPTH     200u        /* ... levels below one, itself the first */
#define AGENT_WINDOW    (512u << 10)

struct agent_frame {
    uint32_t type; /* enum agent_type */
    uint32_t len;
};

enum agent_type {
    AGENT_NOTHING,
#define AGENT_FRAME(name, number, side, least, most, what) AGENT_##name = (number),
#include "guest-agent/agent/frames.def"
#undef AGENT_FRAME
};

#define AGENT_MAGIC_SIZE 16u
#define AGENT_MAGIC                                                                                \
    {                                                                                              \
        0x8f, 'r', 'e', 'p', 'r', 'i', 's', 'e', 0x00, 0xd3, 0x5a, 0x0d, 0x0a, 0xe1, 0x9c, 0       \
    }
#define AGENT_MAGIC_HOST  0x48 /* its last byte */
#define AGENT_MAGIC_GUEST 0x47

enum {
    AGENT_SET_TIME = 1,    /* the guest's clock is set to the host's */
    AGENT_SET_CONSOLE = 2, /* `size` is that of the terminal where the guest's console is */
};

/* The first three are so in any version. */
struct agent_hello {
    uint8_t magic[AGENT_MAGIC_SIZE];
    uint64_t number; /* of the session: random */
    uint32_t version;
    uint32_t flags;
    uint64_t seconds; /* the host's clock, since 1970 */
    uint32_t nanoseconds;
    struct agent_size {
        uint16_t rows, columns;
    } size;
};

struct agent_welcome {
    uint8_t magic[AGENT_MAGIC_SIZE];
    uint64_t number; /* HELLO's */
    uint32_t version;
    uint32_t refused; /* flags of HELLO that could not be done */
};

enum agent_power { AGENT_POWER_OFF = 1, AGENT_REBOOT, AGENT_POWER_OFF_NOW, AGENT_REBOOT_NOW };

enum { AGENT_RECURSE = 1 }; /* directories, too */

struct agent_copy {
    uint32_t flags;
    uint32_t zero;
};

struct agent_copied {
    uint64_t bytes;   /* of contents */
    uint32_t entries; /* files, directories, links */
    uint32_t others;  /* entries that cannot be copied, and were not */
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
    uint32_t window; /* so many bytes of output that the host has not taken, at most; 0: any */
    struct agent_network network;
};

/* May a frame of that type and length come from the other side? */
#define AGENT_HOST  1
#define AGENT_GUEST 2
#define AGENT_BOTH  3
static inline int agent_frame_fits(uint32_t type, uint32_t len, int side)
{
    static const struct {
        uint32_t type, least, most;
        int side;
    } rows[] = {
#define AGENT_FRAME(name, number, side, least, most, what) {number, least, most, AGENT_##side},
#include "guest-agent/agent/frames.def"
#undef AGENT_FRAME
    };
    if (type == AGENT_NOTHING)
        return !len;
    for (unsigned i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        if (rows[i].type == type)
            return (rows[i].side & side) && len >= rows[i].least && len <= rows[i].most;
    return 0;
}

#endif
