/*
 * dbt: the portable engine, which translates guest code. See README.md for how it works. A core
 * (cpu/x86/core.h) with what translated code needs of one vCPU (struct dbt) and of all (struct
 * code).
 *
 * struct dbt sits behind the host's GS base while guest code runs: translated code reaches every
 * member as gs:[offset]. Guest registers are in the host's registers of the same name, RSP
 * included; r10 and r11 are scratch and live in their slots at block edges.
 */
#ifndef REPRISE_DBT_H
#define REPRISE_DBT_H

#include "cpu/x86/core.h"
#include "cpu/x86/insn.h"

#define JC_SIZE 65536u

#define BLOCK_MAX    64     /* instructions */
#define BLOCK_CODE   65536u /* bytes of host code that a block may have: offsets in it are u16 */
#define DBT_SLACK    16     /* positions a block may run before its budget check */
#define BUDGET_PARTS 4
#define CODE_SIZE    (128u << 20)
#define MAX_BLOCKS   (1u << 20)
#define MAX_INSN_OFF (8u << 20)

/* Kinds of exits from translated code, low bits of exit_id. */
enum exit_kind {
    X_NONE,    /* careful snippet done */
    X_LINK,    /* direct branch to the same page, not linked yet; index = link slot */
    X_IND,     /* target in d->target, not in the jump cache */
    X_INSN,    /* instruction `index` must be run by exec() */
    X_INSN_LF, /* the same, flags in lahf form: RAX in d->save_rax */
    X_BUDGET,  /* stop position is near: instruction `index` not run yet */
    X_PLAIN,   /* a guard failed: to the plain translation of the same block */
};
#define EXIT_ID(block, index, kind) ((u32)(block) << 10 | (u32)(index) << 3 | (kind))
#define EXIT_BLOCK(id)              ((id) >> 10)
#define EXIT_INDEX(id)              (((id) >> 3) & 127)
#define EXIT_KIND(id)               ((id)&7)

#define LINK_PLAIN 2 /* link_patch of a guard that failed; 0 and 1 are branches */

struct block {
    u64 lin;
    u64 phys, phys2; /* phys2: of the next page, into which its one instruction goes; 0 none */
    u32 mode;
    u32 code;  /* offset in the cache: direct entry */
    u32 inner; /* behind the prologue */
    u32 ient;  /* entry for indirect jumps: r10 = target, verified */
    u32 hash_next, page_next, page2_next;
    u32 insns;          /* index into insn_off: n pairs */
    u16 n;              /* instructions, a final one left to exec() included */
    u16 count;          /* what the budget check takes: without that final one */
    u16 check_at;       /* the budget check comes before this instruction */
    u16 loaded;         /* stolen guest registers that are in host registers inside the block */
    u16 spilled;        /* guest registers whose host register is scratch inside the block */
    u16 dead;           /* its page was written */
    bool plain;         /* found only by a guard that failed (guard.c) */
    u16 size;           /* bytes of guest code */
    u32 link_patch[3];  /* offsets of the rel32 to patch; 0 none */
    u32 link_inner[2];  /* ... that jump to `inner` of a block with the same `loaded` and `spilled`
                         */
    u16 link_target[2]; /* page offsets */
};

/* Guest code to be translated. */
struct code_at {
    u64 lin, phys;
    const u8 *page;
    /* Its first instruction goes on in the next page: where that is (else 0), and its bytes. */
    u64 phys2;
    u8 bytes[15];
    bool plain; /* as it is, also if it is a loop */
};

struct insn_off {
    u16 guest; /* from block->lin */
    u16 host;  /* from block->code */
};

#define SECOND_PAGE 0x80000000u

/* One per RAM page. */
struct code_page {
    u64 map;    /* 64-byte chunks that hold translated bytes */
    u32 blocks; /* list through page_next, or page2_next where SECOND_PAGE is set; 0 ends */
    u8 misses;  /* stores beside them */
};

/* What was translated: of all vCPUs of a machine. */
struct code {
    u8 *rw, *rx; /* the code cache's two mappings */
    u32 used, fixed, gen;
    u32 exit_common, slow_common, ind_miss, enter, unwind;
    int memfd;
    struct block *blocks;
    u32 nblocks;
    u32 *block_hash;
    u64 npages;
    struct code_page *pages;
    struct insn_off *insn_off;
    u32 ninsn_off;
};

/* What translated code tells slow_mem: the size in bits 0 to 7, and these. */
#define SLOW_WRITE 0x100u
#define SLOW_ALIGN 0x200u /* #GP unless aligned to its size */
#define SLOW_WAIT  0x400u /* a pending x87 exception comes first */

struct dbt {
    struct core c;
    struct code *code;
    /* Slots that translated code uses. */
    u64 host_rsp;
    u64 entry_code;
    u64 target; /* of an indirect branch */
    u64 save_rax, tmp, tmp2;
    u64 slow_ea, slow_res, resume;
    /* The budget while translated code runs, less DBT_SLACK: a block takes from the part of its
     * own, so that blocks that follow each other do not wait for each other's stores. */
    i64 part[BUDGET_PARTS];
    u32 favoured;   /* the part that has all of a short budget */
    i64 sti_budget; /* budget right after an inlined STI that opened a shadow */
    u32 exit_id, ind_id;
    u64 sregs[16]; /* host registers at a slow path or signal */
    u64 sflags;    /* and flags */

    bool near_stop; /* the budget is shorter than the block at RIP */
    bool signalled, fsgsbase;
    bool pext;      /* the host's CPU has it, and it is fast */
    u64 outside[4]; /* for PEXT: 0 is left of an offset in a page that is aligned to 1, 2, 4, 8 */
    u8 signal_trap;
    u32 signal_rip; /* offset in the code cache */
    void *altstack;
    struct filled jc_user, jc_kernel;
    u64 jc[IDX_COUNT][JC_SIZE];       /* host entry points, by jc_slot() of the target */
    u32 jc_block[IDX_COUNT][JC_SIZE]; /* block of the entry, for C; 0 none */
};

static inline struct dbt *dbt_of(struct core *c)
{
    return (struct dbt *)(void *)c;
}

/* Jump-cache slot: what flag-neutral instructions can compute (put_indirect). The byte-swapped
 * half brings address bits 16 to 23 in, in which kernel functions with equal low bits differ. */
static inline u32 jc_slot(u64 lin)
{
    return ((u32)lin + __builtin_bswap32((u32)lin)) & (JC_SIZE - 1);
}

/* slow.c: what a TLB miss in translated code calls. */
u64 slow_mem(struct dbt *d);

/* cache.c: blocks, code cache, the jump cache */
int cache_init(struct dbt *d, struct err *err);
void cache_fini(struct dbt *d);
void cache_flush(struct core *c);
struct block *cache_find(struct dbt *d, u64 lin, u64 phys, u64 phys2, u32 mode);
void cache_link(struct dbt *d, struct block *b);
/* Drops all blocks of a page. */
void cache_invalidate_page(struct dbt *d, u64 index);
void cache_page_changed(struct core *c, gpa_t gpa, u64 len);
void jc_set(struct dbt *d, unsigned idx, struct block *b);
void jc_drop(struct core *c, u64 lin, u64 len);

/* translate.c, stubs.c */
struct block *translate(struct dbt *d, const struct code_at *at);
/* Does the instruction there go on in the next page? */
bool translate_crosses(struct dbt *d, const u8 *page, unsigned offset);
void translate_snippet(struct dbt *d, struct insn *in);
void translate_common(struct dbt *d);

/* host.c: signals, GS base */
int host_init(struct dbt *d, struct err *err);
void host_fini(struct dbt *d);
void host_enter(struct dbt *d);

/* run.c */
enum engine_exit dbt_run_insns(struct core *c, u64 n, struct err *err);
int dbt_native(struct core *c, struct insn *in);

#endif
