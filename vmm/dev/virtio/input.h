/*
 * virtio input devices (virtio 1.2, 5.8): a keyboard, and a tablet (absolute pointer with buttons
 * and wheels). Events are evdev's (linux/input-event-codes.h).
 */
#ifndef REPRISE_DEV_VIRTIO_INPUT_H
#define REPRISE_DEV_VIRTIO_INPUT_H

#include "dev/virtio/virtio.h"

#define INPUT_DEVICES 2u
enum input_device { INPUT_KEYBOARD, INPUT_TABLET };

#define INPUT_TABLET_MAX 32767u /* of both axes */
#define INPUT_KEY_LAST   248u   /* the keyboard's keys are 1 to this */

struct virtio_input {
    struct virtio v; /* first: dev->host */
    const struct input_model *model;
};

/* Its component is named keyboard or tablet. */
int virtio_input_create(struct device *dev, const struct dev_env *env, struct device *pci,
                        unsigned slot, enum input_device kind, struct err *err);

/* Bytes of events for which the driver has given buffers. */
u32 virtio_input_room(const struct device *dev);
/* Events of 8 bytes each (5.8.6), the last of them a SYN_REPORT; no more than there is room for. */
void virtio_input_events(struct device *dev, const u8 *events, u32 len);
/* The keyboard's lights, one bit an LED_ code. */
u32 virtio_input_leds(const struct device *dev);

#endif
