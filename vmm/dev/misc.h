/* What is left of the PC at ports 0x60, 0x64 and 0x80. */
#ifndef REPRISE_DEV_MISC_H
#define REPRISE_DEV_MISC_H

#include "dev/device.h"

int misc_create(struct device *dev, const struct dev_env *env, struct err *err);

#endif
