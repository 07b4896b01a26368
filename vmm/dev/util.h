/*
 * What the devices share: exact conversion between virtual nanoseconds and a device's own clock,
 * and the splitting of wide port accesses for devices with an 8-bit data bus. No state.
 */
#ifndef REPRISE_DEV_UTIL_H
#define REPRISE_DEV_UTIL_H

#include "base/err.h"
#include "dev/device.h"

#include <errno.h>
#include <stdlib.h>

#define NS_PER_S 1000000000u

/* a * mul / div without overflow, saturating at NEVER. */
static inline u64 mul_div_floor(u64 a, u32 mul, u32 div)
{
    unsigned __int128 q = (unsigned __int128)a * mul / div;
    return q >= NEVER ? NEVER : (u64)q;
}

static inline u64 mul_div_ceil(u64 a, u32 mul, u32 div)
{
    unsigned __int128 q = ((unsigned __int128)a * mul + (div - 1)) / div;
    return q >= NEVER ? NEVER : (u64)q;
}

/* Cycles of a clock of `hz` that began at power-on, and the first ns at which it shows `ticks`. */
static inline u64 ticks_at(vns_t now, u32 hz)
{
    return mul_div_floor(now, hz, NS_PER_S);
}

static inline vns_t time_of_tick(u64 ticks, u32 hz)
{
    return mul_div_ceil(ticks, NS_PER_S, hz);
}

static inline u64 add_sat(u64 a, u64 b)
{
    return a > NEVER - b ? NEVER : a + b;
}

static inline vns_t dev_now(const struct device *dev)
{
    return dev->env->now(dev->env->machine);
}

/* When it does what would be done at `due`. */
static inline vns_t dev_late(const struct device *dev, vns_t due)
{
    return dev->env->late ? dev->env->late(dev->env->machine, due) : due;
}

static inline void dev_irq(struct device *dev, unsigned gsi, bool level)
{
    dev->env->irq(dev->env->machine, gsi, level);
}

static inline void dev_changed(struct device *dev)
{
    dev->env->changed(dev->env->machine);
}

static inline void dev_event(struct device *dev, enum dev_event event, u32 arg)
{
    dev->env->event(dev->env->machine, event, arg);
}

/* An ISA bridge turns a wide access to an 8-bit device into byte cycles, lowest address first. */
static inline u32 pio_read_bytes(struct device *dev, u16 port, unsigned size,
                                 u8 (*read)(struct device *, u16))
{
    u32 v = 0;
    for (unsigned i = 0; i < size && i < 4; i++)
        v |= (u32)read(dev, (u16)(port + i)) << (8 * i);
    return v;
}

static inline void pio_write_bytes(struct device *dev, u16 port, unsigned size, u32 value,
                                   void (*write)(struct device *, u16, u8))
{
    for (unsigned i = 0; i < size && i < 4; i++)
        write(dev, (u16)(port + i), (u8)(value >> (8 * i)));
}

/* Frees what a device has, also of one whose creation failed half way. */
static inline void device_destroy(struct device *dev)
{
    if (dev->host && dev->ops->destroy)
        dev->ops->destroy(dev);
    free(dev->state);
    free(dev->host);
    dev->state = dev->host = NULL;
}

/* Allocates `size` zeroed bytes as dev->state and resets. device_destroy() frees them. */
static inline int dev_alloc(struct device *dev, const struct device_ops *ops,
                            const struct dev_env *env, size_t size, struct err *err)
{
    *dev = (struct device){.ops = ops, .env = env, .state = calloc(1, size)};
    if (!dev->state)
        return err_set(err, -ENOMEM, "no memory for device %s", ops->name);
    ops->reset(dev);
    return 0;
}

/* For device_ops.loaded. */
static inline int dev_bad_state(const struct device *dev, struct err *err, const char *what)
{
    return err_set(err, -EINVAL, "state of %s: %s out of range", dev->ops->name, what);
}

#endif
