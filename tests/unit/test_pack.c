/* Packs: frames that are read at offsets, headers of tar, what a disk's map gives. */
#define _GNU_SOURCE /* memfd_create */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file_io.h"
#include "base/seekable.h"
#include "base/tar.h"
#include "host/disk_reads.h"
#include "replay/pack_disk.h"

struct sink {
    int fd;
    u64 at;
};

static int put(void *opaque, const void *data, size_t len)
{
    struct sink *s = opaque;
    assert_true(file_write_at(s->fd, data, len, s->at));
    s->at += len;
    return 0;
}

/* Sizes around a frame's, read in pieces that lie across frames. */
static void test_frames(void **state)
{
    static const size_t sizes[] = {
        0, 1, SEEKABLE_FRAME - 1, SEEKABLE_FRAME, SEEKABLE_FRAME + 1, 3 * SEEKABLE_FRAME + 77};
    u8 *data = malloc(4 * SEEKABLE_FRAME), *back = malloc(4 * SEEKABLE_FRAME);
    struct err err;
    for (size_t i = 0; i < 4 * SEEKABLE_FRAME; i++)
        data[i] = (u8)(i >> 3 ^ i * i);
    for (size_t k = 0; k < ARRAY_SIZE(sizes); k++) {
        struct sink s = {.fd = memfd_create("frames", 0), .at = 100};
        struct seekable_writer *w = seekable_create(put, &s);
        struct blob b;
        for (size_t at = 0, n; at < sizes[k]; at += n) {
            n = MIN((size_t)99991, sizes[k] - at);
            assert_int_equal(seekable_add(w, data + at, n), 0);
        }
        assert_int_equal(seekable_end(w), 0);
        seekable_destroy(w);
        assert_int_equal(seekable_open(&b, s.fd, 100, s.at - 100, &err), 0);
        assert_int_equal(b.size, sizes[k]);
        assert_true(blob_read_at(&b, back, sizes[k], 0));
        assert_memory_equal(back, data, sizes[k]);
        for (size_t at = sizes[k]; at > 4096; at -= MIN(at, (size_t)70001)) {
            assert_true(blob_read_at(&b, back, 4096, at - 4096));
            assert_memory_equal(back, data + at - 4096, 4096);
        }
        assert_false(blob_read_at(&b, back, 1, sizes[k]));
        blob_close(&b);
        /* Any byte less, or more, is no stream. */
        assert_int_not_equal(seekable_open(&b, s.fd, 100, s.at - 101, &err), 0);
        assert_int_not_equal(seekable_open(&b, s.fd, 101, s.at - 101, &err), 0);
        close(s.fd);
    }
    free(data);
    free(back);
}

static void test_tar(void **state)
{
    static const u64 sizes[] = {0, 1, 511, 512, 1ull << 33, (1ull << 33) - 1, 1ull << 42};
    u8 block[TAR_BLOCK] = {0};
    struct tar_member m;
    struct err err;
    assert_int_equal(tar_header_read(block, &m, &err), 1);
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        tar_header_write(block, "files/abc.zst", sizes[i]);
        assert_int_equal(tar_header_read(block, &m, &err), 0);
        assert_string_equal(m.name, "files/abc.zst");
        assert_int_equal(m.size, sizes[i]);
        block[3] ^= 1;
        assert_true(tar_header_read(block, &m, &err) < 0);
    }
}

static void test_reads(void **state)
{
    struct disk_reads *r = disk_reads_create(1ull << 40);
    u64 page = 0;
    u8 sectors;
    disk_reads_add(r, 512, 512);
    disk_reads_add(r, 3 * PAGE_SIZE + 3584, 1024);
    disk_reads_add(r, (1ull << 40) - 512, 512);
    assert_true(disk_reads_next(r, &page, &sectors) && page == 0 && sectors == 2);
    assert_true((page++, disk_reads_next(r, &page, &sectors)) && page == 3 && sectors == 0x80);
    assert_true((page++, disk_reads_next(r, &page, &sectors)) && page == 4 && sectors == 1);
    assert_true((page++, disk_reads_next(r, &page, &sectors)) && page == (1ull << 28) - 1 &&
                sectors == 0x80);
    assert_false((page++, disk_reads_next(r, &page, &sectors)));
    disk_reads_destroy(r);
}

/* Of an image beside a recording only what the map knows is given. */
static void test_map(void **state)
{
    u8 image[4 * PAGE_SIZE], out[PAGE_SIZE];
    struct blob b;
    struct disk_map m = {.head = {.magic = DISK_MAP_MAGIC,
                                  .version = DISK_MAP_VERSION,
                                  .size = sizeof(image),
                                  .pages = 1}};
    struct err err;
    u64 at;
    for (size_t i = 0; i < sizeof(image); i++)
        image[i] = (u8)(i >> 9);
    memset(out, 0, sizeof(out));
    memcpy(out + 512, image + PAGE_SIZE + 512, 1024);
    m.entry = malloc(sizeof(*m.entry));
    *m.entry = (struct disk_map_entry){
        .page = 1, .slot = DISK_MAP_NOWHERE, .sectors = 6, .hash = hash_bytes(out, sizeof(out))};
    int fd = memfd_create("image", 0);
    assert_true(file_write_at(fd, image, sizeof(image), 0));
    assert_true(disk_map_fits(&m, fd, &at));
    assert_int_equal(disk_map_blob(&m, 0, fd, &b, &err), 0);
    assert_true(blob_read_at(&b, out, 1024, PAGE_SIZE + 512));
    assert_memory_equal(out, image + PAGE_SIZE + 512, 1024);
    assert_false(blob_read_at(&b, out, 512, PAGE_SIZE));
    assert_false(blob_read_at(&b, out, 512, 0));
    assert_non_null(strstr(blob_why(&b), "byte 0 of it is not in the pack"));
    blob_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames),
        cmocka_unit_test(test_tar),
        cmocka_unit_test(test_reads),
        cmocka_unit_test(test_map),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
