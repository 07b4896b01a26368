/*
 * dbt: the portable engine, shared declarations of its files. See README.md for how it works.
 *
 * The engine's state sits behind the host's GS base while guest code runs: translated code reaches
 * every member as gs:[offset]. Guest registers are in the host's registers of the same name, RSP
 * included; r10 and r11 are scratch and live in their slots at block edges.
 *
 * Rule for every file here: compiled without vector registers, because x87/SSE/AVX hold the
 * guest's values from entry until dbt_park() (fpu.c). Whatever calls out (devices, Zydis, libc
 * that may use SSE) parks first.
 */
#ifndef REPRISE_DBT_H
#define REPRISE_DBT_H

#include "base/check.h"
#include "cpu/engine_ops.h"
#include "insn.h"

#define TLB_BITS  12
#define TLB_SIZE  (1u << TLB_BITS)
#define JC_SIZE   65536u
#define IDX_USER  0 /* CPL 3 */
#define IDX_SUP   1 /* CPL < 3, SMAP in force (AC = 0) */
#define IDX_SUPU  2 /* CPL < 3, may touch user pages (AC = 1 or CR4.SMAP = 0) */
#define IDX_COUNT 3

/* What a translation depends on besides its address. */
#define MODE_IDX    0x03u
#define MODE_TS     0x04u
#define MODE_EM     0x08u
#define MODE_MP     0x10u
#define MODE_OSFXSR 0x20u
#define MODE_AVX    0x40u /* CR4.OSXSAVE and XCR0.AVX|SSE */
#define MODE_CPL0   0x80u
#define MODE_SMAP   0x100u

#define BLOCK_MAX    64 /* instructions */
#define DBT_SLACK    16 /* positions a block may run before its budget check */
#define CODE_SIZE    (128u << 20)
#define MAX_BLOCKS   (1u << 20)
#define MAX_FILLED   16384u
#define MAX_INSN_OFF (8u << 20)

struct tlb_entry {
    u64 rtag, wtag; /* linear page address if readable, writable; else a value that never matches */
    u8 *host;       /* the page's host address */
    u64 gpa;
};

/* Kinds of exits from translated code, low bits of exit_id. */
enum exit_kind {
    X_NONE,    /* careful snippet done */
    X_LINK,    /* direct branch to the same page, not linked yet; index = link slot */
    X_IND,     /* target in d->target, not in the jump cache */
    X_INSN,    /* instruction `index` must be run by exec() */
    X_INSN_LF, /* the same, flags in lahf form: RAX in d->save_rax */
    X_BUDGET,  /* stop position is near: instruction `index` not run yet */
};
#define EXIT_ID(block, index, kind) ((u32)(block) << 10 | (u32)(index) << 3 | (kind))
#define EXIT_BLOCK(id)              ((id) >> 10)
#define EXIT_INDEX(id)              (((id) >> 3) & 127)
#define EXIT_KIND(id)               ((id)&7)

struct block {
    u64 lin;
    u64 phys;
    u32 mode;
    u32 code; /* offset in the cache: direct entry */
    u32 ient; /* entry for indirect jumps: r10 = target, verified */
    u32 hash_next, page_next;
    u32 insns;          /* index into d->insn_off: n pairs */
    u16 n;              /* instructions, a final one left to exec() included */
    u16 count;          /* what the budget check takes: without that final one */
    u16 check_at;       /* the budget check comes before this instruction */
    u16 loaded;         /* stolen guest registers that are in host registers inside the block */
    u16 spilled;        /* guest registers whose host register is scratch inside the block */
    u16 dead;           /* its page was written */
    u16 size;           /* bytes of guest code */
    u32 link_patch[2];  /* offsets of the rel32 to patch; 0 none */
    u16 link_target[2]; /* page offsets */
};

struct insn_off {
    u16 guest; /* from block->lin */
    u16 host;  /* from block->code */
};

/* One per RAM page. */
#define PG_CODE    0x01 /* has translations: no write fast path */
#define PG_PT      0x02 /* served as a page table: no write fast path */
#define PG_WTLB    0x04 /* some TLB entry may have a write tag for it */
#define PG_WMULTI  0x08 /* ... and not only the one in wslot */
#define PG_PTMULTI 0x10 /* used at several linear bases or levels */
#define PG_CLEAN   0x20 /* not written since engine_written_reset(): no write fast path */
struct page {
    u64 code_map; /* 64-byte chunks that hold translated bytes */
    u64 pt_base;  /* linear address of its entry 0 */
    u32 blocks;   /* list through page_next; 0 ends */
    u16 wslot;    /* idx << 12 | slot */
    u8 flags;
    u8 pt_level;
    u8 pt_writes;
    u8 smc;
};

/* What translated code tells slow_mem: the size in bits 0 to 7, and these. */
#define SLOW_WRITE 0x100u
#define SLOW_ALIGN 0x200u /* #GP unless aligned to its size */
#define SLOW_WAIT  0x400u /* a pending x87 exception comes first */

struct fault {
    u8 vector;
    bool has_error;
    bool trap;    /* RIP already points behind the instruction (RF is not set) */
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
    pos_t pass; /* no stop in front of this position's instruction */
    bool hit;
    struct debug_hit at;
};

struct filled {
    u32 n;
    u32 slot[MAX_FILLED];
};

struct dbt {
    struct engine base;
    struct vcpu cpu; /* gpr[] are the register slots */
    /* Slots that translated code uses. */
    u64 flags;  /* the six arithmetic flags (other bits junk); rflags has the rest */
    i64 budget; /* positions left until target_pos */
    u64 host_rsp;
    u64 entry_code;
    u64 target; /* of an indirect branch */
    u64 save_rax, tmp, tmp2;
    u64 slow_ea, slow_res, resume;
    i64 sti_budget; /* budget right behind an inlined STI that opened a shadow */
    u64 branches;   /* conditional branches retired, if `counts` */
    u32 want;       /* want_int | want_nmi: an inlined STI must leave */
    u64 fip, fdp;   /* x87 pointers, guest values */
    u16 fop;
    u32 exit_id, ind_id;
    u64 sregs[16]; /* host registers at a slow path or signal */
    u64 sflags;    /* and flags */
    u8 *ptr;       /* operand of a careful snippet */

    /* C side */
    bool by_branch; /* UNIT_BRANCH */
    bool counts;    /* branches and events are counted: a CPU made the recording */
    u64 events;
    pos_t base_pos; /* what is in a branch position besides `branches` and `events` */
    pos_t target_pos;
    pos_t shadow_pos; /* position right behind STI / MOV SS; NEVER none */
    u64 next;         /* RIP behind the current instruction */
    struct fault fault;
    u32 mode;
    u32 idx; /* mode & MODE_IDX */
    u8 cpl;
    bool careful_only; /* TF, debug registers, AC checks, trace */
    bool ac_check;
    bool dr_active;
    bool watching;  /* accesses that take the slow path are looked at */
    bool was_inner; /* CPL was 1 or 2 */
    bool push_rf;   /* deliver() pushes RF = 1 */
    bool keep_rf;   /* IRET loaded RF: it holds for the next instruction */
    bool tf_now;    /* SYSCALL: single-step looks at TF behind the instruction */
    bool want_int, want_nmi;
    bool attention;
    bool near_stop; /* the budget is shorter than the block at RIP */
    bool parked;    /* x87/SSE/AVX are in cpu.xsave */
    bool executing; /* in exec(): stores are an instruction's own */
    bool mov_ss;    /* the shadow is MOV SS's: debug traps wait too */
    bool stale;     /* blocks were dropped since the run loop looked */
    bool signalled, fsgsbase;
    u8 signal_trap;
    u32 signal_rip; /* offset in the code cache */
    volatile int kicked;
    u16 snip_loaded, snip_spilled;
    u32 db_pending;   /* DR6 bits of data breakpoints hit by the current instruction */
    gpa_t code_page;  /* physical page of the current instruction */
    gpa_t code_page2; /* the second one if it crosses, else NEVER */
    u64 xmask;        /* XSAVE mask for the host */
    u64 phys_mask;    /* valid physical address bits */
    enum cpu_model model;
    struct ram *ram;
    const struct engine_env *env;
    /* Executes an instruction elsewhere (the KVM engine), as exec() would; or NOT_STEPPED. While
     * there is one, instructions run one at a time. Vector state is parked when it is called. */
    int (*stepper)(struct dbt *d, struct insn *in);
    void *stepper_opaque;
    bool by_hand; /* instructions run one at a time: memory changes without this engine's knowing */
    void (*trace)(void *);
    void *trace_opaque;
    struct debug debug;
    gpa_t filled_gpa; /* of the last mmu_fill whose walk succeeded */
    u32 *written;     /* NULL: not tracked */
    u64 nwritten;
    struct machine_stats st;
    struct err err;

    u8 *rw, *rx; /* the code cache's two mappings */
    u32 code_used, code_fixed, code_gen;
    u32 exit_common, slow_common, ind_miss, enter, unwind;
    int memfd;
    struct block *blocks;
    u32 nblocks;
    u32 *block_hash;
    u64 npages;
    struct page *pages;
    struct insn_off *insn_off;
    u32 ninsn_off;
    struct insn *icache;
    struct insn *pinned; /* in exec(): must not be replaced */
    struct insn unpinned;
    struct filled tlb_user, tlb_kernel, jc_user, jc_kernel;
    void *altstack;
    void *xs_park; /* 64-byte aligned host XSAVE area */
    u8 bounce_raw[256] __attribute__((aligned(64)));

    struct tlb_entry tlb[IDX_COUNT][TLB_SIZE];
    u64 jc[IDX_COUNT][JC_SIZE];       /* host entry points, by jc_slot() of the target */
    u32 jc_block[IDX_COUNT][JC_SIZE]; /* block of the entry, for C; 0 none */
};

/* Jump-cache slot: what flag-neutral instructions can compute (put_indirect). The byte-swapped
 * half brings address bits 16 to 23 in, in which kernel functions with equal low bits differ. */
static inline u32 jc_slot(u64 lin)
{
    return ((u32)lin + __builtin_bswap32((u32)lin)) & (JC_SIZE - 1);
}

static inline bool is_canonical(u64 va)
{
    return (u64)((i64)(va << 16) >> 16) == va;
}

static inline u32 tlb_slot(u64 va)
{
    return (va >> 12) & (TLB_SIZE - 1);
}

static inline u64 tlb_invalid(u32 slot)
{
    return (u64)(slot ^ 1) << 12 | 1ull << 63;
}

static inline u64 get_rflags(const struct dbt *d)
{
    return (d->cpu.rflags & ~(u64)FL_ARITH) | (d->flags & FL_ARITH);
}

static inline void set_rflags(struct dbt *d, u64 v)
{
    d->cpu.rflags = v | 2;
    d->flags = v & FL_ARITH;
}

/* Counts instructions, REP iterations and deliveries in either unit: an instant's own number. */
static inline pos_t position(const struct dbt *d)
{
    return d->target_pos - (u64)d->budget;
}

static inline pos_t branch_position(const struct dbt *d)
{
    return d->base_pos + d->branches + d->events;
}

/* As the rest of the world counts. */
static inline pos_t unit_position(const struct dbt *d)
{
    return d->by_branch ? branch_position(d) : position(d);
}

static inline int raise_fault(struct dbt *d, unsigned vector)
{
    d->fault = (struct fault){.vector = (u8)vector};
    return FAULT;
}

static inline int raise_error(struct dbt *d, unsigned vector, u32 error)
{
    d->fault = (struct fault){.vector = (u8)vector, .has_error = true, .error = error};
    return FAULT;
}

/* Stops the machine with a report; libc formats it, so the guest's vector state is parked first. */
#define REPORT(d, ...) (dbt_park(d), err_set(&(d)->err, -1, __VA_ARGS__), STOP_UNSUPPORTED)

#define TRY(x)                                                                                     \
    do {                                                                                           \
        int try_ = (x);                                                                            \
        if (UNLIKELY(try_))                                                                        \
            return try_;                                                                           \
    } while (0)

/* mmu.c: page walks, the soft TLB, tracked pages */
enum access { ACC_R, ACC_W, ACC_X };
int mmu_walk(struct dbt *d, u64 va, enum access acc, unsigned idx, gpa_t *gpa);
bool mmu_peek(struct dbt *d, u64 va, gpa_t *gpa);
/* Is the page at gpa one of the tables through which va is mapped? No side effects. */
bool mmu_on_path(struct dbt *d, u64 va, gpa_t gpa);
u8 *mmu_fill(struct dbt *d, u64 va, enum access acc, unsigned idx);
void mmu_flush_all(struct dbt *d);
void mmu_flush_user(struct dbt *d);
void mmu_set_cr3(struct dbt *d, u64 old, u64 cr3);
void mmu_protect_page(struct dbt *d, struct page *pg, u64 index);
void mmu_revoke_all_writes(struct dbt *d);
u64 slow_mem(struct dbt *d);
void mmu_mode_changed(struct dbt *d); /* recompute mode, idx, careful_only after any change */
void mmu_forget_jc(struct dbt *d);
/* A write of len bytes at gpa (one page, RAM) is about to replace `old` (now there) by `new`. */
void mmu_write_tracked(struct dbt *d, struct page *pg, gpa_t gpa, unsigned len, const u8 *old,
                       const u8 *new_);

/* debug.c */
void debug_bloom_add(struct debug *g, u64 rip);
bool debug_exec_at(const struct dbt *d, u64 rip, u32 *point);
static inline bool debug_stops_at(const struct dbt *d, u64 rip)
{
    return UNLIKELY(d->debug.nexec) && debug_exec_at(d, rip, NULL);
}
/* Is any byte of the page, at its linear and its physical address, watched for this access? */
bool debug_watches_page(const struct dbt *d, u64 page, gpa_t gpa, bool write);
/* An access of `len` bytes: gpa[0] up to the end of the page, then gpa[1]. Notes a hit. */
void debug_access(struct dbt *d, u64 va, unsigned len, const gpa_t gpa[2], bool write);
void debug_dma(struct dbt *d, gpa_t gpa, u64 len);
static inline void note_written(struct dbt *d, struct page *pg, u64 index)
{
    if (UNLIKELY(pg->flags & PG_CLEAN)) {
        pg->flags &= (u8)~PG_CLEAN;
        d->written[d->nwritten++] = (u32)index;
    }
}

/* access.c: guest memory by linear address, from C */
int mem_read(struct dbt *d, u64 va, unsigned len, void *out, unsigned seg);
int mem_write(struct dbt *d, u64 va, unsigned len, const void *in, unsigned seg);
int mem_check(struct dbt *d, u64 va, unsigned len, enum access acc, unsigned seg);
int mem_check_image(struct dbt *d, u64 va, unsigned len, enum access acc, unsigned seg);
int sys_read(struct dbt *d, u64 va, unsigned len, void *out);
int sys_write(struct dbt *d, u64 va, unsigned len, const void *in);
/* Prepares [va, va+len) for a native instruction; d->ptr is where it may operate. */
struct operand {
    u64 va;
    unsigned len, seg;
    enum access acc; /* ACC_W: read-modify-write if `read` */
    bool read, bounced;
    gpa_t gpa[2];
    unsigned part;
    u8 before[64];
};
int operand_open(struct dbt *d, struct operand *op);
int operand_close(struct dbt *d, struct operand *op);
/* The same for an instruction that somebody else executes: all that may stop it, before; what its
 * store has made stale, behind it. */
int operand_check(struct dbt *d, struct operand *op);
void operand_stored(struct dbt *d, const struct operand *op);
/* Physical memory that is not RAM, in naturally sized pieces. */
void io_read(struct dbt *d, gpa_t gpa, unsigned len, u8 *out);
void io_write(struct dbt *d, gpa_t gpa, unsigned len, const u8 *in);

/* cache.c: blocks, code cache, the jump cache */
int cache_init(struct dbt *d, struct err *err);
void cache_fini(struct dbt *d);
void cache_flush(struct dbt *d);
struct block *cache_find(struct dbt *d, u64 lin, u64 phys, u32 mode);
void cache_link(struct dbt *d, struct block *b);
void cache_invalidate_page(struct dbt *d, struct page *pg);
void jc_set(struct dbt *d, unsigned idx, struct block *b);
void jc_drop_page(struct dbt *d, struct page *pg);
void jc_drop_range(struct dbt *d, u64 lin, u64 len);

/* translate.c */
struct block *translate(struct dbt *d, u64 lin, u64 phys, const u8 *bytes);
void translate_snippet(struct dbt *d, struct insn *in);
void translate_common(struct dbt *d);

/* flags.c */
u32 flags_live(struct dbt *d, const u8 *page_bytes, unsigned offset);
u32 flags_live_at(struct dbt *d, u64 lin);
void flags_make_visible(struct dbt *d); /* masks d->flags by what is live at RIP */

/* icache.c: decoded instructions by their bytes: 15 and the number that could be read */
struct insn *icache_get(struct dbt *d, const u8 key[16]);
size_t icache_bytes(void);
/* The liveness rule stops here: branches and what may not be looked beyond. */
bool ends_scan(const struct insn *in);

/* exec.c: one instruction; careful.c */
int exec(struct dbt *d, struct insn *in);
int fetch(struct dbt *d, struct insn **in);
int exec_native(struct dbt *d, struct insn *in);
u64 insn_ea(struct dbt *d, const struct insn *in);
/* exec()'s part in front of the instruction proper: sets d->next; #UD, #NM and the like. */
int exec_begin(struct dbt *d, struct insn *in);
/* x87 pointers behind an x87 instruction at RIP. */
void exec_x87_pointers(struct dbt *d, struct insn *in);

/* msr.c: an MSR as RDMSR and WRMSR see it, counted if it is an event; false: #GP */
bool msr_read(struct dbt *d, u32 msr, u64 *v);
bool msr_write(struct dbt *d, u32 msr, u64 v);

/* sys.c */
void load_cr8(struct dbt *d, u64 v);                  /* MOV to CR8, with what it counts */
int check_io(struct dbt *d, u16 port, unsigned size); /* IOPL and the TSS bitmap */

/* except.c */
int deliver(struct dbt *d, unsigned vector, bool has_error, u32 error, bool soft);
int deliver_fault(struct dbt *d); /* d->fault: double fault and shutdown logic */

/* seg.c */
struct desc {
    u64 base;
    u32 limit;
    u16 attr;
    u64 raw[2];
    u64 addr;
};
int read_desc(struct dbt *d, u16 sel, struct desc *out, unsigned vector, u32 error);
void load_seg_cache(struct dbt *d, unsigned seg, u16 sel, const struct desc *desc);
int load_seg(struct dbt *d, unsigned seg, u16 sel);
/* IRET and far RET: loads CS:RIP (into d->next) and, when `stack`, SS:RSP. */
int return_far(struct dbt *d, u16 cs_sel, u64 rip, u16 ss_sel, u64 rsp, bool stack);

/* fpu.c */
void dbt_park(struct dbt *d);

/* n events have retired. */
static inline void count_events(struct dbt *d, unsigned n)
{
    if (LIKELY(!d->counts) || !n)
        return;
    d->events += n;
    dbt_park(d);
    d->env->counted(d->env->machine);
}
void dbt_unpark(struct dbt *d);
void fpu_init_image(struct dbt *d);
/* An XSAVE image (standard format) of the guest's registers into cpu.xsave, canonical. */
void fpu_take_image(struct dbt *d, const u8 *image);
bool fpu_pending(struct dbt *d);      /* an unmasked x87 exception waits: FSW.ES */
unsigned fpu_unmasked(struct dbt *d); /* which, as bits of FSW */

/* host.c: signals, GS base */
int host_init(struct dbt *d, struct err *err);
void host_fini(struct dbt *d);
void host_enter(struct dbt *d);

/* engine.c, run.c, except.c, access.c: the engine interface (cpu/engine.h) */
static inline struct dbt *dbt_of(struct engine *e)
{
    return (struct dbt *)e;
}
static inline const struct dbt *dbt_of_const(const struct engine *e)
{
    return (const struct dbt *)e;
}
int dbt_create(struct dbt **out, const struct engine_config *config, struct err *err);
void dbt_destroy(struct engine *e);
void dbt_sync(struct engine *e);
void dbt_changed(struct engine *e);
enum engine_exit dbt_run(struct engine *e, pos_t stop_at, struct err *err);
/* engine_place() and engine_settle(). */
void dbt_place(struct engine *e, struct engine_place *out);
int dbt_settle(struct engine *e, const struct engine_place *to, struct err *err);
/* UNIT_BRANCH, a triple fault: some CPUs lose their registers then, so all do. */
void dbt_shut_down(struct dbt *d);
/* Runs n instructions, REP iterations or deliveries at most, in either unit. */
enum engine_exit dbt_run_insns(struct engine *e, u64 n, struct err *err);
bool dbt_can_interrupt(const struct engine *e);
bool dbt_can_nmi(const struct engine *e);
int dbt_interrupt(struct engine *e, u8 vector);
int dbt_nmi(struct engine *e);
void dbt_ram_written(struct engine *e, gpa_t gpa, u64 len);
bool dbt_peek(struct engine *e, gva_t va, void *out, size_t len);
void dbt_debug_pass(struct engine *e, bool pass);
extern const struct engine_ops dbt_ops;

/* Helpers named by insn.def */
#define HELPER(name)                                                                               \
    helper_fn help_##name;                                                                         \
    int help_##name(struct dbt *d, struct insn *in)

#endif
