/* gpu.log: what is written is read; the same stream makes the same bytes; whatever is done to the
 * bytes is noticed. */
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

#include "gpu_stream.h"
#include "virtio-gpu-log/log_format.h"

static int memory_file(void)
{
    int fd = memfd_create("gpu.log", 0);
    assert_true(fd >= 0);
    return fd;
}

static u8 *file_bytes(int fd, size_t *size)
{
    *size = (size_t)lseek(fd, 0, SEEK_END);
    u8 *data = malloc(*size + 1);
    assert_int_equal(pread(fd, data, *size, 0), (ssize_t)*size);
    return data;
}

static u8 *sample(unsigned frames, bool whole, size_t *size, struct gpu_log_sizes *sizes)
{
    struct err err;
    int fd = memory_file(), mine = dup(fd);
    assert_int_equal(sample_gpu_log(fd, frames, whole, sizes, &err), 0);
    u8 *data = file_bytes(mine, size);
    close(mine);
    return data;
}

static struct gpu_log_reader *open_bytes(const u8 *data, size_t size, struct err *err)
{
    struct gpu_log_reader *r = NULL;
    int fd = memory_file();
    assert_int_equal(write(fd, data, size), (ssize_t)size);
    return gpu_log_open(&r, fd, err) ? NULL : r;
}

/* Records handed out; every blob is read too. */
static long read_all(struct gpu_log_reader *r)
{
    struct gpu_record rec;
    struct gpu_range range;
    struct err err;
    u8 head[512];
    long n = 0;
    for (; gpu_log_next(r, &rec); n++) {
        const struct gpu_ranges *ranges = rec.type == GPU_REC_COMMAND ? &rec.command.uploads
                                          : rec.type == GPU_REC_REPLY ? &rec.reply.readback
                                                                      : NULL;
        for (u32 at = 0; ranges && gpu_ranges_next(ranges, &at, &range);)
            assert_int_equal(
                gpu_log_read(r, &range.bytes, 0, head, MIN(range.bytes.size, sizeof(head)), &err),
                0);
    }
    return n;
}

static void round_trip(void **state)
{
    struct err err;
    struct gpu_record rec;
    struct gpu_range range;
    size_t size;
    u8 texture[256], got[256];
    u8 *data = sample(10, true, &size, NULL);
    struct gpu_log_reader *r = open_bytes(data, size, &err);
    assert_non_null(r);
    const struct gpu_rec_start *s = gpu_log_start(r);
    assert_int_equal(s->virgl, 1);
    assert_int_equal(s->width, SAMPLE_WIDTH);
    assert_int_equal(s->hz, 60);
    assert_int_equal(s->capset.len, 308);
    assert_int_equal(s->capset.data[0], 1);
    sample_texture(texture);
    u64 commands = 0, frames = 0, textures = 0, lost = 0;
    for (int pass = 0; pass < 2; pass++) {
        commands = frames = textures = lost = 0;
        while (gpu_log_next(r, &rec)) {
            lost += rec.type == GPU_REC_LOST;
            if (rec.type == GPU_REC_REPLY)
                assert_int_equal(rec.number, commands - 1);
            if (rec.type != GPU_REC_COMMAND)
                continue;
            assert_int_equal(rec.number, commands++);
            assert_int_equal(rec.position, 1000000 + 1000 * commands);
            if (rec.frame)
                assert_int_equal(rec.frame, ++frames);
            for (u32 at = 0; gpu_ranges_next(&rec.command.uploads, &at, &range);)
                if (range.resource == SAMPLE_TEXTURE) {
                    assert_int_equal(range.bytes.size, 256);
                    assert_int_equal(gpu_log_read(r, &range.bytes, 0, got, 256, &err), 0);
                    assert_memory_equal(got, texture, 256);
                    assert_int_equal(gpu_log_read(r, &range.bytes, 100, got, 50, &err), 0);
                    assert_memory_equal(got, texture + 100, 50);
                    assert_int_equal(gpu_log_read(r, &range.bytes, 200, got, 57, &err), -EINVAL);
                    textures++;
                }
        }
        assert_int_equal(gpu_log_damage(r)->state, CHUNKS_COMPLETE);
        assert_string_equal(gpu_log_damage(r)->text, "");
        gpu_log_rewind(r);
    }
    assert_int_equal(commands, 24 + 20);
    assert_int_equal(frames, 11);
    assert_int_equal(textures, 1);
    assert_int_equal(lost, 1);
    gpu_log_reader_destroy(r);
    free(data);
}

static void same_stream_same_bytes(void **state)
{
    size_t a, b;
    u8 *x = sample(200, true, &a, NULL), *y = sample(200, true, &b, NULL);
    assert_int_equal(a, b);
    assert_memory_equal(x, y, a);
    free(x);
    free(y);
}

/* Each content once; command words in a tenth of their size. */
static void small(void **state)
{
    struct gpu_log_sizes z;
    size_t size;
    free(sample(300, true, &size, &z));
    /* Two halves of the console (alike), texture, two contents of the vertices, read-back. */
    assert_int_equal(z.contents, 5);
    assert_int_equal(z.kept, 6144 + 256 + 2 * 96 + 12288);
    assert_int_equal(z.carried, 2 * 6144 + 256 + 300 * 96 + 12288);
    struct gpu_log_reader *r;
    struct err err;
    struct gpu_record rec;
    u64 words = 0;
    u8 *data = sample(300, true, &size, NULL);
    r = open_bytes(data, size, &err);
    while (gpu_log_next(r, &rec))
        words += rec.type == GPU_REC_COMMAND ? rec.command.words.len : 0;
    gpu_log_reader_sizes(r, &z);
    print_message("%llu bytes of commands, %llu in the log\n", (unsigned long long)words,
                  (unsigned long long)z.packed);
    assert_true(z.packed * 10 <= words);
    gpu_log_reader_destroy(r);
    free(data);
}

/* Uploads larger than a piece and than a chunk; pieces shared between them. */
static void large_uploads(void **state)
{
    enum { SIZE = 5 * GPU_PIECE + 12345 };
    struct gpu_rec_start start = {.virgl = 1, .scanouts = 1};
    struct gpu_log_writer *w;
    struct gpu_log_reader *r;
    struct gpu_log_sizes z;
    struct gpu_record rec;
    struct err err;
    int fd = memory_file(), mine = dup(fd);
    u8 *data = malloc(SIZE), *got = malloc(SIZE);
    u32 header[6] = {VIRTIO_GPU_CMD_GET_DISPLAY_INFO}, x = 1;
    for (u32 i = 0; i < SIZE; i++)
        data[i] = (u8)((x = x * 1664525 + 1013904223) >> 24);
    assert_int_equal(gpu_log_create(&w, fd, &start, &err), 0);
    for (u32 i = 0; i < 10; i++) {
        struct gpu_range range[2] = {
            {.resource = 1, .offset = 77, .bytes = {.size = SIZE, .data = data}},
            {.resource = 2, .bytes = {.size = 0}}};
        data[3 * GPU_PIECE + 5] = (u8)i; /* one piece in six is new */
        assert_int_equal(gpu_log_command(w, i, i, 0, header, sizeof(header), range, 2, 0, &err), 0);
        assert_int_equal(
            gpu_log_reply(w, i, i, i, VIRTIO_GPU_RESP_OK_EDID, data, 1024, NULL, 0, &err), 0);
    }
    gpu_log_writer_sizes(w, &z);
    assert_int_equal(z.contents, 6 + 9 + 1);
    assert_int_equal(gpu_log_end(w, 100, 100, &err), 0);
    assert_int_equal(gpu_log_close(w, &err), 0);
    assert_int_equal(gpu_log_open(&r, mine, &err), 0);
    u64 replies = 0;
    while (gpu_log_next(r, &rec)) {
        struct gpu_range range;
        u32 at = 0;
        if (rec.type == GPU_REC_REPLY) {
            assert_int_equal(rec.reply.body.size, 1024);
            assert_int_equal(gpu_log_read(r, &rec.reply.body, 0, got, 1024, &err), 0);
            assert_memory_equal(got, data, 1024);
            replies++;
        }
        if (rec.type != GPU_REC_COMMAND)
            continue;
        data[3 * GPU_PIECE + 5] = (u8)rec.number;
        assert_true(gpu_ranges_next(&rec.command.uploads, &at, &range));
        assert_int_equal(range.offset, 77);
        assert_int_equal(gpu_log_read(r, &range.bytes, 0, got, SIZE, &err), 0);
        assert_memory_equal(got, data, SIZE);
        u32 from = GPU_PIECE - 3, n = 2 * GPU_PIECE + 7;
        assert_int_equal(gpu_log_read(r, &range.bytes, from, got, n, &err), 0);
        assert_memory_equal(got, data + from, n);
        assert_true(gpu_ranges_next(&rec.command.uploads, &at, &range));
        assert_int_equal(range.bytes.size, 0);
        assert_false(gpu_ranges_next(&rec.command.uploads, &at, &range));
    }
    assert_int_equal(gpu_log_damage(r)->state, CHUNKS_COMPLETE);
    assert_int_equal(replies, 10);
    gpu_log_reader_destroy(r);
    free(data);
    free(got);
}

/* A command with more new contents than a chunk may hold, in ranges as many as a device gives. */
static void much_at_once(void **state)
{
    enum { EACH = 300, RANGES = 65536 };
    static struct gpu_range ranges[RANGES];
    struct gpu_rec_start start = {.virgl = 1, .scanouts = 1};
    struct gpu_log_writer *w;
    struct gpu_log_reader *r;
    struct gpu_record rec;
    struct gpu_range range;
    struct err err;
    int fd = memory_file(), mine = dup(fd);
    u8 *data = malloc((size_t)EACH * RANGES), got[EACH];
    u32 header[6] = {VIRTIO_GPU_CMD_GET_DISPLAY_INFO}, x = 1;
    for (u32 i = 0; i < EACH * RANGES; i++)
        data[i] = (u8)((x = x * 1664525 + 1013904223) >> 24);
    for (u32 i = 0; i < RANGES; i++)
        ranges[i] = (struct gpu_range){.at = ~i,
                                       .resource = ~i,
                                       .offset = (1ull << 30) * i,
                                       .bytes = {.size = EACH, .data = data + (size_t)i * EACH}};
    assert_int_equal(gpu_log_create(&w, fd, &start, &err), 0);
    assert_int_equal(gpu_log_command(w, 1, 1, 0, header, sizeof(header), ranges, RANGES, 0, &err),
                     0);
    assert_int_equal(
        gpu_log_reply(w, 2, 2, 0, VIRTIO_GPU_RESP_OK_NODATA, NULL, 0, ranges, RANGES, &err), 0);
    assert_int_equal(gpu_log_end(w, 3, 3, &err), 0);
    assert_int_equal(gpu_log_close(w, &err), 0);
    assert_int_equal(gpu_log_open(&r, mine, &err), 0);
    for (int k = 0; k < 2; k++) {
        u32 at = 0, n = 0;
        assert_true(gpu_log_next(r, &rec));
        const struct gpu_ranges *list = k ? &rec.reply.readback : &rec.command.uploads;
        for (; gpu_ranges_next(list, &at, &range); n++) {
            if (n % 4999)
                continue;
            assert_int_equal(gpu_log_read(r, &range.bytes, 0, got, EACH, &err), 0);
            assert_memory_equal(got, data + (size_t)n * EACH, EACH);
        }
        assert_int_equal(n, RANGES);
    }
    assert_true(gpu_log_next(r, &rec));
    assert_false(gpu_log_next(r, &rec));
    assert_int_equal(gpu_log_damage(r)->state, CHUNKS_COMPLETE);
    gpu_log_reader_destroy(r);

    /* What does not fit a chunk is no part of the log, which ends before it and can be read. */
    struct gpu_range *many = calloc(20 * RANGES, sizeof(*many));
    fd = memory_file(), mine = dup(fd);
    for (u32 i = 0; i < 20 * RANGES; i++)
        many[i] = ranges[i % RANGES];
    assert_int_equal(gpu_log_create(&w, fd, &start, &err), 0);
    assert_int_equal(
        gpu_log_command(w, 1, 1, 0, header, sizeof(header), many, 20 * RANGES, 0, &err), -EINVAL);
    assert_int_equal(gpu_log_end(w, 3, 3, &err), -EINVAL);
    gpu_log_close(w, &err);
    assert_int_equal(gpu_log_open(&r, mine, &err), 0);
    assert_false(gpu_log_next(r, &rec));
    assert_int_equal(gpu_log_damage(r)->state, CHUNKS_KILLED);
    gpu_log_reader_destroy(r);
    free(many);
    free(data);
}

/* A command longer than what is kept. */
static void long_command(void **state)
{
    struct gpu_rec_start start = {.virgl = 1};
    struct gpu_log_writer *w;
    struct gpu_log_reader *r;
    struct gpu_record rec;
    struct err err;
    int fd = memory_file(), mine = dup(fd);
    u8 *data = calloc(1, GPU_COMMAND_MAX + 100);
    assert_int_equal(gpu_log_create(&w, fd, &start, &err), 0);
    assert_int_equal(gpu_log_command(w, 1, 1, 0, data, GPU_COMMAND_MAX + 100, NULL, 0, 0, &err), 0);
    assert_int_equal(gpu_log_command(w, 2, 2, 0, NULL, 0, NULL, 0, 0, &err), 0);
    assert_int_equal(gpu_log_close(w, &err), 0);
    assert_int_equal(gpu_log_open(&r, mine, &err), 0);
    assert_true(gpu_log_next(r, &rec));
    assert_int_equal(rec.command.words.len, GPU_COMMAND_MAX);
    assert_int_equal(rec.command.dropped, 100);
    assert_true(gpu_log_next(r, &rec));
    assert_int_equal(rec.command.words.len, 0);
    assert_false(gpu_log_next(r, &rec));
    assert_int_equal(gpu_log_damage(r)->state, CHUNKS_KILLED);
    gpu_log_reader_destroy(r);
    free(data);
}

/* Cut at every length: a prefix of the records, and the right reason. */
static void every_truncation(void **state)
{
    size_t size;
    u8 *data = sample(150, true, &size, NULL);
    struct gpu_chunk_header first;
    memcpy(&first, data + sizeof(struct chunk_file_header), sizeof(first));
    size_t start = sizeof(struct chunk_file_header) + sizeof(first) + first.packed_size;
    long last = 0;
    for (size_t len = 0; len < size; len++) {
        struct err err = {0};
        struct gpu_log_reader *r = open_bytes(data, len, &err);
        assert_true(!r == (len < start));
        if (!r) {
            assert_true(*err.text);
            continue;
        }
        long n = read_all(r);
        assert_true(n >= last);
        last = n;
        assert_true(gpu_log_damage(r)->state == CHUNKS_TRUNCATED ||
                    gpu_log_damage(r)->state == CHUNKS_KILLED);
        gpu_log_reader_destroy(r);
    }
    free(data);
}

static void flips(void **state)
{
    size_t size;
    u8 *data = sample(60, true, &size, NULL);
    for (size_t at = 0; at < size; at++) {
        struct err err = {0};
        u8 bit = (u8)(1u << (at * 5 % 8));
        data[at] ^= bit;
        struct gpu_log_reader *r = open_bytes(data, size, &err);
        data[at] ^= bit;
        if (!r) {
            assert_true(*err.text);
            continue;
        }
        read_all(r);
        const struct chunk_damage *d = gpu_log_damage(r);
        assert_int_equal(d->state, CHUNKS_DAMAGED);
        assert_true(d->offset <= at);
        gpu_log_reader_destroy(r);
    }
    free(data);
}

/* Right checksums around wrong contents: a chunk of records that answers, refers to or claims what
 * there is not. */
static void forged(void **state)
{
    static const struct {
        const char *bytes;
        size_t size;
        const char *what;
    } rows[] = {
#define ROW(text, what) {text, sizeof(text) - 1, what}
        ROW("\x03\x04\x01\x01\x00\x00", "answers a command that there is not"),
        ROW("\x01\x02\x01\x01", "the start record is not where it belongs"),
        ROW("\x02\x09\x00\x00\x00\x01\x41\x00\x01\x00\x02", "do not fit its length"),
        ROW("\x02\x0a\x00\x00\x00\x00\x00\x01\x00\x02\x00\x05", "do not fit its length"),
        ROW("\x02\x04\x00\x00\x07\x00", "do not fit its length"),
        ROW("\x02\x7f\x00\x00", "longer than its chunk"),
        ROW("\x2a\x02\x00\x00", "does not know"),
        ROW("\x05\x02\x00\x00\x05\x02\x00\x00", "ends the log, but more follow"),
        ROW("\x02\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", "longer than its chunk"),
    };
    size_t size;
    u8 *data = sample(0, false, &size, NULL);
    struct chunk_file_header f;
    struct gpu_chunk_header first;
    memcpy(&f, data, sizeof(f));
    memcpy(&first, data + sizeof(f), sizeof(first));
    size_t start = sizeof(f) + sizeof(first) + first.packed_size;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct err err;
        u8 forged[4096];
        struct gpu_chunk_header h = {.magic = GPU_CHUNK_MAGIC,
                                     .sequence = 1,
                                     .raw_size = (u32)rows[i].size,
                                     .packed_size = (u32)rows[i].size,
                                     .entries = rows[i].bytes[0] == 5 ? 2 : 1};
        memcpy(forged, data, start);
        h.header_check = chunk_header_check(&gpu_log_format, &h);
        h.check = chunk_check(&gpu_log_format, &h, rows[i].bytes, first.check);
        memcpy(forged + start, &h, sizeof(h));
        memcpy(forged + start + sizeof(h), rows[i].bytes, rows[i].size);
        struct gpu_log_reader *r = open_bytes(forged, start + sizeof(h) + rows[i].size, &err);
        assert_non_null(r);
        assert_int_equal(read_all(r), 0);
        assert_int_equal(gpu_log_damage(r)->state, CHUNKS_DAMAGED);
        if (!strstr(gpu_log_damage(r)->text, rows[i].what))
            fail_msg("row %zu: %s", i, gpu_log_damage(r)->text);
        gpu_log_reader_destroy(r);
    }
    free(data);
}

/* The disk is full: the log ends at its last whole chunk, and every further call says why. */
static void full_disk(void **state)
{
    struct rlimit old, small_files = {200000, RLIM_INFINITY};
    struct gpu_rec_start start = {.virgl = 1};
    struct gpu_log_writer *w;
    struct gpu_log_reader *r;
    struct err err = {0}, again = {0};
    u32 header[6] = {VIRTIO_GPU_CMD_GET_DISPLAY_INFO}, x = 1;
    u8 *data = malloc(GPU_PIECE);
    char path[] = "/tmp/gpu-log-XXXXXX";
    int fd = mkstemp(path), mine = dup(fd);
    unlink(path);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    small_files.rlim_max = old.rlim_max;
    assert_int_equal(gpu_log_create(&w, fd, &start, &err), 0);
    setrlimit(RLIMIT_FSIZE, &small_files);
    int code = 0;
    for (u32 i = 0; i < 100 && !code; i++) {
        for (u32 k = 0; k < GPU_PIECE; k++)
            data[k] = (u8)((x = x * 1664525 + 1013904223) >> 24);
        struct gpu_range range = {.bytes = {.size = GPU_PIECE, .data = data}};
        code = gpu_log_command(w, i, i, 0, header, sizeof(header), &range, 1, 0, &err);
    }
    assert_true(code < 0);
    assert_int_equal(gpu_log_command(w, 999, 999, 0, header, sizeof(header), NULL, 0, 0, &again),
                     code);
    assert_string_equal(again.text, err.text);
    assert_int_equal(gpu_log_close(w, &again), code);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(gpu_log_open(&r, mine, &err), 0);
    read_all(r);
    assert_int_equal(gpu_log_damage(r)->state, CHUNKS_KILLED);
    gpu_log_reader_destroy(r);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(same_stream_same_bytes),
        cmocka_unit_test(small),
        cmocka_unit_test(large_uploads),
        cmocka_unit_test(much_at_once),
        cmocka_unit_test(long_command),
        cmocka_unit_test(every_truncation),
        cmocka_unit_test(flips),
        cmocka_unit_test(forged),
        cmocka_unit_test(full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
