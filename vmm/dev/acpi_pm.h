/* ACPI fixed hardware (board/acpi.h has the ports). */
#ifndef REPRISE_DEV_ACPI_PM_H
#define REPRISE_DEV_ACPI_PM_H

#include "dev/device.h"

int acpi_pm_create(struct device *dev, const struct dev_env *env, struct err *err);

/* The user pressed the power button: sets PWRBTN_STS, raises the SCI if the guest enabled it. */
void acpi_power_button(struct device *dev);

/* General-purpose event `bit` (0..15) happened. */
void acpi_gpe(struct device *dev, unsigned bit);

#endif
