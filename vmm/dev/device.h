/*
 * What every device looks like. A device sees time, interrupts and the outside only through its
 * dev_env, holds all its guest-visible state in one struct described by rows (base/state.h), and
 * knows nothing of recording: the machine hands it inputs at exact positions.
 *
 * A device is a function of its state and of the calls below; it never reads a host clock, never
 * calls malloc after creation and never fails: what a guest does wrong has a defined answer
 * (reads of nothing give all ones, writes are dropped).
 */
#ifndef REPRISE_DEVICE_H
#define REPRISE_DEVICE_H

#include "base/err.h"
#include "base/state.h"
#include "base/types.h"
#include "dev/input.h"

enum dev_output {
    OUT_CONSOLE, /* the machine's console: the serial port, or port 0 of the virtio console */
    OUT_DEBUG,   /* the serial port when it is not the console */
    OUT_COUNT
};

/* What leaves the machine other than as a stream of bytes. The device keeps a running digest of it
 * in its state. */
enum dev_emit {
    EMIT_PACKET, /* an Ethernet frame from network `unit` */
    EMIT_FRAME,  /* the guest showed something on its screen; 8 bytes: how often it has so far */
    EMIT_PORT,   /* bytes from port `unit` of the virtio console */
    EMIT_GPU,    /* struct dev_gpu */
    EMIT_SHARE,  /* struct dev_share, of share `unit` */
};

struct gpu_command;
struct gpu_range;

/* What happens at the GPU, in its order. Pointers are valid during the call. */
enum dev_gpu_what {
    DEV_GPU_TAKEN,    /* a command was taken from its queue */
    DEV_GPU_WRITTEN,  /* guest memory was written for it */
    DEV_GPU_ANSWERED, /* the guest has its answer */
    DEV_GPU_LOST,     /* the renderer is gone */
    DEV_GPU_FAULT,    /* context `number` met an error */
    DEV_GPU_RESET,    /* the driver reset the device: nothing is under way any more */
};
struct dev_gpu {
    enum dev_gpu_what what;
    u64 number; /* of the command, from 0 */
    /* TAKEN: */
    unsigned queue;
    const struct gpu_command *command;
    bool awaited; /* its answer needs the renderer's reply */
    /* TAKEN: guest memory that it read; WRITTEN: what was written. */
    const struct gpu_range *ranges;
    u32 count;
    u32 response;     /* TAKEN: why it is refused, or 0; ANSWERED */
    const void *body; /* ANSWERED: after its header; LOST, FAULT: text */
    u32 size;
};

/* What happens at a share (virtio-fs). */
enum dev_share_what {
    DEV_SHARE_TAKEN, /* a request was taken from a queue */
    DEV_SHARE_RESET, /* the driver reset the device: nothing is under way, and all is forgotten */
};
struct dev_share {
    enum dev_share_what what;
    bool awaited; /* there is to be a reply */
    u64 number;   /* of those that are awaited, from 0 */
    const u8 *request;
    u32 size;  /* bytes of it that are there */
    u64 total; /* that it has */
    u32 room;  /* for the reply */
};

/* What a display shows. */
struct dev_screen {
    u32 width, height; /* pixels; 0: it is off */
    u64 frames;        /* shown so far */
    u64 commands;      /* that the GPU has taken so far */
    u32 resource;      /* of the GPU: what is shown; 0: nothing */
    u32 x, y;          /* where in it the screen begins */
    u32 cursor;        /* the resource that is the pointer's picture; 0: none */
    u32 cursor_x, cursor_y;
    bool drawn; /* by a renderer ... */
    bool kept;  /* ... but the machine has pixels that 2D commands made */
};

enum dev_event {
    DEV_RESET, /* the guest asked for a reset (port 0xcf9, ACPI RESET_REG, keyboard controller) */
    DEV_POWEROFF, /* ACPI S5 */
    DEV_EXIT,     /* debug-exit port; arg is the byte (or dword) written */
    DEV_NMI,      /* an NMI for the CPU whose APIC id is `arg` (LAPIC LINT1, ICR, IO-APIC) */
    DEV_INIT,     /* INIT, likewise */
    DEV_SIPI,     /* start-up IPI; arg is the APIC id << 8 | the vector */
};

struct lapic_message;

struct dev_env {
    void *machine;
    vns_t (*now)(void *machine);
    /* When something is done that would be done at `due`; never before. NULL: then. */
    vns_t (*late)(void *machine, vns_t due);
    /* Level of a global system interrupt (0..23): goes to the 8259s (below 16) and the IO-APIC. */
    void (*irq)(void *machine, unsigned gsi, bool level);
    /* A message-signalled interrupt (SDM 11.11): IO-APIC entries and PCI devices send these. */
    void (*msi)(void *machine, u64 address, u32 data);
    /* Local APIC only: an interrupt for all but the one with id `but`. NULL: there are no others.
     */
    void (*ipi)(void *machine, const struct lapic_message *msg, u32 but);
    /* Local APIC only: end of interrupt broadcast of a level-triggered vector. */
    void (*eoi)(void *machine, u8 vector);
    /* deadline() or the interrupt state the CPU sees may have changed. Cheap; call when in doubt.
     */
    void (*changed)(void *machine);
    void (*output)(void *machine, enum dev_output channel, const void *data, size_t len);
    void (*emit)(void *machine, enum dev_emit kind, unsigned unit, const void *data, size_t len);
    void (*event)(void *machine, enum dev_event event, u32 arg);
    /* The host failed the device at something that the guest cannot be told: the run ends. */
    void (*failed)(void *machine, const struct err *why);
    /* DMA: copies; false, and nothing done, unless all of the range is RAM. From notifications and
     * expire() only, so that it falls on exact positions. */
    bool (*dma_read)(void *machine, gpa_t gpa, void *out, size_t len);
    bool (*dma_write)(void *machine, gpa_t gpa, const void *in, size_t len);
};

struct device;

struct io_range {
    u64 base, size;
    bool mmio; /* else ports */
};

struct device_ops {
    const char *name; /* as in `reprise info` and the progress records */
    const struct state_desc *state;
    const struct io_range *ranges;
    size_t nranges;
    /* Power-on state. `state` is zeroed before. Called once at creation and by tests. */
    void (*reset)(struct device *dev);
    /* Ports: size is 1, 2 or 4. A device may be called with any size in its range. */
    u32 (*pio_read)(struct device *dev, u16 port, unsigned size);
    void (*pio_write)(struct device *dev, u16 port, unsigned size, u32 value);
    /* Memory: `offset` from the range's base; size is 1, 2, 4 or 8. */
    u64 (*mmio_read)(struct device *dev, gpa_t offset, unsigned size);
    void (*mmio_write)(struct device *dev, gpa_t offset, unsigned size, u64 value);
    /* Virtual time of the next thing the device does by itself, NEVER when none. NULL: never. */
    vns_t (*deadline)(const struct device *dev);
    /* Time is `now` >= deadline(); afterwards deadline() > now. */
    void (*expire)(struct device *dev, vns_t now);
    /* After state_load: refuses values that no guest could have produced. NULL: anything goes. */
    int (*loaded)(struct device *dev, struct err *err);
    /* Of kinds that dev/inputs.def gives it: bytes that it can take now, at most INPUT_MAX; kinds
     * without bytes: 1 or 0. NULL: 1. */
    u32 (*room)(const struct device *dev, enum input_kind kind, u32 unit);
    void (*input)(struct device *dev, const struct input *in);
    /* Gives back what `host` owns, before it is freed. Also of a device that was half created. */
    void (*destroy)(struct device *dev);
};

struct device {
    const struct device_ops *ops;
    void *state;   /* struct described by ops->state */
    void *host;    /* what is not saved, from malloc; NULL if the device has none */
    char name[16]; /* its component's; "": ops->name */
    const struct dev_env *env;
};

#endif
