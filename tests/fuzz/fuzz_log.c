/*
 * Fuzz target: the log's reader, printers and summary on any bytes; each input once as it is and
 * once with its checksums repaired, so that what lies behind them is reached too.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../unit/log_sample.h"
#include "replay/diff.h"
#include "replay/log_format.h"
#include "mutate.h"

/* Makes every chunk's checksums right again, as far as chunks can be found. */
static void repair(u8 *data, size_t size)
{
    struct log_file_header f;
    struct log_chunk_header h;
    if (size < sizeof(f))
        return;
    memcpy(&f, data, sizeof(f));
    memcpy(f.magic, LOG_MAGIC, sizeof(f.magic));
    f.version = LOG_VERSION;
    f.size = sizeof(f);
    f.flags = 0;
    f.check = log_file_check(&f);
    memcpy(data, &f, sizeof(f));
    u64 seed = f.check;
    u32 sequence = 0;
    for (size_t at = sizeof(f); size - at >= sizeof(h);) {
        memcpy(&h, data + at, sizeof(h));
        if (h.packed_size > size - at - sizeof(h))
            return;
        h.magic = LOG_CHUNK_MAGIC;
        h.sequence = sequence++;
        h.header_check = log_chunk_header_check(&h);
        h.check = seed = log_chunk_check(&h, data + at + sizeof(h), seed);
        memcpy(data + at, &h, sizeof(h));
        at += sizeof(h) + h.packed_size;
    }
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    for (int pass = 0; pass < 2; pass++) {
        struct log_reader *a, *b;
        struct log_summary s;
        struct log_difference d;
        struct err err;
        u8 *copy = malloc(size + 1);
        memcpy(copy, data, size);
        if (pass)
            repair(copy, size);
        int fd = bytes_file(copy, size);
        free(copy);
        read_all(fd, NULL, NULL);
        if (!log_reader_create(&a, dup(fd), &err)) {
            log_summarise(a, &s);
            if (!log_reader_create(&b, dup(fd), &err)) {
                log_diff(a, b, &d);
                if (d.differ)
                    abort(); /* a log differs from itself */
                log_reader_destroy(b);
            }
            log_reader_destroy(a);
        }
        close(fd);
    }
    return 0;
}

u8 *fuzz_sample(size_t *size)
{
    int fd = sample_log(120, true);
    u8 *data = file_bytes(fd, size);
    close(fd);
    return data;
}
