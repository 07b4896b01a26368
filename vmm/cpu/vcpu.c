/* The vCPU's descriptor and its power-on state (SDM vol. 3, table 10-1), before the board's boot
 * code sets 64-bit mode. */
#include "cpu/vcpu.h"

#include <errno.h>
#include <string.h>

typedef struct vcpu state_here;
#define PLAIN  VCPU_STATE(STATE_FIELD, STATE_FIELD_ARRAY)
#define AVX512 VCPU_AVX512_STATE(STATE_FIELD, STATE_FIELD_ARRAY)
#define LBR    VCPU_LBR_STATE(STATE_FIELD, STATE_FIELD_ARRAY)
static const struct state_field plain_fields[] = {PLAIN};
static const struct state_field avx512_fields[] = {PLAIN AVX512};
static const struct state_field lbr_fields[] = {PLAIN LBR};
static const struct state_field full_fields[] = {PLAIN AVX512 LBR};

#define DESC(fields)                                                                               \
    {                                                                                              \
        "cpu", fields, ARRAY_SIZE(fields), sizeof(struct vcpu)                                     \
    }
const struct state_desc vcpu_state_desc = DESC(plain_fields);
const struct state_desc vcpu_full_state_desc = DESC(full_fields);
static const struct state_desc avx512_desc = DESC(avx512_fields), lbr_desc = DESC(lbr_fields);

const struct state_desc *vcpu_state_of(bool avx512, bool lbr)
{
    if (avx512)
        return lbr ? &vcpu_full_state_desc : &avx512_desc;
    return lbr ? &lbr_desc : &vcpu_state_desc;
}

const char *const vcpu_mode_name[VCPU_MODES] = {
    [VCPU_REAL] = "real mode",
    [VCPU_V86] = "virtual-8086 mode",
    [VCPU_PROTECTED_16] = "16-bit protected mode",
    [VCPU_PROTECTED_32] = "32-bit protected mode",
    [VCPU_COMPAT_16] = "16-bit compatibility mode",
    [VCPU_COMPAT_32] = "32-bit compatibility mode",
    [VCPU_64] = "64-bit mode",
};

void vcpu_reset(struct vcpu *cpu)
{
    memset(cpu, 0, sizeof(*cpu));
    cpu->rflags = 2;
    cpu->rip = 0xfff0;
    cpu->cr0 = CR0_CD | CR0_NW | CR0_ET;
    cpu->dr[6] = 0xffff0ff0;
    cpu->dr[7] = 0x400;
    cpu->xcr0 = 1;
    for (int s = 0; s < SEG_COUNT; s++) {
        cpu->seg_limit[s] = 0xffff;
        cpu->seg_attr[s] = ATTR_P | ATTR_S | 3;
    }
    cpu->seg_attr[SEG_CS] = ATTR_P | ATTR_S | 0xb;
    cpu->seg_attr[SEG_LDTR] = ATTR_P | 2;
    cpu->seg_attr[SEG_TR] = ATTR_P | 0xb;
    cpu->gdt_limit = cpu->idt_limit = 0xffff;
    cpu->pat = 0x0007040600070406ull;
    cpu->misc_enable = 1; /* fast strings */
    u8 *x = cpu->xsave;
    x[0] = 0x7f; /* FCW = 0x037f after FNINIT; Linux executes one anyway */
    x[1] = 0x03;
    x[24] = 0x80; /* MXCSR = 0x1f80 */
    x[25] = 0x1f;
    x[28] = 0xff; /* MXCSR_MASK */
    x[29] = 0xff;
}

static bool canonical(u64 va)
{
    return (u64)((i64)(va << 16) >> 16) == va;
}

int vcpu_loaded(const struct vcpu *c, bool avx512, struct err *err)
{
    const u64 parts = 7 | (avx512 ? XSAVE_AVX512 : 0);
    const u8 *header = c->xsave + 512;
    u32 mxcsr;
    memcpy(&mxcsr, c->xsave + 24, sizeof(mxcsr));
    const char *what = NULL;
    if (!canonical(c->rip))
        what = "RIP is not canonical";
    else if (!canonical(c->seg_base[SEG_FS]) || !canonical(c->seg_base[SEG_GS]) ||
             !canonical(c->kernel_gs_base))
        what = "a segment base is not canonical";
    else if (mxcsr & 0xffff0000u)
        what = "MXCSR has reserved bits";
    else if (header[0] & ~parts)
        what = "XSTATE_BV names components that the CPU does not have";
    else if (c->xcr0 & ~parts || !(c->xcr0 & 1))
        what = "XCR0 is not possible";
    else if (c->shadow > 2 || c->halted > VCPU_WAITS_FOR_SIPI || c->nmi_blocked > 1 ||
             c->rep_resume > 1)
        what = "an internal flag is not possible";
    else if ((c->cr0 & CR0_PG) && !(c->cr0 & CR0_PE))
        what = "there is paging without protected mode";
    else if (!(c->efer & EFER_LMA) != !((c->efer & EFER_LME) && (c->cr0 & CR0_PG)) ||
             ((c->efer & EFER_LMA) && !(c->cr4 & CR4_PAE)))
        what = "EFER, CR0 and CR4 do not say the same of long mode";
    else if (!(c->efer & EFER_LMA) && (c->cr4 & CR4_PCIDE))
        what = "there are PCIDs outside long mode";
    else if ((c->rflags & FL_VM) && ((c->efer & EFER_LMA) || !(c->cr0 & CR0_PE)))
        what = "virtual-8086 mode is protected mode's";
    else if ((!(c->efer & EFER_LMA) || !(c->seg_attr[SEG_CS] & ATTR_L)) && (c->rip >> 32))
        what = "RIP has more than the 32 bits of its mode";
    for (unsigned i = 1; !what && i < 64; i++)
        if (header[i])
            what = "the XSAVE header has reserved bytes";
    return what ? err_set(err, -EINVAL, "no state of a CPU: %s", what) : 0;
}
