/* Video, graphics and input: see plan.h. */
#include "libvirt/plan.h"

#include <string.h>

#include "board/description.h"

#define WHAT 160

static bool number_within(const xmlNode *node, const char *name, u64 least, u64 most, u64 *out)
{
    char text[16];
    return xml_number(xml_attribute(node, name, text, sizeof(text)), out) && *out >= least &&
           *out <= most;
}

static void take_gpu(struct plan *p, xmlNodePtr model, const char *what)
{
    char value[64], type[32], how[128], size[48] = "";
    u64 x, y, heads;
    xmlNodePtr resolution = xml_find(model, "resolution");
    bool virgl = xml_is(xml_find(model, "acceleration"), "accel3d", "yes");
    xml_attribute(model, "type", type, sizeof(type));
    if (resolution &&
        number_within(resolution, "x", DESCRIPTION_GPU_MIN, DESCRIPTION_GPU_MAX, &x) &&
        number_within(resolution, "y", DESCRIPTION_GPU_MIN, DESCRIPTION_GPU_MAX, &y))
        snprintf(size, sizeof(size), ",xres=%u,yres=%u", (unsigned)x, (unsigned)y);
    else if (resolution)
        plan_otherwise(p, what,
                       "the screen has 1280 by 800 pixels: there are those of 64 to 4096 each way",
                       "--gpu KIND,xres=N,yres=N");
    if (!xml_one_of(type, "virtio")) {
        snprintf(how, sizeof(how), "it is a virtio-gpu, and no %s", type);
        plan_otherwise(p, what, how,
                       "nothing, if the guest has virtio_gpu; there is no VGA text before that");
        virgl = false;
    }
    if (number_within(model, "heads", 2, UINT64_MAX, &heads))
        plan_otherwise(p, what, "it has one screen", "nothing");
    if (xml_is(model, "blob", "on"))
        plan_otherwise(p, what, "it has no blob resources", "nothing");
    snprintf(value, sizeof(value), "%s%s", virgl ? "virgl" : "2d", size);
    plan_option(p, "gpu", value, what);
    p->shown = true;
}

static void take_videos(struct plan *p)
{
    char what[WHAT];
    bool more = false;
    xmlNodePtr graphics = xml_find(p->domain, "devices/graphics");
    if (graphics && !xml_find(p->domain, "devices/video")) {
        plan_what(graphics, what, sizeof(what));
        plan_otherwise(p, what, "the video device that libvirt adds is a virtio-gpu",
                       "nothing, if the guest has virtio_gpu");
        plan_option(p, "gpu", "2d", what);
        p->shown = true;
    }
    for (xmlNodePtr v = xml_find(p->domain, "devices/video"); v; v = xml_next(v)) {
        xmlNodePtr model = xml_find(v, "model");
        plan_what(model ? model : v, what, sizeof(what));
        if (xml_is(model, "type", "none"))
            continue;
        if (!more) {
            take_gpu(p, model, what);
        } else {
            plan_left(p, what, "the machine has one screen", "nothing");
            plan_done(v);
        }
        more = true;
    }
}

/* The address that it listens at is the domain's where it is of this host alone: others need a
 * password (--display). */
static void take_vnc(struct plan *p, xmlNodePtr g, const char *what)
{
    char value[128], listen[64];
    u64 port;
    xmlNodePtr at = xml_find(g, "listen");
    bool own = number_within(g, "port", 1, 65535, &port) && !xml_is(g, "autoport", "yes");
    xml_attribute(at, "address", listen, sizeof(listen));
    if (!*listen)
        xml_attribute(g, "listen", listen, sizeof(listen));
    if (*listen && !xml_one_of(listen, "127.0.0.1|::1|localhost"))
        plan_otherwise(p, what, "it listens on this host alone",
                       "--display none --display vnc=ADDRESS:PORT,password-file=FILE");
    if (xml_has(g, "passwd"))
        plan_otherwise(p, what, "it takes no password",
                       "--display none --display vnc=127.0.0.1:0,password-file=FILE");
    if (xml_has(g, "websocket") && !xml_is(g, "websocket", "-1"))
        plan_otherwise(p, what, "it has no websocket", "nothing, or websockify");
    if (xml_has(g, "socket") || xml_is(at, "type", "socket"))
        plan_otherwise(p, what, "it is at a port of 127.0.0.1 that is printed",
                       "--display none --display vnc=unix:PATH");
    snprintf(value, sizeof(value), "vnc=127.0.0.1:%u", own ? (unsigned)port : 0);
    plan_option(p, "display", value, what);
}

static void take_graphics(struct plan *p)
{
    char what[WHAT];
    for (xmlNodePtr g = xml_find(p->domain, "devices/graphics"); g; g = xml_next(g)) {
        plan_what(g, what, sizeof(what));
        if (xml_is(g, "type", "egl-headless"))
            continue;
        if (!p->shown) {
            plan_left(p, what, "the domain has no video device",
                      "--gpu 2d --display vnc=127.0.0.1:0");
        } else if (p->displays) {
            plan_left(p, what, "the screen is shown at another place", "--display, once more");
        } else if (xml_is(g, "type", "vnc")) {
            take_vnc(p, g, what);
            p->displays++;
        } else if (xml_is(g, "type", "sdl|desktop")) {
            plan_option(p, "display", "sdl", what);
            p->displays++;
        } else if (xml_is(g, "type", "spice|rdp|dbus")) {
            plan_otherwise(p, what,
                           "the screen is shown by VNC, at a port of 127.0.0.1 that is printed",
                           "--display none --display sdl for a window");
            plan_option(p, "display", "vnc=127.0.0.1:0", what);
            p->displays++;
        } else {
            plan_left(p, what, "there is no such display", "--display vnc=127.0.0.1:0");
        }
    }
}

static void take_inputs(struct plan *p)
{
    char what[WHAT];
    bool any = false;
    for (xmlNodePtr i = xml_find(p->domain, "devices/input"); i; i = xml_next(i)) {
        bool virtio = xml_is(i, "bus", "virtio");
        plan_what(i, what, sizeof(what));
        if (xml_is(i, "type", "evdev|passthrough")) {
            plan_left(p, what, "keyboards and mice of the host are not handed over",
                      "--display sdl, or --input FILE");
            plan_done(i);
            continue;
        }
        /* PS/2 is on every board; where nobody sees a screen nobody misses it. */
        if (xml_is(i, "bus", "ps2|xen") && !p->displays)
            continue;
        if (!virtio || xml_is(i, "type", "mouse"))
            plan_otherwise(p, what, "keyboard and tablet are virtio devices",
                           "nothing, if the guest has virtio_input");
        any = true;
    }
    /* Displays bring them along. */
    if (any && !p->displays)
        plan_option(p, "input", "none", "<input>");
}

void take_screen(struct plan *p)
{
    take_videos(p);
    take_graphics(p);
    take_inputs(p);
}
