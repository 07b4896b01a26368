/* The machine's devices by devices.def: creation, destruction, deadlines. */
#include "machine/internal.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "dev/acpi_pm.h"
#include "dev/debugexit.h"
#include "dev/ioapic.h"
#include "dev/lapic.h"
#include "dev/misc.h"
#include "dev/pci.h"
#include "dev/pic8259.h"
#include "dev/pit8254.h"
#include "dev/rtc.h"
#include "dev/uart16550.h"
#include "dev/util.h"
#include "dev/virtio/blk.h"
#include "dev/virtio/console.h"
#include "dev/virtio/gpu.h"
#include "dev/virtio/input.h"
#include "dev/virtio/net.h"
#include "dev/virtio/rng.h"

#define SEED_RNG    0x726e675f76697274ull /* so that it is not the kernel's own seed again */
#define CYCLE_LIMIT 1000 /* deadlines in a row at one virtual instant: a device is stuck */

/* What a device is made of. */
struct making {
    const struct dev_env *env, *serial_env;
    struct device *pci;
    const struct machine_description *is;
    struct disk *const *disks;
    unsigned unit, slot;
};

/* Devices that need nothing but their environment. */
#define PLAIN(maker, create)                                                                       \
    static int make_##maker(struct device *d, const struct making *w, struct err *err)             \
    {                                                                                              \
        return create(d, w->env, err);                                                             \
    }
PLAIN(lapic, lapic_create)
PLAIN(ioapic, ioapic_create)
PLAIN(pic, pic8259_create)
PLAIN(acpi_pm, acpi_pm_create)
PLAIN(debugexit, debugexit_create)
PLAIN(misc, misc_create)
PLAIN(pci, pci_create)
#undef PLAIN

static int make_pit(struct device *d, const struct making *w, struct err *err)
{
    int r = pit8254_create(d, w->env, err);
    if (!r && w->is->revision < 1)
        pit8254_unready(d);
    return r;
}

static int make_rtc(struct device *d, const struct making *w, struct err *err)
{
    return rtc_create(d, w->env, w->is->wall_clock, err);
}

static int make_uart(struct device *d, const struct making *w, struct err *err)
{
    return uart16550_create(d, w->is->hvc0 ? w->serial_env : w->env, err);
}

static int make_rng(struct device *d, const struct making *w, struct err *err)
{
    return virtio_rng_create(d, w->env, w->pci, w->slot, w->is->seed ^ SEED_RNG, err);
}

static int make_disk(struct device *d, const struct making *w, struct err *err)
{
    char name[16];
    snprintf(name, sizeof(name), "disk%u", w->unit);
    return virtio_blk_create(d, w->env, w->pci, w->slot, w->disks[w->unit], name, err);
}

static int make_net(struct device *d, const struct making *w, struct err *err)
{
    const struct description_net *n = &w->is->net[w->unit];
    return virtio_net_create(d, w->env, w->pci, w->slot, w->unit, n->mac, (u16)n->mtu, err);
}

static int make_gpu(struct device *d, const struct making *w, struct err *err)
{
    return virtio_gpu_create(d, w->env, w->pci, w->slot, &w->is->gpu, err);
}

static bool has_console(const struct machine_description *d)
{
    return d->hvc0 || d->port[1].name[0];
}

static int make_console(struct device *d, const struct making *w, struct err *err)
{
    static_assert(DESCRIPTION_PORTS == CONSOLE_PORTS, "as many as the device has");
    const char *names[CONSOLE_PORTS];
    for (unsigned i = 0; i < CONSOLE_PORTS; i++)
        names[i] = w->is->port[i].name;
    return virtio_console_create(d, w->env, w->pci, w->slot, w->is->hvc0, names, err);
}

static int make_input(struct device *d, const struct making *w, struct err *err)
{
    return virtio_input_create(d, w->env, w->pci, w->slot, w->unit, err);
}

static const struct row {
    int (*make)(struct device *d, const struct making *w, struct err *err);
    unsigned slot;
} rows[] = {
#define DEVICE(NAME, maker, number, slot) [DEV_##NAME] = {make_##maker, slot},
#include "machine/devices.def"
#undef DEVICE
};

static void count(struct machine *m, const struct machine_description *d)
{
#define DEVICE(NAME, maker, number, slot) m->kind[DEV_##NAME].n = (number);
#include "machine/devices.def"
#undef DEVICE
    unsigned n = 0;
    for (unsigned k = 0; k < DEV_KINDS; n += m->kind[k++].n)
        m->kind[k].first = n;
    m->ndev = n;
}

struct device *device_find(const struct machine *m, enum device_kind kind, u32 unit)
{
    return unit < m->kind[kind].n ? &m->dev[m->kind[kind].first + unit] : NULL;
}

int devices_create(struct machine *m, const struct machine_config *config, struct err *err)
{
    count(m, config->is);
    m->dev = calloc(m->ndev, sizeof(*m->dev));
    if (!m->dev)
        return err_set(err, -ENOMEM, "no memory for devices");
    for (unsigned k = 0; k < DEV_KINDS; k++)
        for (unsigned i = 0; i < m->kind[k].n; i++) {
            struct device *d = &m->dev[m->kind[k].first + i];
            struct making w = {.env = &m->dev_env,
                               .serial_env = &m->serial_env,
                               .pci = device_of(m, DEV_PCI),
                               .is = config->is,
                               .disks = config->disks,
                               .unit = i,
                               .slot = rows[k].slot + i};
            int r = rows[k].make(d, &w, err);
            if (r)
                return r;
            if (k == DEV_LAPIC)
                m->cpu[i].lapic = d; /* on no bus: each CPU sees its own */
            else
                bus_add(m, d);
        }
    return 0;
}

void devices_destroy(struct machine *m)
{
    for (unsigned i = m->dev ? m->ndev : 0; i--;)
        device_destroy(&m->dev[i]);
    free(m->dev);
}

vns_t devices_deadline(const struct machine *m)
{
    vns_t best = NEVER;
    for (unsigned i = 0; i < m->ndev; i++) {
        const struct device *d = &m->dev[i];
        vns_t t = d->ops->deadline ? d->ops->deadline(d) : NEVER;
        best = MIN(best, t);
    }
    return best < TIME_END ? best : NEVER;
}

void devices_expire(struct machine *m)
{
    for (unsigned n = 0; n < CYCLE_LIMIT; n++) {
        bool any = false;
        vns_t now = machine_now(m);
        for (unsigned i = 0; i < m->ndev; i++) {
            struct device *d = &m->dev[i];
            if (d->ops->deadline && d->ops->deadline(d) <= now) {
                d->ops->expire(d, now);
                any = true;
            }
        }
        if (!any)
            return;
        clock_move_tsc(m);
    }
    CHECK(0, "a device's deadline does not move past the present");
}
