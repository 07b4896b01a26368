/*
 * Fuzz target: the reader of gpu.log, the state rebuilt from it and what prints them, on any bytes;
 * each input once as it is and once with its checksums repaired, so that what lies behind them is
 * reached too.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../unit/gpu_stream.h"
#include "mutate.h"
#include "virtio-gpu-log/log_format.h"
#include "walk_gpu_log.h"

/* Makes every chunk's checksums right again, as far as chunks can be found. */
static void repair(u8 *data, size_t size)
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

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    for (int pass = 0; pass < 2; pass++) {
        struct gpu_log_reader *r;
        struct err err;
        char *text;
        size_t text_size;
        u8 *copy = malloc(size + 1);
        memcpy(copy, data, size);
        if (pass)
            repair(copy, size);
        int fd = memfd_create("gpu.log", 0);
        if (write(fd, copy, size) != (ssize_t)size)
            abort();
        free(copy);
        FILE *out = open_memstream(&text, &text_size);
        if (!gpu_log_open(&r, fd, &err)) {
            walk_gpu_log(r, out);
            gpu_log_rewind(r);
            gpu_log_reader_destroy(r);
        }
        fclose(out);
        free(text);
    }
    return 0;
}

/* Not compressed where it can be helped: mutations shall reach records and commands. */
static u8 *unpacked(u8 *data, size_t *size)
{
    struct gpu_chunk_header h;
    size_t at = sizeof(struct gpu_log_header), n = at;
    u8 *out = malloc(4u << 20);
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
    repair(out, n);
    *size = n;
    return out;
}

u8 *fuzz_sample(size_t *size)
{
    struct err err;
    int fd = memfd_create("gpu.log", 0);
    if (sample_gpu_log(dup(fd), 4, true, NULL, &err))
        abort();
    *size = (size_t)lseek(fd, 0, SEEK_END);
    u8 *data = malloc(*size);
    if (pread(fd, data, *size, 0) != (ssize_t)*size)
        abort();
    close(fd);
    return unpacked(data, size);
}
