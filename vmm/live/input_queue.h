/*
 * What somebody does with keyboard and pointer, waiting for the guest to have room: bounded, and
 * never with a key that stays down. A press is dropped when it is full, and its release then too;
 * the release of a press that was taken always has room. Motion that waits is replaced by newer
 * motion, steps of a wheel are added up. What the other side says twice is said once.
 */
#ifndef REPRISE_LIVE_INPUT_QUEUE_H
#define REPRISE_LIVE_INPUT_QUEUE_H

#include "host/input_report.h"

#define INPUT_QUEUE_ROOM  256u /* reports of each device */
#define INPUT_QUEUE_CODES 512u /* of EV_KEY: 0x1ff is the last that the tablet could have */

struct input_queue {
    struct input_ring {
        struct input_report report[INPUT_QUEUE_ROOM];
        u64 number[INPUT_QUEUE_ROOM]; /* their order over both devices */
        unsigned head, count;
        unsigned held; /* keys that are down at its end: each has a slot for its release */
    } ring[INPUT_UNITS];
    u64 next;
    u8 down[INPUT_QUEUE_CODES / 8];
};

/* A key of the keyboard (1 to INPUT_LAST_KEY) or a button of the tablet (BTN_LEFT to BTN_EXTRA);
 * other codes are ignored. */
void input_queue_key(struct input_queue *q, u16 code, bool down);
/* 0 to INPUT_AXIS_MAX; what is beyond is cut. */
void input_queue_move(struct input_queue *q, i32 x, i32 y);
/* REL_WHEEL or REL_HWHEEL. */
void input_queue_wheel(struct input_queue *q, u16 code, i32 steps);
/* Whoever held keys has gone. */
void input_queue_release(struct input_queue *q);

/* The oldest report for which room[unit] (bytes) is enough; of each device in order. NULL: none. */
const struct input_report *input_queue_peek(const struct input_queue *q,
                                            const u32 room[INPUT_UNITS]);
/* Takes the oldest of that device; its bytes stay as they are until another call. */
void input_queue_take(struct input_queue *q, u32 unit);

#endif
