/* Fuzz target: `MODEL,+feature,-feature`; what is accepted is whole, has one text, and CPUID of it
 * ends. */
#include <stdlib.h>
#include <string.h>

#include "cpu/features.h"
#include "mutate.h"

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    struct cpu_choice c, again;
    struct err err = {0};
    char changes[CPU_CHANGES], *text = malloc(size + 1);
    memcpy(text, data, size);
    text[size] = 0;
    if (cpu_choose(text, &c, &err)) {
        if (!err.text[0])
            abort();
        free(text);
        return 0;
    }
    free(text);
    cpu_changes_text(&c, changes);
    if (strlen(changes) >= CPU_CHANGES - 1 || cpu_change(c.model, changes, &again, &err) ||
        memcmp(&c, &again, sizeof(c)))
        abort();
    const struct cpuid_live live = {.words = c.words, .xcr0 = cpu_words_xcr0(c.words)};
    struct cpuid_result r;
    for (u32 leaf = 0; leaf < 0x20; leaf++)
        cpu_model_cpuid(c.model, leaf, 0, &live, &r);
    cpu_model_cpuid(c.model, 1, 0, &live, &r);
    if ((r.ecx >> 28 & 1) != cpu_words_have(c.words, FEAT_AVX) || !(r.edx >> 26 & 1))
        abort(); /* AVX as it was said, SSE2 always */
    return 0;
}
