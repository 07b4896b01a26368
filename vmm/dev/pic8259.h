/* The PC's pair of 8259A interrupt controllers, as one device. */
#ifndef REPRISE_DEV_PIC8259_H
#define REPRISE_DEV_PIC8259_H

#include "dev/device.h"

int pic8259_create(struct device *dev, const struct dev_env *env, struct err *err);

/* Level of interrupt input 0..15; 2 is the cascade and is ignored. */
void pic_set_irq(struct device *dev, unsigned line, bool level);

/* The INTR output. */
bool pic_pending(const struct device *dev);

/* The CPU's interrupt acknowledge cycle: the vector; IR7's when the request has gone away. */
u8 pic_ack(struct device *dev);

#endif
