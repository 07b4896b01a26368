/* Counters of an engine since it was created; for `info`, benches and curiosity, never for the
 * guest. */
#ifndef REPRISE_CPU_STATS_H
#define REPRISE_CPU_STATS_H

#include "base/types.h"

struct machine_stats {
    u64 blocks, block_insns; /* translated */
    u64 code_bytes;
    u64 interrupts, exceptions;
    u64 exits;   /* returns from translated code to C */
    u64 careful; /* instructions run one at a time */
    u64 tlb_fills, tlb_flushes, pt_writes, code_flushes, smc;
    u64 mmio, pio;
    u64 kvm_steps, kvm_exits; /* instructions that KVM ran; returns of KVM_RUN */
    u64 kvm_entries;          /* of a guest that runs freely; exits also complete instructions */
    u64 kvm_refused;          /* instructions that its emulator does not know */
};

#endif
