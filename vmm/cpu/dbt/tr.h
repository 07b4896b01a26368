/* The translator's inside: what translate.c, put.c, inlined.c and stubs.c share. */
#ifndef REPRISE_DBT_TR_H
#define REPRISE_DBT_TR_H

#include "dbt.h"
#include "emit.h"

#define STOLEN    (1u << R10 | 1u << R11)
#define OFF(f)    (offsetof(struct dbt, f) - GS_OFFSET)
#define SLOT(r)   (OFF(c.cpu.gpr) + 8 * (size_t)(r))
#define CHECK_MAX 15 /* deepest place of the budget check; DBT_SLACK covers it */

/* What is out of the way of a block's code. */
enum cold_kind {
    COLD_MISS,       /* of the TLB */
    COLD_EXIT,       /* in front of an instruction: a stop is near, or PAUSE is told */
    COLD_EXIT_SAVED, /* ... with saved flags */
    COLD_LINK,       /* a direct branch that is not linked */
    COLD_STACK,      /* another page of the stack */
    COLD_LEAVE,      /* a branch the other way than the path, in the middle */
    COLD_PLAIN,      /* a guard failed */
    COLD_MIDDLE,     /* ... that is not in front of the block */
    COLD_APPROX,     /* of an operand without an entry */
};

struct cold {
    u8 *at;     /* rel32 that jumps here */
    u8 *resume; /* where it goes back */
    u32 info;   /* size | write << 8 */
    u32 id;
    size_t tlb;
    int s1, s2, index;
    u8 kind;       /* enum cold_kind */
    bool add;      /* COLD_MISS: s2 makes a host address of s1 */
    u64 value;     /* COLD_MISS without an index: the address */
    i8 base, kept; /* COLD_STACK: of the operand; and COLD_APPROX: what has RCX, or NOREG */
    bool live;     /* ... flags; of guards: they are saved */
    i32 disp;
};

/* Operands that one guard looks up (guard.c): [base + index * scale + lo .. hi), of values. */
enum found_in { IN_NOTHING, IN_REGISTER, IN_SLOT };
struct group {
    i16 base, index; /* values, by what they were first in: 0 to 15 at the entry */
    u8 scale;
    u8 found; /* enum found_in: where the host address of its `lo` is: in `reg`, or in d->found */
    i8 reg;
    bool write;
    i32 lo, hi;
    u32 members;
    u32 gain; /* lookups less, where it would be with flags to be kept: twice */
    /* The guard is in front of the block (AT_ENTRY), or of instruction `at`, where these registers
     * have the values and `bias` more. */
    i16 at, last; /* and the last member */
    i8 base_reg, index_reg;
    u8 slot; /* link to the plain translation */
    i64 bias;
};
#define AT_ENTRY (-1)
enum operand_of { OF_INSN, OF_TARGET }; /* OF_TARGET: what is pushed or branched to */
struct member {
    i8 group; /* or NOREG */
    i32 off;
};

struct tr {
    struct dbt *d;
    const struct code_at *at;
    struct emit e;
    unsigned n, count, ncold;
    unsigned check;  /* the budget is taken before this instruction */
    unsigned looked; /* how far in the page the flags that are live at its end were looked for */
    u64 lin;
    u32 bi;
    u16 use, wr, loaded, spilled;
    int s1, s2;
    struct block *b;
    bool saved;   /* arithmetic flags are in AX */
    bool alone;   /* nothing else is put for the instruction */
    i32 sp_moved; /* RSP is to be moved so far, when somebody needs it */
    int s1_has;   /* the group whose slot's value s1 has, or NOREG */
    /* guard.c: are there guards? Instructions in a copy of a loop's body, 0 if it is none; places.
     */
    bool guarded;
    bool closed;                           /* the path comes back to its start: a loop */
    unsigned body, ngroups, nways, nsides; /* nways: branches after which the path goes on */
    u8 *again, *leave[LINKS_MAX], *plain, *plain_saved;
    /* Not cleared: n, ncold say how much is there. */
    struct insn in[BLOCK_MAX];
    i16 off[BLOCK_MAX]; /* from lin; below 0 where a path goes back */
    u8 way[BLOCK_MAX];  /* enum way */
    u8 side[BLOCK_MAX]; /* link of a branch in a path */
    u32 live[BLOCK_MAX];
    u32 after[BLOCK_MAX];               /* flags that are live behind it */
    struct member member[BLOCK_MAX][2]; /* by enum operand_of */
    struct group group[GROUPS_MAX];
    struct cold cold[4 * BLOCK_MAX + 4];
};

/* Where the block goes on after a branch. */
enum way { WAY_END, WAY_ON, WAY_TAKEN };

/* Offset in the TLB of the entry for the linear address in `reg`, into `to`. Clobbers flags. */
static inline void tr_tlb_index(struct emit *e, const struct dbt *d, int reg, int to)
{
    if (d->bmi2) {
        e_rorx(e, to, reg, 7);
    } else {
        e_rr(e, 0, 0x89, reg, to);     /* mov to, reg */
        e_rex(e, 0, NOREG, NOREG, to); /* shr to, 7 */
        e1(e, 0xc1);
        e1(e, (u8)(0xe8 | (to & 7)));
        e1(e, 7);
    }
    e_rex(e, 0, NOREG, NOREG, to); /* and to, mask */
    e1(e, 0x81);
    e1(e, (u8)(0xe0 | (to & 7)));
    e4(e, (TLB_SIZE - 1) << 5);
}

/* r11 = the slot of the target in r10: jc_slot(), or jc_second() with scale 2. Flags stay. */
static inline void tr_jc_slot(struct emit *e, int scale)
{
    e_lea(e, R11, R10, R10, 8, 0);
    e1(e, 0x41); /* bswap r11d */
    e1(e, 0x0f);
    e1(e, 0xcb);
    e_lea(e, R11, R10, R11, scale, 0);
    e1(e, 0x45); /* movzx r11d, r11w */
    e1(e, 0x0f);
    e1(e, 0xb7);
    e1(e, 0xdb);
}

/* The stack's page is from now on that of the TLB entry at `index` from `tlb`; `add`, which stays
 * as it is, makes its host addresses. Clobbers flags. */
static inline void tr_keep_stack_page(struct emit *e, int add, int index, size_t page, size_t tlb)
{
    static const size_t tags[][2] = {
        {offsetof(struct tlb_entry, rtag), offsetof(struct stack_page, rtag)},
        {offsetof(struct tlb_entry, wtag), offsetof(struct stack_page, wtag)}};
    e_store(e, add, page + offsetof(struct stack_page, add));
    for (unsigned k = 0; k < ARRAY_SIZE(tags); k++) {
        e_gs(e, 1, 0x8b, add, index, 1, tlb + tags[k][0]);
        e_neg(e, add);
        e_store(e, add, page + tags[k][1]);
    }
    e_load(e, add, page + offsetof(struct stack_page, add));
}

/* From GS on: the page that stack accesses of the block's privilege were in last. */
static inline size_t tr_stack_page(const struct tr *t)
{
    return OFF(c.stack) + (t->d->c.idx == IDX_USER ? 0 : sizeof(struct stack_page));
}

/* Notes a part to be written after the block. */
static inline void tr_cold(struct tr *t, struct cold c)
{
    CHECK(t->ncold < ARRAY_SIZE(t->cold), "%u cold parts", t->ncold);
    t->cold[t->ncold++] = c;
}

/* From GS on: the part of the budget that the block takes from. */
static inline size_t tr_part(const struct tr *t)
{
    return OFF(part) + 8 * (size_t)t->b->part;
}

/* reg = an address of the guest's that moves with the block. */
static inline void tr_put_lin(struct tr *t, int reg, u64 v)
{
    e_movi_noted(&t->e, reg, v, RELOC_LIN);
}

/* Behind an access to the TLB's entry for an address that moves with the block. */
static inline void tr_note_tlb(struct tr *t, u64 lin)
{
    i64 off = (i64)(lin - t->lin);
    if (off == (i32)off)
        e_note_tlb(&t->e, (i32)off);
    else
        e_note_lost(&t->e);
}

/* EXIT_ID() of this block into a slot. */
static inline void tr_put_id(struct tr *t, size_t off, u32 id)
{
    e_store_imm32(&t->e, off, id);
    e_note(&t->e, t->e.p - 4, RELOC_ID);
}

/* op byte gs:[rflags + byte], imm: /1 or, /4 and, /0 test with opcode f6 */
static inline void tr_rflags(struct tr *t, u8 op, int digit, unsigned byte, u8 imm)
{
    e1(&t->e, 0x65);
    e1(&t->e, op);
    e_modrm(&t->e, digit, NOREG, NOREG, 1, (i32)(OFF(c.cpu.rflags) + byte));
    e1(&t->e, imm);
}

/* Counts all that the instructions before n count, where the block is left there (run.c does so
 * where it is left for C). Clobbers s2; flags stay. */
void put_passed(struct tr *t, unsigned n);

/* Linear addresses of a guest instruction and of what follows it. */
static inline u64 tr_lin(const struct tr *t, unsigned i)
{
    return t->lin + (u64)(i64)t->off[i];
}

static inline u64 tr_next(const struct tr *t, unsigned i)
{
    return tr_lin(t, i) + t->in[i].len;
}

/* Where its direct branch goes. */
static inline u64 tr_target(const struct tr *t, unsigned i)
{
    u64 to = tr_next(t, i) + (u64)t->in[i].imm;
    return t->in[i].code == CODE_64 ? to : (u32)to;
}

/* Bytes of what is pushed and popped. */
static inline unsigned tr_word(const struct tr *t)
{
    return t->in[0].code == CODE_64 ? 8 : 4;
}

/* Are near branches, pushes and pops of the usual size? */
static inline bool tr_usual_size(const struct insn *in)
{
    return in->opsize == (in->code == CODE_64 ? 8 : 4);
}

/* What a check leaves behind, for an operand at a linear address that was in s1: the host's address
 * in s1; or what makes one, in s2, of what is in s1 then (PAGE), of the linear address (LINEAR).
 * The access waits for less of what was looked up, the less was done with it. */
enum found { FOUND_HOST, FOUND_PAGE, FOUND_LINEAR };

/* Arithmetic flags in front of a check: free to clobber, to be kept, or in AX already. */
enum flags_state { FLAGS_DEAD, FLAGS_LIVE, FLAGS_SAVED };

/* A helper that is inlined (inlined.c). */
struct inlined {
    helper_fn *help;
    bool (*when)(const struct dbt *d, const struct insn *in);
    void (*put)(struct tr *t, unsigned i);
    bool ends; /* it is the last of its block */
};
/* NULL: exec() runs it. */
const struct inlined *tr_inlined(const struct dbt *d, const struct insn *in);

/* Does what is put for it clobber s1 and s2? */
static inline bool tr_wants_scratch(const struct dbt *d, const struct insn *in)
{
    return (in->treat == T_JCC && (counts_branches(&d->c) || block_signals(d->c.mode))) ||
           (in->treat == T_GEN && in->mem) || in->treat == T_PUSH || in->treat == T_POP ||
           in->treat == T_LEAVE || in->treat == T_CALL || in->treat == T_RET ||
           in->treat == T_JMP || in->treat == T_HELP;
}

/* guard.c */
bool guard_wanted(const struct tr *t);
void guard_block(struct tr *t);
void put_guards(struct tr *t);
/* Does a register have what a guard found? */
bool guards_hold(const struct tr *t, int reg);
bool guards_at(const struct tr *t, unsigned i);
/* Those in front of instruction i. Both may leave flags saved. */
void put_middle_guards(struct tr *t, unsigned i);
void put_guard_cold(struct tr *t, const struct cold *c);
void put_middle_cold(struct tr *t, const struct cold *c);

/* put_bytes.c: as it is; with its memory operand at [base + index + disp], index NOREG: none; at
 * [base]. */
void put_copy(struct emit *e, const struct insn *in);
void put_patched_at(struct emit *e, const struct insn *in, int base, int index, i32 disp);
void put_patched(struct emit *e, const struct insn *in, int base);

/* put_approx.c */
bool has_approx(const struct dbt *d, const struct insn *in);
void put_approx(struct tr *t, unsigned i);
void put_approx_cold(struct tr *t, const struct cold *c);
void approx_slots_fill(struct dbt *d);

/* put_string.c */
bool has_string(const struct dbt *d, const struct insn *in);
void put_string(struct tr *t, unsigned i);

/* inlined.c: RFLAGS, of which AX has the arithmetic flags, without RF and VM, into a dword of `to`.
 * Clobbers RAX and flags. */
void put_flags_image(struct emit *e, int to);

/* put_crossing.c: SYSCALL and SYSRET of 64-bit code. */
bool enters_kernel(const struct dbt *d, const struct insn *in);
bool leaves_kernel(const struct dbt *d, const struct insn *in);
void put_syscall(struct tr *t, unsigned i);
void put_sysret(struct tr *t, unsigned i);

/* path.c */
/* The budget was taken for all of the block; its first n instructions were run. Clobbers s1; flags
 * stay. */
void put_give_back(struct tr *t, unsigned n);
/* Notes that the block ends in a branch to its start, if it does. */
void path_loop(struct tr *t);
/* Where in the page the block goes on after its last instruction, a branch; -1: it ends. */
int path_on(struct tr *t);
/* It does not go on after its last instruction after all, and is no loop. */
void path_end(struct tr *t);
/* Is it more than what the usual translation gives? */
bool path_gains(const struct tr *t);
void put_way(struct tr *t, unsigned i);
void put_leave_cold(struct tr *t, const struct cold *c);

/* put.c: prefixes `put_` append host code for one guest instruction or a part of it. `i` is the
 * instruction's index in the block; s1 and s2 are clobbered. */
void put_prologue(struct emit *e, u16 loaded, u16 spilled);
void put_epilogue(struct emit *e, u16 loaded_written, u16 spilled);
void put_block_epilogue(struct tr *t);
void put_exit(struct tr *t, u32 id);
/* Notes that the rel32 at `at` is the block's link `slot`, to an address in its page. The caller
 * says what is more of it. */
struct link *tr_link(struct tr *t, const u8 *at, u64 target, unsigned slot);
bool tr_linkable(const struct tr *t, u64 target);
void put_far_edge(struct tr *t, u64 target, unsigned idx);
void put_edge(struct tr *t, u64 target, unsigned slot);
void put_ea(struct tr *t, const struct insn *in, unsigned i, int reg, int tmp, bool *is_const,
            u64 *value);
void put_save_flags(struct tr *t);
void put_restore_flags(struct tr *t);
/* ... unless they are. */
void put_saved(struct tr *t, bool saved);
void put_check_as(struct tr *t, unsigned i, unsigned size, bool write, bool is_const, u64 value,
                  enum flags_state flags, enum found found);
/* TLB index of the linear address in reg into s2; the TLB's offset from GS is returned. Clobbers
 * flags. */
size_t put_tlb_index(struct tr *t, int reg);
/* ... of one that is known: the entry's place. */
size_t put_tlb_slot(const struct tr *t, u64 lin);
void put_stack_cold(struct tr *t, const struct cold *c);
int tr_low_register(u16 use);
void put_plain(struct tr *t, const struct insn *in, unsigned i);
/* The same, and what of its results is not the host's (put_canon.c). */
void put_gen(struct tr *t, const struct insn *in, unsigned i);
void put_lea(struct tr *t, const struct insn *in, unsigned i);
/* Says in t->alone whether i is such an instruction. What was put off for those before it is done,
 * if it is needed. */
void put_begin(struct tr *t, unsigned i);
/* In front of an instruction, for tests: what it may not rely on is clobbered, scratch registers
 * and dead flags. */
void put_clobber(struct tr *t, unsigned i);
/* RSP is to be moved: now, unless t->alone. */
void put_sp_moved(struct tr *t, i32 by);
void put_push(struct tr *t, const struct insn *in, unsigned i);
void put_pop(struct tr *t, const struct insn *in, unsigned i);
void put_leave(struct tr *t, unsigned i);
void put_target(struct tr *t, const struct insn *in, unsigned i);
void put_call(struct tr *t, const struct insn *in, unsigned i);
void put_ret(struct tr *t, const struct insn *in, unsigned i);
void put_jcc(struct tr *t, const struct insn *in, unsigned i);
void put_indirect(struct tr *t, unsigned i);
/* The same through the jump cache of index idx, to a target that is canonical. */
void put_jump(struct tr *t, unsigned idx);
/* Leaves in front of instruction i, if the condition holds; flags are as t->saved says. */
void put_exit_if(struct tr *t, unsigned i, int cond, enum exit_kind kind);

#endif
