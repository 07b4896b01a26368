/* virtio network device (virtio 1.2, 5.1): one pair of queues, Ethernet frames without offloads. */
#ifndef REPRISE_DEV_VIRTIO_NET_H
#define REPRISE_DEV_VIRTIO_NET_H

#include "dev/virtio/virtio.h"

#define NET_FRAME_MIN 14u         /* an Ethernet header */
#define NET_FRAME_MAX (32u << 10) /* of any link */
#define NET_OVERHEAD  22u         /* what a frame has beside the MTU: header, two VLAN tags */

struct virtio_net {
    struct virtio v; /* first: dev->host */
    unsigned unit;   /* of EMIT_PACKET */
    u8 mac[6];
    u16 mtu;
    u16 head[64]; /* scratch: the buffers that take one frame */
    u8 frame[NET_FRAME_MAX + 64];
};

/* Its component is named netN, N its unit. */
int virtio_net_create(struct device *dev, const struct dev_env *env, struct device *pci,
                      unsigned slot, unsigned unit, const u8 mac[6], u16 mtu, struct err *err);

/* Bytes of a frame for which the driver has given buffers; 0: none, or no driver. */
u32 virtio_net_room(const struct device *dev);
/* A frame arrives. One that does not fit what the driver gave is dropped. */
void virtio_net_receive(struct device *dev, const u8 *frame, u32 len);
/* The link goes up or down; a device begins with it up. */
void virtio_net_link(struct device *dev, bool up);
bool virtio_net_is_up(const struct device *dev);

#endif
