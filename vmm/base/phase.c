/* See phase.h. */
#include "base/phase.h"

_Thread_local struct phases phases = {.now = PHASE_OTHER};
