/* run.c, state.c: the core as an engine (cpu/engine.h). */
#ifndef REPRISE_X86_RUN_H
#define REPRISE_X86_RUN_H

#include "cpu/x86/core.h"

void core_destroy(struct engine *e);
/* What engine_dbt_create() gives; kvm/ replaces some of it. */
extern const struct engine_ops core_ops;

/* Runs n instructions, REP iterations or deliveries at most, in either unit. */
static inline enum engine_exit core_run_insns(struct core *d, u64 n, struct err *err)
{
    return d->translator->run_insns(d, n, err);
}
enum engine_exit core_run(struct engine *e, pos_t stop_at, struct err *err);
static inline void translations_flush(struct core *d)
{
    d->translator->flush(d);
}

/* state.c */
int core_init(struct core *d, const struct engine_config *config, struct err *err);
void core_fini(struct core *d);
void core_sync(struct engine *e);
void core_changed(struct engine *e);
/* UNIT_BRANCH, a triple fault: some CPUs lose their registers then, so all do. */
void core_shut_down(struct core *d);

/* memory.c */
void core_ram_written(struct engine *e, gpa_t gpa, u64 len);
bool core_peek(struct engine *e, gva_t va, void *out, size_t len);

#endif
