/* Counters of an engine since it was created; for `--stats`, benches and curiosity, never for the
 * guest. */
#ifndef REPRISE_CPU_STATS_H
#define REPRISE_CPU_STATS_H

#include "base/types.h"

struct machine_stats {
#define STAT(member, text)     u64 member;
#define STAT_KVM(member, text) u64 member;
#include "cpu/stats.def"
#undef STAT
#undef STAT_KVM
};

/* Adds those of another vCPU of the machine. */
static inline void machine_stats_add(struct machine_stats *to, const struct machine_stats *from)
{
#define STAT(member, text)     to->member += from->member;
#define STAT_KVM(member, text) to->member += from->member;
#include "cpu/stats.def"
#undef STAT
#undef STAT_KVM
}

#endif
