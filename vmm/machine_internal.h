/* struct machine, for machine.c (wiring, the run loop) and machine_state.c (looking at it). */
#ifndef REPRISE_MACHINE_INTERNAL_H
#define REPRISE_MACHINE_INTERNAL_H

#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include "board/ram.h"
#include "cpu/engine.h"
#include "dev/virtio/blk.h"
#include "dev/virtio/console.h"
#include "dev/virtio/gpu.h"
#include "dev/virtio/input.h"
#include "dev/virtio/net.h"
#include "machine.h"

/* The one list: order of expiry, of digests, of saved state. */
enum {
    DEV_LAPIC,
    DEV_IOAPIC,
    DEV_PIC,
    DEV_PIT,
    DEV_RTC,
    DEV_UART,
    DEV_ACPI,
    DEV_EXIT_PORT,
    DEV_MISC,
    DEV_PCI,
    DEV_RNG,
    DEV_FIXED, /* from here on what the configuration asks for, in its order */
    DEV_MAX = DEV_FIXED + MACHINE_DISKS + MACHINE_NETS + 2 + INPUT_DEVICES
};

/* The machine's own saved state. */
#define MACHINE_STATE(F, A)                                                                        \
    F(u64, idle_ns) /* virtual time = position, in ns, + this */                                   \
    F(u8, nmi_pending)

/* And of a machine that counts branches. */
#define MACHINE_BRANCH_STATE(F, A)                                                                 \
    F(u64, tsc)    /* virtual time that the TSC shows */                                           \
    F(u64, tsc_at) /* position at which it is looked at next */

/* And of one that counts them besides instructions. */
#define MACHINE_BOTH_STATE(F, A) F(u64, branches)

struct machine_state {
    MACHINE_STATE(STATE_MEMBER, STATE_MEMBER_ARRAY)
    MACHINE_BRANCH_STATE(STATE_MEMBER, STATE_MEMBER_ARRAY)
    MACHINE_BOTH_STATE(STATE_MEMBER, STATE_MEMBER_ARRAY)
};

struct bus_range {
    u64 base, size;
    struct device *dev;
};

struct machine {
    struct machine_state st;
    u32 branch_ns, event_ns, tsc_step; /* machine_config; 0: only instructions are counted */
    bool by_insn;
    struct ram ram;
    struct engine *engine;
    struct engine_env engine_env;
    struct dev_env dev_env, serial_env;
    struct device dev[DEV_MAX];
    unsigned ndev;
    struct virtio rng;
    struct virtio_blk blk[MACHINE_DISKS];
    struct virtio_net net[MACHINE_NETS];
    struct virtio_gpu gpu;
    struct virtio_console console; /* v.dev NULL: none */
    struct virtio_input inputs[INPUT_DEVICES];
    unsigned ndisks, nnets;
    bool has_gpu;
    struct err failed; /* of the host, at something a device needs; code 0: none */
    struct bus_range ports[64], windows[16];
    unsigned nports, nwindows;
    bool end_requested;
    bool stop_requested;
    bool debug_pass;
    bool debug_stopped; /* at `debug_hit`; the run ends at the next stop */
    struct debug_hit debug_hit;
    enum cpu_model model;
    struct run_end end;
    struct {
        XXH3_state_t hash;
        u64 bytes;
    } out[OUT_COUNT];
    bool zero_known;
    u64 zero_digest; /* of a RAM region of zeros */
    void (*output)(void *opaque, enum dev_output channel, const void *data, size_t len);
    void *output_opaque;
    void (*emit)(void *opaque, enum dev_emit kind, unsigned unit, const void *data, size_t len);
    void *emit_opaque;
    void (*taken)(void *opaque, const struct input *in);
    void *taken_opaque;
    void (*trace)(void *opaque, struct machine *m);
    void *trace_opaque;
};

#endif
