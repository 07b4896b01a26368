/* virtio-rng: see fuzz_virtio.h. */
#include <stdlib.h>
#include <string.h>

#include "dev/virtio/rng.h"
#include "fuzz_virtio.h"

static void rng_create(struct world *w)
{
    struct err err;
    unsigned slot;
    struct device *d = add(w, &slot);
    if (virtio_rng_create(d, &w->env, &w->pci, slot, 7, &err))
        abort();
}

static void rng_destroy(struct world *w)
{
    device_destroy(&w->dev[0]);
}

static const u8 rng_sample[] = {0x00, 0x3b, 0x00,                    /* set_up slot 1 */
                                0x01, 0x01, 0,    0, 16, 0, 2, 0, 0, /* offer */
                                0x02, 0x03, 0,    0, 9 /* notify, wait */};

const struct target target = {.create = rng_create, .destroy = rng_destroy, SAMPLE(rng_sample)};
