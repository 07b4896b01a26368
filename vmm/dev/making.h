/*
 * How the machine makes a device: the makers of all rows of devices.def, each in its device's own
 * file, with what the machine has for it.
 */
#ifndef REPRISE_DEV_MAKING_H
#define REPRISE_DEV_MAKING_H

#include "board/description.h"
#include "dev/device.h"
#include "host/input_report.h"

struct disk;

struct making {
    const struct dev_env *env;
    const struct dev_env *serial_env; /* of a serial port that is not the machine's console */
    struct device *pci;               /* the bus; it is made before what is behind it */
    const struct machine_description *is;
    struct disk *const *disks; /* description_disks() of them; they outlive their devices */
    unsigned unit;             /* which one of its kind */
    unsigned slot;             /* its own on the bus, of a kind that has slots */
};

/* Makes one. <0 with a text; device_destroy() is for what was made by half, too. */
typedef int device_maker(struct device *dev, const struct making *w, struct err *err);

#define DEVICE(NAME, maker, ...) device_maker make_##maker;
#include "dev/devices.def"
#undef DEVICE

/* A maker for what needs nothing but its environment. */
#define MAKER(name, create)                                                                        \
    int make_##name(struct device *dev, const struct making *w, struct err *err)                   \
    {                                                                                              \
        return create(dev, w->env, err);                                                           \
    }

#endif
