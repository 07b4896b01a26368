/*
 * What the machine's process and the file server of a share (reprise-fs) say to each other: one
 * declaration for both ends. They are parts of one build; a server of another version is refused.
 *
 * The server is started with a socket (SOCK_SEQPACKET) at FSD_SOCKET, memory for replies at
 * FSD_MEMORY, the directory at FSD_DIRECTORY: start ->, <- hello; then requests ->, <- replies in
 * any order, until the machine's end is closed. A reply's bytes are in the memory, in the slot that
 * its request named.
 */
#ifndef REPRISE_HOST_SHARE_PROTOCOL_H
#define REPRISE_HOST_SHARE_PROTOCOL_H

#include "base/types.h"

#define FSD_MAGIC   0x53465652u /* "RVFS" */
#define FSD_VERSION 1u

#define FSD_SOCKET    3
#define FSD_MEMORY    4
#define FSD_DIRECTORY 5

#define FSD_SLOTS       64u
#define FSD_SLOT_SIZE   ((1u << 20) + 4096u)
#define FSD_MEMORY_SIZE ((u64)FSD_SLOTS * FSD_SLOT_SIZE)
#define FSD_REQUEST_MAX (64u << 10)
#define FSD_NO_SLOT     UINT32_MAX /* there is no reply */

struct fsd_start {
    u32 magic, version;
    u32 epoch; /* upper half of node ids: those of a server before mean nothing to this one */
};

enum fsd_step {
    FSD_READY,
    FSD_OTHER_VERSION,
    FSD_NO_MEMORY,
    FSD_NO_DIRECTORY,
    FSD_NO_PROC, /* /proc/self/fd, by which files are opened */
    FSD_NO_SANDBOX,
};

struct fsd_hello {
    u32 magic, version;
    u32 step;  /* enum fsd_step: how far it came */
    i32 error; /* errno */
};

enum fsd_kind {
    FSD_REQUEST = 1,
    FSD_RESET, /* all nodes and open files are forgotten */
    FSD_HIDE,  /* struct fsd_hidden */
};

/* A directory that is shown as an empty one: the recording, which grows with what is read. */
struct fsd_hidden {
    u64 dev, ino;
};

/* Before a request's bytes (struct fuse_in_header and on), at most FSD_REQUEST_MAX of them. */
struct fsd_head {
    u32 kind;
    u32 slot;  /* below FSD_SLOTS, of which no other request is; or FSD_NO_SLOT */
    u64 total; /* bytes that the request has */
    u32 room;  /* for its reply, FSD_SLOT_SIZE at most */
    u32 zero;
};

struct fsd_message {
    struct fsd_head head;
    u8 body[FSD_REQUEST_MAX];
};

struct fsd_reply {
    u32 slot;
    u32 size; /* bytes of the reply in it: struct fuse_out_header and on */
};

#endif
