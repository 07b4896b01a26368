/* An instruction that the CPU model lacks and another one has: the machine is told. */
#include "cpu/x86/lacking.h"

#include "cpu/features.h"
#include "cpu/x86/insn.h"

void note_lacking(struct core *d, const struct insn *in)
{
    struct insn other;
    char text[128];
    for (enum cpu_model m = CPU_MODEL_FIRST; m <= CPU_MODEL_LAST; m++) {
        insn_decode(cpu_model_words(m), (enum code_size)in->code, d->rules, in->bytes, 15, &other);
        if (other.treat == T_UD || other.treat == T_NONE || other.treat == T_GP_LONG ||
            cpu_host_lacks(cpu_model_words(m)))
            continue;
        insn_text((enum code_size)in->code, in->bytes, 15, d->cpu.rip, text, sizeof(text));
        d->env->lacking(d->env->cpu, text, m);
        return;
    }
}
