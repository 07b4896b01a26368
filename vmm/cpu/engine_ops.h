/* What an implementation of cpu/engine.h provides: its functions, one for one. */
#ifndef REPRISE_ENGINE_OPS_H
#define REPRISE_ENGINE_OPS_H

#include "cpu/engine.h"

struct engine_ops {
#define ASK(result, name, parameters, arguments) result(*name) parameters;
#include "cpu/engine_calls.def"
};

/* The first member of each implementation's own struct. */
struct engine {
    const struct engine_ops *ops;
};

/* Of dbt/: a core with its translator, and the same as an engine. */
struct core;
typedef int core_maker(struct core **out, const struct engine_config *config, struct err *err);
core_maker core_create;
int engine_dbt_create(struct engine **out, const struct engine_config *config, struct err *err);
/* On a core that `make` makes. */
int engine_kvm_create(struct engine **out, const struct engine_config *config, core_maker *make,
                      struct err *err);
/* 0: KVM is exact here at the hardware's own speed; else <0 with a text. */
int engine_kvm_exact(struct err *err);

#endif
