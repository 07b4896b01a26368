/*
 * Fuzz target: the reader of gpu.log, the state rebuilt from it and what prints them, on any bytes;
 * each input once as it is and once with its checksums repaired, so that what lies beyond them is
 * reached too.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../unit/gpu_stream.h"
#include "gpu_repair.h"
#include "mutate.h"
#include "walk_gpu_log.h"

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
            gpu_log_repair(copy, size);
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
    return gpu_log_unpacked(data, size);
}
