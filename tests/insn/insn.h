/*
 * The engine against the host CPU: shared declarations. A case is some machine code, a CPU state
 * and memory; it runs natively (native.c) and twice under the engine (guest.c); compare.c says
 * whether the three ended the same. Everything about a case follows from (seed, number).
 *
 * Linear addresses are the same on both sides and lie below 4 GiB, so that 67h forms reach them;
 * the test program is position independent and lives far away.
 */
#ifndef REPRISE_TESTS_INSN_H
#define REPRISE_TESTS_INSN_H

#include <string.h>
#include <Zydis/Zydis.h>
#include "cpu/engine.h"
#include "cpu/features.h"
#include "cpu/model.h"
#include "cpu/vcpu.h"
#include "cpu/x86/insn.h"

/* Code: CODE_PAGES of user R-X, then an unmapped page; filled with INT3 around the cases. */
#define T_CODE     0x10000000ull
#define CODE_PAGES 16u
#define CODE_SIZE  (CODE_PAGES * PAGE_SIZE)
/* One case per slot; every sixteenth straddles a page, the last one runs into the unmapped page. */
#define SLOT_SIZE  256u
#define SLOT_FIRST 192u
#define BATCH      256u
#define T_LAND     (T_CODE + CODE_SIZE + 0x10000) /* one page of INT3: where branches may go */

/* Data: a window of eight pages: hole, RW, RW, hole, RW, RO, RW, hole. */
#define T_DATA     0x10080000ull
#define DATA_PAGES 8u
#define DATA_SIZE  (DATA_PAGES * PAGE_SIZE)
#define DATA_RW    0x56u /* bit per page */
#define DATA_RO    0x20u

/* 2 MiB of a program's (stops.c) whose table is the page in which the program begins. */
#define T_TABLED 0x10200000ull
#define T_DEVICE (T_LAND + PAGE_SIZE) /* as port output, what is stored writes among code */

/* What the cases are: CODE_64, or in compatibility mode CODE_32 or CODE_16. 16-bit code lies beyond
 * its first 64 KiB here, so that its address is RIP; branches of 16 bits lead away from it. */
extern enum code_size test_code;
/* The CPU's features, with what --model turns on and off. */
extern struct cpu_choice test_cpu;
/* The rules of the engines: ENGINE_REVISION, or, where the host's CPU says what is right, the last
 * one of which what is undefined is the host's. */
extern u32 test_revision;
#define REVISION_HOSTS 3u

struct icase;
struct outcome;
/* canon.c: what is undefined, a second time, from the decoder's facts. Flags after an instruction
 * whose RCX is that. */
u32 canon_flags(const ZydisDecodedInstruction *in, const ZydisDecodedOperand *ops, u64 rcx);
/* Makes of what the host's CPU left what is canonical. False: another model's to say, or, of
 * several instructions, nobody's. */
bool canon_expect(const struct icase *c, struct outcome *n);

/* As --code has it. */
static inline unsigned test_bits(void)
{
    return test_code == CODE_64 ? 64 : test_code == CODE_32 ? 32 : 16;
}

/* The LDT of both sides, where cases are not 64-bit code: selectors 7, 15, ... */
#define LDT_SIZE   8u
#define LDT_DATA   7u /* these may be data segments */
#define LDT_SEL(i) ((u16)((i) << 3 | 7))
extern const u64 test_ldt[LDT_SIZE];
/* Base of the data segment of a selector. */
u32 test_base(u16 sel);

struct cpu_state {
    u64 gpr[16];
    u64 rip;
    u64 rflags;
    u64 fs_base, gs_base;
    u16 sel[6]; /* in encoding order; of 64-bit code CS and SS are 0x33 and 0x2b */
    _Alignas(64) u8 xsave[XSAVE_SIZE];
    u64 mask[8]; /* as struct vcpu has AVX-512's state */
    u8 zmm_high[16 * 32], zmm_above[16 * 64];
};

/* The bytes at `byte` of vector register `reg`, as far as its 16 go on. */
u8 *state_vector(struct cpu_state *s, unsigned reg, unsigned byte);

enum outcome_kind {
    OUT_EXCEPTION = 1, /* vector, err, cr2 hold; the state is the one in the exception's frame */
    OUT_HANG,          /* still running after a second, or too many positions */
    OUT_UNSUPPORTED,   /* ENGINE_UNSUPPORTED, text in note */
    OUT_ODD,           /* anything else, text in note */
};

struct outcome {
    enum outcome_kind kind;
    u8 vector;
    u32 err;
    u64 cr2;
    u32 live; /* arithmetic flags that the frame shows (the engine's outcomes) */
    struct cpu_state st;
    u8 mem[DATA_SIZE]; /* the window's pages after the run; holes are not used */
    char note[160];
};

#define MAX_INSNS   12u
#define MAX_PATCHES 8u

enum { IMG_NONE, IMG_FX, IMG_XSAVE, IMG_X87 }; /* a memory operand that is a state image */

struct icase {
    u64 number;
    u64 address;
    u8 code[SLOT_SIZE];
    u8 native[SLOT_SIZE]; /* as code, but see gen.c about F3 0F BC/BD */
    unsigned len;
    unsigned ninsn;
    unsigned sequence; /* 1: more than one instruction by intent */
    bool decoded;
    bool lacks; /* the model lacks it: #UD expected, not run natively */
    bool skip;  /* not to be run; reason in why */
    const char *why;
    const char *category;
    int image; /* IMG_*: memory written at image_ea has host-dependent parts */
    u64 image_ea;
    struct cpu_state st;
    unsigned npatches;
    struct patch {
        u32 off, len; /* in the data window */
        u32 at;       /* in patch_data */
    } patches[MAX_PATCHES];
    u8 patch_data[2048];
    unsigned patch_used;
    ZydisDecodedInstruction insn; /* of the first instruction */
    ZydisDecodedOperand ops[ZYDIS_MAX_OPERAND_COUNT];
};

/* rng.c and values.c */
struct rng {
    u64 s[2];
};
void rng_seed(struct rng *r, u64 seed, u64 number);
u64 rng_u64(struct rng *r);
static inline u64 rng_below(struct rng *r, u64 n)
{
    return (u64)(((unsigned __int128)rng_u64(r) * n) >> 64);
}
static inline bool rng_chance(struct rng *r, unsigned percent)
{
    return rng_below(r, 100) < percent;
}
u64 value_int(struct rng *r);
void value_vector(struct rng *r, u8 *out, unsigned bytes);
void value_x87(struct rng *r, u8 out[10]);
/* Legacy region, header and AVX part that XRSTOR accepts and that keeps as it is. */
void value_xsave(struct rng *r, u8 out[XSAVE_SIZE], bool avx);
void value_avx512(struct rng *r, struct cpu_state *s);

/* host.c: in what the host's CPU is known to differ from the models. */
enum host_quirk {
    Q_FIP,
    Q_BRANCH16,
    Q_PREFETCH,
    Q_INT1,
    Q_AC_VECTOR,
    Q_AC_LATE,
    Q_PAUSE,
    Q_REP_RF,
    Q_REP_FLAGS,
    Q_LXS,
    Q_MASK,
    Q_GATHER,
    Q_X87_STORE,
    Q_CVTPS2PH,
    Q_CALL,
    Q_MXCSR,
    Q_MASKMOV,
    Q_LOCK,
    Q_LOOP,
    Q_MOVSXD,
    Q_REP_A32,
    Q_CMPS,
    Q_POP,
    Q_UD,
    Q_XSAVE,
    Q_XRSTOR,
    Q_OFFSET,
    Q_MOVBE,
    Q_LA57,
    Q_LASS,
    Q_PUSH_SEG,
    Q_VEX_W,
    Q_END,
    Q_BOUND,
    Q_MASKED,
    Q_SHA,
    Q_CR8,
    Q_VERW,
    Q_KMOV,
    Q_EVEX_RSP,
    Q_COUNT
};
void host_probe(void); /* after native_init, before there is anything in the data window */
void host_print(void);
bool host_is(enum host_quirk q);
const char *host_text(enum host_quirk q);
/* Why the host does something else with this instruction; NULL if it does not. */
const char *host_differs(const ZydisDecodedInstruction *in);
/* It may be #AC on the host though its operand needs no alignment. */
bool host_checks_vector(const ZydisDecodedInstruction *in, const ZydisDecodedOperand *ops);
/* Why what the host did with undecodable bytes cannot be compared; NULL if it can. */
const char *host_undecoded(const struct icase *c, const struct outcome *n, const struct outcome *e);

/* features.c: what a form needs, what model and host have. */
bool feature_in_model(enum cpu_model model, const ZydisDecodedInstruction *insn);
const char *feature_host_lacks(const ZydisDecodedInstruction *insn);
bool feature_avx(enum cpu_model model);
bool feature_avx512(enum cpu_model model);
bool feature_xsave(enum cpu_model model);
bool feature_fsgsbase(enum cpu_model model);
bool feature_umip(enum cpu_model model);
/* A decoder that reads bytes as a CPU of this model does. */
void feature_decoder(enum cpu_model model, ZydisDecoder *dec);

/* forms.c: every instruction form, found by sweeping the opcode maps. */
enum { ENC_LEGACY, ENC_VEX, ENC_EVEX };
struct form {
    u8 enc, map, opcode, pp, w, l;
    u8 b;        /* EVEX: broadcast, rounding */
    bool masked; /* ... it needs a mask */
    u8 modrm;
    bool has_modrm, reg_free, rm_free, mem;
    u16 mnemonic;
};
struct forms {
    struct form *v;
    size_t n;
};
void forms_build(struct forms *f, enum cpu_model model, const char *only);
/* Writes prefixes, opcode, ModRM, SIB and displacement; random bytes up to the end of the buffer.
 */
void form_encode(struct rng *r, const struct form *f, bool simple, u8 out[32]);

/* gen.c, plan.c */
void case_generate(struct icase *c, const struct forms *forms, enum cpu_model model, u64 seed,
                   u64 number, bool sequences);
void case_random_state(struct rng *r, struct icase *c, enum cpu_model model);
/* May stand among others: plain computation whose operands are where make_sequence points them. */
bool case_fits_sequence(const ZydisDecodedInstruction *in, const ZydisDecodedOperand *ops,
                        enum cpu_model model);
void plan_operands(struct rng *r, struct icase *c);
u64 case_slot(u64 number); /* offset in the code pages */

/* native.c */
int native_init(void);
/* <0: this host's kernel gives programs no LDT, or no bases of FS and GS. */
int native_ldt(void);
void native_signals(void); /* after the engine has installed its own handlers */
void native_code(u64 offset, const u8 *bytes, size_t len);
void native_seal(void); /* the read-only page becomes read-only */
u8 *native_mem(void);   /* the data window; only RW pages may be written */
void native_run(const struct cpu_state *st, struct outcome *out);
void native_fini(void);

/* guest.c */
struct guest;
/* `handlers`: exceptions are served by code that goes on one byte further, and code is writable. */
int guest_create(struct guest **out, enum cpu_model model, enum engine_kind engine, bool handlers,
                 const u8 *mem, char *why, size_t len);
/* ... with handlers, by the engine that checks itself. */
int guest_create_paranoid(struct guest **out, enum cpu_model model, const u8 *mem, char *why,
                          size_t len);
void guest_destroy(struct guest *g);
void guest_code(struct guest *g, u64 offset, const u8 *bytes, size_t len);
void guest_code_changed(struct guest *g);
u32 guest_live(struct guest *g, u64 rip); /* by rule.c */
/* single: one position at a time until the instruction at the start has been left. */
void guest_run(struct guest *g, const struct cpu_state *st, const u8 *mem, bool single,
               unsigned insns, struct outcome *out);

/* program.c: random programs. Everything follows from (seed, number); `rest` goes on with it. */
struct program {
    u64 at; /* in the code pages */
    u8 code[2048];
    unsigned len;
    u8 data[DATA_SIZE];
    struct cpu_state st;
    bool kernel; /* it begins in ring 0, where it may ruin tables and control registers */
};
struct program_kind {
    enum cpu_model model;
    const struct forms *forms;
    bool often; /* interrupts are not masked */
    /* NULL, or so often writes code of its own at `out` and returns how much, 48 bytes at most.
     * There are then no accesses to debug registers among the others. */
    unsigned (*extra)(void *opaque, struct rng *r, u8 *out);
    unsigned percent;
    void *opaque;
};
void program_draw(struct program *p, const struct program_kind *k, u64 seed, u64 number,
                  struct rng *rest);

/* For stops.c and counters.c: a program, INT3 elsewhere in the code pages. */
void guest_program(struct guest *g, const struct program *p);
/* ... and the way for it to MSRs: INT 80h and SYSCALL write one, INT 81h reads one (guest.c). */
#define SERVICE_WRITE 0x80u
#define SERVICE_READ  0x81u
void guest_services(struct guest *g, bool pce, u64 sfmask);
/* Of a handler in this guest: its vector; -1: RIP is not at the beginning of one. */
int guest_vector(struct guest *g);
/* Tells of counters' interrupts. */
void guest_on_pmi(struct guest *g, void (*pmi)(void *opaque, struct guest *g), void *opaque);
/* Another guest with an engine of its own goes on where that one is. */
void guest_copy(struct guest *to, struct guest *from);
/* The device does not write after an OUT by itself: no tape of the engine that checks itself has
 * that. */
void guest_quiet(struct guest *g);
/* It goes no further. */
bool guest_ended(const struct guest *g);
struct engine *guest_engine(struct guest *g);
void guest_go(struct guest *g, pos_t until);
void guest_external(struct guest *g);
/* Exceptions that push an error code. */
#define HAS_ERROR                                                                                  \
    (1u << EXC_DF | 1u << EXC_TS | 1u << EXC_NP | 1u << EXC_SS | 1u << EXC_GP | 1u << EXC_PF |     \
     1u << EXC_AC)
/* Is RIP in the program, and not in a handler? */
bool guest_in_code(const struct guest *g);
/* A device writes: one to four bytes, up to 15 behind RIP, become PUSHF each; which ones, `how`
 * says. */
void guest_device(struct guest *g, u8 how);
bool guest_equal(struct guest *a, struct guest *b, char *text, size_t len);

/* stops.c */
int stops_main(enum cpu_model model, enum engine_kind stepped, bool often,
               const struct forms *forms, u64 seed, u64 first, u64 count);

/* counters.c */
int counters_main(enum cpu_model model, bool paranoid, const struct forms *forms, u64 seed,
                  u64 first, u64 count);

/* rule.c: the arithmetic flags that are live in front of the instruction at `offset`. */
u32 rule_live(enum cpu_model model, const u8 page[PAGE_SIZE], unsigned offset);

/* compare.c */
enum verdict { SAME, DIFFERENT, SOFT, EXCUSED };
struct difference {
    char text[2048];
    size_t used;
    unsigned soft;       /* FIP/FDP/FOP differ, but by a value a CPU could have */
    const char *excused; /* why the two cannot be compared */
};
/* Engine outcome `e` against what the hardware did. */
enum verdict compare_native(const struct icase *c, const struct outcome *n, const struct outcome *e,
                            struct difference *d);
/* The engine's two ways must agree in everything. */
enum verdict compare_engine(const struct icase *c, const struct outcome *a, const struct outcome *b,
                            struct difference *d);
/* A form the model lacks: #UD, nothing changed. */
enum verdict compare_ud(const struct icase *c, const u8 *mem, const struct outcome *e,
                        struct difference *d);
void print_case(const struct icase *c, enum cpu_model model);

#endif
