/* The PC's real-time clock and CMOS memory. */
#ifndef REPRISE_DEV_RTC_H
#define REPRISE_DEV_RTC_H

#include "dev/device.h"

#define RTC_GSI 8

/* `wall_clock`: Unix time at virtual time 0 (UTC); -EINVAL beyond the year 9999. */
int rtc_create(struct device *dev, const struct dev_env *env, u64 wall_clock, struct err *err);

/* Bit 7 of port 0x70: the guest keeps NMIs from the CPU. */
bool rtc_nmi_masked(const struct device *dev);

#endif
