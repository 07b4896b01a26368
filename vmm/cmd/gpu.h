/* The verbs of `reprise gpu`, one file each, and what they share. */
#ifndef REPRISE_CMD_GPU_H
#define REPRISE_CMD_GPU_H

#include "cmd/cmd.h"
#include "virtio-gpu-log/log.h"

/* What `--driver` of several can be. */
#define GPU_DRIVER_ARG "llvmpipe|softpipe|device:PATH"

int gpu_list(int argc, char **argv);
int gpu_show(int argc, char **argv);
int gpu_extract(int argc, char **argv);
int gpu_replay(int argc, char **argv);
int gpu_diff(int argc, char **argv);
int gpu_trim(int argc, char **argv);
int gpu_who(int argc, char **argv);

/* Opens a gpu.log, or that of a recording, enters the sandbox and reads how it begins; the error
 * names it. */
int gpu_open(const char *path, struct gpu_log_reader **out, struct err *err);
/* After the last record: EX_FINE, or EX_DAMAGE with a line on stderr that says how the log ends. */
int gpu_end(const struct gpu_log_reader *r);

/* Responses by number of the command, from a pass over the whole log, which is rewound. */
struct gpu_responses {
    u32 *type; /* 0: not answered (yet) */
    u64 count;
};
int gpu_responses_read(struct gpu_log_reader *r, struct gpu_responses *out, struct err *err);
static inline u32 gpu_response_of(const struct gpu_responses *a, u64 number)
{
    return number < a->count ? a->type[number] : 0;
}

#endif
