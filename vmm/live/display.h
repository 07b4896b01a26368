/*
 * A display: what a machine's screen shows, for people while it runs, or as files. A feed of the
 * live source when recording (feed.h): what people do with keyboard and pointer are inputs for the
 * guest's virtio-input devices. With a replay it only looks (cmd/replay_screen.h).
 *
 * Kinds: VNC and a window are shown by the viewer, another process (display_viewer.c); pictures at
 * virtual times are written here (display_png.c).
 */
#ifndef REPRISE_LIVE_DISPLAY_H
#define REPRISE_LIVE_DISPLAY_H

#include "base/parts.h"
#include "base/room.h"
#include "host/endpoint.h"
#include "live/feed.h"
#include "live/screen.h"

#define DISPLAYS 4u

enum display_kind { DISPLAY_VNC, DISPLAY_SDL, DISPLAY_PNG };

/* What --display was given. */
struct display_spec {
    enum display_kind kind;
    struct endpoint endpoint; /* VNC */
    bool open;                /* VNC: other hosts may come in without a password */
    char password_file[4096]; /* VNC; "": none */
    vns_t every;              /* PNG */
    char dir[4096];           /* PNG; "": screens in the recording */
};

extern const struct parts vnc_parts;

/* vnc=ADDR and vnc_parts, sdl, png-every=SECONDS[,DIR]. -EINVAL with a text. */
int display_parse(struct display_spec *s, const char *text, struct err *err);

struct display_config {
    struct screen_source source;
    const char *recording; /* its directory */
    u32 width, height;     /* of the GPU's screen */
    bool input;            /* people's input is wanted */
    bool later;            /* `recording` is not there yet */
    u64 keep_free; /* room.keep (base/room.h): of the file system, while pictures are written */
};

struct display;

/* What kinds of display have in common; each begins with one. */
struct display {
    struct feed feed; /* first */
    struct screen_source source;
    const struct display_ops *ops;
};

struct display_ops {
    const char *(*notice)(const struct display *d);
    int (*finish)(struct display *d, struct err *err);
    void (*destroy)(struct display *d);
};

/* Opens sockets, starts the viewer; what is wrong with them is said before the machine starts. */
int display_create(struct display **out, const struct display_spec *s,
                   const struct display_config *c, struct err *err);
struct feed *display_feed(struct display *d);
/* Lines that the user should read when the machine starts; "" for none. */
const char *display_notice(const struct display *d);
/* At the end: shows the last picture. <0 with a text when something was not shown that was to be
 * kept. */
int display_finish(struct display *d, struct err *err);
void display_destroy(struct display *d); /* NULL is safe */

/* The kinds. */
int display_viewer_create(struct display **out, const struct display_spec *s,
                          const struct display_config *c, struct err *err);
int display_png_create(struct display **out, const struct display_spec *s,
                       const struct display_config *c, struct err *err);

#endif
