/*
 * What an x86 CPU is, whichever engine executes it: the vCPU's state and everything that C does to
 * it, one instruction at a time, exact to the bit (README.md). dbt/ adds translated code, kvm/ the
 * hardware; neither knows the other, and the core knows of either only what struct translator says.
 *
 * Rule for every file here: compiled without vector registers, because x87/SSE/AVX hold the guest's
 * values from core_unpark() until core_park() (park.c). Whatever calls out (devices, Zydis, libc
 * that may use SSE) parks first.
 */
#ifndef REPRISE_X86_CORE_H
#define REPRISE_X86_CORE_H

#include "base/check.h"
#include "board/ram.h"
#include "cpu/engine_ops.h"
#include "cpu/x86/approx.h"

#define TLB_BITS  14
#define TLB_SIZE  (1u << TLB_BITS)
#define IDX_USER  0 /* CPL 3 */
#define IDX_SUP   1 /* CPL < 3, SMAP in force (AC = 0) */
#define IDX_SUPU  2 /* CPL < 3, may touch user pages (AC = 1 or CR4.SMAP = 0) */
#define IDX_COUNT 3

/* What decoding and translating an instruction depends on besides its address. */
#define MODE_IDX        0x03u
#define MODE_TS         0x04u
#define MODE_EM         0x08u
#define MODE_MP         0x10u
#define MODE_OSFXSR     0x20u
#define MODE_AVX        0x40u /* CR4.OSXSAVE and XCR0.AVX|SSE */
#define MODE_CPL0       0x80u
#define MODE_SMAP       0x100u
#define MODE_CODE       0x600u /* enum code_size */
#define MODE_CODE_SHIFT 9
/* Outside 64-bit mode: CS, SS, DS and ES are all of memory from 0 on, and may be read and written.
 */
#define MODE_FLAT 0x800u
#define MODE_FS   0x1000u /* ... and FS from its base on */
#define MODE_GS   0x2000u
#define MODE_TSD  0x4000u /* CR4.TSD outside ring 0 */

/* What translated code counts for the guest's counters: bits of enum signal from here on. */
#define MODE_SIGNALS_SHIFT 15
#define MODE_SIGNALS       (((1u << SIG_CODE) - 1) << MODE_SIGNALS_SHIFT)
#define MODE_SYNC          0x800000u  /* atomic operations and system calls are told (engine_env) */
#define MODE_AVX512        0x1000000u /* XCR0 has its three, and MODE_AVX holds */

/* What happens that a counter of the guest may count (pmu.c). */
enum signal {
    SIG_BRANCH,
    SIG_COND,
    SIG_COND_TAKEN,
    SIG_COND_MISS, /* not as static prediction has it: backward taken, forward not */
    SIG_NEAR_TAKEN,
    SIG_CALL,
    SIG_RET,
    SIG_INDIRECT,
    SIG_CODE, /* those in front of it are counted by translated code */
    SIG_FAR = SIG_CODE,
    SIG_DELIVERY,
    SIG_INTERRUPT,
    SIG_COUNTED,
    SIG_INSN = SIG_COUNTED, /* made of positions */
    SIG_CYCLE,
    SIGNALS
};

/* A counter of the guest that is enabled, as its registers say. */
struct pmu_counter {
    u64 *value;
    struct core *of; /* whose registers it is: with AnyThread also another thread's of the core */
    u32 plus, minus; /* bits of enum signal: what it adds, and takes away */
    u8 rings;        /* bit 0: counts at CPL 0, 1: elsewhere */
    u8 status;       /* its bit of IA32_PERF_GLOBAL_STATUS, and its number */
    u8 threshold;    /* CMASK: cycles are counted in which as many happen; 0: what happens is */
    bool invert, edge, interrupts;
};
#define PMU_COUNTERS 8
#define PMU_THREADS  32

/* The guest's performance counters, besides their registers (vcpu.perf). */
struct pmu {
    const struct model_pmu *kind; /* what the CPU has */
    bool on;                      /* some counter is enabled, or branches are recorded */
    bool by_ring;                 /* ... and does not count everywhere */
    bool edge;                    /* ... and looks at each position */
    bool again;                   /* the run loop comes back: how far it may go has changed */
    u8 ring;                      /* since `mark`; 0: CPL 0, 1: elsewhere */
    bool lbr;                     /* DEBUGCTL.LBR is 1, and not frozen */
    u8 lbr_rings;                 /* of which rings branches are recorded, as in pmu_counter */
    u8 lbrs;                      /* so many last-branch records there are */
    u8 n;
    struct pmu_counter counter[PMU_COUNTERS * PMU_THREADS]; /* the n enabled ones */
    u32 signals[2]; /* by ring: what translated code counts */
    u64 not_insns;  /* positions that were no instruction's end */
    u64 counted[SIG_COUNTED];
    u64 mark[SIGNALS]; /* all of them, when the registers were brought up to date */
};

#define MAX_FILLED 65536u

struct tlb_entry {
    u64 rtag, wtag; /* linear page address if readable, writable; else a value that never matches */
    u8 *host;       /* the page's host address */
    u64 add;        /* makes a host address of a linear one */
};

/* The page that stack accesses of translated code went to last. Tags are linear page addresses,
 * negated, or STACK_NONE; `add` makes a host address of a linear one. It holds while the soft TLB
 * loses nothing. */
struct stack_page {
    u64 rtag, wtag, add;
};
#define STACK_NONE (1ull << 63) /* what it matches is not canonical: a fault, and exec() looks */

/* For each RAM page, which entry of a vCPU's TLB may have a write tag for it: 1 + idx << TLB_BITS |
 * slot. */
#define WRITER_NONE 0u
#define WRITER_MANY UINT16_MAX /* not only one */
_Static_assert(IDX_COUNT << TLB_BITS < WRITER_MANY, "a writer names any entry");

/* One per RAM page. */
#define PG_CODE     0x01 /* has translations: no write fast path */
#define PG_PT       0x02 /* served as a page table: no write fast path */
#define PG_PTMULTI  0x10 /* used at several linear bases or levels */
#define PG_CLEAN    0x20 /* not written since engine_written_reset(): no write fast path */
#define PT_ROOT_ANY UINT32_MAX
struct page {
    u64 pt_base; /* linear address of its entry 0 */
    u32 pt_root; /* page number of the top-level table above it, or PT_ROOT_ANY */
    u8 flags;
    u8 pt_level;
    u8 pt_writes;
};

/* What the TLB had of user addresses below a top-level table that was left. */
#define LEFT_SPACES  16
#define LEFT_ENTRIES 256u /* the youngest */
struct left {
    u32 root; /* its page's number */
    u32 n, used;
    struct {
        u64 page; /* linear address */
        u8 *host;
        u32 slot; /* as in struct filled */
        bool writable;
    } entry[LEFT_ENTRIES];
};

struct fault {
    u8 vector;
    bool has_error;
    bool trap;    /* RIP already points after the instruction (RF is not set) */
    bool code_bp; /* #DB of an instruction breakpoint: RF is pushed as it is */
    u32 error;
    u64 cr2;
};

/* Results of exec() and the helpers. */
enum {
    DONE = 0,
    FAULT = -1, /* d->fault is set; nothing of the instruction took effect but what the SDM says */
    RESTART = -2, /* REP string stopped between iterations: RIP stays, iterations are counted */
    STOP_HALT = 1,
    STOP_SHUTDOWN,
    STOP_UNSUPPORTED,
    STOP_FAILED, /* of the host: the stepper's text is in d->err */
    NOT_STEPPED, /* from a stepper: nothing happened, exec() is to do it */
};

enum access { ACC_R, ACC_W, ACC_X };

/* Debug points as the engine looks at them (debug.c). */
struct watch {
    u64 first, last;
    u32 point;
    u8 kind;
    bool physical;
};
struct debug {
    u64 *exec; /* addresses, ascending */
    u32 *exec_point;
    u32 nexec, nwatch;
    u64 bloom[4]; /* of exec */
    struct watch *watch;
    u32 to_user, from_user, mark; /* 1 + the point; 0: none */
    pos_t pass;                   /* no stop in front of this position's instruction */
    bool hit;
    struct debug_hit at;
};

struct filled {
    u32 n;
    u32 slot[MAX_FILLED];
};

/* What SYSCALL and SYSRET of 64-bit code change, for translated code (tlb.c, dbt/put_crossing.c).
 */
struct crossing {
    u32 ready; /* 1: CPL, CS, SS, RIP, RFLAGS and the mode, and nothing else that anybody sees */
    u32 mode;  /* on the other side */
};

struct core;
struct insn;

/* What is made of guest code, and how it is told that it is out of date. */
struct translator {
    void (*destroy)(struct core *d);
    /* Memory [gpa, gpa + len) of a page with PG_CODE changes; `len` PAGE_SIZE: any of it may. */
    void (*page_changed)(struct core *d, gpa_t gpa, u64 len);
    /* What was found by linear addresses in [lin, lin + len) is to be looked up again; len 0: all.
     */
    void (*forget)(struct core *d, u64 lin, u64 len);
    /* Code of CPL 3 is from now on looked up below another top-level table (`below`), or in another
     * mode. What was found may be kept for a return. */
    void (*leave)(struct core *d, bool below);
    /* ... of what was kept of a root (a page's number, or PT_ROOT_ANY) the addresses [lin, lin +
     * len) are to be looked up again; len 0: all. */
    void (*forget_left)(struct core *d, u32 root, u64 lin, u64 len);
    /* All of it goes. */
    void (*flush)(struct core *d);
    /* d->debug differs from what it was: nothing runs into or across a point of DEBUG_EXEC. */
    void (*points_changed)(struct core *d, const struct debug *was);
    /* engine_set_code_log(). */
    void (*log_code)(struct core *d, const struct engine_code_log *log);
    /* Executes the instruction natively: registers in their slots, its memory operand at d->ptr. */
    int (*native)(struct core *d, struct insn *in);
    /* The arithmetic flags that are live at a linear address, if code of there is at hand. */
    bool (*live_at)(const struct core *d, u64 lin, u32 *live);
    /* Runs n instructions, REP iterations or deliveries at most, in either unit. */
    enum engine_exit (*run_insns)(struct core *d, u64 n, struct err *err);
};

/* Where x87, SSE and AVX state is (park.c). */
enum vectors_at {
    VECTORS_LIVE,   /* in the host's registers */
    VECTORS_ASIDE,  /* in xs_park as it was saved: core_park() brings it into cpu.xsave */
    VECTORS_PARKED, /* in cpu.xsave, canonical */
};

/* What is the machine's and no single vCPU's: its pages, and instructions as they were decoded. */
struct shared {
    unsigned users; /* vCPUs */
    u64 npages;
    struct page *pages;
    u32 *written; /* pages, since they were last asked for; NULL: not tracked */
    u64 nwritten;
    struct insn *icache;
    struct heads *heads;
    bool test_heads; /* REPRISE_TEST_HEADS: what they say is what Zydis says */
};

struct core {
    struct engine base;
    struct vcpu cpu; /* gpr[] are the register slots of translated code */
    u64 flags;       /* the six arithmetic flags (other bits junk); rflags has the rest */
    i64 budget;      /* positions left until target_pos */
    u64 branches;    /* conditional branches retired, if counted */
    u32 want;        /* want_int | want_nmi: kept as one for an inlined STI, which must leave */
    u32 alone;       /* engine_want_pause(): PAUSE need not be told */
    u64 fip, fdp;    /* x87 pointers, guest values */
    u16 fop;
    u8 *ptr; /* operand of a native instruction */

    enum position_unit unit;
    u64 events;
    pos_t base_pos; /* what is in a branch position besides `branches` and `events` */
    pos_t target_pos;
    pos_t shadow_pos; /* position right after STI / MOV SS; NEVER none */
    u64 next;         /* RIP after the current instruction */
    struct fault fault;
    u32 mode;
    u32 idx; /* mode & MODE_IDX */
    bool runs;
    u32 modes; /* that code ran in: a bit for each of enum vcpu_mode */
    /* Of CPL 3 and of the others: the mode, but for those bits and MODE_CPL0, in which addresses
     * were looked up that translator.forget() has not been told of. */
    u32 looked_up[2];
    struct crossing crossing;
    u8 cpl;
    bool careful_only; /* TF, debug registers, AC checks, trace, last-branch records */
    bool ac_check;
    bool dr_active;
    bool watching;  /* accesses that take the slow path are looked at */
    bool was_inner; /* CPL was 1 or 2 */
    bool push_rf;   /* deliver() pushes RF = 1 */
    bool keep_rf;   /* IRET loaded RF: it holds for the next instruction */
    bool tf_now;    /* SYSCALL: single-step looks at TF after the instruction */
    bool want_int, want_nmi;
    bool attention;
    enum vectors_at vectors;
    bool has_in_use; /* the host: XGETBV of 1 */
    bool may_aside;  /* nobody looks at them between runs without engine_sync() */
    bool executing;  /* in exec(): stores are an instruction's own */
    bool mov_ss;     /* the shadow is MOV SS's: debug traps wait too */
    bool stale;      /* what was derived from memory was dropped since the run loop looked */
    bool revoked;    /* ... or a page may be written no more without a look */
    volatile int kicked;
    u32 db_pending;   /* DR6 bits of data breakpoints hit by the current instruction */
    gpa_t code_page;  /* physical page of the current instruction */
    gpa_t code_page2; /* the second one if it crosses, else NEVER */
    u64 xmask;        /* XSAVE mask for the host */
    u16 xs_at[3];     /* where its images have components 5, 6 and 7 */
    u64 phys_mask;    /* valid physical address bits */
    enum cpu_model model;
    u32 revision;   /* ENGINE_REVISION, or what it was when the recording was made */
    u32 rules;      /* RULE_ of insn.h: how its instructions are read */
    u8 other_maker; /* enum other_maker (canon.h) */
    u32 id;         /* which one of them */
    u32 apic_id;
    struct cpu_parts parts;
    u32 words[CPU_WORDS];   /* its features: core_has() */
    u32 missing[CPU_WORDS]; /* of these what this host does not execute, */
    bool host_lacks;        /* if there is anything */
    u64 cr4_bits;           /* of CR4 that it has; the others are reserved */
    struct ram *ram;
    const struct engine_env *env;
    const struct translator *translator;
    /* Executes an instruction elsewhere (the KVM engine), as exec() would; or NOT_STEPPED. While
     * there is one, instructions run one at a time. Vector state is parked when it is called. */
    int (*stepper)(struct core *d, struct insn *in);
    void *stepper_opaque;
    bool by_hand; /* instructions run one at a time: memory changes without the core's knowing */
    struct pmu pmu;
    struct engine_trace trace; /* before == NULL: none */
    struct engine_accesses accesses;
    bool logging; /* accesses are those of an instruction that is traced */
    struct debug debug;
    gpa_t filled_gpa; /* of the last mmu_fill whose walk succeeded */
    struct shared *shared;
    struct core *sibling; /* the next of the same machine's vCPUs, in a ring */
    struct machine_stats st;
    struct err err;
    void *xs_park; /* 64-byte aligned host XSAVE area */
    u8 bounce_raw[256] __attribute__((aligned(64)));
    struct approx approx; /* read where RULE_APPROX holds */

    struct stack_page stack[2]; /* of CPL 3; of CPL < 3 */
    u16 *writer;                /* of each RAM page, as above */
    struct filled tlb_user, tlb_kernel;
    struct left left[LEFT_SPACES];
    u32 left_used; /* counts */
    /* No entry lies across two lines of the host's cache. */
    struct tlb_entry tlb[IDX_COUNT][TLB_SIZE] __attribute__((aligned(64)));
};

static inline struct core *core_of(struct engine *e)
{
    return (struct core *)e;
}
static inline const struct core *core_of_const(const struct engine *e)
{
    return (const struct core *)e;
}

/* Does the model have it? (vmm/cpu/features.def) */
static inline bool core_has(const struct core *d, enum cpu_feature f)
{
    return cpu_words_have(d->words, f);
}

/* exec.c: ends the run in front of the instruction: what this host lacks, and what it is for. */
int host_lacks_it(struct core *d, const char *lacks, const char *text);

/* Its registers cannot be kept here, then. */
static inline bool core_host_lacks_avx(const struct core *d)
{
    return d->host_lacks && cpu_words_have(d->missing, FEAT_AVX);
}

/* Only what is in its registers matters here: the kernel enables them, whoever uses them. */
static inline bool core_host_lacks_avx512(const struct core *d)
{
    return d->host_lacks && cpu_words_have(d->missing, FEAT_AVX512F);
}

/* Each vCPU of the machine, d first. What is derived from memory or from page tables is all of
 * theirs: one writes, and each forgets. */
#define EACH_CPU(s, d)                                                                             \
    for (struct core *s = (d), *s##_end = NULL; s != s##_end; s = s->sibling, s##_end = (d))

static inline bool is_canonical(u64 va)
{
    return (u64)((i64)(va << 16) >> 16) == va;
}

static inline u64 get_rflags(const struct core *d)
{
    return (d->cpu.rflags & ~(u64)FL_ARITH) | (d->flags & FL_ARITH);
}

static inline void set_rflags(struct core *d, u64 v)
{
    d->cpu.rflags = v | 2;
    d->flags = v & FL_ARITH;
}

/* Counts instructions, REP iterations and deliveries in either unit: an instant's own number. */
static inline pos_t position(const struct core *d)
{
    return d->target_pos - (u64)d->budget;
}

/* Are branches and events counted? Then a CPU made the recording. */
static inline bool counts_branches(const struct core *d)
{
    return d->unit != UNIT_INSN;
}

static inline pos_t branch_position(const struct core *d)
{
    return d->base_pos + d->branches + d->events;
}

/* What CPUID says of it besides its model. Whether its APIC is on its machine knows. */
static inline struct cpuid_live core_cpuid_live(const struct core *d)
{
    return (struct cpuid_live){.cr4 = d->cpu.cr4,
                               .xcr0 = d->cpu.xcr0,
                               .apic_id = d->apic_id,
                               .revision = d->revision,
                               .parts = d->parts,
                               .words = d->words,
                               .pmu = d->pmu.kind->kind != PMU_KIND_NONE};
}

/* Another vCPU can run. */
static inline bool core_waited_for(const struct core *d)
{
    return d->parts.cpus > 1 && !d->alone;
}

/* As the rest of the world counts. */
static inline pos_t unit_position(const struct core *d)
{
    return d->unit == UNIT_BRANCH ? branch_position(d) : position(d);
}

static inline int raise_fault(struct core *d, unsigned vector)
{
    d->fault = (struct fault){.vector = (u8)vector};
    return FAULT;
}

static inline int raise_error(struct core *d, unsigned vector, u32 error)
{
    d->fault = (struct fault){.vector = (u8)vector, .has_error = true, .error = error};
    return FAULT;
}

/* The core's own of the calls of cpu/engine.h. */
#define ASK(result, name, parameters, arguments) result core_##name parameters;
#include "cpu/engine_calls.def"

#define TRY(x)                                                                                     \
    do {                                                                                           \
        int try_ = (x);                                                                            \
        if (UNLIKELY(try_))                                                                        \
            return try_;                                                                           \
    } while (0)

#endif
