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

/* And of one with several vCPUs (schedule.c). */
#define MACHINE_SMP_STATE(F, A)                                                                    \
    F(u64, turn_end)  /* position at which another vCPU has its turn */                            \
    F(u32, turn)      /* whose it is */                                                            \
    F(u32, nmi)       /* pending, a bit for each vCPU but the first */                             \
    F(u64, chaos)     /* that of turns, its seed; 0: there is none (chaos.c) */                    \
    F(u64, delays)    /* ... and that of delays */                                                 \
    F(u64, chaos_end) /* position at which it looks at whose turn it is */                         \
    F(u64, era)       /* of the ranks */                                                           \
    F(u32, lowered)   /* so many have lost theirs in it */                                         \
    A(u32, rank, MACHINE_CPUS_MAX)

/* ... from revision 6 on. */
#define MACHINE_SPIN_STATE(F, A) F(u64, spin) /* of the registers, where the turn was looked at */

/* ... from revision 8 on, where turns are instructions. */
#define SCHEDULE_LENGTHS 3 /* a turn may have */
#define MACHINE_LONG_STATE(F, A)                                                                   \
    F(u32, waits) /* for its turn since it said so, or was started, a bit for each vCPU */         \
    F(u8, grown)  /* so often the turn has gone on */

/* ... whose turns are branches: it may come to a position more than once. */
#define MACHINE_LOOK_STATE(F, A) F(u64, looked) /* where it was looked at last */

/* ... that counts branches besides, in place of their sum. */
#define MACHINE_EACH_STATE(F, A) A(u64, each, MACHINE_CPUS_MAX)

struct machine_state {
    MACHINE_STATE(STATE_MEMBER, STATE_MEMBER_ARRAY)
    MACHINE_BRANCH_STATE(STATE_MEMBER, STATE_MEMBER_ARRAY)
    MACHINE_BOTH_STATE(STATE_MEMBER, STATE_MEMBER_ARRAY)
    MACHINE_SMP_STATE(STATE_MEMBER, STATE_MEMBER_ARRAY)
    MACHINE_SPIN_STATE(STATE_MEMBER, STATE_MEMBER_ARRAY)
    MACHINE_LONG_STATE(STATE_MEMBER, STATE_MEMBER_ARRAY)
    MACHINE_LOOK_STATE(STATE_MEMBER, STATE_MEMBER_ARRAY)
    MACHINE_EACH_STATE(STATE_MEMBER, STATE_MEMBER_ARRAY)
};

/* A vCPU: what its engine's calls carry, so that they say who asks. */
struct machine_cpu {
    struct machine *m;
    struct engine *engine;
    struct engine_env env;
    struct device *lapic;
    char name[16]; /* "cpu0" */
    bool init;     /* what other vCPUs sent, taken before the machine goes on */
    bool start;
    u8 start_vector;
};

struct bus_range {
    u64 base, size;
    struct device *dev;
};

struct machine {
    struct machine_state st;
    enum position_unit unit;
    u32 branch_ns, event_ns, tsc_step; /* machine_description; 0: only instructions are counted */
    struct cpu_choice cpu_kind;        /* what each of its vCPUs is */
    u32 revision;
    bool has_lbr; /* they have last-branch records */
    struct ram ram;
    struct machine_cpu cpu[DESCRIPTION_CPUS_MAX];
    unsigned ncpus;
    struct machine_cpu *turn; /* whose it is */
    struct machine_cpu *seen; /* which one is looked at; NULL: that one */

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
    struct {
        u32 point; /* its index + 1; 0: there is none */
        u32 cpu;
    } turn_to, turn_from;
    struct run_end end;
    pos_t horizon;   /* up to there nobody but the schedule has anything to do, while it is calm: */
    u32 calm;        /* so many runs of the engine ended by a PAUSE alone */
    bool paused;     /* the last one did, unless something else ended it */
    u32 able;        /* the vCPUs that can run, a bit for each; */
    bool able_known; /* unless somebody has to look again */
    bool running;    /* machine_run(): of the counts only that of whose turn it is changes, */
    pos_t others;    /* and those of all others are this */

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
    void (*switched)(void *opaque, const struct machine_switch *s);
    void *switched_opaque;
    bool generation; /* it has a VM generation ID */
    struct machine_trace trace;
    void (*lacking)(void *opaque, struct machine *m, const char *text, const char *has);
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
/* Are atomic operations and system calls told to the schedule? */
void bus_sync(struct machine *m, bool on);
/* The vector of a maskable interrupt that the APIC or the PIC has for a vCPU; -1: none. */
int bus_interrupt(const struct machine_cpu *c);
/* Takes it: the vector that the CPU gets. */
u8 bus_acknowledge(struct machine_cpu *c);
/* Something changed that a vCPU may have to look at. */
void bus_attention(struct machine *m);
/* RAM [gpa, gpa + len) was written by anybody but a vCPU. */
void bus_writing(struct machine *m);
void bus_written(struct machine *m, gpa_t gpa, u64 len);

/* schedule.c: whose turn it is */
/* A vCPU's NMI comes, or has gone. */
void schedule_nmi(struct machine *m, unsigned cpu, bool pending);
bool schedule_nmi_pending(const struct machine_cpu *c);
void schedule_init(struct machine *m, unsigned cpu);
void schedule_start(struct machine *m, unsigned cpu, u8 vector);
bool schedule_can_run(const struct machine_cpu *c);
/* Who can run stays as it is now until somebody looks again: only what asks for attention changes
 * it. */
void schedule_know(struct machine *m);
/* No other one can run, which stays so until somebody looks again. */
bool schedule_alone(const struct machine_cpu *c);
/* A vCPU waits for others in a loop. */
void schedule_pause(struct machine_cpu *c);
/* It is about to execute an atomic operation or a system call. */
void schedule_sync(struct machine_cpu *c);
/* It is the turn of that one. */
void schedule_give(struct machine *m, unsigned cpu);
/* INIT and start-up IPIs that were sent take effect. */
void schedule_starts(struct machine *m);
/* Turns that ended while no other vCPU could run went on, whether anybody looked then or not. */
void schedule_settle(struct machine *m);
/* It is over here: a vCPU waits in a loop that counts nothing. */
void schedule_end(struct machine *m);
/* Gives the turn on where it is over. */
void schedule_turn(struct machine *m);
/* Positions that the turn has left, after schedule_turn(); NEVER: it is nobody else's yet. */
pos_t schedule_left(struct machine *m);
/* May an interrupt or NMI end what all vCPUs wait in? */
bool schedule_wakes(const struct machine *m);
/* Do PAUSE, atomic operations and system calls say anything? */
bool schedule_hears(const struct machine *m);
/* Are turns looked at for loops that wait? */
bool schedule_spins(const struct machine *m);
/* Do turns go on while nobody waits for another one? */
bool schedule_grows(const struct machine *m);
/* Saved state was loaded. */
void schedule_loaded(struct machine *m);

/* chaos.c: what is done to turns and delays */
/* From here on, by that seed, in that part of all; seed 0: no more. */
void chaos_begin(struct machine *m, u64 seed, enum chaos_part part);
/* Who has the turn, where one ends or chaos looks, and another one can run. `over`: it ends without
 * chaos, too, and `plain` would have the next. */
struct machine_cpu *chaos_choose(struct machine *m, struct machine_cpu *plain, bool over);
/* Where chaos looks next, while no other can run. */
pos_t chaos_settled(const struct machine *m, pos_t here);
void chaos_pause(struct machine_cpu *c);
/* Before an atomic operation or system call, while another one can run: does the turn end soon? */
bool chaos_sync(struct machine_cpu *c);
/* When something is done that would be done at `due`. */
vns_t chaos_delay(const struct machine *m, vns_t due);

/* clock.c: position, virtual time, TSC */
void clock_create(struct machine *m, const struct machine_description *is);
/* Virtual time at a position, with that saved state. */
/* What turns are counted in: positions, of the recording's unit where this machine has another. */
pos_t clock_turns(const struct machine *m);
vns_t clock_time(const struct machine *m, const struct machine_state *st, pos_t position);
/* What the TSC shows, before IA32_TSC_ADJUST. */
vns_t clock_tsc(const struct machine *m);
/* The TSC of a machine that counts branches moves to the present. */
void clock_move_tsc(struct machine *m);
/* ... if its next step is due. Positions up to that one; NEVER: it has no steps. */
void clock_step_tsc(struct machine *m);
pos_t clock_tsc_distance(const struct machine *m);
/* machine_run() begins, and ends; the turn is another one's. */
void clock_begin(struct machine *m);
void clock_end(struct machine *m);
void clock_turn(struct machine *m, const struct machine_cpu *to);
/* Time passes while no vCPU executes. */
void clock_pass(struct machine *m, vns_t ns);

/* inputs.c */
void inputs_apply(struct machine *m, const struct input *in);

/* state.c */
void state_init(struct machine *m);

#endif
