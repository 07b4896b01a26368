/*
 * One virtual CPU's architectural state, declared once (base/state.h). Both engines keep it here;
 * while dbt runs, general registers and flags are in its own slots and engine_sync() stores them.
 */
#ifndef REPRISE_VCPU_H
#define REPRISE_VCPU_H

#include "base/state.h"
#include "base/types.h"

enum { RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8, R9, R10, R11, R12, R13, R14, R15 };
/* Segment registers in the order of instruction encodings, then the system ones. */
enum { SEG_ES, SEG_CS, SEG_SS, SEG_DS, SEG_FS, SEG_GS, SEG_LDTR, SEG_TR, SEG_COUNT };

#define FL_CF    0x00000001u
#define FL_PF    0x00000004u
#define FL_AF    0x00000010u
#define FL_ZF    0x00000040u
#define FL_SF    0x00000080u
#define FL_TF    0x00000100u
#define FL_IF    0x00000200u
#define FL_DF    0x00000400u
#define FL_OF    0x00000800u
#define FL_IOPL  0x00003000u
#define FL_NT    0x00004000u
#define FL_RF    0x00010000u
#define FL_VM    0x00020000u
#define FL_AC    0x00040000u
#define FL_VIF   0x00080000u
#define FL_VIP   0x00100000u
#define FL_ID    0x00200000u
#define FL_ARITH (FL_CF | FL_PF | FL_AF | FL_ZF | FL_SF | FL_OF)

#define CR0_PE (1u << 0)
#define CR0_MP (1u << 1)
#define CR0_EM (1u << 2)
#define CR0_TS (1u << 3)
#define CR0_ET (1u << 4)
#define CR0_NE (1u << 5)
#define CR0_WP (1u << 16)
#define CR0_AM (1u << 18)
#define CR0_NW (1u << 29)
#define CR0_CD (1u << 30)
#define CR0_PG (1u << 31)

#define CR4_TSD        (1u << 2)
#define CR4_DE         (1u << 3)
#define CR4_PSE        (1u << 4)
#define CR4_PAE        (1u << 5)
#define CR4_MCE        (1u << 6)
#define CR4_PGE        (1u << 7)
#define CR4_PCE        (1u << 8)
#define CR4_OSFXSR     (1u << 9)
#define CR4_OSXMMEXCPT (1u << 10)
#define CR4_UMIP       (1u << 11)
#define CR4_FSGSBASE   (1u << 16)
#define CR4_PCIDE      (1u << 17)
#define CR4_OSXSAVE    (1u << 18)
#define CR4_SMEP       (1u << 20)
#define CR4_SMAP       (1u << 21)

#define EFER_SCE (1u << 0)
#define EFER_LME (1u << 8)
#define EFER_LMA (1u << 10)
#define EFER_NX  (1u << 11)

#define FEATURES_CPUID_FAULT 1u /* IA32_MISC_FEATURES_ENABLES: CPUID is for CPL 0 */

/* Exception vectors (SDM vol. 3, 6.15). */
enum {
    EXC_DE = 0,
    EXC_DB = 1,
    EXC_NMI = 2,
    EXC_BP = 3,
    EXC_OF = 4,
    EXC_BR = 5,
    EXC_UD = 6,
    EXC_NM = 7,
    EXC_DF = 8,
    EXC_TS = 10,
    EXC_NP = 11,
    EXC_SS = 12,
    EXC_GP = 13,
    EXC_PF = 14,
    EXC_MF = 16,
    EXC_AC = 17,
    EXC_MC = 18,
    EXC_XM = 19
};

/* Segment attributes as in descriptor bits 8..23 with the limit nibble cleared. */
#define ATTR_TYPE   0x000fu
#define ATTR_S      0x0010u
#define ATTR_DPL(a) (((a) >> 5) & 3u)
#define ATTR_P      0x0080u
#define ATTR_AVL    0x1000u
#define ATTR_L      0x2000u
#define ATTR_DB     0x4000u
#define ATTR_G      0x8000u

/* XSAVE area, standard format: x87+SSE (512), header (64), AVX (256). What AVX-512 has besides is
 * apart: only CPUs with it have it in their state. */
#define XSAVE_SIZE    832
#define XSAVE_MOST    2688  /* the whole area with it, as XSAVE writes it (cpu/model.h) */
#define XSAVE_AVX512  0xe0u /* XSTATE_BV of it: masks, upper halves, ZMM16 to ZMM31 */
#define MTRR_VARIABLE 8

#define VCPU_WAITS_FOR_SIPI 2 /* after INIT, of a CPU that is not the first (SDM vol. 3, 8.4.3) */

#define VCPU_STATE(F, A)                                                                           \
    F(u64, position) /* instructions retired + REP iterations + deliveries */                      \
    A(u64, gpr, 16)                                                                                \
    F(u64, rip)                                                                                    \
    F(u64, rflags)                                                                                 \
    F(u64, cr0)                                                                                    \
    F(u64, cr2)                                                                                    \
    F(u64, cr3)                                                                                    \
    F(u64, cr4)                                                                                    \
    F(u64, efer)                                                                                   \
    F(u64, xcr0)                                                                                   \
    A(u64, dr, 8) /* 4 and 5 unused */                                                             \
    A(u64, seg_base, SEG_COUNT)                                                                    \
    A(u32, seg_limit, SEG_COUNT) /* in bytes, expanded */                                          \
    A(u16, seg_sel, SEG_COUNT)                                                                     \
    A(u16, seg_attr, SEG_COUNT)                                                                    \
    F(u64, gdt_base)                                                                               \
    F(u64, idt_base)                                                                               \
    F(u16, gdt_limit)                                                                              \
    F(u16, idt_limit)                                                                              \
    F(u8, halted)      /* in HLT; or VCPU_WAITS_FOR_SIPI */                                        \
    F(u8, nmi_blocked) /* between NMI and IRET */                                                  \
    F(u8, shadow)      /* 1: STI or MOV SS just retired, holds for the next instruction */         \
    F(u8, rep_resume)  /* the instruction at RIP is a REP string stopped between iterations */     \
    F(u64, star)                                                                                   \
    F(u64, lstar)                                                                                  \
    F(u64, cstar)                                                                                  \
    F(u64, sfmask)                                                                                 \
    F(u64, kernel_gs_base)                                                                         \
    F(u64, sysenter_cs)                                                                            \
    F(u64, sysenter_esp)                                                                           \
    F(u64, sysenter_eip)                                                                           \
    F(u64, tsc_adjust) /* TSC = virtual time + this */                                             \
    F(u64, tsc_aux)                                                                                \
    F(u64, pat)                                                                                    \
    F(u64, misc_enable)                                                                            \
    F(u64, spec_ctrl)                                                                              \
    F(u64, mtrr_def_type)                                                                          \
    A(u64, mtrr_fixed, 11)                                                                         \
    A(u64, mtrr_base, MTRR_VARIABLE)                                                               \
    A(u64, mtrr_mask, MTRR_VARIABLE)                                                               \
    F(u64, mcg_status)                                                                             \
    F(u64, bios_sign)                                                                              \
    A(u64, perf, 14)         /* performance counters (x86/pmu.c) */                                \
    F(u64, features)         /* IA32_MISC_FEATURES_ENABLES of named models; of AMD's: HWCR */      \
    F(u64, guest_tsc)        /* MSR_GUEST_TSC: the guest executes no RDTSC and RDTSCP */           \
    A(u8, xsave, XSAVE_SIZE) /* FIP, FDP, FOP canonical; XSTATE_BV = differs from init */

#define VCPU_AVX512_STATE(F, A)                                                                    \
    A(u64, mask, 8)                                                                                \
    A(u8, zmm_high, 16 * 32)  /* upper halves of ZMM0 to ZMM15 */                                  \
    A(u8, zmm_above, 16 * 64) /* ZMM16 to ZMM31 */

#define LBR_MAX 32u
/* The last branches (x86/lbr.h). */
#define VCPU_LBR_STATE(F, A)                                                                       \
    A(u64, lbr_from, LBR_MAX)                                                                      \
    A(u64, lbr_to, LBR_MAX)                                                                        \
    A(u64, lbr_info, LBR_MAX)                                                                      \
    F(u64, lbr_tos)                                                                                \
    F(u64, lbr_select)                                                                             \
    F(u64, lbr_position) /* of the one that was recorded last */

struct vcpu {
    VCPU_STATE(STATE_MEMBER, STATE_MEMBER_ARRAY)
    VCPU_AVX512_STATE(STATE_MEMBER, STATE_MEMBER_ARRAY)
    VCPU_LBR_STATE(STATE_MEMBER, STATE_MEMBER_ARRAY)
};

/* What every CPU has, and all that some have. */
extern const struct state_desc vcpu_state_desc, vcpu_full_state_desc;
/* Where a state has component 5, 6 or 7 of XSAVE, which are AVX-512's (cpu_xsave_part()). */
static inline const u8 *vcpu_avx512_part(const struct vcpu *c, unsigned component)
{
    return component == 5 ? (const u8 *)c->mask : component == 6 ? c->zmm_high : c->zmm_above;
}

/* That of a CPU with AVX-512 or without, with last-branch records or without. */
const struct state_desc *vcpu_state_of(bool avx512, bool lbr);

/*
 * Is this a state that the engine can run, of a CPU with AVX-512 or without? For what comes from a
 * file or a debugger. -EINVAL with a text if not. (Of any mode; whatever a guest could have loaded
 * is accepted.)
 */
int vcpu_loaded(const struct vcpu *cpu, bool avx512, struct err *err);

/* What runs code in what way (SDM vol. 3, 2.2; 3.4.5 for the size). */
enum vcpu_mode {
    VCPU_REAL,
    VCPU_V86,
    VCPU_PROTECTED_16,
    VCPU_PROTECTED_32,
    VCPU_COMPAT_16,
    VCPU_COMPAT_32,
    VCPU_64,
    VCPU_MODES
};
extern const char *const vcpu_mode_name[VCPU_MODES];
static inline enum vcpu_mode vcpu_mode(const struct vcpu *cpu)
{
    bool wide = cpu->seg_attr[SEG_CS] & ATTR_DB;
    if (!(cpu->cr0 & CR0_PE))
        return VCPU_REAL;
    if (cpu->efer & EFER_LMA)
        return cpu->seg_attr[SEG_CS] & ATTR_L ? VCPU_64 : wide ? VCPU_COMPAT_32 : VCPU_COMPAT_16;
    if (cpu->rflags & FL_VM)
        return VCPU_V86;
    return wide ? VCPU_PROTECTED_32 : VCPU_PROTECTED_16;
}

/* State after the machine's boot code: 64-bit mode is set by the board; this is power-on. */
void vcpu_reset(struct vcpu *cpu);

#endif
