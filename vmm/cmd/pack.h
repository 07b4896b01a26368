/* `record -o FILE.reprise`, and `run`: a recording that is packed when it has ended. */
#ifndef REPRISE_CMD_PACK_H
#define REPRISE_CMD_PACK_H

#include "base/err.h"
#include "base/types.h"

#define PACKED_END ".reprise"

/* Is a recording of that name to be a pack? */
bool packed_name(const char *output);
/*
 * Has `record` make a recording in a directory beside `output` in a process of its own, which is
 * handed signals on, packs it in another (over what there is if `force`; NULL: there is no such
 * option) and then removes the directory; whatever fails, the recording is in the one or the other.
 * Exit code: what `record` returned; `failed` if it was not packed.
 */
int packed_record(const char *output, const bool *force,
                  int (*record)(void *opaque, const char *dir), void *opaque, int failed);

#endif
