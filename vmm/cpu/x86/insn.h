/*
 * One decoded instruction as the engine needs it: facts from Zydis reduced to what translation
 * and execution use, plus the treatment from insn.def. Kept in a cache keyed by the instruction's
 * bytes, so an entry never becomes stale.
 */
#ifndef REPRISE_X86_INSN_H
#define REPRISE_X86_INSN_H

#include "base/types.h"
#include "cpu/model.h"

enum treat {
    T_NONE, /* not in the table: stop with a report */
    T_GEN,
    T_NOP,
    T_LEA,
    T_PROBE,
    T_BITS,
    T_PUSH,
    T_POP,
    T_CALL,
    T_RET,
    T_JMP,
    T_JCC,
    T_LOOP,
    T_LEAVE,
    T_HELP,
    T_UD,
    T_GP_LONG, /* longer than 15 bytes: #GP(0) */
};

/* State an instruction needs, beyond BASE. N_FEAT: none, of a set that not all models have. */
/* N_AVX512VL is N_AVX512, and a feature besides: of rows of insn.def only. */
enum needs { N_BASE, N_X87, N_MMX, N_SSE, N_AVX, N_FEAT, N_AVX512, N_AVX512VL };

/* What code is written for: it decides what bytes mean. CODE_REAL: 16 bits, in real-address and
 * virtual-8086 mode, which lack instructions. */
enum code_size { CODE_64, CODE_32, CODE_16, CODE_REAL, CODE_SIZES };

struct core;
struct insn;
typedef int helper_fn(struct core *d, struct insn *in);

#define MEM_R 1
#define MEM_W 2

/* By which rules instructions are read. */
#define RULE_CANONICAL 1u /* what the manuals leave undefined is what canon.def says */
#define RULE_APPROX    2u /* ... and this host's RCPPS and RSQRTPS are not (approx.h) */

/* How an undefined result is made a defined one (canon.h). */
enum canon {
    CANON_NONE,
    CANON_FLAGS,   /* flags `undefined` become zero */
    CANON_SCAN,    /* ... and of a source of zero the destination stays: BSF, BSR */
    CANON_COUNT,   /* which depends on the count in CL: none of a count of 0, not OF of 1 */
    CANON_CAREFUL, /* exec() alone knows it */
};

/* Sets that all models have, or none. */
enum { INSN_OF_ALL = 0xfffe, INSN_OF_NONE = 0xffff };

struct insn {
    u8 bytes[16]; /* the cache key (icache.h): 15 bytes at the instruction, and one of ours */
    u8 code;      /* enum code_size */
    u8 len;
    u8 treat;
    u8 needs;
    u8 fpu_nowait;  /* x87 control instruction: does not update FIP/FOP/FDP */
    u8 fpu_wait;    /* a pending x87 exception comes before its memory access */
    u8 align;       /* #GP(0) unless the operand has this alignment; 0 none */
    u8 align_ours;  /* ... which not every host's CPU checks: SHA on AMD's */
    u16 mnemonic;   /* ZydisMnemonic */
    u16 feature;    /* enum cpu_feature that it came with, of AVX's kind besides AVX; INSN_OF_ALL */
    u8 host_lacks;  /* this host does not execute it: the run ends in front of it */
    u8 opsize;      /* bytes */
    u8 addrsize;    /* bytes */
    u8 stack;       /* bytes that a push, a pop or a near branch moves */
    i8 base, index; /* general registers; -1 none */
    u8 scale;
    u8 seg;      /* 64-bit code: SEG_FS, SEG_GS, SEG_SS (stack fault) or SEG_DS */
    u8 rip_rel;  /* disp is relative to the next instruction */
    u8 mem;      /* explicit memory operand: MEM_R | MEM_W; 0 none */
    u8 mem_size; /* bytes, up to 64; 0: larger or none */
    u8 has_mem;  /* ModRM or moffs memory operand of any kind, LEA included */
    u8 reg, rm;  /* ModRM fields extended by REX/VEX */
    u8 mod;
    u8 prefix_end; /* offset of REX/VEX/opcode: first byte after legacy prefixes */
    u8 opcode_off, modrm_off, disp_end, opcode, map, encoding;
    u8 rex;
    u8 head;       /* bytes before the displacement and the immediate, from which all else but their
                      values follows (heads.h); 0: not so */
    u8 disp_bytes; /* ... and of the displacement */
    u8 imm_signed;
    u8 keep[4];    /* legacy prefixes to keep, zero-terminated */
    u8 fixed_size; /* no 66h makes its operands smaller */
    u8 mask;       /* EVEX: of k1 to k7 the one that says which elements of memory are accessed, */
    u8 elem;       /* their bytes, */
    u8 lanes;      /* how many bits of it count, from the first on; memory's elements repeat, */
    u8 packed;     /* or are as many as there are bits that are 1, from the first on */
    u8 merges;     /* a store of the whole operand, which leaves what a mask leaves out */
    u8 imm_register; /* the immediate's upper half is a register */
    u8 small;        /* outside 64-bit code its integer has 32 bits, whatever VEX.W says */
    u8 high8;        /* names AH..DH: no REX may be added */
    u8 rep;          /* 0, 0xf2, 0xf3 */
    u8 lock;
    u8 syncs; /* vCPUs agree by it: an atomic operation, a system call or the return from one */
    i8 reg0;  /* first visible operand if a general register */
    i8 reg1;
    u8 sreg; /* system register of the operand (segment, CR or DR number), 0xff none */
    u8 op0_kind, op1_kind; /* enum op_kind */
    u8 cond;               /* JCC: low nibble of the opcode */
    u8 far;                /* far branch */
    u8 ends;        /* helper that changes RIP or reads all flags: the liveness rule stops here */
    u8 valid;       /* cache entry in use */
    u16 use, wr;    /* general registers read or written; written */
    u16 test, kill; /* arithmetic flags read; surely overwritten */
    u16 undefined;  /* flags that have no value of their own */
    u8 canon;       /* enum canon */
    u16 fop;
    i64 disp;
    i64 imm;         /* of a far pointer the offset, */
    u64 imm2;        /* and the selector */
    helper_fn *help; /* of T_HELP; of an operand with a mask */
    u32 snippet;     /* offset in the code cache; it is there if */
    u32 snip_gen;    /* its region's `gen` is this (dbt/dbt.h), 0 none yet */
    u16 snip_loaded, snip_spilled;
};

enum op_kind { OP_NONE, OP_GPR, OP_MEM, OP_IMM, OP_SREG, OP_CR, OP_DR, OP_OTHER, OP_FAR };

/* Decodes bytes (15 readable, `avail` of them the guest's) of such code for a CPU with these
 * CPU_WORDS features into *in, by rules of RULE_. Calls Zydis: park first. */
void insn_decode(const u32 *words, enum code_size code, unsigned rules, const u8 bytes[15],
                 unsigned avail, struct insn *in);

/* "mov rax, [rbx]" for reports; linear address for relative targets. */
void insn_text(enum code_size code, const u8 *bytes, unsigned len, u64 lin, char *out, size_t size);

#endif
