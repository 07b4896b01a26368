/* virtio-rng: see fuzz_virtio.h. */
#include <string.h>

#include "dev/making.h"
#include "fuzz_virtio.h"

static void rng_create(struct world *w)
{
    static const struct machine_description is = {.seed = 7};
    make(w, make_rng, &is);
}

static void rng_destroy(struct world *w)
{
    device_destroy(&w->dev[0]);
}

static const u8 rng_sample[] = {0x00, 0x3b, 0x00,                    /* set_up slot 1 */
                                0x01, 0x01, 0,    0, 16, 0, 2, 0, 0, /* offer */
                                0x02, 0x03, 0,    0, 9 /* notify, wait */};

const struct target target = {.create = rng_create, .destroy = rng_destroy, SAMPLE(rng_sample)};
