/* gpu.log files for fuzzing: what lies beyond checksums and compression is reached too. */
#ifndef REPRISE_GPU_REPAIR_H
#define REPRISE_GPU_REPAIR_H

#include "base/types.h"

/* Makes every chunk's checksums right again, as far as chunks can be found. */
void gpu_log_repair(u8 *data, size_t size);
/* The same log with its chunks not compressed, where that can be helped. Frees `data`; the result
 * is malloc'ed, of at most 64 MiB. */
u8 *gpu_log_unpacked(u8 *data, size_t *size);

#endif
