/* The live input source: keys, pipes, files, limits, pacing; around a toy machine. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "fake_machine.h"
#include "host/clock.h"
#include "live/keys.h"
#include "live/live.h"
#include "log_sample.h"

#define MS 1000000ull

static const struct fake_config halting = {.end_at = NEVER,
                                           .halt_every = 1000,
                                           .halt_for = 50 * MS,
                                           .glitch_at = NEVER,
                                           .ram_glitch_at = NEVER,
                                           .room = 16,
                                           .regions = 1};

static void keys_in_order(void **state)
{
    static struct keys k;
    struct input in;
    assert_int_equal(keys_typed(&k, (const u8 *)"ab\001", 3), 0);
    assert_int_equal(keys_typed(&k, (const u8 *)"bc\001nd\001\001\001h", 9), KEYS_HELP);
    assert_int_equal(keys_typed(&k, (const u8 *)"\001x", 2), KEYS_QUIT);
    assert_false(keys_take(&k, 0, &in)); /* no room */
    assert_true(keys_take(&k, 1, &in));
    assert_int_equal(in.len, 1);
    assert_true(keys_take(&k, 9, &in));
    assert_int_equal(in.len, 1);
    assert_int_equal(in.data[0], 'b');
    assert_true(keys_take(&k, 0, &in)); /* an event needs no room */
    assert_int_equal(in.kind, INPUT_LINE_BREAK);
    assert_true(keys_take(&k, 9, &in));
    assert_int_equal(in.data[0], 'c');
    assert_true(keys_take(&k, 9, &in));
    assert_int_equal(in.kind, INPUT_NMI);
    assert_true(keys_take(&k, 9, &in));
    assert_int_equal(in.len, 2);
    assert_memory_equal(in.data, "d\001", 2);
    assert_false(keys_take(&k, 9, &in));
    for (unsigned i = 0; i < 2 * KEYS_ROOM; i++)
        keys_typed(&k, (const u8 *)"x", 1);
    assert_int_equal(keys_room(&k), 0);
    assert_true(keys_take(&k, 500, &in));
    assert_int_equal(in.len, 64);
}

static void scripts_quit_in_their_turn(void **state)
{
    static struct keys k = {.script = true};
    struct input in;
    assert_int_equal(keys_typed(&k, (const u8 *)"a\001xb", 4), 0);
    assert_false(keys_quit_next(&k));
    assert_true(keys_take(&k, 9, &in));
    assert_int_equal(in.len, 1);
    assert_true(keys_quit_next(&k));
    assert_false(keys_take(&k, 9, &in));
}

static u64 run(const struct live_config *config, const struct fake_config *c, struct run_end *end,
               pos_t *position, vns_t *now)
{
    struct live *l;
    struct err err = {0};
    struct run_limits limits = {.stop_at = NEVER};
    struct machine *m = fake_create(c);
    u64 began = host_ns();
    assert_int_equal(live_create(&l, config, &err), 0);
    assert_int_equal(machine_run(m, live_source(l), &limits, end, &err), 0);
    u64 took = host_ns() - began;
    *position = machine_position(m);
    *now = machine_now(m);
    live_destroy(l);
    fake_destroy(m);
    return took;
}

static void exact_limit(void **state)
{
    struct run_end end;
    pos_t position;
    vns_t now;
    struct live_config config = {.fd = -1, .realtime = true, .max_position = 12345};
    run(&config, &halting, &end, &position, &now);
    assert_int_equal(end.reason, RUN_QUIT);
    assert_int_equal(end.arg, QUIT_INSNS);
    assert_int_equal(position, 12345);
}

static void without_input_time_jumps_and_ends(void **state)
{
    struct run_end end;
    pos_t position;
    vns_t now;
    struct live_config config = {
        .fd = open("/dev/null", O_RDONLY), .realtime = true, .max_position = 100001, .timeout = 5};
    u64 took = run(&config, &halting, &end, &position, &now);
    assert_true(took < 1000 * MS && now > 4900 * MS);
    struct fake_config c = halting;
    c.halt_for = 0;
    took = run(&config, &c, &end, &position, &now);
    assert_int_equal(end.reason, RUN_HALTED);
    assert_true(took < 1000 * MS);
    close(config.fd);
}

static void pipes_pace(void **state)
{
    struct run_end end;
    pos_t position;
    vns_t now;
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    struct live_config config = {.fd = fds[0], .realtime = true, .max_position = 10001};
    u64 took = run(&config, &halting, &end, &position, &now); /* ten times 50 ms */
    assert_true(took > 480 * MS && took < 700 * MS);
    assert_true(now > 499 * MS && now < 510 * MS);
    config.realtime = false;
    took = run(&config, &halting, &end, &position, &now);
    assert_true(took < 300 * MS);
    /* A typed quit ends a machine that waits for input only. */
    struct fake_config c = halting;
    c.halt_for = 0;
    assert_int_equal(write(fds[1], "ab\001x", 4), 4);
    run(&config, &c, &end, &position, &now);
    assert_int_equal(end.arg, QUIT_USER);
    /* The input closes: nothing can come any more. */
    close(fds[1]);
    config.max_position = NEVER;
    run(&config, &c, &end, &position, &now);
    assert_int_equal(end.reason, RUN_HALTED);
    close(fds[0]);
}

static void time_limit_and_signal(void **state)
{
    struct run_end end;
    pos_t position;
    vns_t now;
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    struct fake_config c = halting;
    c.halt_for = 0;
    struct live_config config = {
        .fd = fds[0], .realtime = true, .max_position = NEVER, .timeout = 0.1, .signals = true};
    u64 took = run(&config, &c, &end, &position, &now);
    assert_int_equal(end.arg, QUIT_TIMEOUT);
    assert_true(took > 99 * MS && took < 300 * MS);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    raise(SIGTERM);
    config.timeout = 5;
    run(&config, &c, &end, &position, &now);
    assert_int_equal(end.reason, RUN_QUIT);
    assert_int_equal(end.arg, QUIT_SIGNAL);
    close(fds[0]);
    close(fds[1]);
}

static void files_are_typed_to_their_end(void **state)
{
    struct run_end end;
    pos_t position;
    vns_t now;
    struct fake_config c = halting;
    c.halt_for = 0;
    int fd = bytes_file("some lines\nthat are longer than the room\n", 41);
    lseek(fd, 0, SEEK_SET);
    struct live_config config = {.fd = fd, .realtime = true, .max_position = NEVER};
    run(&config, &c, &end, &position, &now);
    assert_int_equal(end.reason, RUN_HALTED);
    assert_true(position >= 1000);
    close(fd);
}

static void idle_limit(void **state)
{
    struct run_end end;
    pos_t position;
    vns_t now;
    struct fake_config c = halting;
    c.halt_for = 5000 * MS;
    struct live_config config = {
        .fd = -1, .realtime = true, .max_position = 100000, .idle_limit = 60000 * MS};
    run(&config, &c, &end, &position, &now);
    assert_int_equal(end.reason, RUN_QUIT);
    assert_int_equal(end.arg, QUIT_IDLE);
    assert_true(now >= 60000 * MS && now < 80000 * MS);
    config.idle_limit = 0;
    run(&config, &c, &end, &position, &now);
    assert_int_equal(end.arg, QUIT_INSNS);
    /* While there is a live input the guest may wait. */
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    config.idle_limit = 60000 * MS;
    config.fd = fds[0];
    config.realtime = false;
    run(&config, &c, &end, &position, &now);
    assert_int_equal(end.arg, QUIT_INSNS);
    close(fds[0]);
    close(fds[1]);
}

/* A feed of inputs that know their times. */
struct timed {
    struct feed feed;
    vns_t at[4], got[4];
    unsigned n, next;
    vns_t room_from; /* before that the machine has none for them */
};

static unsigned timed_prepare(struct feed *f, struct pollfd *fds, unsigned cap, u64 *until)
{
    return 0;
}

static void timed_serve(struct feed *f, const struct pollfd *fds, unsigned n)
{
}

static bool timed_peek(struct feed *f, struct machine *m, struct input *in)
{
    static const u8 event[8];
    struct timed *t = (struct timed *)f;
    if (t->next == t->n || machine_now(m) < MAX(t->at[t->next], t->room_from))
        return false;
    t->got[t->next] = machine_now(m);
    *in = (struct input){.kind = INPUT_EVENTS, .len = 8, .data = event};
    return true;
}

static void timed_taken(struct feed *f, const struct input *in)
{
    ((struct timed *)f)->next++;
}

static vns_t timed_due(const struct feed *f)
{
    const struct timed *t = (const struct timed *)f;
    return t->next == t->n ? NEVER : t->at[t->next];
}

static bool timed_live(const struct feed *f)
{
    return false;
}

static const struct feed_ops timed_ops = {timed_prepare, timed_serve, timed_peek, timed_taken,
                                          NULL,          timed_due,   NULL,       timed_live};

static void inputs_at_their_times(void **state)
{
    struct run_end end;
    pos_t position;
    vns_t now;
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    /* While it runs, while it idles, after each other; idle with a deadline, without, paced. */
    for (unsigned i = 0; i < 3; i++) {
        struct timed t = {{&timed_ops}, {777, 20 * MS, 20 * MS, 180 * MS + 3}, {0}, 4, 0, 0};
        struct feed *list[] = {&t.feed};
        struct fake_config c = halting;
        struct live_config config = {.fd = i == 2 ? fds[0] : -1,
                                     .realtime = true,
                                     .max_position = 10001,
                                     .idle_limit = 100 * MS,
                                     .feeds = list,
                                     .nfeeds = 1};
        if (i == 1)
            c.halt_for = 0;
        run(&config, &c, &end, &position, &now);
        assert_int_equal(t.next, 4);
        for (unsigned k = 0; k < 4; k++)
            assert_true(t.got[k] == t.at[k]);
        if (i == 1)
            assert_int_equal(end.reason, RUN_HALTED);
    }
    close(fds[0]);
    close(fds[1]);
}

static void inputs_wait_for_room(void **state)
{
    struct run_end end;
    pos_t position;
    vns_t now;
    struct timed t = {{&timed_ops}, {777, 20 * MS}, {0}, 2, 0, 120 * MS};
    struct feed *list[] = {&t.feed};
    struct live_config config = {
        .fd = -1, .realtime = true, .max_position = 10001, .feeds = list, .nfeeds = 1};
    run(&config, &halting, &end, &position, &now);
    assert_int_equal(end.arg, QUIT_INSNS);
    assert_int_equal(t.next, 2);
    assert_true(t.got[0] >= 120 * MS && t.got[0] < 180 * MS && t.got[1] == t.got[0]);
    /* There never is any: the run ends nevertheless. */
    struct timed never = {{&timed_ops}, {777}, {0}, 1, 0, NEVER};
    struct fake_config c = halting;
    c.halt_for = 0;
    list[0] = &never.feed;
    run(&config, &c, &end, &position, &now);
    assert_int_equal(end.reason, RUN_HALTED);
    c.halt_for = 500 * MS;
    config.max_position = NEVER;
    config.idle_limit = 5000 * MS;
    run(&config, &c, &end, &position, &now);
    assert_int_equal(end.arg, QUIT_IDLE);
}

static void typed_to_a_port(void **state)
{
    struct live *l;
    struct err err;
    struct input in;
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(write(fds[1], "\001bx", 3), 3);
    struct live_config config = {.fd = fds[0], .hvc0 = true, .max_position = NEVER};
    struct machine *m = fake_create(&halting);
    assert_int_equal(live_create(&l, &config, &err), 0);
    struct input_source *s = live_source(l);
    assert_int_equal(s->ops->take(s, m, &in, &err), 1);
    assert_int_equal(in.kind, INPUT_LINE_BREAK); /* the line has nothing to do with it */
    assert_int_equal(s->ops->take(s, m, &in, &err), 1);
    assert_int_equal(in.kind, INPUT_PORT);
    assert_int_equal(in.unit, 0);
    assert_memory_equal(in.data, "x", 1);
    live_destroy(l);
    fake_destroy(m);
    close(fds[0]);
    close(fds[1]);
}

static void stop_text(void **state)
{
    struct live *l;
    struct err err;
    struct machine *m = fake_create(&halting);
    struct input in;
    struct live_config config = {.fd = -1, .max_position = NEVER, .stop_at = "aabaac"};
    assert_int_equal(live_create(&l, &config, &err), 0);
    live_output(l, m, "xaabaab", 7);
    assert_false(live_stop_text_seen(l));
    assert_int_equal(live_source(l)->ops->take(live_source(l), m, &in, &err), 0);
    live_output(l, m, "aac", 3); /* overlaps what came before */
    assert_true(live_stop_text_seen(l));
    assert_int_equal(live_source(l)->ops->take(live_source(l), m, &in, &err), 1);
    assert_int_equal(in.arg, QUIT_TEXT);
    live_destroy(l);
    fake_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_in_order),
        cmocka_unit_test(scripts_quit_in_their_turn),
        cmocka_unit_test(exact_limit),
        cmocka_unit_test(without_input_time_jumps_and_ends),
        cmocka_unit_test(pipes_pace),
        cmocka_unit_test(time_limit_and_signal),
        cmocka_unit_test(files_are_typed_to_their_end),
        cmocka_unit_test(idle_limit),
        cmocka_unit_test(inputs_at_their_times),
        cmocka_unit_test(inputs_wait_for_room),
        cmocka_unit_test(typed_to_a_port),
        cmocka_unit_test(stop_text),
    };
    return cmocka_run_group_tests_name("live", tests, NULL, NULL);
}
