/* See gpu_repair.h. */
#include "gpu_repair.h"

#include <stdlib.h>
#include <string.h>

#include "virtio-gpu-log/log_format.h"

void gpu_log_repair(u8 *data, size_t size)
{
    chunks_repair(&gpu_log_format, data, size, NULL, NULL);
}

u8 *gpu_log_unpacked(u8 *data, size_t *size)
{
    struct gpu_chunk_header h;
    size_t at = sizeof(struct chunk_file_header), n = at;
    u8 *out = malloc(64u << 20);
    memcpy(out, data, at);
    while (*size - at >= sizeof(h)) {
        memcpy(&h, data + at, sizeof(h));
        u32 packed = h.packed_size;
        at += sizeof(h);
        if (packed == h.raw_size)
            memcpy(out + n + sizeof(h), data + at, packed);
        else if (chunk_unpack(data + at, packed, out + n + sizeof(h), h.raw_size))
            h.packed_size = h.raw_size;
        else
            abort();
        memcpy(out + n, &h, sizeof(h));
        n += sizeof(h) + h.raw_size;
        at += packed;
    }
    free(data);
    gpu_log_repair(out, n);
    *size = n;
    return out;
}
