/*
 * The recording that those of `reprise run` begin in: the image `run` (images/run), booted once up
 * to where its agent waits. In this user's cache,
 *
 *     $XDG_CACHE_HOME/reprise/run-KEY   (without it: $HOME/.cache)
 *
 * where KEY is a hash of what it was made from: image, machine, version. Whoever asks for one that
 * is not there makes it; of many the one that was not used for longest goes then.
 */
#ifndef REPRISE_CMD_RUN_BASE_H
#define REPRISE_CMD_RUN_BASE_H

#include "base/err.h"
#include "cmd/cpu.h"

#define RUN_MEMORY "1G"
#define RUN_TAG    "root" /* what the agent mounts */
#define RUN_SHARE  "/,tag=" RUN_TAG

struct run_machine {
    const char *memory; /* as --memory has it */
    char cpu[CPU_TEXT]; /* as --cpu; "": the usual one */
    u64 cpus;           /* as --cpus, 1 to DESCRIPTION_CPUS_MAX */
    char gpu[40];       /* as --gpu, without what is the host's of it */
};

/* Its path, malloc'ed; NULL with *err. `anew`: one that is there is of no use, and made again. */
char *run_base(const struct run_machine *m, bool anew, struct err *err);

#endif
