/* The I/O APIC: 24 pins, turned into messages to the local APICs. */
#ifndef REPRISE_DEV_IOAPIC_H
#define REPRISE_DEV_IOAPIC_H

#include "dev/device.h"

#define IOAPIC_BASE 0xfec00000u
#define IOAPIC_SIZE 0x1000u
#define IOAPIC_PINS 24

int ioapic_create(struct device *dev, const struct dev_env *env, struct err *err);

/* Level of a global system interrupt as devices name them: GSI 0 is wired to pin 2, all others to
 * the pin of their number. */
void ioapic_set_irq(struct device *dev, unsigned line, bool level);

/* A local APIC broadcast the end of a level-triggered interrupt. */
void ioapic_eoi(struct device *dev, u8 vector);

#endif
