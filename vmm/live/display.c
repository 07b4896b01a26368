/* See display.h. */
#include "live/display.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What follows the prefix; NULL: the text begins otherwise. */
static const char *after(const char *text, const char *prefix)
{
    size_t n = strlen(prefix);
    return strncmp(text, prefix, n) ? NULL : text + n;
}

static int copy(char *out, size_t size, const char *text, size_t n, struct err *err)
{
    if (!n || n >= size)
        return err_set(err, -EINVAL, "a name has 1 to %zu bytes", size - 1);
    memcpy(out, text, n);
    out[n] = 0;
    return 0;
}

#define FIELD(field) PART_FIELD(struct display_spec, field)
static const struct part vnc_rows[] = {
    {"password-file", "FILE", "a name of 1 to 4095 bytes", .read = part_text, FIELD(password_file)},
    {"open", .read = part_flag, FIELD(open), .help = "lets other hosts in without a password"},
};
const struct parts vnc_parts = {vnc_rows, ARRAY_SIZE(vnc_rows), NULL, 0};

static int parse_vnc(struct display_spec *s, const char *text, struct err *err)
{
    char address[320];
    size_t n = strcspn(text, ",");
    int code = copy(address, sizeof(address), text, n, err);
    if (!code)
        code = endpoint_parse(&s->endpoint, address, err);
    if (!code && s->endpoint.kind == ENDPOINT_STDIO)
        code = err_set(err, -EINVAL, "vnc=HOST:PORT or vnc=unix:PATH");
    return code ? code : parts_read(&vnc_parts, 0, text + n, "", s, err);
}

static int parse_png(struct display_spec *s, const char *text, struct err *err)
{
    char *end;
    double seconds = strtod(text, &end);
    if (end == text || (*end && *end != ',') || !(seconds >= 1e-6 && seconds < 1e9))
        return err_set(err, -EINVAL,
                       "png-every=SECONDS[,DIR]: '%.*s' is not a number of seconds above 0",
                       (int)strcspn(text, ","), text);
    s->every = (vns_t)(seconds * 1e9 + 0.5);
    return *end ? copy(s->dir, sizeof(s->dir), end + 1, strlen(end + 1), err) : 0;
}

int display_parse(struct display_spec *s, const char *text, struct err *err)
{
    const char *rest;
    *s = (struct display_spec){.kind = DISPLAY_SDL};
    if (!strcmp(text, "sdl"))
        return 0;
    if ((rest = after(text, "vnc="))) {
        s->kind = DISPLAY_VNC;
        return parse_vnc(s, rest, err);
    }
    if ((rest = after(text, "png-every="))) {
        s->kind = DISPLAY_PNG;
        return parse_png(s, rest, err);
    }
    return err_set(err, -EINVAL, "'%s' is none of none, vnc=ADDRESS, sdl, png-every=SECONDS[,DIR]",
                   text);
}

int display_create(struct display **out, const struct display_spec *s,
                   const struct display_config *c, struct err *err)
{
    return s->kind == DISPLAY_PNG ? display_png_create(out, s, c, err)
                                  : display_viewer_create(out, s, c, err);
}

struct feed *display_feed(struct display *d)
{
    return &d->feed;
}

const char *display_notice(const struct display *d)
{
    return d->ops->notice(d);
}

int display_finish(struct display *d, struct err *err)
{
    return d->ops->finish(d, err);
}

void display_destroy(struct display *d)
{
    if (d)
        d->ops->destroy(d);
}
