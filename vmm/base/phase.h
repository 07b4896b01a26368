/*
 * What a thread is at, for `--stats`: a sampler (host/sampler.h) looks at it now and then. A phase
 * is entered around slow work only, and costs two stores.
 */
#ifndef REPRISE_PHASE_H
#define REPRISE_PHASE_H

#include "base/types.h"

/* In the order in which they are shown; PHASE_CODE is known by the address, not entered. */
#define PHASES(P)                                                                                  \
    P(CODE, code, "translated code")                                                               \
    P(LOOP, loop, "finding and linking blocks")                                                    \
    P(TRANSLATE, translate, "translation")                                                         \
    P(STEP, step, "instructions one at a time")                                                    \
    P(WALK, walk, "page walks, TLB fills")                                                         \
    P(KVM, kvm, "in the host's KVM")                                                               \
    P(DEVICE, device, "devices")                                                                   \
    P(LOG, log, "log and digests")                                                                 \
    P(INPUT, input, "asking for input")                                                            \
    P(OTHER, other, "everything else")
enum phase {
#define P(id, name, text) PHASE_##id,
    PHASES(P)
#undef P
        PHASE_COUNT
};

/* One a thread, since a thread runs one machine at a time. */
struct phases {
    volatile u8 now;
    const u8 *code; /* translated code: in PHASE_LOOP an address in it is PHASE_CODE */
    u64 code_size;
    volatile u64 samples[PHASE_COUNT];
};
extern _Thread_local struct phases phases;

/* The phase before, for phase_leave(). */
static inline enum phase phase_enter(enum phase p)
{
    enum phase before = (enum phase)phases.now;
    phases.now = (u8)p;
    return before;
}

static inline void phase_leave(enum phase before)
{
    phases.now = (u8)before;
}

#endif
