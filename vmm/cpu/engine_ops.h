/* What an implementation of cpu/engine.h provides: its functions, one for one. */
#ifndef REPRISE_ENGINE_OPS_H
#define REPRISE_ENGINE_OPS_H

#include "cpu/engine.h"

struct engine_ops {
    void (*destroy)(struct engine *e);
    struct vcpu *(*vcpu)(struct engine *e);
    void (*sync)(struct engine *e);
    void (*changed)(struct engine *e);
    bool (*lost)(const struct engine *e, struct err *err); /* NULL: never */
    pos_t (*count)(const struct engine *e);
    pos_t (*branches)(const struct engine *e);
    void (*set_branches)(struct engine *e, pos_t branches);
    /* Until engine_count() is stop_at. */
    enum engine_exit (*run)(struct engine *e, pos_t stop_at, struct err *err);
    void (*place)(struct engine *e, struct engine_place *out);
    int (*settle)(struct engine *e, const struct engine_place *to, struct err *err);
    void (*count_event)(struct engine *e);
    void (*attention)(struct engine *e);
    void (*kick)(struct engine *e);
    bool (*can_interrupt)(const struct engine *e);
    bool (*can_nmi)(const struct engine *e);
    void (*want_window)(struct engine *e, bool interrupt, bool nmi);
    int (*interrupt)(struct engine *e, u8 vector);
    int (*nmi)(struct engine *e);
    void (*ram_written)(struct engine *e, gpa_t gpa, u64 len);
    int (*set_trace)(struct engine *e, const struct engine_trace *trace);
    const struct engine_accesses *(*accesses)(const struct engine *e);
    bool (*linear_to_physical)(struct engine *e, gva_t va, gpa_t *gpa);
    bool (*peek)(struct engine *e, gva_t va, void *out, size_t len);
    int (*debug_set)(struct engine *e, const struct debug_point *points, unsigned n);
    bool (*debug_hit)(struct engine *e, struct debug_hit *out);
    void (*debug_pass)(struct engine *e, bool pass);
    const u32 *(*written)(const struct engine *e, size_t *n);
    int (*written_reset)(struct engine *e);
    int (*verify)(struct engine *e, struct err *err); /* NULL: nothing to wait for */
    void (*stats)(const struct engine *e, struct machine_stats *out);
    int (*set_code_log)(struct engine *e, const struct engine_code_log *log); /* NULL: -ENOTSUP */
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
