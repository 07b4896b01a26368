/* run.c, state.c: the core as an engine (cpu/engine.h). */
#ifndef REPRISE_X86_RUN_H
#define REPRISE_X86_RUN_H

#include "cpu/x86/core.h"

/* What engine_dbt_create() gives; kvm/ replaces some of it. */
extern const struct engine_ops core_ops;

/* Runs n instructions, REP iterations or deliveries at most, in either unit. */
enum engine_exit core_run_insns(struct core *d, u64 n, struct err *err);
static inline void translations_flush(struct core *d)
{
    d->translator->flush(d);
}

/* state.c */
int core_init(struct core *d, const struct engine_config *config, struct err *err);
void core_fini(struct core *d);
/* UNIT_BRANCH, a triple fault: some CPUs lose their registers then, so all do. */
void core_shut_down(struct core *d);

#endif
