/* See prefix.h. */
#include "replay/prefix.h"

#include <errno.h>
#include <stdlib.h>

struct prefix {
    struct input_source src;
    struct prefix_config config;
    bool begun;
};

static struct prefix *self(struct input_source *src)
{
    return (struct prefix *)src;
}

static struct input_source *log_of(const struct prefix *p)
{
    return player_source(p->config.player);
}

static struct instant now_of(struct machine *m)
{
    return (struct instant){machine_position(m), machine_now(m)};
}

static pos_t next_position(struct input_source *src, struct machine *m)
{
    struct prefix *p = self(src);
    if (p->begun)
        return p->config.live->ops->next_position(p->config.live, m);
    struct instant now = now_of(m), at = p->config.at;
    pos_t next = log_of(p)->ops->next_position(log_of(p), m);
    pos_t more = at.time > now.time ? machine_positions(m, at.time - now.time) : 1;
    return MIN(next, at.position > now.position ? at.position : now.position + MAX(more, 1u));
}

static int begin(struct prefix *p, struct machine *m, struct input *in, struct err *err)
{
    p->begun = true;
    p->config.begins(p->config.opaque, m);
    return p->config.live->ops->take(p->config.live, m, in, err);
}

/* All that the log has at the instant itself comes first. That its recording was ended there is
 * none of the new one's business. */
static int take(struct input_source *src, struct machine *m, struct input *in, struct err *err)
{
    struct prefix *p = self(src);
    if (p->begun)
        return p->config.live->ops->take(p->config.live, m, in, err);
    bool there = instant_reached(now_of(m), p->config.at);
    if (there && !player_due(p->config.player, m))
        return begin(p, m, in, err);
    if (p->config.quits(p->config.opaque, m, in))
        return 1;
    int r = log_of(p)->ops->take(log_of(p), m, in, err);
    return r == 1 && there && in->kind == INPUT_QUIT ? begin(p, m, in, err) : r;
}

static int idle(struct input_source *src, struct machine *m, vns_t deadline, vns_t *until,
                struct err *err)
{
    struct prefix *p = self(src);
    if (p->begun)
        return p->config.live->ops->idle(p->config.live, m, deadline, until, err);
    struct instant now = now_of(m), at = p->config.at;
    int r = log_of(p)->ops->idle(log_of(p), m, deadline, until, err);
    if (now.position >= at.position && at.time > now.time && (r || *until > at.time)) {
        *until = MIN(at.time, deadline);
        return 0;
    }
    return r;
}

static bool waits(struct input_source *src, vns_t deadline)
{
    struct prefix *p = self(src);
    return p->begun && input_source_waits(p->config.live, deadline);
}

static const struct input_source_ops ops = {next_position, take, idle, NULL, waits};

int prefix_create(struct prefix **out, const struct prefix_config *config, struct err *err)
{
    struct prefix *p = calloc(1, sizeof(*p));
    if (!p) {
        player_destroy(config->player);
        return err_set(err, -ENOMEM, "no memory");
    }
    p->src.ops = &ops;
    p->config = *config;
    *out = p;
    return 0;
}

struct input_source *prefix_source(struct prefix *p)
{
    return &p->src;
}

bool prefix_begun(const struct prefix *p)
{
    return p->begun;
}

void prefix_destroy(struct prefix *p)
{
    if (!p)
        return;
    player_destroy(p->config.player);
    free(p);
}
