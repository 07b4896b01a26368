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

#endif
