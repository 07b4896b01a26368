/* See input_queue.h. */
#include "live/input_queue.h"

#include <linux/input-event-codes.h>
#include <string.h>

#define STEPS_MAX 1000 /* of a wheel, in one report */

static struct input_report *at(struct input_ring *r, unsigned i)
{
    return &r->report[(r->head + i) % INPUT_QUEUE_ROOM];
}

static void append(struct input_queue *q, u32 unit, const struct input_change *changes, unsigned n)
{
    struct input_ring *r = &q->ring[unit];
    unsigned slot = (r->head + r->count++) % INPUT_QUEUE_ROOM;
    input_report_make(&r->report[slot], unit, changes, n);
    r->number[slot] = q->next++;
}

/* Beyond the slots that releases will need. */
static bool has_room(const struct input_ring *r, unsigned slots)
{
    return r->count + r->held + slots <= INPUT_QUEUE_ROOM;
}

static bool is_down(const struct input_queue *q, u16 code)
{
    return q->down[code / 8] >> code % 8 & 1;
}

void input_queue_key(struct input_queue *q, u16 code, bool down)
{
    u32 unit;
    if (code && code <= INPUT_LAST_KEY)
        unit = INPUT_UNIT_KEYBOARD;
    else if (code >= BTN_LEFT && code <= BTN_EXTRA)
        unit = INPUT_UNIT_TABLET;
    else
        return;
    struct input_ring *r = &q->ring[unit];
    if (is_down(q, code) == down || (down && !has_room(r, 2)))
        return;
    q->down[code / 8] ^= (u8)(1u << code % 8);
    r->held += down ? 1 : -1u;
    struct input_change c = {EV_KEY, code, down};
    append(q, unit, &c, 1);
}

/* The report that waits last, if its first event is of that type: *c is that event. */
static struct input_report *last_of_type(struct input_queue *q, u16 type, struct input_change *c)
{
    struct input_ring *r = &q->ring[INPUT_UNIT_TABLET];
    if (!r->count)
        return NULL;
    struct input_report *last = at(r, r->count - 1);
    memcpy(&c->type, last->events, 2);
    memcpy(&c->code, last->events + 2, 2);
    memcpy(&c->value, last->events + 4, 4);
    return c->type == type ? last : NULL;
}

void input_queue_move(struct input_queue *q, i32 x, i32 y)
{
    struct input_change was, c[2] = {{EV_ABS, ABS_X, MIN(MAX(x, 0), (i32)INPUT_AXIS_MAX)},
                                     {EV_ABS, ABS_Y, MIN(MAX(y, 0), (i32)INPUT_AXIS_MAX)}};
    struct input_report *last = last_of_type(q, EV_ABS, &was);
    if (last)
        input_report_make(last, INPUT_UNIT_TABLET, c, 2);
    else if (has_room(&q->ring[INPUT_UNIT_TABLET], 1))
        append(q, INPUT_UNIT_TABLET, c, 2);
}

void input_queue_wheel(struct input_queue *q, u16 code, i32 steps)
{
    struct input_change was, c = {EV_REL, code, MIN(MAX(steps, -STEPS_MAX), STEPS_MAX)};
    if ((code != REL_WHEEL && code != REL_HWHEEL) || !steps)
        return;
    struct input_report *last = last_of_type(q, EV_REL, &was);
    i32 sum = last && was.code == code ? was.value + c.value : 0;
    if (sum && sum >= -STEPS_MAX && sum <= STEPS_MAX) {
        c.value = sum;
        input_report_make(last, INPUT_UNIT_TABLET, &c, 1);
    } else if (has_room(&q->ring[INPUT_UNIT_TABLET], 1)) {
        append(q, INPUT_UNIT_TABLET, &c, 1);
    }
}

void input_queue_release(struct input_queue *q)
{
    for (u16 code = 0; code < INPUT_QUEUE_CODES; code++)
        if (is_down(q, code))
            input_queue_key(q, code, false);
}

const struct input_report *input_queue_peek(const struct input_queue *q,
                                            const u32 room[INPUT_UNITS])
{
    const struct input_report *best = NULL;
    u64 number = NEVER;
    for (u32 unit = 0; unit < INPUT_UNITS; unit++) {
        const struct input_ring *r = &q->ring[unit];
        if (r->count && r->report[r->head].len <= room[unit] && r->number[r->head] < number) {
            best = &r->report[r->head];
            number = r->number[r->head];
        }
    }
    return best;
}

void input_queue_take(struct input_queue *q, u32 unit)
{
    struct input_ring *r = &q->ring[unit];
    r->head = (r->head + 1) % INPUT_QUEUE_ROOM;
    r->count--;
}
