/* What a companion gives up before it serves strangers (reprise-gpu, reprise-net): see their
 * sandboxes. */
#ifndef REPRISE_LIMITS_H
#define REPRISE_LIMITS_H

#include <stdbool.h>

#include "base/types.h"

/* No core files, which would hold what a guest sent; no locked memory; `memory` bytes of address
 * space beside what is mapped (not under sanitizers, which map terabytes); nobody's to trace; no
 * new privileges. False: errno says why, and it may be done in part. */
bool limits_enter(u64 memory);

#endif
