/* See again.h. */
#include "cmd/again.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "machine/machine.h"

struct kept_input {
    struct input in; /* whose bytes are in `bytes`, from `at` on */
    size_t at;
    vns_t time;
};

struct again {
    struct feed feed; /* first */
    struct kept_input *list;
    size_t n, room, next;
    u8 *bytes;
    size_t nbytes, bytes_room;
};

static struct again *self(struct feed *f)
{
    return (struct again *)f;
}

/* Is it given again? The others follow from what this machine does, or are this recording's. */
static bool comes_again(enum input_kind kind)
{
    switch (kind) {
    case INPUT_SHARE:
    case INPUT_CONTENT:
    case INPUT_GPU:
    case INPUT_DISK_ERROR:
    case INPUT_PLACE:
    case INPUT_CHAOS:
    case INPUT_TURN: return false;
    default: return true;
    }
}

static bool more(void **list, size_t *room, size_t want, size_t each)
{
    if (want <= *room)
        return true;
    size_t to = MAX(2 * *room, MAX(want, (size_t)64));
    void *p = reallocarray(*list, to, each);
    if (!p)
        return false;
    *list = p;
    *room = to;
    return true;
}

static bool keep(struct again *a, const struct input *in, vns_t time)
{
    void *list = a->list, *bytes = a->bytes;
    bool ok = more(&list, &a->room, a->n + 1, sizeof(*a->list));
    a->list = list;
    ok = ok && more(&bytes, &a->bytes_room, a->nbytes + in->len, 1);
    a->bytes = bytes;
    if (!ok)
        return false;
    a->list[a->n++] = (struct kept_input){*in, a->nbytes, time};
    if (in->len)
        memcpy(a->bytes + a->nbytes, in->data, in->len);
    a->nbytes += in->len;
    return true;
}

int again_read(struct again *a, struct log_reader *log, struct err *err)
{
    struct record rec;
    struct input in;
    while (log_next(log, &rec))
        if (record_input(&rec, &in) && comes_again(in.kind) && !keep(a, &in, rec.time))
            return err_set(err, -ENOMEM, "--again: no memory for what came from outside");
    return 0;
}

static unsigned prepare(struct feed *f, struct pollfd *fds, unsigned cap, u64 *until)
{
    return 0;
}

static void serve(struct feed *f, const struct pollfd *fds, unsigned n)
{
}

/* One that the machine never has room for holds up all that comes after it, as its sender would. */
static bool peek(struct feed *f, struct machine *m, struct input *in)
{
    const struct again *a = self(f);
    const struct kept_input *k = &a->list[a->next];
    if (a->next == a->n || machine_now(m) < k->time ||
        machine_room(m, k->in.kind, k->in.unit) < MAX(k->in.len, 1u))
        return false;
    *in = k->in;
    in->data = a->bytes + k->at;
    return true;
}

static void taken(struct feed *f, const struct input *in)
{
    self(f)->next++;
}

static vns_t due(const struct feed *f)
{
    const struct again *a = (const struct again *)f;
    return a->next < a->n ? a->list[a->next].time : NEVER;
}

static bool live(const struct feed *f)
{
    return false;
}

struct again *again_create(void)
{
    static const struct feed_ops ops = {prepare, serve, peek, taken, NULL, due, NULL, live};
    struct again *a = calloc(1, sizeof(*a));
    if (a)
        a->feed.ops = &ops;
    return a;
}

struct feed *again_feed(struct again *a)
{
    return &a->feed;
}

void again_destroy(struct again *a)
{
    if (!a)
        return;
    free(a->list);
    free(a->bytes);
    free(a);
}
