/* The serial console: a 16550A at COM1. */
#ifndef REPRISE_DEV_UART16550_H
#define REPRISE_DEV_UART16550_H

#include "dev/device.h"

#define UART_BASE 0x3f8
#define UART_GSI  4

int uart16550_create(struct device *dev, const struct dev_env *env, struct err *err);

/* Bytes it can take now without an overrun. */
unsigned uart_room(const struct device *dev);

/* Bytes arrive on the line; more than uart_room() overruns as on the real part. */
void uart_receive(struct device *dev, const u8 *data, unsigned n);

/* The line was held in spacing state: a BREAK. */
void uart_break(struct device *dev);

#endif
