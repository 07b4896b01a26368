/* Serial ports, consoles and channels: see plan.h. */
#define _GNU_SOURCE
#include "libvirt/plan.h"

#include <stdlib.h>
#include <string.h>

#include "board/description.h"

#define WHAT 160

/* Whose other end is: the console is on the terminal, wherever it was. */
static void tell_terminal(struct plan *p, xmlNodePtr port, const char *what)
{
    char type[32], how[100];
    xml_attribute(port, "type", type, sizeof(type));
    if (!*type || xml_one_of(type, "pty|stdio|vc|dev"))
        return;
    snprintf(how, sizeof(how), "it is on the terminal of `record`, and not at its %s", type);
    plan_otherwise(p, what, how, "pipes: `record ... <FILE >FILE`");
}

/* true: the machine's console is the first serial port. */
static bool take_serial(struct plan *p)
{
    char what[WHAT];
    unsigned n = 0;
    for (xmlNodePtr s = xml_find(p->domain, "devices/serial"); s; s = xml_next(s), n++) {
        plan_what(s, what, sizeof(what));
        if (!n) {
            tell_terminal(p, s, what);
            continue;
        }
        plan_left(p, what, "the machine has one serial port",
                  "--port NAME=out:FILE, or --console hvc0 for a second console");
        plan_done(s);
    }
    return n != 0;
}

/* libvirt writes the first serial port down a second time, as a console. */
static void take_consoles(struct plan *p, bool serial)
{
    char what[WHAT];
    bool virtio = false;
    for (xmlNodePtr c = xml_find(p->domain, "devices/console"); c; c = xml_next(c)) {
        xmlNodePtr target = xml_find(c, "target");
        plan_what(c, what, sizeof(what));
        if (!xml_is(target, "type", "virtio")) {
            if (xml_has(target, "type") && !xml_is(target, "type", "serial")) {
                plan_left(p, what, "there is no such console", "--console serial|hvc0");
                plan_done(c);
            } else if (!serial) {
                serial = true;
                tell_terminal(p, c, what);
            }
            continue;
        }
        if (serial || virtio) {
            plan_left(p, what, "one console is on the terminal, and there is one before it",
                      "--console hvc0, if it is to be this one");
            plan_done(c);
            continue;
        }
        virtio = true;
        plan_option(p, "console", "hvc0", what);
        tell_terminal(p, c, what);
    }
}

static void put_doubled(FILE *out, const char *text)
{
    for (; *text; text++) {
        fputc(*text, out);
        if (*text == ',')
            fputc(',', out);
    }
}

/* What a channel's port is connected to. */
static void put_where(struct plan *p, xmlNodePtr channel, FILE *out, const char *what)
{
    char path[XML_VALUE_MAX];
    xmlNodePtr source = xml_find(channel, "source");
    xml_attribute(source, "path", path, sizeof(path));
    if (*path && !p->facts.running && xml_is(channel, "type", "unix") &&
        !xml_is(source, "mode", "connect")) {
        fputs("unix:", out);
        put_doubled(out, path);
    } else if (*path && xml_is(channel, "type", "file") && !p->facts.running) {
        fputs("out:", out);
        put_doubled(out, path);
    } else {
        fputs("none", out);
        plan_otherwise(p, what, "nobody is at the other end of the port",
                       "--port NAME=unix:PATH for a socket: in the line that --dry-run prints, in "
                       "the place of NAME=none");
    }
}

static void take_channel(struct plan *p, xmlNodePtr channel)
{
    char what[WHAT], name[64], *value = NULL;
    size_t size;
    xmlNodePtr target = xml_find(channel, "target");
    plan_what(channel, what, sizeof(what));
    if (!xml_is(target, "type", "virtio")) {
        plan_left(p, what, "it is no virtio port", "--port NAME=unix:PATH");
        plan_done(channel);
        return;
    }
    xml_attribute(target, "name", name, sizeof(name));
    /* QEMU's own name for a port without one; --port ends a name at '='. */
    if (!*name)
        strcpy(name, xml_is(channel, "type", "spicevmc") ? "com.redhat.spice.0" : "");
    if (!*name || strlen(name) > 31 || strchr(name, '=') || strchr(name, ',')) {
        plan_left(p, what, "a port has a name of 1 to 31 bytes, without '=' and ','",
                  "--port NAME=unix:PATH");
        plan_done(channel);
        return;
    }
    if (p->ports == DESCRIPTION_PORTS - 1) {
        plan_left(p, what, "a machine has 7 ports", "leave out another one");
        plan_done(channel);
        return;
    }
    FILE *out = open_memstream(&value, &size);
    if (out) {
        fprintf(out, "%s=", name);
        put_where(p, channel, out, what);
        fclose(out);
    }
    if (value) {
        plan_option(p, "port", value, what);
        p->ports++;
    }
    free(value);
}

void take_ports(struct plan *p)
{
    take_consoles(p, take_serial(p));
    for (xmlNodePtr c = xml_find(p->domain, "devices/channel"); c; c = xml_next(c))
        take_channel(p, c);
}
