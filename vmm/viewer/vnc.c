/*
 * VNC (RFC 6143), by libvncserver. It reads and writes whole messages and waits for the rest of one
 * for up to CLIENT_PATIENCE_MS; so a client that stops in the middle holds up the others for that
 * long, and is then dropped. The machine is another process and does not notice.
 */
#define _GNU_SOURCE /* accept4 */
#include <errno.h>
#include <fcntl.h>
#include <linux/input-event-codes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <rfb/rfb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/clock.h"
#include "host/keymap.h"
#include "host/peer.h"
#include "viewer/viewer.h"

#define CLIENTS            16u
#define CLIENT_PATIENCE_MS 3000
/* A new client waits so long for the picture of now. */
#define FRESH_NS 1000000000ull

struct vnc {
    rfbScreenInfoPtr screen;
    struct peer_tables peers; /* if only this user may come */
    char *passwords[2];
    int clients;
    bool hold;      /* some wait for the picture of now ... */
    u64 hold_until; /* ... until then */
    bool dirty;     /* there is something to send */
};

struct client {
    u8 down[32]; /* keys that it holds */
    int buttons; /* mask of what it holds */
};

static struct viewer *viewer_of(rfbClientPtr c)
{
    return c->screen->screenData;
}

/* ---- what people do ---- */

static void on_key(rfbBool down, rfbKeySym keysym, rfbClientPtr c)
{
    struct client *own = c->clientData;
    u16 key = keymap_keysym(keysym);
    if (!key || !own || c->viewOnly)
        return;
    viewer_say(viewer_of(c), VIEWER_KEY, key, down ? 1 : 0);
    own->down[key / 8] = (u8)((own->down[key / 8] & ~(1u << key % 8)) | (down ? 1u : 0) << key % 8);
}

static void on_buttons(struct viewer *v, int was, int is)
{
    /* In the order of the mask's bits; from the fourth on wheels. */
    static const struct {
        u16 button, wheel;
        i32 step;
    } bits[] = {
        {BTN_LEFT, 0, 0},   {BTN_MIDDLE, 0, 0},  {BTN_RIGHT, 0, 0},  {0, REL_WHEEL, 1},
        {0, REL_WHEEL, -1}, {0, REL_HWHEEL, -1}, {0, REL_HWHEEL, 1}, {BTN_SIDE, 0, 0},
    };
    for (unsigned i = 0; i < ARRAY_SIZE(bits); i++) {
        bool now = is >> i & 1;
        if (now == (was >> i & 1))
            continue;
        if (bits[i].button)
            viewer_say(v, VIEWER_KEY, bits[i].button, now);
        else if (now)
            viewer_say(v, VIEWER_WHEEL, bits[i].wheel, bits[i].step);
    }
}

static void on_pointer(int buttons, int x, int y, rfbClientPtr c)
{
    struct client *own = c->clientData;
    if (!own || c->viewOnly)
        return;
    viewer_say_move(viewer_of(c), x, y);
    on_buttons(viewer_of(c), own->buttons, buttons);
    own->buttons = buttons;
}

static void on_text(char *text, int len, rfbClientPtr c)
{
    /* There is no clipboard in the machine. */
}

static void on_gone(rfbClientPtr c)
{
    struct viewer *v = viewer_of(c);
    struct vnc *vnc = v->own;
    struct client *own = c->clientData;
    if (!own)
        return;
    for (u16 key = 0; key < 8 * sizeof(own->down); key++)
        if (own->down[key / 8] >> key % 8 & 1)
            viewer_say(v, VIEWER_KEY, key, 0);
    on_buttons(v, own->buttons, 0);
    free(own);
    c->clientData = NULL;
    viewer_say(v, VIEWER_WATCHERS, 0, --vnc->clients);
}

static enum rfbNewClientAction on_client(rfbClientPtr c)
{
    struct viewer *v = viewer_of(c);
    struct vnc *vnc = v->own;
    if (vnc->clients == CLIENTS || !(c->clientData = calloc(1, sizeof(struct client))))
        return RFB_CLIENT_REFUSE;
    c->clientGoneHook = on_gone;
    c->viewOnly = !v->start.input;
    viewer_say(v, VIEWER_WATCHERS, 0, ++vnc->clients);
    vnc->hold = true;
    vnc->hold_until = host_ns() + FRESH_NS;
    return RFB_CLIENT_ON_HOLD;
}

static void start_held(struct vnc *vnc)
{
    rfbClientIteratorPtr i = rfbGetClientIterator(vnc->screen);
    rfbClientPtr c;
    vnc->hold = false;
    while ((c = rfbClientIteratorNext(i)))
        if (c->onHold)
            rfbStartOnHoldClient(c);
    rfbReleaseClientIterator(i);
}

/* ---- the screen ---- */

static bool vnc_open(struct viewer *v, char *text, size_t size)
{
    struct vnc *vnc = calloc(1, sizeof(*vnc));
    rfbLogEnable(0);
    rfbScreenInfoPtr s =
        vnc ? rfbGetScreen(NULL, NULL, (int)v->width, (int)v->height, 8, 3, 4) : NULL;
    if (!s) {
        free(vnc);
        snprintf(text, size, "libvncserver has no memory");
        return false;
    }
    v->own = vnc;
    vnc->screen = s;
    if (v->start.ours_only)
        peer_tables_open(&vnc->peers);
    s->frameBuffer = (char *)v->picture;
    s->screenData = v;
    s->desktopName = v->start.title;
    /* Listening is done here; neither HTTP nor UDP. */
    s->autoPort = FALSE;
    s->port = s->ipv6port = 0;
    s->httpDir = NULL;
    s->alwaysShared = TRUE;
    s->cursor = NULL; /* the guest draws its own */
    s->deferUpdateTime = 0;
    s->maxClientWait = CLIENT_PATIENCE_MS;
    s->permitFileTransfer = FALSE;
    s->kbdAddEvent = on_key;
    s->ptrAddEvent = on_pointer;
    s->setXCutText = on_text;
    s->newClientHook = on_client;
    if (v->start.password[0]) {
        vnc->passwords[0] = v->start.password;
        s->authPasswdData = vnc->passwords;
        s->passwordCheck = rfbCheckPasswordByList;
    }
    rfbInitServer(s);
    return true;
}

static void vnc_resized(struct viewer *v)
{
    struct vnc *vnc = v->own;
    rfbNewFramebuffer(vnc->screen, (char *)v->picture, (int)v->width, (int)v->height, 8, 3, 4);
    vnc->dirty = true;
}

static void vnc_changed(struct viewer *v, u32 x, u32 y, u32 width, u32 height)
{
    struct vnc *vnc = v->own;
    rfbMarkRectAsModified(vnc->screen, (int)x, (int)y, (int)(x + width), (int)(y + height));
    vnc->dirty = true;
}

static void vnc_updated(struct viewer *v)
{
    struct vnc *vnc = v->own;
    if (vnc->hold)
        start_held(vnc);
}

/* ---- serving ---- */

static void accept_client(struct vnc *vnc, bool ours_only)
{
    uid_t user;
    int one = 1, fd = accept4(VIEWER_LISTEN, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    if (ours_only && (!peer_user(&vnc->peers, fd, &user) || user != geteuid())) {
        close(fd);
        return;
    }
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    rfbNewClient(vnc->screen, fd);
}

static bool vnc_serve(struct viewer *v)
{
    struct vnc *vnc = v->own;
    struct pollfd fds[2 + CLIENTS] = {{.fd = VIEWER_SOCKET, .events = POLLIN},
                                      {.fd = VIEWER_LISTEN, .events = POLLIN}};
    unsigned n = 2;
    if (v->events) /* that the machine did not take yet */
        fds[0].events |= POLLOUT;
    rfbClientIteratorPtr i = rfbGetClientIterator(vnc->screen);
    for (rfbClientPtr c; (c = rfbClientIteratorNext(i)) && n < ARRAY_SIZE(fds);)
        if (!c->onHold && c->sock >= 0)
            fds[n++] = (struct pollfd){.fd = c->sock, .events = POLLIN};
    rfbReleaseClientIterator(i);
    int wait = vnc->dirty ? 0 : 1000;
    if (vnc->hold) {
        u64 now = host_ns();
        wait = MIN(wait, now >= vnc->hold_until ? 0 : (int)((vnc->hold_until - now) / 1000000 + 1));
    }
    vnc->dirty = false;
    if (poll(fds, n, wait) < 0 && errno != EINTR)
        return false;
    if (fds[1].revents)
        accept_client(vnc, v->start.ours_only);
    if (vnc->hold && host_ns() >= vnc->hold_until)
        start_held(vnc);
    rfbProcessEvents(vnc->screen, 0);
    return true;
}

static void vnc_close(struct viewer *v)
{
    struct vnc *vnc = v->own;
    rfbShutdownServer(vnc->screen, TRUE);
    rfbScreenCleanup(vnc->screen);
    peer_tables_close(&vnc->peers);
    free(vnc);
}

const struct viewer_kind_ops viewer_vnc = {.open = vnc_open,
                                           .resized = vnc_resized,
                                           .changed = vnc_changed,
                                           .updated = vnc_updated,
                                           .serve = vnc_serve,
                                           .close = vnc_close};
