/*
 * virtio console device with several ports (virtio 1.2, 5.3). Port 0 is the machine's console
 * (hvc0 in Linux) or does not exist; the others have names and carry bytes between a program in the
 * guest and whatever the host connected.
 */
#ifndef REPRISE_DEV_VIRTIO_CONSOLE_H
#define REPRISE_DEV_VIRTIO_CONSOLE_H

#include "dev/virtio/virtio.h"

#define CONSOLE_PORTS     8u
#define CONSOLE_NAME_MAX  31u         /* bytes of a port's name */
#define CONSOLE_ROOM_MAX  (32u << 10) /* bytes that a port takes at once */
#define CONSOLE_CHAIN_MAX (1u << 20)  /* bytes of one buffer of the guest's output */

struct virtio_console {
    struct virtio v; /* first: dev->host */
    struct virtio_class class;
    bool exists[CONSOLE_PORTS], terminal; /* terminal: port 0 is the console */
    char name[CONSOLE_PORTS][CONSOLE_NAME_MAX + 1];
    unsigned nports; /* 1 + the last that exists */
    u8 bytes[4096];  /* scratch */
};

/* `terminal`: there is a port 0, whose output is the machine's console (OUT_CONSOLE). names[i] is
 * the name of port i, from 1 on; "" or NULL: there is no such port. */
int virtio_console_create(struct device *dev, const struct dev_env *env, struct device *pci,
                          unsigned slot, bool terminal, const char *const names[CONSOLE_PORTS],
                          struct err *err);

bool virtio_console_has(const struct device *dev, unsigned port);
/* Bytes that the port takes now: 0 while the guest or the host has it closed, or the driver has
 * given no buffer. */
u32 virtio_console_room(const struct device *dev, unsigned port);
/* Bytes arrive, no more than there is room for. */
void virtio_console_receive(struct device *dev, unsigned port, const u8 *data, u32 len);
/* The host's end was opened or closed; port 0's is always open, the others begin closed. What the
 * guest sends to a port that is closed is lost. */
void virtio_console_open(struct device *dev, unsigned port, bool open);

#endif
