/* The codes of performance counters (model.h, model_events.def). */
#include "cpu/model.h"

#define NHM  (1u << CPU_NEHALEM)
#define HSW  (1u << CPU_HASWELL)
#define SKX  (1u << CPU_SKYLAKE_SERVER)
#define ICX  (1u << CPU_ICELAKE_SERVER)
#define ZEN2 (1u << CPU_ZEN2)

static const struct {
    u32 models;
    struct model_event event;
} rows[] = {
#define EVENT(models, select, umask, counts, name) {models, {select, umask, PMU_##counts, name}},
#include "cpu/model_events.def"
};

const struct model_event *cpu_model_event(enum cpu_model model, u16 select, u8 umask)
{
    if (model == CPU_MODEL_NONE || model > CPU_MODEL_LAST)
        return NULL;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if ((rows[i].models >> model & 1) && rows[i].event.select == select &&
            rows[i].event.umask == umask)
            return &rows[i].event;
    return NULL;
}
