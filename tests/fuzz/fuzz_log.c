/*
 * Fuzz target: the log's reader, printers and summary on any bytes; each input once as it is and
 * once with its checksums repaired, so that what lies beyond them is reached too.
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

struct seals {
    struct sha256 seal;
    struct sha256_stream *sha;
};

static void put_seal(void *opaque, u8 *chunk)
{
    struct seals *s = opaque;
    struct log_chunk_header h;
    memcpy(&h, chunk, sizeof(h));
    s->seal = log_chunk_seal(s->sha, &s->seal, &h, chunk + sizeof(h));
    if (h.flags & LOG_CHUNK_SEALED)
        memcpy(chunk + sizeof(h) + h.packed_size, &s->seal, sizeof(s->seal));
}

/* Makes every chunk's checksums and seals right again, as far as chunks can be found. */
static void repair(u8 *data, size_t size)
{
    const struct chunk_file_header f = chunk_file_begin(&log_format);
    struct seals s = {.sha = sha256_create()};
    s.seal = log_file_seal(s.sha, &f);
    chunks_repair(&log_format, data, size, put_seal, &s);
    sha256_destroy(s.sha);
}

/* The same bytes as a tail: of a log that is nothing but its header, and its checks made right. */
static void as_tail(const u8 *data, size_t size, bool right)
{
    struct log_reader *r;
    struct log_summary s;
    struct err err;
    u8 *copy = malloc(size + 1);
    memcpy(copy, data, size);
    static int fd = -1; /* made once: a writer reserves room, which takes the kernel long */
    if (fd < 0)
        fd = sample_log(0, false);
    if (ftruncate(fd, sizeof(struct chunk_file_header)) || log_reader_create(&r, dup(fd), &err))
        abort();
    struct log_place place;
    log_tell(r, &place);
    if (right)
        log_tail_repair(copy, size, place.offset, place.seed);
    int tail = bytes_file(copy, size);
    log_reader_tail(r, blob_of(dup(tail)));
    log_summarise(r, &s);
    close(tail);
    log_reader_destroy(r);
    free(copy);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    for (int pass = 0; pass < 2; pass++) {
        as_tail(data, size, pass);
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
