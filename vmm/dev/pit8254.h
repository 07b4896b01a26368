/* The PC's 8254 interval timer, with port 0x61. */
#ifndef REPRISE_DEV_PIT8254_H
#define REPRISE_DEV_PIT8254_H

#include "dev/device.h"

#define PIT_HZ  1193182u
#define PIT_GSI 0

int pit8254_create(struct device *dev, const struct dev_env *env, struct err *err);

#endif
