/*
 * dbt: the portable engine, which translates guest code. See README.md for how it works. A core
 * (cpu/x86/core.h) with what translated code needs of one vCPU (struct dbt) and of all (struct
 * code).
 *
 * The host's GS base points into struct dbt while guest code runs: translated code reaches every
 * member as gs:[offset from there]. Guest registers are in the host's registers of the same name,
 * RSP included; r10 and r11 are scratch and live in their slots at block edges.
 */
#ifndef REPRISE_DBT_H
#define REPRISE_DBT_H

#include "cpu/x86/core.h"
#include "cpu/x86/insn.h"
#include "cpu/x86/pmu.h"

#include "emit.h"

#define JC_SIZE     65536u
#define SECOND_MOST 128 /* of so many finds in jc2 one gets the place in jc */
#define JC_PAGES    65536u

#define BLOCK_MAX    64     /* instructions */
#define BLOCK_CODE   65536u /* bytes of host code that a block may have: offsets in it are u16 */
#define BLOCK_COLD   65536u /* ... for what seldom runs, elsewhere in the region */
#define HOT_AT       3      /* slices that ended in a block before it is translated again */
#define FAILED_AT    3      /* guards of a block that failed before there is a plain translation */
#define DBT_SLACK    16     /* positions a block may run before its budget check */
#define BUDGET_PARTS 4
/* ... shared out: a part for each instruction, and one for the block as a whole */
#define INSN_CODE (BLOCK_CODE / 2 / BLOCK_MAX)
#define INSN_COLD (BLOCK_COLD / BLOCK_MAX)

/* Kinds of exits from translated code, low bits of exit_id. */
enum exit_kind {
    X_NONE,    /* careful snippet done */
    X_LINK,    /* direct branch to the same page, not linked yet; index = link slot */
    X_IND,     /* target in d->target, not in the jump cache */
    X_INSN,    /* instruction `index` must be run by exec() */
    X_INSN_LF, /* the same, flags in lahf form: RAX in d->save_rax */
    X_BUDGET,  /* stop position is near: instruction `index` not run yet */
    X_PLAIN,   /* a guard failed: to the plain translation of the same block */
    X_PAUSE,   /* instruction `index` is a PAUSE of 2 bytes, and somebody is told */
};
#define EXIT_ID(block, index, kind) ((u32)(block) << 10 | (u32)(index) << 3 | (kind))
#define EXIT_BLOCK(id)              ((id) >> 10)
#define EXIT_INDEX(id)              (((id) >> 3) & 127)
#define EXIT_KIND(id)               ((id)&7)

/* Links of a block: 0 and 1 are its last branch's, then a guard in front that failed, then branches
 * by which a path is left (path.c), and guards in the middle. */
#define LINK_PLAIN 2
#define LINK_SIDE  3
#define LINKS_MAX  8

/* A branch that may be patched to go straight to a block of the same page. */
struct link {
    u32 patch;  /* offset of the rel32 */
    u32 inner;  /* ... of one that jumps to `inner` of a block with the same `loaded` and `spilled`;
                   0 none */
    u32 exit;   /* where it goes while it is not linked */
    u16 target; /* page offset */
    u8 slot;
    bool plain; /* to a plain translation */
};

struct block {
    u64 lin;
    u64 phys, phys2; /* phys2: of the next page, into which its one instruction goes; 0 none */
    u32 mode;
    u32 code;  /* offset in the cache: direct entry */
    u32 inner; /* after the prologue */
    u32 ient;  /* entry for indirect jumps: r10 = target, verified */
    u32 hash_next, page_next, page2_next;
    u32 linked;  /* a bit for each region that a link of it goes to */
    u32 insns;   /* index into insn_off: n pairs */
    u32 links;   /* index into links */
    u16 n;       /* instructions, a final one left to exec() included */
    u8 count;    /* what the budget check takes: without that final one */
    u8 check_at; /* the budget check comes before this instruction */
    u16 loaded;  /* stolen guest registers that are in host registers inside the block */
    u16 spilled; /* guest registers whose host register is scratch inside the block */
    u8 nlinks;
    bool dead;     /* its page was written */
    u8 failed;     /* guards, so often, and no plain translation was made */
    bool plain;    /* found only by a guard that failed (guard.c) */
    bool hot;      /* goes on over branches, or would not gain by it (path.c) */
    u8 heat;       /* slices that ended here */
    u8 part;       /* of the budget, from which it takes */
    u32 relocs;    /* of what copies of it need, if there are such (copies.c); 0: not known */
    u16 low, size; /* of the page: offset and bytes within which its guest code is */
    u16 live;      /* arithmetic flags, where it begins */
    u16 looked;    /* where the bytes end that it was made from: more, for the flags' sake */
};

/* What translated code of that mode counts for the guest's counters: bits of enum signal. */
static inline u32 block_signals(u32 mode)
{
    return (mode & MODE_SIGNALS) >> MODE_SIGNALS_SHIFT;
}

/* Is each branch a block's end, as something is counted by where it goes? */
static inline bool branches_end(const struct core *c)
{
    return counts_branches(c) || (block_signals(c->mode) & PMU_WAY_SIGNALS);
}

/* Where its guest code begins, by linear address. */
static inline u64 block_first(const struct block *b)
{
    return (b->lin & ~(u64)(PAGE_SIZE - 1)) + b->low;
}

/* Guest code to be translated. */
struct code_at {
    u64 lin, phys;
    const u8 *page;
    /* Its first instruction goes on in the next page: where that is (else 0), and its bytes. */
    u64 phys2;
    u8 bytes[15];
    bool plain; /* as it is, also if it is a loop */
    bool hot;   /* over branches, the way it mostly goes; nothing if there is no such way */
    bool noted; /* what a copy of it needs is noted */
    const struct block *as; /* NULL, or of which part of the budget it is */
};

/* Branches that a block may go on after. */
#define OFF_JCC 0x4000u
#define OFF_JMP 0x8000u
struct insn_off {
    u16 guest; /* in the page; and one of these */
    u16 host;  /* from block->code */
};

#define SECOND_PAGE 0x80000000u

/* One per RAM page. */
struct code_page {
    u64 map;    /* 64-byte chunks that hold translated bytes */
    u32 blocks; /* list through page_next, or page2_next where SECOND_PAGE is set; 0 ends */
    u8 misses;  /* stores beside them */
    bool done;  /* while a region is emptied: its list has been walked */
};

/* A part of the code cache, with its share of the tables: a block for so many bytes of code (the
 * mean is 330), a place in insn_off for so many (60). What EXIT_ID has room for sets the limit. */
#define REGIONS_MAX       31 /* twice the fewest, less one */
#define BLOCK_BYTES_SHIFT 8
#define INSN_BYTES_SHIFT  5
#define RELOC_BYTES_SHIFT 4
#define LINK_BYTES_SHIFT  6
struct region {
    u32 end;  /* number after its last block's, unless it is being filled */
    u32 gen;  /* of what is in it: another whenever it is begun anew */
    u32 uses; /* times that a block of it was looked up, of late */
    u32 dead; /* of its blocks, so many */
};

/* Bits of code_page.map from offset `first` to `last` in the page. */
static inline u64 page_chunks(unsigned first, unsigned last)
{
    return (last >> 6 == 63 ? ~0ull : (1ull << ((last >> 6) + 1)) - 1) &
           ~((1ull << (first >> 6)) - 1);
}

/* IDX_COUNT: IDX_SUPU, of which the stack's page must not remember anything. */
#define STACK_TLBS  (IDX_COUNT + 1)
#define STACK_SIZES 6

/* What was translated: of all vCPUs of a machine. */
struct code {
    unsigned users;
    u8 *rw, *rx; /* the code cache's two mappings */
    u32 size;    /* bytes: whole regions */
    u32 max_blocks;
    u32 fixed; /* bytes of the stubs, at the beginning of region 0 */
    u32 gen;   /* of the last region that was begun */
    u32 exit_common, slow_common, ind_miss, enter, unwind;
    u32 second[IDX_COUNT]; /* the jump cache's second look; then ind_miss */
    u32 approx;            /* calls slow_approx */
    u32 slow_r10;          /* slow_common, of the address in r10, back to r11 */
    /* Another page of the stack (put_stack_stub): by TLB, log2 of the size, write, live flags. */
    u32 stack[STACK_TLBS][STACK_SIZES][2][2];
    struct engine_code_log log; /* made == NULL: nobody is told */
    struct block *blocks;
    u32 *block_hash;
    u64 npages;
    struct code_page *pages;
    struct insn_off *insn_off;
    struct link *links;
    struct reloc *relocs;
    u32 *alike; /* by a hash of physical address and mode: what to copy, perhaps */
    /* Where the region `now` goes on, and what limits it. Code that seldom runs (a miss of the TLB,
     * exits, single instructions) has a part of its own: what runs is near to what runs. */
    unsigned now;
    u32 used, cold_used, nblocks, ninsn_off, nlinks, nrelocs;
    u32 code_end, cold_end, block_end, insn_end, links_end, relocs_end;
    /* regions.c */
    unsigned region_shift; /* log2 of a region's bytes */
    unsigned nregions, nfilled;
    unsigned hash_bits;
    u32 random;
    u32 watched; /* a bit for each region of which one is emptied next */
    u32 let_go;  /* nblocks, when the writable mapping's pages went */
    struct region region[REGIONS_MAX];
};

static inline unsigned region_of_code(const struct code *k, u32 offset)
{
    return offset >> k->region_shift;
}
static inline unsigned region_of_block(const struct code *k, u32 number)
{
    return number >> (k->region_shift - BLOCK_BYTES_SHIFT);
}
/* Numbers of its blocks: from region_first() on, before region_end(). */
static inline u32 region_first(const struct code *k, unsigned r)
{
    return MAX(1u, (u32)r << (k->region_shift - BLOCK_BYTES_SHIFT));
}
static inline u32 region_end(const struct code *k, unsigned r)
{
    return r == k->now ? k->nblocks : k->region[r].end;
}
/* The link of a block in a slot; NULL: it has none there. */
static inline struct link *block_link(const struct code *k, const struct block *b, unsigned slot)
{
    for (unsigned i = 0; i < b->nlinks; i++)
        if (k->links[b->links + i].slot == slot)
            return &k->links[b->links + i];
    return NULL;
}
/* As long as it is the same, so is the block. */
static inline u32 block_gen(const struct code *k, const struct block *b)
{
    return k->region[region_of_block(k, (u32)(b - k->blocks))].gen;
}
/* What translated code tells slow_mem: the size in bits 0 to 7, and these. */
#define SLOW_WRITE 0x100u
#define SLOW_ALIGN 0x200u /* #GP unless aligned to its size */
#define SLOW_WAIT  0x400u /* a pending x87 exception comes first */
#define SLOW_ADD   0x800u /* not the host address is wanted, but what makes it of the linear one */
/* The register that gets it: bits 12 to 15. */
#define SLOW_REG_SHIFT 12

/* Operands of a block that one guard looks up (guard.c). */
#define GROUPS_MAX 12

struct jc_second {
    u64 minus; /* 0 - target */
    u64 entry; /* of its block: the direct one */
};

/* Code of CPL 3 of an address space and mode (spaces.c). */
#define SPACES       16
#define SPACE_MAX    4096u
#define SPACE_PAGES  4096u
#define SPACE_RECENT 256u
struct space {
    u32 root, mode; /* a page's number; core.looked_up */
    u32 used;
    u32 stays, recents;
    u16 recent[SPACE_RECENT];    /* entries that were missed of late */
    u64 pages[SPACE_PAGES / 64]; /* as jc_pages below */
    struct space_entry {
        u32 block;                  /* 0 none */
        u32 gen;                    /* block_gen() */
    } entry[SPACE_MAX];             /* two places for each address */
    u16 filled[SPACE_MAX], nfilled; /* those that have one */
};

struct jc_known {
    u32 block; /* 0 none */
    u32 page;  /* of its target: the number's low bits */
};

/* What put_approx.c asks of each element: the same number eight times. */
struct approx_slots {
    u32 places[8], base[8], least[8], most[8];
};
#define SLOW_ROOT 0x10u /* what slow_approx is told besides the number of elements */

struct dbt {
    struct core c;
    struct code *code;
    struct paranoid *paranoid; /* NULL: it does not check itself (paranoid.h) */
    /* Slots that translated code uses. */
    u64 host_rsp;
    struct dbt *self;
    u64 entry_code;
    u64 target; /* of an indirect branch */
    u64 save_rax, tmp, tmp2;
    u64 slow_ea, resume, stack_resume;
    /* The budget while translated code runs, less DBT_SLACK: a block takes from the part of its
     * own, so that blocks that follow each other do not wait for each other's stores. */
    i64 part[BUDGET_PARTS];
    u64 tsc_ends; /* what the TSC, less tsc_adjust, is where no part has anything left */
    /* What the guest's counters count, of late: each block has a part, as of the budget. */
    u64 signals[SIG_CODE][BUDGET_PARTS];
    u64 second_left;       /* finds in jc2, until one is put into jc instead */
    u64 found[GROUPS_MAX]; /* what a block's guards found, for which no register was free */
    u32 favoured;          /* the part that has most of a short budget */
    i64 sti_budget;        /* budget right after an inlined STI that opened a shadow */
    u32 exit_id, ind_id;
    struct {
        u32 in[8], place[8], less[8], out[8], rest[8];
        struct approx_slots reciprocal, root;
    } approx __attribute__((aligned(32)));
    u64 sregs[16]; /* host registers at a slow path or signal */
    u64 sflags;    /* and flags */

    bool near_stop; /* the budget is shorter than the block at RIP */
    pos_t by_hand;  /* no translated code before this position: a guard failed */
    bool signalled, fsgsbase;
    bool bmi2;         /* the host's CPU has it */
    bool avx2;         /* the host's CPU has it */
    bool pext;         /* the host's CPU has it, and it is fast */
    u8 hot_at;         /* heat of a block that is translated again */
    bool test_copies;  /* a block that was copied is the one that would be translated */
    bool test_clobber; /* scratch registers and dead flags get other values (put_clobber) */
    u32 test_blocks;   /* a region of the code cache is full with so many; 0: when it is */
    u64 outside[4]; /* for PEXT: 0 is left of an offset in a page that is aligned to 1, 2, 4, 8 */
    u8 signal_trap;
    u32 signal_rip; /* offset in the code cache */
    void *altstack; /* its machine's */
    struct filled jc_user, jc_kernel;
    u32 space_here;         /* where it was found last */
    bool space_left;        /* nothing was put back since */
    u32 spaces_used;        /* counts */
    u32 jc_clears[2];       /* as jc_pages; how often all of its entries went */
    u32 jc_odd;             /* entries of CPL 3 by kernel addresses since all were dropped */
    u32 space_root[SPACES]; /* of those that have entries, + 1; 0: the others */
    struct space space[SPACES];
    /* A bit, by a hash, for each page that an entry of theirs was of: most drops are of data. */
    u64 jc_pages[2][JC_PAGES / 64];
    /* By jc_slot() of the target: host entry points, which look whether they are meant. */
    u64 jc[IDX_COUNT][JC_SIZE];
    /* By jc_second(): what lost its place there to another target. */
    struct jc_second jc2[IDX_COUNT][JC_SIZE];
    struct jc_known jc_known[2 * IDX_COUNT][JC_SIZE]; /* the entries of both, for C */
};

/* Where the host's GS base points to: the TLB of user code is near it, which makes code short. */
#define GS_OFFSET offsetof(struct dbt, c.tlb[IDX_USER])

static inline struct dbt *dbt_of(struct core *c)
{
    return (struct dbt *)(void *)c;
}

/* Jump-cache slot: what flag-neutral instructions can compute (put_indirect). The byte-swapped
 * half brings address bits 16 to 23 in, in which kernel functions with equal low bits differ; of
 * nine times the address, as functions begin at multiples of 16 and would share a sixteenth of the
 * places. */
static inline u32 jc_slot(u64 lin)
{
    return ((u32)lin + __builtin_bswap32((u32)lin * 9)) & (JC_SIZE - 1);
}

/* Two targets that meet in jc_slot() do not meet here, unless their low halves are the same. */
static inline u32 jc_second(u64 lin)
{
    return ((u32)lin + 2 * __builtin_bswap32((u32)lin * 9)) & (JC_SIZE - 1);
}

#endif
