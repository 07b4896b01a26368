/* Debug-exit port: how a test guest ends its run with a status. */
#ifndef REPRISE_DEV_DEBUGEXIT_H
#define REPRISE_DEV_DEBUGEXIT_H

#include "dev/device.h"

int debugexit_create(struct device *dev, const struct dev_env *env, struct err *err);

#endif
