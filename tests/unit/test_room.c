/* What a file may grow to: limits of its own, and what of its file system stays free. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/room.h"

static int fd;

static int set_up(void **state)
{
    char path[] = "/tmp/reprise-test-XXXXXX";
    fd = mkstemp(path);
    unlink(path);
    return fd < 0;
}

static u64 free_bytes(void)
{
    struct statvfs s;
    assert_int_equal(fstatvfs(fd, &s), 0);
    return (u64)s.f_bavail * s.f_frsize;
}

static void none(void **state)
{
    struct room r = {0};
    assert_int_equal(room_ask(&r, fd, 1), ROOM_FINE);
    assert_int_equal(room_ask(&r, fd, UINT64_MAX), ROOM_FINE);
    assert_false(r.nearly);
}

static void limit(void **state)
{
    struct room r = {.limit = 100 << 20};
    char text[96];
    assert_int_equal(room_ask(&r, fd, 0), ROOM_FINE);
    assert_int_equal(room_ask(&r, fd, 79 << 20), ROOM_FINE);
    assert_false(r.nearly);
    assert_int_equal(room_ask(&r, fd, 81 << 20), ROOM_FINE);
    assert_true(r.nearly);
    assert_int_equal(room_ask(&r, fd, (100 << 20) + 1), ROOM_LIMIT);
    assert_string_equal(room_text(&r, text, sizeof(text)), "its limit of 100.0 MiB is reached");
    /* To the last byte; and what was granted stays so. */
    assert_int_equal(room_ask(&r, fd, 100 << 20), ROOM_FINE);
    assert_int_equal(room_ask(&r, fd, UINT64_MAX), ROOM_LIMIT);
    assert_int_equal(room_ask(&r, fd, 100 << 20), ROOM_FINE);
}

static void kept_free(void **state)
{
    u64 free = free_bytes();
    struct room r = {.keep = free + (1 << 30)};
    char text[96];
    assert_int_equal(room_ask(&r, fd, 1), ROOM_KEPT);
    assert_non_null(strstr(room_text(&r, text, sizeof(text)), "of the file system stay free"));
    r = (struct room){.keep = free / 2};
    assert_int_equal(room_ask(&r, fd, 4096), ROOM_FINE);
    assert_false(r.nearly);
    assert_int_equal(room_ask(&r, fd, free), ROOM_KEPT);
    r = (struct room){.keep = free / 2};
    assert_int_equal(room_ask(&r, fd, free / 100 * 45), ROOM_FINE);
    assert_true(r.nearly);
}

/* The rest of a file system can always be used to its half. */
static void by_default(void **state)
{
    u64 free = free_bytes();
    struct room r = {.keep = ROOM_DEFAULT}, least = {.keep = ROOM_LEAST};
    assert_int_equal(room_ask(&r, fd, 4096), ROOM_FINE);
    assert_true(r.keep && r.keep <= free / 2 + (64 << 20));
    assert_int_equal(room_ask(&r, fd, free + (1ull << 40)), ROOM_KEPT);
    assert_int_equal(room_ask(&least, fd, 4096), ROOM_FINE);
    assert_true(least.keep && least.keep <= 1ull << 30 && least.keep <= r.keep + (64 << 20));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(none),
        cmocka_unit_test(limit),
        cmocka_unit_test(kept_free),
        cmocka_unit_test(by_default),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
