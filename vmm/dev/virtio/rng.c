/*
 * virtio entropy device (virtio 1.2, 5.4). Its bytes are a function of the machine's seed and of
 * how many were taken before, so nothing of it is logged; the seed itself comes from the host's
 * random pool when recording (or --seed) and is kept in the recording. Another one is an input.
 */
#include <string.h>
#include <xxhash.h>

#include "dev/making.h"
#include "dev/util.h"
#include "dev/virtio/rng.h"
#include "dev/virtio/virtio.h"

#define CHUNK    4096u                 /* bytes of one request that are filled */
#define SEED_RNG 0x726e675f76697274ull /* so that it is not the kernel's own seed again */

#define RNG_STATE(F, A)                                                                            \
    VIRTIO_STATE(F, A)                                                                             \
    F(u64, seed)                                                                                   \
    F(u64, taken) /* blocks of 16 bytes */

STATE(rng, "virtio-rng", RNG_STATE);

/* The guest's kernel mixes what it gets into a cryptographic pool of its own. */
static void next_bytes(struct rng_state *s, u8 out[16])
{
    u64 n = s->taken++;
    XXH128_hash_t h = XXH3_128bits_withSeed(&n, sizeof(n), s->seed);
    memcpy(out, &h.low64, 8);
    memcpy(out + 8, &h.high64, 8);
}

/* The device's bytes come of 8 bytes with the seed: these are other ones. */
u64 rng_number(const struct device *dev, pos_t position, bool seed)
{
    const struct rng_state *s = dev->state;
    const u64 at[2] = {position, seed ? 0x64656573 : 0x646e6172};
    return XXH3_128bits_withSeed(at, sizeof(at), s->seed).high64;
}

static void rng_notify(struct device *dev, unsigned queue)
{
    struct virtio *v = dev->host;
    u8 bytes[CHUNK];
    while (virtio_pop(v, queue)) {
        u64 len = MIN(v->chain.write_len, (u64)CHUNK);
        for (u64 i = 0; i < len; i += 16)
            next_bytes(dev->state, bytes + i);
        virtio_push(v, queue, v->chain.head, (u32)virtio_write(v, 0, bytes, len));
    }
    virtio_signal(v, queue);
}

static const struct virtio_class rng_class = {
    .type = 4,
    .pci_class = {0x00, 0x00, 0x10}, /* network and computing encryption device, as others say */
    .queues = 1,
    .queue_max = 64,
    .notify = rng_notify,
};

static u32 rng_room(const struct device *dev, enum input_kind kind, u32 unit)
{
    return INPUT_SEED_SIZE;
}

static void rng_input(struct device *dev, const struct input *in)
{
    struct rng_state *s = dev->state;
    u64 seed;
    memcpy(&seed, in->data, sizeof(seed));
    s->seed = seed ^ SEED_RNG;
}

static const struct device_ops rng_ops = {
    .name = "virtio-rng",
    .state = &rng_desc,
    .reset = virtio_reset,
    .loaded = virtio_loaded,
    .room = rng_room,
    .input = rng_input,
};

int make_rng(struct device *dev, const struct making *w, struct err *err)
{
    int r =
        virtio_alloc(dev, &rng_ops, w->env, sizeof(struct rng_state), sizeof(struct virtio), err);
    if (r)
        return r;
    virtio_connect(dev, &rng_class, w->pci, w->slot);
    struct rng_state *s = dev->state;
    s->seed = w->is->seed ^ SEED_RNG;
    return 0;
}
