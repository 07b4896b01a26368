/* virtio entropy device (virtio 1.2, 5.4): bytes that follow from the machine's seed. */
#ifndef REPRISE_DEV_VIRTIO_RNG_H
#define REPRISE_DEV_VIRTIO_RNG_H

#include "dev/virtio/virtio.h"

int virtio_rng_create(struct device *dev, const struct dev_env *env, struct device *pci,
                      unsigned slot, u64 seed, struct err *err);

#endif
