/*
 * What the machine's process and the viewer (reprise-display) say to each other: one declaration
 * for both ends. They are parts of one build; a viewer of another version is refused.
 *
 * The viewer is started with a socket (SOCK_SEQPACKET) at VIEWER_SOCKET, memory that both have
 * mapped at VIEWER_MEMORY, and for VNC a listening socket at VIEWER_LISTEN. Each message is one of
 * the structs below: start ->, <- hello, then updates -> and batches of events <-, until the
 * machine's end is closed.
 *
 * The memory holds the picture, rows of VIEWER_SIDE pixels, R G B and a byte of 0 each. The machine
 * writes it and then sends an update; from there on the picture is the viewer's until it says
 * VIEWER_SHOWN. So no picture is ever half of two.
 */
#ifndef REPRISE_VIEWER_PROTOCOL_H
#define REPRISE_VIEWER_PROTOCOL_H

#include "base/types.h"

#define VIEWER_MAGIC   0x57495652u /* "RVIW" */
#define VIEWER_VERSION 2u

#define VIEWER_SOCKET 3
#define VIEWER_MEMORY 4
#define VIEWER_LISTEN 5

#define VIEWER_SIDE         4096u /* most pixels each way */
#define VIEWER_TILE         64u   /* pixels each way of what is told to have changed */
#define VIEWER_TILES        (VIEWER_SIDE / VIEWER_TILE)
#define VIEWER_MEMORY_SIZE  ((u64)VIEWER_SIDE * VIEWER_SIDE * 4)
#define VIEWER_PASSWORD_MAX 8u /* of VNC (RFC 6143, 7.2.2) */

enum viewer_kind { VIEWER_VNC, VIEWER_SDL };

struct viewer_start {
    u32 magic, version;
    u32 kind;
    u32 ours_only;     /* VNC at a port of this host: other users' processes are turned away */
    u32 input;         /* 0: what is done with keyboard and pointer is not wanted */
    u32 width, height; /* of the picture as long as the screen is off */
    char password[VIEWER_PASSWORD_MAX + 1];
    char title[128];
};

struct viewer_hello {
    u32 magic, version;
    u32 failed;
    char text[256]; /* why */
};

struct viewer_update {
    u32 width, height;       /* 0: the screen is off */
    u64 tiles[VIEWER_TILES]; /* what changed: a bit a tile, rows of tiles */
};

enum viewer_event_kind {
    VIEWER_SHOWN = 1, /* the picture is the machine's again */
    VIEWER_WATCHERS,  /* value: how many look at it; somebody new waits for an update */
    VIEWER_KEY,       /* code: as in EV_KEY; value: 1 down, 0 up */
    VIEWER_MOVE,      /* code, value: the pointer's x and y, 0 to 32767 */
    VIEWER_WHEEL,     /* code: REL_WHEEL, REL_HWHEEL; value: steps */
};

struct viewer_event {
    u16 kind, code;
    i32 value;
};

#define VIEWER_BATCH 256u /* most events of a message */

#endif
