/* Shared by decode.c and decode_virgl.c only. */
#ifndef REPRISE_GPU_DECODE_INTERNAL_H
#define REPRISE_GPU_DECODE_INTERNAL_H

#include "virtio-gpu-log/decode.h"

/* May a command have so many dwords behind its header? *least: the fewest of any. */
bool gpu_length_fits(const struct gpu_desc *desc, u32 dwords, u32 *least);
void gpu_fields_start(struct gpu_fields *it, const struct gpu_desc *desc, const void *body,
                      u32 dwords);

#endif
