/*
 * The viewer: shows a machine's screen to people and tells what they do, in a process of its own,
 * so that neither the libraries that do it nor those at the other end of a network can stop or
 * harm the machine. It knows nothing but a picture and events (protocol.h).
 *
 * Two kinds of it, vnc.c and sdl.c, each a struct viewer_kind_ops; main.c speaks to the machine.
 */
#ifndef REPRISE_VIEWER_H
#define REPRISE_VIEWER_H

#include <stddef.h>

#include "viewer/protocol.h"

struct viewer {
    struct viewer_start start;
    const u8 *memory;  /* the machine's picture */
    u8 *picture;       /* ours: width * height pixels of 4 bytes */
    u32 width, height; /* never 0 */
    bool off;          /* it is black */
    struct viewer_event batch[VIEWER_BATCH];
    unsigned events;
    void *own;
};

struct viewer_kind_ops {
    /* false: *text says why there is none. */
    bool (*open)(struct viewer *v, char *text, size_t size);
    /* v->picture is new memory, of v->width by v->height pixels. */
    void (*resized)(struct viewer *v);
    /* These pixels of v->picture changed. */
    void (*changed)(struct viewer *v, u32 x, u32 y, u32 width, u32 height);
    /* All of an update has been said. */
    void (*updated)(struct viewer *v);
    /* Waits until the machine says something (VIEWER_SOCKET), or at most about a second, and serves
     * the people meanwhile. May return for any reason. false: nobody can look any more. */
    bool (*serve)(struct viewer *v);
    void (*close)(struct viewer *v);
};

extern const struct viewer_kind_ops viewer_vnc, viewer_sdl;

/* Said to the machine after serve(), as soon as it listens. */
void viewer_say(struct viewer *v, enum viewer_event_kind kind, u16 code, i32 value);
/* The pointer at a pixel of the picture. */
void viewer_say_move(struct viewer *v, i32 x, i32 y);

#endif
