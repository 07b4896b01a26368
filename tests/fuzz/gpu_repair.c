/* See gpu_repair.h. */
#include "gpu_repair.h"

#include <stdlib.h>
#include <string.h>

#include "virtio-gpu-log/log_format.h"

void gpu_log_repair(u8 *data, size_t size)
{
    struct gpu_log_header f;
    struct gpu_chunk_header h;
    if (size < sizeof(f))
        return;
    memcpy(&f, data, sizeof(f));
    memcpy(f.magic, GPU_LOG_MAGIC, sizeof(f.magic));
    f.version = GPU_LOG_VERSION;
    f.size = sizeof(f);
    f.flags = 0;
    f.check = gpu_log_header_check(&f);
    memcpy(data, &f, sizeof(f));
    u64 seed = f.check;
    u32 sequence = 0;
    for (size_t at = sizeof(f); size - at >= sizeof(h);) {
        memcpy(&h, data + at, sizeof(h));
        if (h.packed_size > size - at - sizeof(h))
            return;
        h.magic = GPU_CHUNK_MAGIC;
        h.sequence = sequence++;
        h.header_check = gpu_chunk_header_check(&h);
        h.check = seed = gpu_chunk_check(&h, data + at + sizeof(h), seed);
        memcpy(data + at, &h, sizeof(h));
        at += sizeof(h) + h.packed_size;
    }
}

u8 *gpu_log_unpacked(u8 *data, size_t *size)
{
    struct gpu_chunk_header h;
    size_t at = sizeof(struct gpu_log_header), n = at;
    u8 *out = malloc(64u << 20);
    memcpy(out, data, at);
    while (*size - at >= sizeof(h)) {
        memcpy(&h, data + at, sizeof(h));
        u32 packed = h.packed_size;
        at += sizeof(h);
        if (packed == h.raw_size)
            memcpy(out + n + sizeof(h), data + at, packed);
        else if (gpu_chunk_unpack(data + at, packed, out + n + sizeof(h), h.raw_size))
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
