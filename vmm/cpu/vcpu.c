/* The vCPU's descriptor and its power-on state (SDM vol. 3, table 10-1), before the board's boot
 * code sets 64-bit mode. */
#include "cpu/vcpu.h"

#include <string.h>

#define F(t, n)    STATE_FIELD(vcpu, t, n)
#define A(t, n, c) STATE_FIELD_ARRAY(vcpu, t, n, c)
static const struct state_field vcpu_fields[] = {VCPU_STATE(F, A)};
#undef F
#undef A

const struct state_desc vcpu_state_desc = {"cpu", vcpu_fields, ARRAY_SIZE(vcpu_fields),
                                           sizeof(struct vcpu)};

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
