/* See displays.h. */
#define _GNU_SOURCE /* ppoll */
#include "cmd/displays.h"

#include <poll.h>
#include <string.h>

#include "host/clock.h"

#define LOOK_NS      1000000u    /* a busy machine serves displays this often */
#define WAIT_MOST_NS 1000000000u /* of one wait */

void option_display(struct argp_state *state, const char *arg, struct display_options *o)
{
    struct err err;
    if (!strcmp(arg, "none")) {
        o->n = 0;
        return;
    }
    if (o->n == DISPLAYS)
        argp_error(state, "--display: at most %u of them", DISPLAYS);
    if (display_parse(&o->spec[o->n++], arg, &err))
        argp_error(state, "--display: %s", err.text);
}

bool display_options_input(const struct display_options *o)
{
    for (unsigned i = 0; i < o->n; i++)
        if (o->spec[i].kind != DISPLAY_PNG)
            return true;
    return false;
}

int displays_open(struct displays *d, const struct display_options *o,
                  const struct display_config *c, struct err *err)
{
    for (unsigned i = 0; i < o->n; i++) {
        int code = display_create(&d->display[i], &o->spec[i], c, err);
        if (code) {
            displays_close(d);
            return code;
        }
        d->feed[i] = display_feed(d->display[i]);
        d->n++;
    }
    return 0;
}

void displays_notice(const struct displays *d)
{
    for (unsigned i = 0; i < d->n; i++)
        fputs(display_notice(d->display[i]), stderr);
}

int displays_finish(struct displays *d)
{
    int code = EX_FINE;
    for (unsigned i = 0; i < d->n; i++) {
        struct err err;
        if (display_finish(d->display[i], &err))
            code = cmd_fail(&err);
    }
    return code;
}

void displays_close(struct displays *d)
{
    while (d->n)
        display_destroy(d->display[--d->n]);
}

/* ---- spectators ---- */

static struct spectator *self(struct input_source *src)
{
    return (struct spectator *)src;
}

/* The next virtual time at which a display wants the machine to stand. */
static vns_t looks(const struct spectator *s, vns_t now)
{
    vns_t first = NEVER;
    for (unsigned i = 0; i < s->displays->n; i++) {
        const struct feed *f = s->displays->feed[i];
        vns_t look = f->ops->looks ? f->ops->looks(f) : NEVER;
        if (look > now)
            first = MIN(first, look);
    }
    return first;
}

/* Serves the displays until host time `until`, at least once. */
static void serve(struct spectator *s, u64 until)
{
    u64 now;
    do {
        struct pollfd fds[2 * DISPLAYS];
        unsigned first[DISPLAYS + 1] = {0}, n = 0;
        u64 stop = until;
        for (unsigned i = 0; i < s->displays->n; i++) {
            struct feed *f = s->displays->feed[i];
            unsigned more = f->ops->prepare(f, fds + n, (unsigned)ARRAY_SIZE(fds) - n, &stop);
            n += MIN(more, (unsigned)ARRAY_SIZE(fds) - n);
            first[i + 1] = n;
        }
        now = host_ns();
        u64 ns = stop > now ? MIN(stop - now, (u64)WAIT_MOST_NS) : 0;
        struct timespec wait = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
        bool ready = ppoll(fds, n, &wait, NULL) > 0;
        for (unsigned i = 0; i < s->displays->n; i++) {
            struct feed *f = s->displays->feed[i];
            f->ops->serve(f, fds + first[i], ready ? first[i + 1] - first[i] : 0);
        }
        now = host_ns();
    } while (now < until);
    s->next = now + LOOK_NS;
}

static pos_t next_position(struct input_source *src, struct machine *m)
{
    struct spectator *s = self(src);
    vns_t now = machine_now(m), look = looks(s, now);
    pos_t next = s->inner->ops->next_position(s->inner, m);
    return look == NEVER ? next : MIN(next, machine_position(m) + (look - now));
}

static int take(struct input_source *src, struct machine *m, struct input *in, struct err *err)
{
    struct spectator *s = self(src);
    int r = s->inner->ops->take(s->inner, m, in, err);
    if (r)
        return r;
    for (unsigned i = 0; i < s->displays->n; i++) {
        /* It looks; what it has to give reaches nobody. */
        struct input unused;
        s->displays->feed[i]->ops->peek(s->displays->feed[i], m, &unused);
    }
    if (host_ns_coarse() >= s->next)
        serve(s, 0);
    return 0;
}

static int idle(struct input_source *src, struct machine *m, vns_t deadline, vns_t *until,
                struct err *err)
{
    struct spectator *s = self(src);
    vns_t now = machine_now(m);
    int r = s->inner->ops->idle(s->inner, m, deadline, until, err);
    if (r)
        return r;
    *until = MIN(*until, looks(s, now));
    if (s->realtime) {
        pace_rebase(&s->pace, host_ns(), now);
        serve(s, pace_host_time(&s->pace, *until));
    }
    return 0;
}

static const struct input_source_ops ops = {next_position, take, idle, NULL, NULL};

void spectator_init(struct spectator *s, struct input_source *inner, const struct displays *d,
                    bool realtime)
{
    *s = (struct spectator){.src = {&ops}, .inner = inner, .displays = d, .realtime = realtime};
    s->pace.host = host_ns();
}
