/* struct machine, for the files of this folder. */
#ifndef REPRISE_MACHINE_INTERNAL_H
#define REPRISE_MACHINE_INTERNAL_H

#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include "board/ram.h"
#include "cpu/engine.h"
#include "dev/device.h"
#include "machine/last.h"
#include "machine/machine.h"

#define MACHINE_CPUS 1u

enum device_kind {
#define DEVICE(NAME, ...) DEV_##NAME,
#include "dev/devices.def"
#undef DEVICE
    DEV_KINDS
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

/* A vCPU: what its engine's calls carry, so that they say who asks. */
struct machine_cpu {
    struct machine *m;
    struct engine *engine;
    struct engine_env env;
    struct device *lapic;
};

struct bus_range {
    u64 base, size;
    struct device *dev;
};

struct machine {
    struct machine_state st;
    enum position_unit unit;
    u32 branch_ns, event_ns, tsc_step; /* machine_description; 0: only instructions are counted */
    enum cpu_model model;
    struct ram ram;
    struct machine_cpu cpu[MACHINE_CPUS];
    struct machine_cpu *turn; /* whose it is */

    /* devices.c, wires.c, bus.c */
    struct dev_env dev_env, serial_env;
    struct device *dev; /* in the order of devices.def */
    unsigned ndev;
    struct {
        unsigned first, n;
    } kind[DEV_KINDS];
    struct bus_range ports[64], windows[16];
    unsigned nports, nwindows;
    struct err failed; /* of the host, at something a device needs; code 0: none */

    /* run.c */
    struct last_events last;
    const char *recording; /* the caller's; NULL: none */
    bool end_requested;
    bool stop_requested;
    bool debug_pass;
    bool debug_stopped; /* at `debug_hit`; the run ends at the next stop */
    struct debug_hit debug_hit;
    struct run_end end;

    /* state.c */
    struct {
        XXH3_state_t hash;
        u64 bytes;
    } out[OUT_COUNT];
    bool zero_known;
    u64 zero_digest; /* of a RAM region of zeros */

    /* Who listens. */
    void (*output)(void *opaque, enum dev_output channel, const void *data, size_t len);
    void *output_opaque;
    void (*emit)(void *opaque, enum dev_emit kind, unsigned unit, const void *data, size_t len);
    void *emit_opaque;
    void (*taken)(void *opaque, const struct input *in);
    void *taken_opaque;
    struct machine_trace trace;
    void (*lacking)(void *opaque, struct machine *m, const char *text, enum cpu_model has);
    void *lacking_opaque;
};

/* devices.c */
int devices_create(struct machine *m, const struct machine_config *config, struct err *err);
void devices_destroy(struct machine *m);
/* Device `unit` of a kind; NULL: there is none. */
struct device *device_find(const struct machine *m, enum device_kind kind, u32 unit);
/* The first of a kind of which there always is one. */
static inline struct device *device_of(const struct machine *m, enum device_kind kind)
{
    return &m->dev[m->kind[kind].first];
}
/* Virtual time of the next thing that a device does by itself; NEVER: none does. */
vns_t devices_deadline(const struct machine *m);
/* Does what is due. */
void devices_expire(struct machine *m);

/* wires.c: what devices ask of the machine */
void wires_connect(struct machine *m);
/* The 8259s' output goes to the first CPU, as firmware leaves it. */
void wires_pic(struct machine *m);

/* bus.c: what vCPUs ask of the machine */
void bus_connect(struct machine *m);
/* Makes known which ports and addresses are a device's. */
void bus_add(struct machine *m, struct device *dev);
/* The vector of a maskable interrupt that the APIC or the PIC has for a vCPU; -1: none. */
int bus_interrupt(const struct machine_cpu *c);
/* Takes it: the vector that the CPU gets. */
u8 bus_acknowledge(struct machine_cpu *c);
/* Something changed that a vCPU may have to look at. */
void bus_attention(struct machine *m);
/* RAM [gpa, gpa + len) was written by anybody but a vCPU. */
void bus_writing(struct machine *m);
void bus_written(struct machine *m, gpa_t gpa, u64 len);

/* clock.c: position, virtual time, TSC */
void clock_create(struct machine *m, const struct machine_description *is);
/* Virtual time at a position, with that saved state. */
vns_t clock_time(const struct machine *m, const struct machine_state *st, pos_t position);
/* What the TSC shows, before IA32_TSC_ADJUST. */
vns_t clock_tsc(const struct machine *m);
/* The TSC of a machine that counts branches moves to the present. */
void clock_move_tsc(struct machine *m);
/* ... if its next step is due. Positions up to that one; NEVER: it has no steps. */
void clock_step_tsc(struct machine *m);
pos_t clock_tsc_distance(const struct machine *m);
/* Time passes while no vCPU executes. */
void clock_pass(struct machine *m, vns_t ns);

/* inputs.c */
void inputs_apply(struct machine *m, const struct input *in);

/* state.c */
void state_init(struct machine *m);

#endif
