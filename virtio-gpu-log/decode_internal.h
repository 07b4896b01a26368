/* Shared by decode.c and decode_virgl.c only. */
#ifndef REPRISE_GPU_DECODE_INTERNAL_H
#define REPRISE_GPU_DECODE_INTERNAL_H

#include "virtio-gpu-log/decode.h"

/* Dwords of a row; of a tail, of what is part of a dword, and of what is no field: 0. */
static inline u32 gpu_row_dwords(const struct gpu_row *r)
{
    if (r->is_tail || r->bits || r->kind == GPU_MORE || r->kind == GPU_EACH || r->kind == GPU_TIMES)
        return 0;
    switch (r->kind) {
    case GPU_NUM64:
    case GPU_HEX64:
    case GPU_DOUBLE: return 2;
    case GPU_NAME: return 16;
    default: return 1;
    }
}

/* May a command have so many dwords after its header? *least: the fewest of any. */
bool gpu_length_fits(const struct gpu_desc *desc, u32 dwords, u32 *least);
void gpu_fields_start(struct gpu_fields *it, const struct gpu_desc *desc, const void *body,
                      u32 dwords);

#endif
