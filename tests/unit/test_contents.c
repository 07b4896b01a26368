/* The file `contents` of a recording: each piece once, found again, and never wrong. */
#define _GNU_SOURCE /* memfd_create */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "replay/contents.h"

#define PIECES 3000u

static const struct room room;

static int new_file(void)
{
    int fd = memfd_create("contents", MFD_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

/* Piece `i`: its bytes are a function of it, its length too. The long ones cannot be compressed. */
static u32 piece(u32 i, u8 *out)
{
    bool large = i % 100 == 7;
    u32 len = large ? INPUT_CONTENT_MAX : 1 + i * 37 % 5000, noise = i;
    for (u32 k = 0; k < len; k++) {
        noise = noise * 1664525 + 1013904223;
        out[k] = (u8)(large ? noise >> 24 : (i >> (8 * (k & 1))) ^ (k * 7));
    }
    return len;
}

static void write_all(int fd, struct hash128 *hash)
{
    static u8 data[INPUT_CONTENT_MAX], got[INPUT_CONTENT_MAX];
    struct contents *c;
    struct err err;
    u64 all = 0;
    assert_int_equal(contents_create(&c, dup(fd), &room, &err), 0);
    for (u32 i = 0; i < PIECES; i++) {
        u32 len = piece(i, data);
        all += len;
        assert_int_equal(contents_put(c, data, len, &hash[i], &err), 0);
        if (i % 50)
            continue;
        /* One can be read while others are on their way. */
        len = piece(i / 2, data);
        assert_int_equal(contents_get(c, &hash[i / 2], len, got, &err), 0);
        assert_memory_equal(got, data, len);
    }
    assert_int_equal(contents_wait(c, &err), 0);
    u64 bytes = contents_bytes(c);
    assert_true(bytes < all * 3 / 4); /* compressed, as far as they can be */
    struct hash128 again;
    for (u32 i = 0; i < PIECES; i++) {
        assert_int_equal(contents_put(c, data, piece(i, data), &again, &err), 0);
        assert_memory_equal(&again, &hash[i], sizeof(again));
    }
    assert_int_equal(contents_bytes(c), bytes); /* once each */
    struct stat st;
    fstat(fd, &st);
    assert_int_equal(st.st_size, bytes);
    contents_destroy(c);
}

static void found_again(void **state)
{
    static struct hash128 hash[PIECES];
    static u8 want[INPUT_CONTENT_MAX], got[INPUT_CONTENT_MAX];
    struct contents *c;
    struct err err;
    int fd = new_file();
    write_all(fd, hash);
    assert_int_equal(contents_open(&c, blob_of(fd), &err), 0);
    for (u32 i = PIECES; i--;) {
        u32 len = piece(i, want);
        assert_int_equal(contents_get(c, &hash[i], len, got, &err), 0);
        assert_memory_equal(got, want, len);
        /* Of another length it is another piece. */
        if (len > 1)
            assert_int_equal(contents_get(c, &hash[i], len - 1, got, &err), -EINVAL);
    }
    struct hash128 none = {1, 2};
    assert_int_equal(contents_get(c, &none, 10, got, &err), -ENODATA);
    assert_non_null(strstr(err.text, "lacks the piece"));
    contents_destroy(c);
}

/* Whatever of the file is changed, a piece is what it was, or it is refused. */
static void damage_is_found(void **state)
{
    static u8 want[INPUT_CONTENT_MAX], got[INPUT_CONTENT_MAX];
    struct hash128 hash[3];
    struct contents *c;
    struct err err;
    int good = new_file();
    assert_int_equal(contents_create(&c, dup(good), &room, &err), 0);
    u32 len[3];
    for (u32 i = 0; i < 3; i++) {
        len[i] = MIN(piece(i + 1, want), 60u);
        assert_int_equal(contents_put(c, want, len[i], &hash[i], &err), 0);
    }
    u64 size = contents_bytes(c);
    contents_destroy(c);
    u8 *file = malloc(size);
    assert_int_equal(pread(good, file, size, 0), size);
    unsigned refused = 0;
    for (u64 at = 0; at < size; at++)
        for (unsigned cut = 0; cut < 2; cut++) {
            int fd = new_file();
            u8 byte = (u8)(file[at] ^ (1 + at % 255));
            assert_int_equal(write(fd, file, size), size);
            if (cut)
                assert_int_equal(ftruncate(fd, (off_t)at), 0);
            else
                assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
            assert_int_equal(contents_open(&c, blob_of(fd), &err), 0);
            unsigned wrong = 0;
            for (u32 i = 0; i < 3; i++) {
                piece(i + 1, want);
                memset(err.text, 0, sizeof(err.text));
                if (contents_get(c, &hash[i], len[i], got, &err)) {
                    wrong++;
                    assert_true(strstr(err.text, "contents"));
                } else {
                    assert_memory_equal(got, want, len[i]);
                }
            }
            assert_true(wrong);
            refused += wrong;
            contents_destroy(c);
        }
    assert_true(refused > 2 * size);
    free(file);
    close(good);
}

static void disk_that_is_full(void **state)
{
    const struct room small = {.limit = 1000};
    u8 data[800] = {0};
    struct hash128 hash;
    struct contents *c;
    struct err err;
    assert_int_equal(contents_create(&c, new_file(), &small, &err), 0);
    assert_int_equal(contents_put(c, data, 800, &hash, &err), 0);
    data[0] = 1;
    assert_int_equal(contents_put(c, data, 800, &hash, &err), -ENOSPC);
    data[0] = 0;
    assert_int_equal(contents_put(c, data, 800, &hash, &err), 0); /* it is there */
    contents_destroy(c);
}

/* What the host refuses only once it is written is said by the wait, and by all that follows; the
 * file has what was there the time before. */
static void disk_that_fails(void **state)
{
    static u8 data[INPUT_CONTENT_MAX];
    struct rlimit before, small;
    struct hash128 hash[2], more;
    struct contents *c;
    struct err err;
    struct stat st;
    int fd = new_file();
    assert_int_equal(contents_create(&c, dup(fd), &room, &err), 0);
    u32 first = piece(1, data);
    assert_int_equal(contents_put(c, data, first, &hash[0], &err), 0);
    assert_int_equal(contents_wait(c, &err), 0);
    assert_false(contents_busy(c));
    u64 good = contents_bytes(c);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = good + 1000;
    setrlimit(RLIMIT_FSIZE, &small);
    int code = contents_put(c, data, piece(7, data), &hash[1], &err);
    code = code ? code : contents_wait(c, &err);
    assert_int_equal(code, -EFBIG);
    assert_non_null(strstr(err.text, "cannot write contents"));
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(contents_put(c, data, piece(2, data), &more, &err), -EFBIG);
    assert_int_equal(contents_wait(c, &err), -EFBIG);
    assert_int_equal(contents_bytes(c), good);
    contents_destroy(c);
    fstat(fd, &st);
    assert_int_equal(st.st_size, good);
    assert_int_equal(contents_open(&c, blob_of(fd), &err), 0);
    assert_int_equal(contents_get(c, &hash[0], first, data, &err), 0);
    assert_int_equal(contents_check(c, true, &err), 0);
    contents_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(found_again),
        cmocka_unit_test(damage_is_found),
        cmocka_unit_test(disk_that_is_full),
        cmocka_unit_test(disk_that_fails),
    };
    return cmocka_run_group_tests_name("contents", tests, NULL, NULL);
}
