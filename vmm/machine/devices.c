/* The machine's devices by dev/devices.def: creation, destruction, deadlines. */
#include "machine/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "dev/making.h"
#include "dev/pci.h"
#include "dev/util.h"

#define CYCLE_LIMIT 1000 /* deadlines in a row at one virtual instant: a device is stuck */

static const struct row {
    device_maker *make;
    unsigned slot;
} rows[] = {
#define DEVICE(NAME, maker, number, slot) [DEV_##NAME] = {make_##maker, slot},
#include "dev/devices.def"
#undef DEVICE
};

static void count(struct machine *m, const struct machine_description *d)
{
#define DEVICE(NAME, maker, number, slot) m->kind[DEV_##NAME].n = (number);
#include "dev/devices.def"
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

/* Of device `i` of a kind. `used` has a bit for each slot that is taken, and gets its own. */
static unsigned slot_of(unsigned kind, unsigned i, u32 *used)
{
    unsigned slot = rows[kind].slot + i;
    if (rows[kind].slot == PCI_SLOT_FREE)
        for (slot = PCI_SLOTS - 1; slot && *used >> slot & 1;)
            slot--;
    else if (!rows[kind].slot)
        return 0;
    *used |= 1u << slot;
    return slot;
}

int devices_create(struct machine *m, const struct machine_config *config, struct err *err)
{
    u32 used = 1; /* the bridge */
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
                               .slot = slot_of(k, i, &used)};
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
