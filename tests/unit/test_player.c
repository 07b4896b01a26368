/* Recorder and player around a toy machine: what was recorded replays; what differs is named. */
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "cpu/engine.h"
#include "fake_machine.h"
#include "host/clock.h"
#include "log_sample.h"
#include "replay/diff.h"
#include "replay/player.h"
#include "replay/recorder.h"

/* A live source that acts at random, from a seed. */
struct noise {
    struct input_source src;
    unsigned seed;
    unsigned inputs, most; /* given, and at most */
    bool quits;
    u8 bytes[INPUT_CONTENT_MAX];
};

/* What all recordings here have of files. */
static struct contents *kept;

/* What inputs.def says of each kind. */
static const struct input_row {
    u32 first, last, least, most, multiple;
} rows[INPUT_KINDS] = {
#define INPUT(NAME, device, unit, first, last, least, most, multiple)                              \
    [INPUT_##NAME] = {first, last, least, most, multiple},
#include "dev/inputs.def"
#undef INPUT
};

static unsigned draw(struct noise *n)
{
    return (unsigned)rand_r(&n->seed);
}

static pos_t noise_next(struct input_source *src, struct machine *m)
{
    return NEVER;
}

static int noise_take(struct input_source *src, struct machine *m, struct input *in,
                      struct err *err)
{
    struct noise *n = (struct noise *)src;
    if (draw(n) % 4 || n->inputs >= n->most) {
        if (n->quits && n->inputs >= n->most) {
            *in = (struct input){.kind = INPUT_QUIT, .arg = QUIT_SIGNAL};
            return 1;
        }
        return 0;
    }
    n->inputs++;
    *in = (struct input){.kind = 1 + (enum input_kind)(draw(n) % (INPUT_KINDS - 1)),
                         .data = n->bytes};
    if (in->kind == INPUT_QUIT) /* which ends it */
        in->kind = INPUT_PORT;
    const struct input_row *row = &rows[in->kind];
    u32 most = MIN(row->most, machine_room(m, in->kind, 0));
    if (draw(n) % 8) /* most are small */
        most = MIN(most, row->least + 1500);
    if (row->most)
        in->len = row->least + draw(n) % ((most - row->least) / row->multiple + 1) * row->multiple;
    if (row->last && in->kind != INPUT_PLACE) /* the toy's time does not pass with a place */
        in->arg = row->first + (u32)(draw(n) % ((u64)row->last - row->first + 1));
    for (unsigned i = 0; i < (in->kind == INPUT_CONTENT ? in->arg : in->len); i++)
        n->bytes[i] = (u8)draw(n);
    return 1;
}

static int noise_idle(struct input_source *src, struct machine *m, vns_t deadline, vns_t *until,
                      struct err *err)
{
    struct noise *n = (struct noise *)src;
    vns_t now = machine_now(m);
    if (deadline == NEVER && n->inputs >= n->most && !n->quits)
        return 1;
    *until = deadline != NEVER && draw(n) % 2 ? deadline
             : deadline == NEVER              ? now + draw(n) % 5000
                                              : now + draw(n) % (deadline - now);
    return 0;
}

static const struct input_source_ops noise_ops = {noise_next, noise_take, noise_idle, NULL, NULL};

static const struct fake_config normal = {.end_at = 100000,
                                          .end = RUN_POWEROFF,
                                          .halt_every = 7001,
                                          .halt_for = 9000,
                                          .glitch_at = NEVER,
                                          .ram_glitch_at = NEVER,
                                          .room = 16,
                                          .devices = 3,
                                          .regions = 64};

/* Records with `live`; returns the log's file. */
static int record_with(struct input_source *live, const struct fake_config *c, vns_t progress,
                       u64 *number, struct run_end *end)
{
    struct log_writer *w;
    struct recorder *r;
    struct err err = {0};
    struct run_limits limits = {.stop_at = NEVER};
    int fd = memfd_create("log", MFD_CLOEXEC);
    struct machine *m = fake_create(c);
    assert_int_equal(log_writer_create(&w, dup(fd), &err), 0);
    struct recorder_config config = {
        .log = w, .live = live, .machine = {1, 2}, .contents = kept, .progress_ns = progress};
    assert_int_equal(recorder_create(&r, &config, m, &err), 0);
    assert_int_equal(machine_run(m, recorder_source(r), &limits, end, &err), 0);
    assert_int_equal(recorder_finish(r, m, end, &err), 0);
    recorder_destroy(r);
    *number = fake_number(m);
    fake_destroy(m);
    return fd;
}

static int record_noise(unsigned seed, const struct fake_config *c, bool quits, vns_t progress,
                        u64 *number)
{
    struct noise n = {.src = {&noise_ops}, .seed = seed, .most = 40, .quits = quits};
    struct run_end end;
    return record_with(&n.src, c, progress, number, &end);
}

struct outcome {
    enum player_result result;
    struct err err;
    char report[64 << 10]; /* it has the last inputs, with their bytes */
    u64 number, betweens;
    pos_t position;
    vns_t time;
};

static void replay(int fd, const struct fake_config *c, bool verify, u64 perturb, struct outcome *o)
{
    struct log_reader *log;
    struct player *p;
    struct run_end end = {0};
    struct err run_err = {0};
    struct run_limits limits = {.stop_at = NEVER};
    memset(o, 0, sizeof(*o));
    assert_int_equal(log_reader_create(&log, dup(fd), &o->err), 0);
    struct machine *m = fake_create(c);
    struct player_config config = {
        .log = log, .dir = "REC", .contents = kept, .verify = verify, .perturb = perturb};
    assert_int_equal(player_create(&p, &config, m, &o->err), 0);
    machine_run(m, player_source(p), &limits, &end, &run_err);
    o->result = player_finish(p, m, &end, &run_err, &o->err);
    snprintf(o->report, sizeof(o->report), "%s", player_report(p));
    o->number = fake_number(m);
    o->betweens = fake_betweens(m);
    o->position = machine_position(m);
    o->time = machine_now(m);
    player_destroy(p);
    fake_destroy(m);
}

static void replays_the_same(void **state)
{
    for (unsigned seed = 1; seed <= 300; seed++) {
        u64 number;
        struct outcome o;
        struct fake_config c = normal;
        c.halt_for = seed % 3 ? 9000 : 0;
        if (seed % 5 == 0)
            c.end = seed % 2 ? RUN_EXIT : RUN_RESET;
        int fd = record_noise(seed, &c, seed % 2, 0, &number);
        replay(fd, &c, seed % 4 == 0, 0, &o);
        if (o.result != PLAYER_SAME)
            fail_msg("seed %u: %s\n%s", seed, o.err.text, o.report);
        assert_int_equal(o.number, number);
        close(fd);
    }
}

/* Progress records in the middle of idle times and runs: they must not disturb. */
static void replays_with_progress(void **state)
{
    u64 number;
    struct outcome o;
    struct log_reader *log;
    struct log_summary s;
    struct err err;
    int fd = record_noise(9, &normal, false, 10000, &number);
    assert_int_equal(log_reader_create(&log, dup(fd), &err), 0);
    log_summarise(log, &s);
    log_reader_destroy(log);
    assert_true(s.counts[record_desc(REC_PROGRESS) - record_table] >= 4);
    replay(fd, &normal, true, 0, &o);
    assert_int_equal(o.result, PLAYER_SAME);
    assert_int_equal(o.number, number);
    close(fd);
}

static void perturbed_inputs_are_found(void **state)
{
    u64 number;
    int fd = record_noise(4, &normal, false, 0, &number);
    for (unsigned n = 1; n <= 40; n++) {
        struct outcome o;
        replay(fd, &normal, n % 2, n, &o);
        assert_int_equal(o.result, PLAYER_DIVERGED);
        assert_non_null(strstr(o.err.text, "diverged at position"));
        if (!strstr(o.report, "reprise trace REC --from "))
            fail_msg("perturbed %u: %s\n%s", n, o.err.text, o.report);
    }
    close(fd);
}

static void glitches_are_found(void **state)
{
    u64 number;
    struct outcome o;
    struct fake_config c = normal;
    int fd = record_noise(6, &normal, false, 5000, &number);
    c.glitch_at = 50000;
    replay(fd, &c, true, 0, &o);
    assert_int_equal(o.result, PLAYER_DIVERGED);
    assert_non_null(strstr(o.err.text, "cpu0"));
    assert_true(o.position >= 50000);
    c = normal;
    c.ram_glitch_at = 60000;
    replay(fd, &c, true, 0, &o);
    assert_int_equal(o.result, PLAYER_DIVERGED);
    if (!strstr(o.err.text, "2 regions of RAM differ at the end: 0-0x1fffff, 0x200000-"))
        fail_msg("%s", o.err.text);
    c = normal;
    c.end_at -= 10;
    replay(fd, &c, false, 0, &o);
    assert_int_equal(o.result, PLAYER_DIVERGED);
    assert_non_null(strstr(o.err.text, "the machine ended here"));
    c = normal;
    c.end_at += 10;
    replay(fd, &c, false, 0, &o);
    assert_int_equal(o.result, PLAYER_DIVERGED);
    assert_non_null(strstr(o.err.text, "its end: poweroff"));
    assert_int_equal(o.position, normal.end_at + 1); /* where it happens, not later */
    c = normal;
    c.halt_for += 1;
    replay(fd, &c, false, 0, &o);
    assert_int_equal(o.result, PLAYER_DIVERGED);
    c = normal;
    c.halt_for = 0;
    replay(fd, &c, false, 0, &o);
    assert_int_equal(o.result, PLAYER_DIVERGED);
    c = normal;
    c.halt_every = 0;
    replay(fd, &c, false, 0, &o);
    assert_int_equal(o.result, PLAYER_DIVERGED);
    c = normal;
    c.room = 1;
    replay(fd, &c, false, 0, &o);
    assert_int_equal(o.result, PLAYER_DIVERGED);
    assert_non_null(strstr(o.err.text, "room"));
    close(fd);
}

static void other_components_are_refused(void **state)
{
    u64 number;
    struct log_reader *log;
    struct player *p;
    struct err err;
    struct fake_config c = normal;
    int fd = record_noise(5, &normal, false, 0, &number);
    c.devices = 2;
    struct machine *m = fake_create(&c);
    assert_int_equal(log_reader_create(&log, dup(fd), &err), 0);
    struct player_config config = {.log = log};
    assert_int_equal(player_create(&p, &config, m, &err), -EINVAL);
    assert_non_null(strstr(err.text, "cpu0,dev0,dev1,dev2"));
    fake_destroy(m);
    close(fd);
}

/* The same log in chunks of a few records; closes `from`. */
static int small_chunks(int from)
{
    struct log_reader *in;
    struct log_writer *out;
    struct record rec;
    struct err err;
    int fd = memfd_create("log", MFD_CLOEXEC);
    assert_int_equal(log_reader_create(&in, from, &err), 0);
    assert_int_equal(log_writer_create(&out, dup(fd), &err), 0);
    while (log_next(in, &rec)) {
        assert_int_equal(log_add(out, &rec, &err), 0);
        if (rec.type == REC_END || rec.index % 3 == 2)
            assert_int_equal(log_flush(out, rec.type == REC_END, &err), 0);
    }
    assert_int_equal(log_writer_close(out, &err), 0);
    log_reader_destroy(in);
    return fd;
}

/* Cut anywhere: replays to the last whole chunk and says that it did. */
static void killed_recordings(void **state)
{
    u64 number;
    size_t size;
    unsigned damage = 0;
    int fd = small_chunks(record_noise(7, &normal, false, 5000, &number));
    u8 *data = file_bytes(fd, &size);
    srandom(99);
    for (unsigned i = 0; i < 200; i++) {
        struct log_reader *log;
        struct err err;
        struct outcome o;
        struct record rec;
        size_t len = (size_t)random() % size;
        bool flip = i % 2;
        size_t at = (size_t)random() % size;
        if (flip)
            data[at] ^= 4;
        int cut = bytes_file(data, flip ? size : len);
        if (flip)
            data[at] ^= 4;
        if (!log_reader_create(&log, dup(cut), &err)) {
            bool any = log_next(log, &rec);
            log_reader_destroy(log);
            if (any) {
                replay(cut, &normal, true, 0, &o);
                assert_int_equal(o.result, PLAYER_DAMAGE);
                assert_non_null(strstr(o.err.text, "replayed up to the damage"));
                damage++;
            }
        }
        close(cut);
    }
    assert_true(damage > 100);
    free(data);
    close(fd);
}

/* A replay recorded again is the same recording; a perturbed one is not, and diff says where. */
static void recorded_again(void **state)
{
    u64 number;
    int fd = record_noise(11, &normal, false, 0, &number);
    for (u64 perturb = 0; perturb < 8; perturb += 7) {
        struct log_reader *log, *a, *b;
        struct player *p;
        struct err err;
        struct log_difference d;
        struct log_writer *w;
        struct recorder *r;
        struct run_end end;
        struct run_limits limits = {.stop_at = NEVER};
        struct machine *m = fake_create(&normal);
        int out = memfd_create("log", MFD_CLOEXEC);
        assert_int_equal(log_reader_create(&log, dup(fd), &err), 0);
        struct player_config config = {.log = log, .contents = kept, .perturb = perturb};
        assert_int_equal(player_create(&p, &config, m, &err), 0);
        assert_int_equal(log_writer_create(&w, dup(out), &err), 0);
        struct recorder_config again = {
            .log = w, .live = player_source(p), .machine = {1, 2}, .contents = kept};
        assert_int_equal(recorder_create(&r, &again, m, &err), 0);
        machine_run(m, recorder_source(r), &limits, &end, &err);
        assert_int_equal(recorder_finish(r, m, &end, &err), 0);
        recorder_destroy(r);
        player_destroy(p);
        fake_destroy(m);
        assert_int_equal(log_reader_create(&a, dup(fd), &err), 0);
        assert_int_equal(log_reader_create(&b, out, &err), 0);
        log_diff(a, b, &d);
        assert_int_equal(d.differ, perturb != 0);
        if (perturb)
            assert_true(d.compared >= 6);
        log_reader_destroy(a);
        log_reader_destroy(b);
    }
    close(fd);
}

/*
 * A machine that sleeps where the recorded one went on, with a deadline again and again: it never
 * gets to the next record's position, but its time goes by.
 */
static void sleepers_are_found(void **state)
{
    u64 number;
    struct outcome o;
    struct fake_config c = normal;
    int fd = record_noise(3, &normal, false, 0, &number);
    c.asleep_at = 50000;
    replay(fd, &c, false, 0, &o);
    assert_int_equal(o.result, PLAYER_DIVERGED);
    assert_non_null(strstr(o.err.text, "the machine went past"));
    assert_int_equal(o.position, c.asleep_at);
    assert_true(o.time < 100000 + 40ull * 40 * 9000);
    close(fd);
}

/* One that goes on without anything that counts is given up after so many stops, and not before. */
static void endless_stretches_are_found(void **state)
{
    u64 number;
    struct outcome o;
    struct fake_config c = normal;
    int fd = record_noise(4, &normal, false, 0, &number);
    for (u32 changing = 0; changing < 2; changing++) {
        c.endless_at = 50000;
        c.arg = changing;
        replay(fd, &c, false, 0, &o);
        assert_int_equal(o.result, PLAYER_DIVERGED);
        assert_non_null(strstr(o.err.text, "goes on and on without a branch"));
        assert_int_equal(o.position, c.endless_at);
        assert_in_range(o.betweens, changing ? 8192 : 256, changing ? 8192 : 258);
    }
    close(fd);
}

static void log_is_small(void **state)
{
    u64 number;
    struct noise n = {.src = {&noise_ops}, .seed = 1};
    struct run_end end;
    struct fake_config c = normal;
    c.devices = 12;
    int fd = record_with(&n.src, &c, 0, &number, &end);
    assert_true(lseek(fd, 0, SEEK_END) < 2048);
    close(fd);
}

static int make_contents(void **state)
{
    static const struct room room;
    struct err err;
    return contents_create(&kept, memfd_create("contents", MFD_CLOEXEC), &room, &err);
}

static int free_contents(void **state)
{
    contents_destroy(kept);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replays_the_same),
        cmocka_unit_test(replays_with_progress),
        cmocka_unit_test(perturbed_inputs_are_found),
        cmocka_unit_test(glitches_are_found),
        cmocka_unit_test(other_components_are_refused),
        cmocka_unit_test(killed_recordings),
        cmocka_unit_test(recorded_again),
        cmocka_unit_test(sleepers_are_found),
        cmocka_unit_test(endless_stretches_are_found),
        cmocka_unit_test(log_is_small),
    };
    return cmocka_run_group_tests_name("player", tests, make_contents, free_contents);
}
