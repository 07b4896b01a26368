/* models.c: what each CPU model is. model.c and model_events.c make CPUID and the rest of it. */
#ifndef REPRISE_CPU_MODEL_TABLE_H
#define REPRISE_CPU_MODEL_TABLE_H

#include "cpu/model.h"

struct model_cache {
    u8 type, level; /* 1 data, 2 instruction, 3 unified; level 0: no such cache */
    u16 ways;
    u32 sets; /* of 64 bytes a way */
    bool inclusive;
};

#define MODEL_CACHES 4

struct model {
    enum cpu_model id;
    const char *name;
    const char *alias; /* or NULL */
    const char *brand; /* at most 47 characters */
    u32 signature;     /* leaf 1, EAX: stepping, model, family, extended model, extended family */
    u32 max_basic, max_extended;
    u32 words[CPU_WORDS];
    struct model_cache caches[MODEL_CACHES];
    struct model_pmu pmu;
};

/* NULL for a number that no model has. */
const struct model *model_row(enum cpu_model id);

#endif
