/*
 * virtio input devices (virtio 1.2, 5.8): a keyboard, and a tablet (absolute pointer with buttons
 * and wheels). Events are evdev's (linux/input-event-codes.h).
 */
#ifndef REPRISE_DEV_VIRTIO_INPUT_H
#define REPRISE_DEV_VIRTIO_INPUT_H

#include "dev/virtio/virtio.h"
#include "host/input_report.h"

struct virtio_input {
    struct virtio v; /* first: dev->host */
    const struct input_model *model;
};

/* `unit`: INPUT_UNIT_KEYBOARD or _TABLET, as its component is named. */
int virtio_input_create(struct device *dev, const struct dev_env *env, struct device *pci,
                        unsigned slot, unsigned unit, struct err *err);

/* Bytes of events for which the driver has given buffers. */
u32 virtio_input_room(const struct device *dev);
/* Events of 8 bytes each (5.8.6), the last of them a SYN_REPORT; no more than there is room for. */
void virtio_input_events(struct device *dev, const u8 *events, u32 len);
/* The keyboard's lights, one bit an LED_ code. */
u32 virtio_input_leds(const struct device *dev);

#endif
