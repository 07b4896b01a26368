/* The log: what is written is read; whatever is done to the bytes is noticed and crashes nothing.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
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

#include "log_sample.h"
#include "replay/diff.h"
#include "replay/log_format.h"

static void round_trip(void **state)
{
    struct chunk_damage d;
    int fd = sample_log(500, true);
    /* start, progress at 0, inputs, progress after each 10, end; ram is one more. */
    assert_int_equal(read_all(fd, &d, NULL), 2 + 500 + 50 + 2);
    assert_int_equal(d.state, CHUNKS_COMPLETE);
    assert_string_equal(d.text, "");
    close(fd);
    fd = sample_log(500, false);
    assert_int_equal(read_all(fd, &d, NULL), 2 + 500 + 50);
    assert_int_equal(d.state, CHUNKS_KILLED);
    close(fd);
}

static void summary(void **state)
{
    struct log_reader *r;
    struct err err;
    struct log_summary s;
    int fd = sample_log(100, true);
    assert_int_equal(log_reader_create(&r, fd, &err), 0);
    log_summarise(r, &s);
    assert_true(s.has_end);
    assert_int_equal(s.end_reason, RUN_POWEROFF);
    assert_int_equal(s.records, 2 + 100 + 10 + 2);
    assert_int_equal(s.good_bytes, s.file_bytes);
    struct record rec;
    assert_int_equal(log_next(r, &rec), 1); /* rewound */
    assert_int_equal(rec.type, REC_START);
    log_reader_destroy(r);
}

/* Cut at every length: a prefix of the records, and the right reason. */
static void every_truncation(void **state)
{
    size_t size;
    int fd = sample_log(60, true);
    u8 *data = file_bytes(fd, &size);
    long last = -1;
    for (size_t len = 0; len < size; len++) {
        struct chunk_damage d;
        int cut = bytes_file(data, len);
        long n = read_all(cut, &d, NULL);
        close(cut);
        if (len < sizeof(struct chunk_file_header)) {
            assert_int_equal(n, -1);
            continue;
        }
        assert_true(n >= last);
        assert_true(d.state == CHUNKS_TRUNCATED || d.state == CHUNKS_KILLED);
        last = n;
    }
    free(data);
    close(fd);
}

/* A header's or payload's flipped bit: everything before that chunk, nothing of it or after. */
static void flips(void **state)
{
    size_t size;
    int fd = sample_log(300, true);
    u8 *data = file_bytes(fd, &size);
    u64 whole;
    read_all(fd, NULL, &whole);
    srandom(4711);
    for (unsigned i = 0; i < 2000; i++) {
        struct chunk_damage d;
        size_t at = (size_t)random() % size, len = size;
        u8 bit = (u8)(1u << (random() & 7));
        bool cut = i % 8 == 7;
        if (cut)
            len = (size_t)random() % size;
        data[at] ^= bit;
        int bad = bytes_file(data, len);
        data[at] ^= bit;
        long n = read_all(bad, &d, NULL);
        close(bad);
        if (n < 0)
            continue;
        assert_int_not_equal(d.state, CHUNKS_COMPLETE);
        assert_true(d.text[0]);
        if (!cut) {
            /* The damage is named where it is. */
            assert_int_equal(d.state, CHUNKS_DAMAGED);
            assert_true(d.offset <= at);
        }
    }
    free(data);
    close(fd);
}

static void zero_tail(void **state)
{
    struct chunk_damage d;
    size_t size;
    int fd = sample_log(30, false);
    u8 *data = file_bytes(fd, &size);
    data = realloc(data, size + 5000);
    memset(data + size, 0, 5000);
    int longer = bytes_file(data, size + 5000);
    assert_int_equal(read_all(longer, &d, NULL), 2 + 30 + 3);
    assert_int_equal(d.state, CHUNKS_TRUNCATED);
    close(longer);
    data[size + 4000] = 1;
    longer = bytes_file(data, size + 5000);
    read_all(longer, &d, NULL);
    assert_int_equal(d.state, CHUNKS_DAMAGED);
    close(longer);
    free(data);
    close(fd);
}

/* Chunks of another log, or the same ones in another order, do not fit. */
static void swapped(void **state)
{
    struct chunk_damage d;
    size_t size;
    int fd = sample_log(30, true);
    u8 *data = file_bytes(fd, &size);
    struct log_chunk_header h;
    size_t first = sizeof(struct chunk_file_header);
    memcpy(&h, data + first, sizeof(h));
    size_t len = log_format.size(&h);
    u8 *twice = malloc(size + len);
    memcpy(twice, data, first + len);
    memcpy(twice + first + len, data + first, size - first);
    int bad = bytes_file(twice, size + len);
    assert_int_equal(read_all(bad, &d, NULL), 2);
    assert_int_equal(d.state, CHUNKS_DAMAGED);
    assert_int_equal(d.chunk, 1);
    assert_int_equal(d.offset, first + len);
    close(bad);
    free(twice);
    free(data);
    close(fd);
}

static void refused(void **state)
{
    struct log_reader *r;
    struct err err;
    size_t size;
    int fd = sample_log(1, true);
    u8 *data = file_bytes(fd, &size);
    close(fd);
    assert_int_equal(log_reader_create(&r, bytes_file("hello, world: this is a text", 28), &err),
                     -EINVAL);
    data[0] = 'x';
    assert_int_equal(log_reader_create(&r, bytes_file(data, size), &err), -EINVAL);
    assert_non_null(strstr(err.text, "not a Reprise log"));
    assert_int_equal(log_reader_create(&r, bytes_file(data, 0), &err), -EINVAL);
    data[0] = (u8)LOG_MAGIC[0];
    struct chunk_file_header *h = (struct chunk_file_header *)data;
    h->version = LOG_VERSION + 1;
    assert_int_equal(log_reader_create(&r, bytes_file(data, size), &err), -EINVAL);
    assert_non_null(strstr(err.text, "damaged"));
    h->check = chunk_file_check(h);
    assert_int_equal(log_reader_create(&r, bytes_file(data, size), &err), -EPROTO);
    assert_non_null(strstr(err.text, "version"));
    free(data);
}

/* The host cannot write any more: the log ends well-formed at its last whole chunk, and says so. */
static void full_disk(void **state)
{
    struct log_writer *w;
    struct err err = {0};
    char path[] = "/tmp/reprise-test-XXXXXX";
    int fd = mkstemp(path);
    unlink(path);
    struct rlimit old, small = {20000, 20000};
    getrlimit(RLIMIT_FSIZE, &old);
    small.rlim_max = old.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(log_writer_create(&w, dup(fd), &err), 0);
    setrlimit(RLIMIT_FSIZE, &small);
    struct record rec = {.type = REC_START};
    int code = log_add(w, &rec, &err);
    for (unsigned i = 0; !code && i < 100000; i++) {
        u8 noise[64];
        for (unsigned k = 0; k < 64; k++)
            noise[k] = (u8)random();
        rec = (struct record){.type = REC_CONSOLE, .position = i};
        rec.console.data = (struct log_bytes){64, noise};
        code = log_add(w, &rec, &err);
        if (!code && i % 50 == 49)
            code = log_flush(w, false, &err);
    }
    assert_int_equal(code, -EFBIG);
    assert_int_equal(log_add(w, &rec, &err), -EFBIG);
    assert_int_equal(log_writer_close(w, &err), -EFBIG);
    setrlimit(RLIMIT_FSIZE, &old);
    struct chunk_damage d;
    assert_true(read_all(fd, &d, NULL) > 200);
    assert_int_equal(d.state, CHUNKS_CUT);
    close(fd);
}

static int good_for; /* so often what records name is there */

static int ready(void *opaque, struct err *err)
{
    (void)opaque;
    return good_for-- > 0 ? 0 : err_set(err, -EIO, "what the log names cannot be written");
}

/* What records name elsewhere is lost: those records are not written, the log is cut before them.
 */
static void named_is_lost(void **state)
{
    struct log_writer *w;
    struct err err = {0};
    struct chunk_damage d;
    int fd = memfd_create("log", MFD_CLOEXEC);
    assert_int_equal(log_writer_create(&w, dup(fd), &err), 0);
    log_writer_after(w, ready, NULL);
    good_for = 1;
    struct record rec = {.type = REC_START};
    assert_int_equal(log_add(w, &rec, &err), 0);
    for (unsigned i = 1; i <= 3; i++) {
        rec = (struct record){.type = REC_MARK, .position = i};
        assert_int_equal(log_add(w, &rec, &err), 0);
        if (i == 2)
            assert_int_equal(log_flush(w, false, &err), 0);
    }
    assert_int_equal(log_flush(w, false, &err), -EIO);
    assert_non_null(strstr(err.text, "what the log names"));
    assert_int_equal(log_add(w, &rec, &err), -EIO);
    assert_int_equal(log_writer_close(w, &err), -EIO);
    assert_int_equal(read_all(fd, &d, NULL), 4); /* the cut is one */
    assert_int_equal(d.state, CHUNKS_CUT);
    close(fd);
}

/* What a newer version appended is skipped, what an older one lacks is zero. */
static void appended_fields(void **state)
{
    struct record rec = {.type = REC_NMI, .position = 10, .time = 20}, out;
    struct record_base base = {0, 0}, in_base = {0, 0};
    const char *why = "";
    u8 buf[200];
    rec.nmi.cpu = 0x1122;
    size_t n = record_encode(&rec, &base, buf, sizeof(buf));
    assert_int_equal(n, 2 + 2 + 8);
    buf[1] += 3; /* three more bytes in the record */
    assert_int_equal(record_decode(&out, &in_base, buf, n + 3, &why), n + 3);
    assert_int_equal(out.nmi.cpu, 0x1122);
    in_base = (struct record_base){0, 0};
    buf[1] = 2; /* position and time only */
    assert_int_equal(record_decode(&out, &in_base, buf, n, &why), 4);
    assert_int_equal(out.nmi.cpu, 0);
    buf[0] = 63; /* unknown, and it matters */
    assert_int_equal(record_decode(&out, &in_base, buf, n, &why), 0);
    buf[0] = 127; /* unknown remark */
    assert_int_equal(record_decode(&out, &in_base, buf, n, &why), 4);
}

static u8 *whole_file(const char *dir, const char *name, size_t *size)
{
    int at = open(dir, O_RDONLY | O_DIRECTORY), fd = openat(at, name, O_RDONLY);
    close(at);
    assert_true(fd >= 0);
    u8 *data = file_bytes(fd, size);
    close(fd);
    return data;
}

/* Reads what a kill would leave. Returns the records, of which the last is what was reached. */
static long read_killed(const u8 *log, size_t log_size, const u8 *tail, size_t tail_size,
                        u64 *reached, struct chunk_damage *d)
{
    struct log_reader *r;
    struct record rec;
    struct err err;
    long n = 0;
    *reached = 0;
    assert_int_equal(log_reader_create(&r, bytes_file(log, log_size), &err), 0);
    log_reader_tail(r, blob_of(bytes_file(tail, tail_size)));
    for (; log_next(r, &rec); n++) {
        if (rec.type == REC_REACHED)
            *reached = rec.position;
        else if (rec.type == REC_CONSOLE)
            assert_int_equal(rec.console.cpu, rec.position * 3);
        /* From here on again, as from a checkpoint. */
        struct log_place place;
        log_tell(r, &place);
        if (n % 211 == 3) {
            assert_int_equal(log_seek(r, &place, &err), 0);
            struct log_place again;
            log_tell(r, &again);
            assert_memory_equal(&place, &again, sizeof(place));
        }
    }
    *d = *log_damage(r);
    log_reader_destroy(r);
    return n;
}

/* Whatever moment a recorder is killed at: all that was kept is read, from the tail or its chunk.
 */
static void tail(void **state)
{
    char dir[] = "/tmp/reprise-test-XXXXXX", file[64];
    assert_non_null(mkdtemp(dir));
    snprintf(file, sizeof(file), "%s/log", dir);
    int fd = open(file, O_RDWR | O_CREAT | O_EXCL, 0600), at = open(dir, O_RDONLY | O_DIRECTORY);
    struct log_writer *w;
    struct err err;
    u8 noise[64];
    srandom(7);
    assert_int_equal(log_writer_create(&w, fd, &err), 0);
    assert_int_equal(log_writer_tail(w, at, &err), 0);
    struct record rec = {.type = REC_START};
    assert_int_equal(log_add(w, &rec, &err), 0);
    size_t old_size = 0, old_tail_size = 0;
    u8 *old = NULL, *old_tail = NULL;
    long old_number = 0;
    for (unsigned i = 1; i <= 2000; i++) {
        for (unsigned k = 0; k < 64; k++)
            noise[k] = (u8)random();
        rec = (struct record){.type = REC_CONSOLE, .position = i, .time = i};
        rec.console.cpu = i * 3;
        rec.console.data = (struct log_bytes){64, noise};
        assert_int_equal(log_add(w, &rec, &err), 0);
        struct log_place place;
        log_writer_tell(w, &place);
        assert_int_equal(place.index + place.taken, i + 1);
        bool border = i % 97 == 0; /* nothing pending */
        if (border)
            assert_int_equal(log_flush(w, false, &err), 0);
        if (!border && random() % 8)
            continue;
        struct record reached = {.type = REC_REACHED, .position = i, .time = i};
        reached.reached.cpu = i;
        assert_int_equal(log_keep(w, &reached, &err), 0);
        assert_false(log_pending(w));
        if (border || i % 5 == 0) { /* and a second one, where no record came */
            reached.time = i + 1;
            reached.position = i + border;
            assert_int_equal(log_keep(w, &reached, &err), 0);
        }
        struct chunk_damage d;
        size_t log_size, tail_size, cut;
        u64 last;
        u8 *log = whole_file(dir, "log", &log_size), *t = whole_file(dir, "tail", &tail_size);
        assert_int_equal(read_killed(log, log_size, t, tail_size, &last, &d), i + 2);
        assert_int_equal(last, i + border);
        assert_int_equal(d.state, CHUNKS_KILLED);
        /* Torn while the tail was written: less, but never anything else. */
        cut = (size_t)random() % (tail_size + 1);
        assert_true(read_killed(log, log_size, t, cut, &last, &d) <= (long)i + 2);
        /* Killed in the middle of a chunk's write: the tail has all of it. */
        if (old_size < log_size && old) {
            cut = old_size + (size_t)random() % (log_size - old_size);
            assert_int_equal(read_killed(log, cut, old_tail, old_tail_size, &last, &d), old_number);
            assert_int_equal(d.state, CHUNKS_KILLED);
        }
        free(old);
        free(old_tail);
        old = log;
        old_size = log_size;
        old_tail = t;
        old_tail_size = tail_size;
        old_number = i + 2;
    }
    free(old);
    free(old_tail);
    assert_int_equal(log_writer_close(w, &err), 0);
    assert_int_equal(faccessat(at, "tail", F_OK, 0), -1);
    unlinkat(at, "log", 0);
    close(at);
    rmdir(dir);
}

/* Ids are unique and small enough for one byte: the table's own promise. */
static void table(void **state)
{
    for (size_t i = 0; i < record_table_size; i++) {
        assert_true(record_table[i].id < 128);
        for (size_t k = 0; k < i; k++)
            assert_int_not_equal(record_table[i].id, record_table[k].id);
    }
}

/* From each place of a log a writer goes on, and with the same records makes the same bytes. */
static void followed(void **state)
{
    size_t size, again;
    struct log_reader *from, *rest;
    struct err err;
    int fd = sample_log(120, true);
    u8 *data = file_bytes(fd, &size);
    assert_int_equal(log_reader_create(&from, dup(fd), &err), 0);
    assert_int_equal(log_reader_create(&rest, fd, &err), 0);
    struct log_place place;
    struct record rec;
    assert_int_equal(log_next(rest, &rec), 1);
    for (unsigned n = 1;; n++) {
        struct log_writer *w;
        u64 host;
        log_rewind(rest);
        for (unsigned i = 0; i < n; i++)
            log_next(rest, &rec);
        log_tell(rest, &place);
        int out = memfd_create("log", MFD_CLOEXEC);
        assert_int_equal(
            log_writer_follow(&w, dup(out), from, &place, rec.position, rec.time, &host, &err), 0);
        struct log_place now;
        log_writer_tell(w, &now);
        assert_int_equal(now.index + now.taken, n);
        struct sha256 before = log_before(rest), mine = log_writer_before(w);
        assert_true(sha256_equal(&before, &mine));
        bool last = true;
        while (log_next(rest, &rec)) {
            last = false;
            assert_int_equal(log_add(w, &rec, &err), 0);
            if (rec.type == REC_PROGRESS || rec.type == REC_END)
                assert_int_equal(log_flush(w, rec.type == REC_END, &err), 0);
        }
        assert_int_equal(log_writer_close(w, &err), 0);
        u8 *made = file_bytes(out, &again);
        assert_int_equal(again, size);
        assert_memory_equal(made, data, size);
        free(made);
        close(out);
        if (last)
            break;
    }
    /* A place of another log. */
    struct log_writer *w;
    u64 host;
    int out = memfd_create("log", MFD_CLOEXEC);
    place.seed ^= 1;
    assert_true(log_writer_follow(&w, out, from, &place, 0, 0, &host, &err) < 0);
    log_reader_destroy(from);
    log_reader_destroy(rest);
    free(data);
}

static void diff(void **state)
{
    struct log_reader *a, *b;
    struct log_difference d;
    struct err err;
    assert_int_equal(log_reader_create(&a, sample_log(40, true), &err), 0);
    assert_int_equal(log_reader_create(&b, sample_log(40, true), &err), 0);
    log_diff(a, b, &d);
    assert_false(d.differ);
    log_reader_destroy(b);
    assert_int_equal(log_reader_create(&b, sample_log(39, true), &err), 0);
    log_rewind(a);
    log_diff(a, b, &d);
    assert_true(d.differ);
    assert_int_equal(d.a.type, REC_CONSOLE);
    log_reader_destroy(a);
    log_reader_destroy(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(summary),
        cmocka_unit_test(every_truncation),
        cmocka_unit_test(flips),
        cmocka_unit_test(zero_tail),
        cmocka_unit_test(swapped),
        cmocka_unit_test(refused),
        cmocka_unit_test(full_disk),
        cmocka_unit_test(named_is_lost),
        cmocka_unit_test(appended_fields),
        cmocka_unit_test(tail),
        cmocka_unit_test(table),
        cmocka_unit_test(followed),
        cmocka_unit_test(diff),
    };
    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
