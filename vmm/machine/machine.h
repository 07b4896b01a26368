/*
 * The machine: RAM, one vCPU on an engine, devices, virtual time. It knows the engine interface and
 * the input source, never the recorder.
 *
 * Position and time (docs/determinism.md): a position counts instructions retired, REP iterations
 * and deliveries of exceptions and interrupts. Virtual time = position + idle time, in ns.
 * A machine in branch unit counts conditional branches and events instead (cpu/unit.h), each
 * of them branch_ns; its TSC stands still but for the positions at which something happens, and
 * every tsc_step positions.
 *
 * The run loop, at every stop, in this order: expire device deadlines that are due; take inputs
 * until there is none; deliver a pending NMI or interrupt if the CPU accepts it; idle if halted;
 * otherwise run the engine to the next deadline, input position, limit or slice end.
 */
#ifndef REPRISE_MACHINE_H
#define REPRISE_MACHINE_H

#include "base/err.h"
#include "base/state.h"
#include "base/types.h"
#include "board/description.h"
#include "cpu/engine.h"
#include "cpu/model.h"
#include "cpu/stats.h"
#include "dev/device.h"
#include "machine/source.h"

struct disk;

#define MACHINE_CPUS_MAX 32u

/* Of machines that count branches: about what a CPU takes for one, and for leaving the guest; and a
 * millisecond of branches. */
#define MACHINE_BRANCH_NS 2u
#define MACHINE_EVENT_NS  1000u
#define MACHINE_TSC_STEP  (1u << 19)

/* What a machine is made of; all of it is the caller's, and but for the disks only until it is. */
struct machine_config {
    const struct machine_description *is;
    enum engine_kind engine; /* what runs it; the same machine whichever does */
    u64 code_cache;          /* of the engine (struct engine_config) */
    struct engine_paranoid paranoid;
    bool partly; /* a host that lacks features runs it up to their first use (struct engine_config)
                  */
    const void *kernel; /* ELF64 vmlinux (already extracted) */
    size_t kernel_size;
    const void *kernel_header; /* the bzImage, whole; NULL: there is none */
    size_t kernel_header_size;
    const void *initrd; /* NULL when none */
    size_t initrd_size;
    struct disk *const *disks; /* of the description's, in order */
};

enum run_reason {
    RUN_POWEROFF = 1, /* ACPI S5 */
    RUN_RESET,        /* the guest asked for a reset */
    RUN_TRIPLE_FAULT,
    RUN_HALTED,      /* halted and nothing can wake it */
    RUN_EXIT,        /* debug-exit port; arg is the value written */
    RUN_QUIT,        /* an INPUT_QUIT was taken; arg is its quit_reason */
    RUN_STOP,        /* run_limits.stop_at reached; the run can go on */
    RUN_UNSUPPORTED, /* the engine met an instruction form it does not know; text in err */
    RUN_ERROR,       /* input source failed or diverged; text in err */
    RUN_DEBUG,       /* a debug point was hit; the run can go on */
    RUN_LOST,        /* the engine went too far (ENGINE_LOST): there is no state; text in err */
};

struct run_limits {
    pos_t stop_at;   /* NEVER for none */
    vns_t stop_time; /* RUN_STOP also waits for this virtual time; 0: does not matter */
    pos_t pause_at;  /* RUN_STOP here in any case; 0: none */
    u64 slice;       /* most positions between two calls of take(); 0: default (4,000,000) */
};

struct run_end {
    enum run_reason reason;
    u32 arg;
};

/* Creates the machine at power-on, kernel loaded, CPU at its entry point. */
int machine_create(struct machine **out, const struct machine_config *config, struct err *err);
void machine_destroy(struct machine *m);

/* The directory of its recording, borrowed, for the text of a CHECK that fails. */
void machine_set_recording(struct machine *m, const char *dir);

/* Where guest output goes (console text to a terminal); NULL for nowhere. Never affects the guest.
 */
void machine_set_output(struct machine *m,
                        void (*fn)(void *opaque, enum dev_output channel, const void *data,
                                   size_t len),
                        void *opaque);

/* Where the guest's datagrams go (dev/device.h); NULL for nowhere. Never affects the guest. */
void machine_set_emit(struct machine *m,
                      void (*fn)(void *opaque, enum dev_emit kind, unsigned unit, const void *data,
                                 size_t len),
                      void *opaque);

/* Called with each input just before it applies; NULL for nobody. Never affects the guest. */
void machine_set_taken(struct machine *m, void (*fn)(void *opaque, const struct input *in),
                       void *opaque);

/*
 * A turn that was given: when vCPU `cpu` had counted so much, `to` got it. With the same delays,
 * and those that are not plain as INPUT_TURN instead of the chaos, a machine does the same.
 */
struct machine_switch {
    u32 cpu, to;
    u64 count;  /* engine_count() of `cpu` */
    bool plain; /* as the schedule has it; else chaos or an input gave it otherwise */
};
/* Called with each; NULL for nobody. Never affects the guest. */
void machine_set_switched(struct machine *m,
                          void (*fn)(void *opaque, const struct machine_switch *s), void *opaque);

/* Called when a program gets #UD for an instruction that the CPU model lacks and `has` has; NULL
 * for nobody. Never affects the guest. */
void machine_set_lacking(struct machine *m,
                         void (*fn)(void *opaque, struct machine *m, const char *text,
                                    const char *has),
                         void *opaque);

/* Instructions run one at a time, with calls before and after each (cpu/engine.h). NULL: none.
 * Never affects the guest. */
struct engine_range;
struct engine_accesses;
struct machine_trace {
    void (*before)(void *opaque, struct machine *m);
    void (*after)(void *opaque, struct machine *m);
    void *opaque;
    const struct engine_range *only; /* copied */
    unsigned n;                      /* 0: all instructions */
};
int machine_set_trace(struct machine *m, const struct machine_trace *trace);
/* From after(): what the instruction read and wrote. */
const struct engine_accesses *machine_accesses(const struct machine *m);

/* Runs until something ends it. 0, or <0 with a text: reason RUN_UNSUPPORTED, RUN_ERROR, RUN_LOST,
 * or RUN_QUIT with QUIT_ENGINE, which nobody asked for yet (recorder_quit). */
int machine_run(struct machine *m, struct input_source *src, const struct run_limits *limits,
                struct run_end *end, struct err *err);

/* Like a signal to the running machine from a signal handler or another thread: take() is called
 * soon. Async-signal-safe. */
void machine_kick(struct machine *m);

/* From callbacks: the run ends with RUN_STOP as soon as everything due at this instant is done. */
void machine_stop(struct machine *m);

pos_t machine_position(const struct machine *m);
vns_t machine_now(const struct machine *m);
/* Where the CPU is, while the input source is asked for INPUT_PLACE. */
void machine_place(struct machine *m, struct engine_place *out);
/* Goes to where an INPUT_PLACE is, before it is taken. As engine_reach(). */
int machine_settle(struct machine *m, const struct engine_place *to, struct err *err);
/* Does another vCPU wait for its turn? */
bool machine_waited_for(const struct machine *m);
/* The position in branches and events, of a machine that counts them. */
pos_t machine_branches(const struct machine *m);
/* A component's digest as it is where positions are branches; of others the usual one. */
u64 machine_branch_digest(struct machine *m, unsigned index);
/* Are positions branches and events? Else they are instructions, and each has one of its own. */
bool machine_by_branch(const struct machine *m);
/* What positions are, for people: "instructions", "branches and events". */
const char *machine_positions_name(const struct machine *m);
/* After how many positions that much virtual time has passed, if the machine is not idle. */
u64 machine_positions(const struct machine *m, vns_t ns);

/* Bytes of that kind of input which the machine can take now, at most INPUT_MAX (or
 * INPUT_CONTENT_MAX): 0 while a queue or
 * a FIFO is full, or if there is no such unit. Kinds without bytes: 1 or 0. */
u32 machine_room(const struct machine *m, enum input_kind kind, u32 unit);
/* Has the host failed to do a request of a disk, which the guest is still to be told? Fills *in
 * with the INPUT_DISK_ERROR that would tell it. */
bool machine_disk_failing(struct machine *m, struct input *in);

/* Does a GPU command wait for the renderer's reply (INPUT_GPU)? Its number. */
bool machine_gpu_waiting(const struct machine *m, u64 *number);
/* How many pieces of what the renderer sent the GPU has kept, ever (dev/virtio/gpu_reply.h). */
u64 machine_gpu_pieces(const struct machine *m);
/* Is network `unit`'s link up, as its device shows it? There is such a network. */
bool machine_link_up(const struct machine *m, unsigned unit);
/* Does a request of a share wait for the file server's reply (INPUT_SHARE)? Which share, and the
 * request's number. */
bool machine_share_waiting(const struct machine *m, unsigned *unit, u64 *number);

/* Components with digests: the vCPU ("cpu0") first, then each device in the machine's one list. */
unsigned machine_components(const struct machine *m);
struct machine_component {
    const char *name;
    const struct state_desc *desc;
    const void *state;
};
/* Fills *c; the vCPU's state is made canonical first (engine registers stored, flags masked). */
void machine_component(struct machine *m, unsigned index, struct machine_component *c);
u64 machine_component_digest(struct machine *m, unsigned index);
/* `cpu` in the record of an input: docs/determinism.md says what it is with several vCPUs.
 * `by_branch`: of a log whose positions are branches. */
u64 machine_cpu_digest(struct machine *m, bool by_branch);

/* Running XXH3 of all output bytes of a channel, and their number. */
u64 machine_output_digest(const struct machine *m, enum dev_output channel, u64 *bytes);

/* RAM: digest of all of it, and of one region of RAM_REGION bytes so that a difference is named. */
#define RAM_REGION (2u << 20)
unsigned machine_ram_regions(const struct machine *m);
u64 machine_ram_region_digest(struct machine *m, unsigned region, gpa_t *gpa);

struct vcpu;
unsigned machine_cpus(const struct machine *m);
/* Number of the vCPU whose turn it is. */
unsigned machine_turn(const struct machine *m);
/* What that one has counted. */
u64 machine_turn_count(const struct machine *m);
/* The calls from here on that are of one vCPU are of that one, until the machine runs or its state
 * is loaded; before, and where there is none of the number, of the one whose turn it is; after a
 * run that ended with RUN_DEBUG, of the one that came to the debug point. */
void machine_look_at(struct machine *m, unsigned cpu);
unsigned machine_seen(const struct machine *m);
const struct vcpu *machine_vcpu(struct machine *m); /* canonical, as machine_component */
/* For a debugger that changes it, between runs only; then machine_vcpu_edited(). */
struct vcpu *machine_vcpu_edit(struct machine *m);
void machine_vcpu_edited(struct machine *m);
u64 machine_cr8(struct machine *m);
enum cpu_model machine_cpu_model(const struct machine *m);
bool machine_cpu_has(const struct machine *m, enum cpu_feature f);
/* Linear address to host bytes without side effects (no accessed bits); false if not mapped RAM. */
bool machine_peek(struct machine *m, gva_t va, void *out, size_t len);
bool machine_peek_physical(struct machine *m, gpa_t gpa, void *out, size_t len);
bool machine_linear_to_physical(struct machine *m, gva_t va, gpa_t *gpa);
/* The same for writing, also to read-only pages; false: nothing was written. */
bool machine_poke(struct machine *m, gva_t va, const void *in, size_t len);
bool machine_poke_physical(struct machine *m, gpa_t gpa, const void *in, size_t len);

/* Debug points (cpu/engine.h). A hit ends the run with RUN_DEBUG. */
struct debug_point;
struct debug_hit;
int machine_debug_set(struct machine *m, const struct debug_point *points, unsigned n);
/* Of the run that ended with RUN_DEBUG. */
const struct debug_hit *machine_debug_hit(const struct machine *m);
/* The instruction at the present position is not stopped at by the next run. */
void machine_debug_pass(struct machine *m);

/* The host's KVM failed while the vCPU was looked at (engine_lost): what was seen of it since is
 * wrong, and the next run ends with RUN_LOST. The text is in err. */
bool machine_lost(const struct machine *m, struct err *err);

/*
 * Saved state, between runs that ended with RUN_STOP or RUN_DEBUG, or from take(): all components,
 * in order, without RAM and output. Loading checks it: <0 with a text if no machine can be in that
 * state; this machine is then unusable until a good one is loaded.
 */
size_t machine_state_size(const struct machine *m);
void machine_state_save(struct machine *m, u8 *out);
int machine_state_load(struct machine *m, const u8 *in, size_t len, struct err *err);
/* The position and virtual time that saved state of machine_state_size() bytes claims. The machine
 * stays as it is. */
void machine_state_when(const struct machine *m, const u8 *in, pos_t *position, vns_t *time);
/* The running digests of output, an opaque struct of this size. */
size_t machine_output_size(void);
void machine_output_save(const struct machine *m, void *out);
void machine_output_load(struct machine *m, const void *in);
/* The same state computed from the bytes themselves, all of them from power-on. */
void machine_output_compute(struct machine *m, enum dev_output channel, const void *data,
                            size_t len);

/* The machine's disks (host/disk.h). */
unsigned machine_disks(const struct machine *m);
struct disk *machine_disk(const struct machine *m, unsigned i);

/*
 * What a checkpoint keeps besides saved state and RAM: page images (base/page_image.h), of what was
 * written to each disk, then of what the GPU holds. *pages: how many there are; may be NULL.
 */
#define MACHINE_IMAGES (DESCRIPTION_DISKS + 1)
unsigned machine_images(const struct machine *m);
const struct page_image *machine_image(const struct machine *m, unsigned i, u64 *pages);
int machine_image_restore(struct machine *m, unsigned i, const struct page_image *image,
                          struct err *err);

/* The screen; false: there is no GPU. */
bool machine_screen(const struct machine *m, struct dev_screen *out);
/* A row of it, 3 bytes a pixel: what 2D commands made of it, black where the renderer alone knows.
 */
void machine_screen_row(struct machine *m, u32 y, u8 *rgb);
/* Draws the cursor over a row. */
void machine_screen_cursor(struct machine *m, u32 y, u8 *rgb);

/* RAM as host memory, by page index (board/ram.h); pages changed through it must be announced. */
struct ram;
const struct ram *machine_ram(const struct machine *m);
void machine_page_changed(struct machine *m, u64 index);
/* See engine_written() in cpu/engine.h. */
const u32 *machine_written(const struct machine *m, size_t *n);
int machine_written_reset(struct machine *m);

void machine_stats(const struct machine *m, struct machine_stats *out);
/* What code ran in since this machine was made: a bit for each of enum vcpu_mode (cpu/vcpu.h). */
u32 machine_modes(const struct machine *m);
/* Host code that its engine makes: engine_set_code_log() in cpu/engine.h. */
struct engine_code_log;
int machine_set_code_log(struct machine *m, const struct engine_code_log *log);

#endif
