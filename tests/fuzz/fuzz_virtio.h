/*
 * Fuzz targets: each virtio device from the guest's side, a file and a program a device. An input
 * is a program of a hostile driver: configuration space, BAR, rings and descriptors in memory,
 * notifications, time. After each program the state must be one that is accepted when loaded, and
 * running the same program again must end in the same state and memory.
 *
 * To add a device: fuzz_virtio_NAME.c with its target, and the folder corpus/virtio-NAME, which
 * makes the list (mk/test.mk).
 */
#ifndef REPRISE_FUZZ_VIRTIO_H
#define REPRISE_FUZZ_VIRTIO_H

#include "dev/making.h"
#include "dev/util.h"
#include "dev/pci.h"
#include "tests/fuzz/program.h"

#define RAM_SIZE    65536u
#define MAX_DEVICES 4u

/* One for all runs; zeroed before each. */
struct world {
    bool replay; /* the second run: what came from the host is what came in the first */
    size_t size; /* of the program */
    u32 step;
    u8 ram[RAM_SIZE];
    vns_t now;
    u64 messages; /* a digest of what left the device */
    struct dev_env env;
    struct device pci, dev[MAX_DEVICES];
    struct device *list[MAX_DEVICES];
    unsigned ndev;
};

/* A kind of device. What may be NULL has nothing to do. */
struct target {
    /* Creates one or more, each announced by add() in the order of their slots (1, ...). */
    void (*create)(struct world *w);
    void (*destroy)(struct world *w);
    /* Something that only such a device knows (a request, a packet that arrives). */
    void (*special)(struct world *w, unsigned slot, struct program *s);
    /* After each step: what comes from the host, taken or replayed. */
    void (*inputs)(struct world *w);
    /* What leaves the device other than as bytes of a console; NULL: nothing may. */
    void (*emit)(struct world *w, enum dev_emit kind, unsigned unit, const void *data, size_t len);
    /* At the end of a run: checks of its own; what both runs must agree on besides. */
    u64 (*outcome)(struct world *w);
    const u8 *sample; /* a program that reaches the device's requests */
    size_t sample_size;
    /* That set_up enables, each with a page of its own; 0: a few on shared rings. */
    unsigned queues;
    u32 features; /* of the device, that its driver takes */
};
extern const struct target target;

#define SAMPLE(bytes) .sample = bytes, .sample_size = sizeof(bytes)
/* Steps of a sample. */
#define NOTIFY(q)           0x02, q
#define OFFER(q, len, flag) 0x01, q, 0x00, 0, 1, len, 0, flag, 2 /* three times the same */
#define SPECIAL(what, arg)  0x0a, what, arg

/* The next device, for a target to create. */
struct device *add(struct world *w, unsigned *slot);
/* ... made as the machine does, of such a description. */
void make(struct world *w, device_maker *maker, const struct machine_description *is);

/* The driver writes to configuration space, or to the BAR. */
void config(struct world *w, unsigned slot, unsigned offset, unsigned size, u32 value);
void store(struct world *w, unsigned slot, u32 offset, unsigned size, u64 value);
u64 bar(unsigned slot);

/* What a good driver does, so that what follows is looked at: `how` has queue sizes, vectors, ...
 */
void set_up(struct world *w, unsigned slot, u64 how, u32 features);

/* Where a queue's descriptors and rings are, and from where on its buffers. */
unsigned desc_of(unsigned q);
unsigned avail_of(unsigned q);
unsigned used_of(unsigned q);
unsigned buffers(void);

#endif
