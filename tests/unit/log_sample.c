/* See log_sample.h. */
#define _GNU_SOURCE
#include "log_sample.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/check.h"

static void progress(struct log_writer *w, pos_t at)
{
    u64 digests[12];
    struct err err;
    for (unsigned i = 0; i < 12; i++)
        digests[i] = XXH3_64bits_withSeed(&at, sizeof(at), i);
    struct record rec = {.type = REC_PROGRESS, .position = at, .time = at + 5};
    rec.progress.components = (struct log_digests){12, (const u8 *)digests};
    rec.progress.console = digests[0] ^ 1;
    rec.progress.console_bytes = at / 7;
    CHECK(!log_add(w, &rec, &err) && !log_flush(w, false, &err), "%s", err.text);
}

int sample_log(unsigned inputs, bool ended)
{
    struct log_writer *w;
    struct err err;
    int fd = memfd_create("log", MFD_CLOEXEC);
    CHECK(!log_writer_create(&w, dup(fd), &err), "%s", err.text);
    struct record rec = {.type = REC_START};
    rec.start.machine = (struct hash128){1, 2};
    rec.start.components = (struct log_bytes){9, (const u8 *)"cpu0,dev0"};
    CHECK(!log_add(w, &rec, &err), "%s", err.text);
    progress(w, 0);
    pos_t at = 0;
    for (unsigned i = 0; i < inputs; i++) {
        u8 data[64];
        at += 1000 + i * 37;
        for (unsigned k = 0; k < sizeof(data); k++)
            data[k] = (u8)(i * k);
        struct record in = {.type = REC_CONSOLE, .position = at, .time = at + 5};
        in.console.data = (struct log_bytes){1 + i % 64, data};
        CHECK(!log_add(w, &in, &err), "%s", err.text);
        if (i % 10 == 9)
            progress(w, at);
    }
    if (ended) {
        u8 runs[40];
        struct record ram = {.type = REC_RAM, .position = at + 9, .time = at + 14};
        ram.ram.regions.data = runs;
        ram.ram.regions.count = 2;
        ram.ram.regions.size = runs_add(runs, 3, 0x77);
        ram.ram.regions.size += runs_add(runs + ram.ram.regions.size, 125, 0);
        struct record end = {.type = REC_END, .position = at + 9, .time = at + 14};
        end.end.reason = RUN_POWEROFF;
        CHECK(!log_add(w, &ram, &err) && !log_add(w, &end, &err) && !log_flush(w, true, &err), "%s",
              err.text);
    }
    CHECK(!log_writer_close(w, &err), "%s", err.text);
    return fd;
}

int bytes_file(const void *data, size_t size)
{
    int fd = memfd_create("bytes", MFD_CLOEXEC);
    CHECK(fd >= 0 && (!size || write(fd, data, size) == (ssize_t)size), "memfd");
    return fd;
}

u8 *file_bytes(int fd, size_t *size)
{
    struct stat st;
    fstat(fd, &st);
    *size = (size_t)st.st_size;
    u8 *data = malloc(*size + 1);
    CHECK(pread(fd, data, *size, 0) == (ssize_t)*size, "read");
    return data;
}

long read_all(int fd, struct chunk_damage *damage, u64 *hash)
{
    struct log_reader *r;
    struct err err;
    struct record rec;
    if (log_reader_create(&r, dup(fd), &err))
        return -1;
    long n = 0;
    pos_t position = 0;
    FILE *sink = fopen("/dev/null", "w");
    u64 h = 0;
    while (log_next(r, &rec)) {
        CHECK(rec.position >= position && rec.index == (u64)n, "order");
        position = rec.position;
        record_print(sink, &rec, true);
        record_print_json(sink, &rec);
        h = XXH3_64bits_withSeed(&rec.position, sizeof(rec.position), h ^ rec.type);
        if (rec.type == REC_CONSOLE)
            h = XXH3_64bits_withSeed(rec.console.data.data, rec.console.data.len, h);
        n++;
    }
    fclose(sink);
    CHECK(log_damage(r)->state != CHUNKS_READING, "no reason given");
    if (damage)
        *damage = *log_damage(r);
    if (hash)
        *hash = h;
    log_reader_destroy(r);
    return n;
}
