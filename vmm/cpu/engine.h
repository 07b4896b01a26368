/*
 * The engine interface: what runs the guest's instructions. The machine is its only user besides
 * the tests. Implementations: dbt/ (portable), kvm/ (stock /dev/kvm); engine.c hands each call to
 * the one that was created. An engine owns its vCPU and knows nothing of devices: everything
 * outside the CPU and RAM is reached through engine_env.
 */
#ifndef REPRISE_ENGINE_H
#define REPRISE_ENGINE_H

#include "base/err.h"
#include "cpu/model.h"
#include "cpu/stats.h"
#include "cpu/unit.h"
#include "cpu/vcpu.h"

/* What the engine asks of the machine, with its vCPU's opaque pointer: so the machine knows who
 * asks. The guest's vector registers are parked: what is called may use them. During these calls
 * engine_count() is exact: the count before the instruction that makes the access retires. */
struct engine_env {
    void *cpu;
    u32 (*pio_read)(void *cpu, u16 port, unsigned size);
    void (*pio_write)(void *cpu, u16 port, unsigned size, u32 value);
    u64 (*mmio_read)(void *cpu, gpa_t gpa, unsigned size); /* size 1, 2, 4, 8 */
    void (*mmio_write)(void *cpu, gpa_t gpa, unsigned size, u64 value);
    /* MSRs that the CPU core does not own: IA32_APIC_BASE, TSC_DEADLINE, x2APIC. false: #GP. */
    bool (*rdmsr)(void *cpu, u32 msr, u64 *value);
    bool (*wrmsr)(void *cpu, u32 msr, u64 value);
    u64 (*get_cr8)(void *cpu);
    void (*set_cr8)(void *cpu, u64 value);
    /* A performance counter overflowed: LVTPC. `mask`: the entry is masked by that (Intel's). */
    void (*pmi)(void *cpu, bool mask);
    /* What the TSC shows: TSC = now + tsc_adjust. Changes nothing. UNIT_INSN: until a run ends it
     * goes with the position, and the engine need not ask each time. */
    vns_t (*now)(void *cpu);
    /* RDRAND and RDSEED (`seed`): a number that follows from the machine's entropy and from the
     * position. */
    u64 (*random)(void *cpu, bool seed);
    /* PAUSE: the guest waits for another vCPU. NULL: there is none. See engine_want_pause(). */
    void (*pause)(void *cpu);
    /* It is about to execute an atomic operation or a system call, maybe not for the first time.
     * NULL: nobody listens, and it costs nothing; after a change call engine_changed(). */
    void (*sync)(void *cpu);
    /* UNIT_BRANCH: an event was counted (cpu/unit.h); engine_count() includes it. */
    void (*counted)(void *cpu);
    /* A program in ring 3 is about to get #UD for an instruction that the CPU lacks, and another
     * one, `--cpu has`, does not; `text` is it. Never affects the guest. May be NULL. */
    void (*lacking)(void *cpu, const char *text, const char *has);
};

enum engine_exit {
    ENGINE_STOP = 1,    /* stop_at reached */
    ENGINE_ATTENTION,   /* engine_attention() was called, at an instruction boundary */
    ENGINE_WINDOW,      /* interrupts became deliverable while a window was wanted */
    ENGINE_HALT,        /* HLT retired (vcpu.halted is set) */
    ENGINE_SHUTDOWN,    /* triple fault */
    ENGINE_UNSUPPORTED, /* an instruction form outside the table; text in err; state exact before it
                         */
    ENGINE_FAILED,  /* the host's KVM; or its CPU lacks the instruction; text in err; state exact
                       before the instruction */
    ENGINE_DEBUG,   /* a debug point was hit: engine_debug_hit() */
    ENGINE_LOST,    /* the host's: the vCPU is beyond where it had to stop; text in err; its
                       state is of no use, only a checkpoint is */
    ENGINE_BETWEEN, /* UNIT_BRANCH: the guest goes on and on without anything that counts: it is
                       somewhere between two positions, engine_place() says where */
};

enum engine_kind { ENGINE_DBT, ENGINE_KVM };

struct ram;

/* Bytes of host code that an engine keeps of what it translated. Its tables take 0.45 of that more
 * as a rule, 0.82 at most; memory is taken as it fills. Recordings do not depend on it. */
#define CODE_CACHE_DEFAULT (256u << 20)
#define CODE_CACHE_MIN     (4u << 20)
#define CODE_CACHE_MAX     (1024u << 20)

/* Of dbt: each stretch of code is run a second way, and all state compared. Whatever differs ends
 * the run: ENGINE_FAILED, or engine_verify() says it. */
struct engine_paranoid {
    bool on;
    u64 seed; /* of the stretches' lengths */
};

/*
 * What a vCPU does differently since there are recordings, by the machine's revision
 * (board/description.h). 2: an interrupt pushes RF as it is; a far CALL between 64-bit and
 * compatibility mode pushes to the stack as the new code has it. (3: nothing of the vCPU's.) 4:
 * what the manuals leave undefined is the same on every host (x86/canon.h), where positions are
 * instructions. (5: what INIT leaves, of which the machine sees to. 6: nothing of
 * the vCPU's.) 7: CPUID leaf 4 counts cores, and AMD's leaf 1 CPUs, as the other leaves do. (8:
 * nothing of the vCPU's.) 9: Intel's models with counters have last-branch records, and counters
 * with AnyThread count what all threads of their core do.
 */
#define ENGINE_REVISION 9

struct engine_config {
    enum cpu_model model;
    const u32 *words; /* CPU_WORDS of features, copied; NULL: the model's (cpu/features.h) */
    bool partly;      /* dbt: of what this host lacks the run ends in front of the first use */
    struct ram *ram;
    const struct engine_env *env;
    enum engine_kind kind;
    enum position_unit unit; /* 0: UNIT_INSN */
    u32 revision;            /* of the machine, whose rules it follows: ENGINE_REVISION now */
    bool pmu;                /* the model's performance counters are there */
    bool guest_tsc;          /* kvm, UNIT_BRANCH: it may run freely once MSR_GUEST_TSC says so */
    /* Of a machine with several vCPUs: which one, of how many, and another one's engine (NULL: it
     * is the first), with which it shares what is the machine's. Not paranoid. */
    u32 id;
    struct cpu_parts parts;
    struct engine *sibling;
    u64 code_cache; /* bytes, CODE_CACHE_MIN to CODE_CACHE_MAX; 0: CODE_CACHE_DEFAULT */
    struct engine_paranoid paranoid;
};

struct engine;

/* *out is the caller's until engine_destroy(). <0 with a text: what this host lacks. */
int engine_create(struct engine **out, const struct engine_config *config, struct err *err);
void engine_destroy(struct engine *e);

/* "dbt", "kvm"; -1 if there is no such engine. */
const char *engine_kind_name(enum engine_kind kind);
int engine_kind_find(const char *name);
/*
 * What `auto` means here: ENGINE_KVM where it is exact at the hardware's own speed, else
 * ENGINE_DBT; *why says why not KVM, and what would change that.
 */
enum engine_kind engine_best(struct err *why);

/* The vCPU. After engine_sync() it is canonical; after changing it call engine_changed(). */
struct vcpu *engine_vcpu(struct engine *e);
/* Stores all live state: registers, x87/SSE/AVX, flags masked by liveness (see x86/flags.c). */
void engine_sync(struct engine *e);
void engine_changed(struct engine *e);

/* Did a call that cannot say so fail in the host's KVM, since the last engine_changed()? Then the
 * vCPU is not what it should be, and the next run ends with ENGINE_LOST. The text is in err. */
bool engine_lost(const struct engine *e, struct err *err);

/* The modes in which this engine ran code, a bit for each of enum vcpu_mode (cpu/vcpu.h). Of a free
 * run by KVM: those that its exits show. */
u32 engine_modes(const struct engine *e);
/* What this vCPU has counted since power-on, in the unit that it was created with (cpu/unit.h);
 * positions of the machine are made of it. */
pos_t engine_count(const struct engine *e);
/* The same in UNIT_BRANCH, also of an engine that counts instructions and branches besides. */
pos_t engine_branches(const struct engine *e);
/* After a change of state that has another one. Only in UNIT_BOTH. */
void engine_set_branches(struct engine *e, pos_t branches);

/*
 * Runs until engine_count() is `stop_at`, which is no less than it is now (ENGINE_STOP comes
 * earlier if it was kicked, or so slow that the host is to be looked at): in UNIT_BRANCH directly
 * after what makes it so. (An instruction that counts more than one, as an access to a device in
 * pieces, may leave some positions out.) engine_count() says how many there were.
 */
enum engine_exit engine_run(struct engine *e, pos_t stop_at, struct err *err);

/* UNIT_BRANCH: what tells instants of the same position apart. */
struct engine_place {
    u64 rip, rcx, rsp;
    u64 hash; /* of the general registers and RFLAGS */
};

/* Where it is; for ENGINE_BETWEEN. */
void engine_place(struct engine *e, struct engine_place *out);
/* Goes on to that place, with nothing on the way that counts. -ESRCH with a text: the guest never
 * comes there. */
int engine_reach(struct engine *e, const struct engine_place *to, struct err *err);
/* Counts one event here. */
void engine_count_event(struct engine *e);

/* Makes engine_run return ENGINE_ATTENTION at the next instruction boundary (from callbacks). */
void engine_attention(struct engine *e);
/* From a signal handler or another thread: engine_run returns soon, at some boundary. */
void engine_kick(struct engine *e);

/* IF = 1 and no shadow: a maskable interrupt can be delivered now. */
bool engine_can_interrupt(const struct engine *e);
bool engine_can_nmi(const struct engine *e);
/* While set, engine_run returns ENGINE_WINDOW at the first boundary with engine_can_interrupt()
 * (for NMI: engine_can_nmi()). */
void engine_want_window(struct engine *e, bool interrupt, bool nmi);
/* Can another vCPU run, so that engine_env.pause is to be called? If not it may be left out until
 * the next run ends: which costs nothing. It is, as long as nobody says otherwise. */
void engine_want_pause(struct engine *e, bool told);
/* Delivers through the IDT; counts one position; leaves HLT. May shut down: ENGINE_SHUTDOWN, else
 * 0. */
int engine_interrupt(struct engine *e, u8 vector);
int engine_nmi(struct engine *e);

/* RAM is going to be written from outside the CPU (call before the write). */
void engine_ram_writing(struct engine *e);
/* RAM [gpa, gpa+len) was written from outside the CPU (call after the write). */
void engine_ram_written(struct engine *e, gpa_t gpa, u64 len);

/*
 * Instruction trace. The instructions to be traced run one at a time, all others as usual; the
 * guest cannot see it.
 */
struct engine_range {
    u64 first, last; /* linear addresses of instructions */
};
struct engine_trace {
    void (*before)(void *opaque); /* in front of the instruction */
    void (*after)(void *opaque);  /* after it, and after the delivery of its fault */
    void *opaque;
    const struct engine_range *only; /* ascending, apart from each other; copied */
    unsigned n;                      /* 0: all instructions */
};
/* NULL: none. -ENOMEM: none is set. */
int engine_set_trace(struct engine *e, const struct engine_trace *trace);

/* What the traced instruction read and wrote so far: from after() all of it. Accesses that lie side
 * by side, as those of REP strings, are one. What the CPU reads and writes of itself (page tables,
 * descriptors, an exception's frame) does not count. Of dbt; nothing while KVM steps. */
#define ENGINE_ACCESSES     16
#define ENGINE_ACCESS_BYTES 64
struct engine_access {
    u64 address;
    u64 size;
    bool write;
    u8 value[ENGINE_ACCESS_BYTES]; /* if it fits */
};
struct engine_accesses {
    u32 n;
    u32 lost; /* accesses that found no room */
    struct engine_access list[ENGINE_ACCESSES];
};
const struct engine_accesses *engine_accesses(const struct engine *e);
/* Adds one more, whose value is beside it. */
void engine_add_access(struct engine_accesses *all, const struct engine_access *one,
                       const u8 *value);

/* Linear to physical without side effects; false if not mapped. */
bool engine_linear_to_physical(struct engine *e, gva_t va, gpa_t *gpa);

/* Linear to host bytes without side effects; false if not mapped to RAM. */
bool engine_peek(struct engine *e, gva_t va, void *out, size_t len);

/*
 * Debug points: what stops the run for a debugger. The guest cannot see them.
 *
 * DEBUG_EXEC stops in front of the instruction at a linear address (of a REP string: in front of
 * its first iteration). The others stop after the instruction, iteration or delivery of an
 * exception or interrupt that accesses a byte of [address, address + length), whatever it stored.
 * The processor's own accesses to page tables do not count.
 *
 * DEBUG_TO_USER and DEBUG_FROM_USER stop after the instruction or delivery that enters or leaves
 * ring 3, wherever it leads. Of several such points of one kind the last counts.
 *
 * DEBUG_MARK stops after the instruction by which a program makes a mark
 * (guest-agent/reprise-mark.h); registers have its name. Of several the last counts.
 *
 * DEBUG_TURN_TO and DEBUG_TURN_FROM stop where the turn goes to vCPU number `address`, or from it
 * to another one. They are the machine's: an engine does not look at them. One of a kind.
 */
enum debug_kind {
    DEBUG_EXEC,
    DEBUG_WRITE,
    DEBUG_READ,
    DEBUG_ACCESS,
    DEBUG_TO_USER,
    DEBUG_FROM_USER,
    DEBUG_MARK,
    DEBUG_TURN_TO,
    DEBUG_TURN_FROM
};
struct debug_point {
    enum debug_kind kind;
    bool physical;       /* of data only */
    u64 address, length; /* of code and data */
};
struct debug_hit {
    unsigned point; /* its index */
    bool write;
    u64 address;    /* first byte of the access, linear or physical as the point is; RIP where the
                       point is of another kind */
    pos_t position; /* before the instruction: of an access, one less than where the run stopped */
    u32 cpu;        /* the machine's: whose it was */
};
/* Replaces all points; they are copied. -ENOMEM: none are set. */
int engine_debug_set(struct engine *e, const struct debug_point *points, unsigned n);
/* The hit since the last call, if there was one. Of several in one instruction: the first. */
bool engine_debug_hit(struct engine *e, struct debug_hit *out);
/* Whether the instruction at the present position is not to be stopped at. */
void engine_debug_pass(struct engine *e, bool pass);

/*
 * Which pages of RAM were written, by CPU or devices, since the last engine_written_reset():
 * indices as ram_page_index() gives them, each once, in no order. Tracking starts with the first
 * reset and costs a slow path for the first write to each page.
 */
const u32 *engine_written(const struct engine *e, size_t *n);
/* Marks all pages as not written. Fails from the first call only. A host that cannot say which were
 * written makes all of them written. */
int engine_written_reset(struct engine *e);

/* An engine that checks itself: waits for what is not compared yet. <0 with a text: a difference,
 * and the run was not what it should be. */
int engine_verify(struct engine *e, struct err *err);

void engine_stats(const struct engine *e, struct machine_stats *out);

/*
 * Host code that the engine makes, told to a profiler in the guest's terms. The guest cannot see
 * it, and nobody is asked for anything while there is no log.
 */
enum engine_code_kind {
    ENGINE_CODE_BLOCK,  /* a run of guest instructions */
    ENGINE_CODE_SINGLE, /* one instruction, for whoever executes them one at a time */
    ENGINE_CODE_STUB,   /* the engine's own */
};
struct engine_code {
    enum engine_code_kind kind;
    const void *host; /* where it runs */
    u32 size;
    bool user;        /* of a block: it is ring 3's */
    gva_t guest;      /* of a block: linear address of its first instruction */
    const char *name; /* of the others, for ever: the instruction's mnemonic, what the stub does */
};
struct engine_code_log {
    /* Its bytes are there, but for branches that are linked later. */
    void (*made)(void *opaque, const struct engine_code *code);
    /* What is there, all but the stubs, is about to go, and its addresses to be used again. */
    void (*dropped)(void *opaque, const void *host, u64 size);
    void *opaque;
};
/* Tells of the stubs at once, of other code from now on. NULL: nobody. -ENOTSUP: the engine
 * translates no guest code. */
int engine_set_code_log(struct engine *e, const struct engine_code_log *log);

#endif
