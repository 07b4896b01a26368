/* The machine's entropy: a device, and what the CPUs' RDRAND and RDSEED take of the same seed. */
#ifndef REPRISE_VIRTIO_RNG_H
#define REPRISE_VIRTIO_RNG_H

#include "dev/device.h"

/* What RDRAND gives at a position, or RDSEED (`seed`). A position is one instant of one CPU, so no
 * number comes twice, and nothing has to be counted. */
u64 rng_number(const struct device *dev, pos_t position, bool seed);

#endif
