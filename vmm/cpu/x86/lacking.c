/* An instruction that the CPU lacks and another one has: the machine is told. */
#include "cpu/x86/lacking.h"

#include <stdio.h>

#include "cpu/features.h"
#include "cpu/x86/insn.h"

static void tell(struct core *d, const struct insn *in, const char *has)
{
    char text[128];
    insn_text((enum code_size)in->code, in->bytes, 15, d->cpu.rip, text, sizeof(text));
    d->env->lacking(d->env->cpu, text, has);
}

static bool executes(const struct core *d, const struct insn *in, const u32 words[CPU_WORDS])
{
    struct insn other;
    insn_decode(words, (enum code_size)in->code, d->rules, in->bytes, 15, &other);
    return other.treat != T_UD && other.treat != T_NONE && other.treat != T_GP_LONG &&
           !cpu_host_lacks(words);
}

void note_lacking(struct core *d, const struct insn *in)
{
    struct cpu_choice more;
    char changes[CPU_CHANGES], text[64 + CPU_CHANGES];
    if (executes(d, in, cpu_model_words(d->model)))
        return; /* it was turned off */
    for (enum cpu_model m = CPU_MODEL_FIRST; m <= CPU_MODEL_LAST; m++)
        if (executes(d, in, cpu_model_words(m))) {
            tell(d, in, cpu_model_name(m));
            return;
        }
    if (in->feature >= INSN_OF_ALL)
        return;
    more.model = d->model;
    for (unsigned i = 0; i < CPU_WORDS; i++)
        more.words[i] = d->words[i];
    cpu_add(&more, (enum cpu_feature)in->feature);
    if (!executes(d, in, more.words))
        return;
    cpu_changes_text(&more, changes);
    snprintf(text, sizeof(text), "%s,%s", cpu_model_name(more.model), changes);
    tell(d, in, text);
}
