/* Reads a gpu.log to its end as everybody who reads one would. */
#ifndef REPRISE_WALK_GPU_LOG_H
#define REPRISE_WALK_GPU_LOG_H

#include <stdio.h>

#include "virtio-gpu-log/log.h"

struct gpu_log_count {
    u64 commands, replies;
};

/* Every record, the state rebuilt from them, pieces of what they carried; prints what is bound to
 * `out`. Aborts on what no reader may do, whatever the bytes. */
struct gpu_log_count walk_gpu_log(struct gpu_log_reader *r, FILE *out);

#endif
