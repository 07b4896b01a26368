/* What an input device says at one time: evdev events as virtio-input carries them (virtio 1.2,
 * 5.8.6). */
#ifndef REPRISE_HOST_INPUT_REPORT_H
#define REPRISE_HOST_INPUT_REPORT_H

#include "base/types.h"

/* The units of INPUT_EVENTS. */
enum { INPUT_UNIT_KEYBOARD, INPUT_UNIT_TABLET, INPUT_UNITS };

#define INPUT_REPORT_MAX 3u     /* events of one report, its SYN_REPORT included */
#define INPUT_AXIS_MAX   32767u /* of the tablet, both ways */
#define INPUT_LAST_KEY   248u   /* the keyboard's keys are 1 to this */

struct input_report {
    vns_t at; /* for whom it has one */
    u32 unit;
    u32 len; /* bytes */
    u8 events[INPUT_REPORT_MAX * 8];
};

struct input_change {
    u16 type, code;
    i32 value;
};

/* Up to INPUT_REPORT_MAX - 1 changes, and a SYN_REPORT after them. */
void input_report_make(struct input_report *r, u32 unit, const struct input_change *changes,
                       unsigned n);

#endif
