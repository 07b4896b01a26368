/* Images: what one holds stays when another changes, the memory they share is counted; pages in a
 * file. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/page_image.h"

#define PAGES 2000u /* several leaves, the last not full */

static void fill(u8 *page, u64 what)
{
    for (u32 i = 0; i < PAGE_SIZE; i++)
        page[i] = (u8)(what * 7 + i);
}

static void set(struct page_image *image, u64 index, u64 what)
{
    u8 page[PAGE_SIZE] = {0};
    if (what)
        fill(page, what);
    assert_int_equal(page_image_set(image, index, page), 0);
}

static bool holds(const struct page_image *image, u64 index, u64 what)
{
    u8 page[PAGE_SIZE] = {0};
    u8 room[PAGE_SIZE];
    const u8 *is;
    assert_int_equal(page_image_read(image, index, room, &is), 0);
    assert_int_equal(page_image_has(image, index), is != NULL);
    if (!what)
        return !is;
    fill(page, what);
    return is && !memcmp(is, page, PAGE_SIZE);
}

static void collect(void *opaque, u64 index)
{
    u8 *seen = opaque;
    assert_in_range(index, 0, PAGES + 511);
    seen[index]++;
}

static void basics(void **state)
{
    struct page_store store = {0};
    struct page_image *a = page_image_create(&store, PAGES);
    (void)state;
    assert_non_null(a);
    u64 empty = store.bytes;
    assert_true(empty > 0 && empty < PAGES * 16);
    for (u64 i = 0; i < PAGES; i++)
        assert_null(page_image_page(a, i));
    set(a, 3, 0); /* zeros over zeros take nothing */
    set(a, PAGES - 1, 0);
    assert_int_equal(store.bytes, empty);
    set(a, 3, 1);
    set(a, PAGES - 1, 2);
    assert_true(holds(a, 3, 1) && holds(a, PAGES - 1, 2) && holds(a, 4, 0));
    assert_true(store.bytes >= empty + 2 * PAGE_SIZE);
    u64 two = store.bytes;
    set(a, 3, 1); /* equal: nothing new */
    assert_int_equal(store.bytes, two);
    set(a, 3, 9);
    assert_true(holds(a, 3, 9));
    assert_int_equal(store.bytes, two);
    set(a, 3, 0);
    assert_true(holds(a, 3, 0));
    assert_true(store.bytes <= two - PAGE_SIZE);
    page_image_destroy(a);
    assert_int_equal(store.bytes, 0);
    page_image_destroy(NULL);
}

static void copies(void **state)
{
    struct page_store store = {0};
    struct page_image *a = page_image_create(&store, PAGES);
    (void)state;
    for (u64 i = 0; i < PAGES; i += 3)
        set(a, i, i + 1);
    u64 one = store.bytes;
    struct page_image *b = page_image_copy(a);
    assert_true(store.bytes < one + PAGE_SIZE); /* shared */
    set(b, 0, 77);
    set(b, 1, 78);
    set(b, 3, 0);
    assert_true(holds(a, 0, 1) && holds(a, 1, 0) && holds(a, 3, 4));
    assert_true(holds(b, 0, 77) && holds(b, 1, 78) && holds(b, 3, 0));
    set(a, 6, 79); /* the older changes, too */
    assert_true(holds(b, 6, 7) && holds(a, 6, 79));
    struct page_image *c = page_image_copy(b);
    page_image_destroy(a);
    page_image_destroy(b);
    assert_true(holds(c, 0, 77) && holds(c, 1, 78) && holds(c, 3, 0) && holds(c, 6, 7));
    for (u64 i = 9; i < PAGES; i++)
        assert_true(holds(c, i, i % 3 ? 0 : i + 1));
    page_image_destroy(c);
    assert_int_equal(store.bytes, 0);
}

static void differences(void **state)
{
    static u8 seen[PAGES + 512];
    struct page_store store = {0};
    struct page_image *a = page_image_create(&store, PAGES);
    (void)state;
    for (u64 i = 0; i < PAGES; i++)
        set(a, i, i + 1);
    struct page_image *b = page_image_copy(a);
    page_image_diff(a, b, collect, seen);
    for (u64 i = 0; i < PAGES; i++)
        assert_int_equal(seen[i], 0);
    set(b, 5, 0);
    set(b, 600, 3);
    set(a, PAGES - 1, 4);
    for (int turn = 0; turn < 2; turn++) {
        memset(seen, 0, sizeof(seen));
        page_image_diff(turn ? b : a, turn ? a : b, collect, seen);
        u64 n = 0;
        for (u64 i = 0; i < PAGES; i++)
            n += seen[i];
        assert_true(seen[5] == 1 && seen[600] == 1 && seen[PAGES - 1] == 1);
        assert_true(n < 600); /* not everything */
    }
    page_image_destroy(a);
    page_image_destroy(b);
    assert_int_equal(store.bytes, 0);
}

/* Many images and changes at random, against plain arrays; the difference of two names all pages
 * that differ, each once. */
static void at_random(struct page_store store)
{
    enum { IMAGES = 6, SMALL = 1100 };
    static u8 model[IMAGES][SMALL];
    static u8 seen[SMALL + 512];
    struct page_image *image[IMAGES];
    srand(5);
    memset(model, 0, sizeof(model));
    for (int i = 0; i < IMAGES; i++)
        image[i] = page_image_create(&store, SMALL);
    for (int turn = 0; turn < 20000; turn++) {
        int i = rand() % IMAGES, j = rand() % IMAGES;
        if (rand() % 100 == 0 && i != j) {
            page_image_destroy(image[i]);
            image[i] = page_image_copy(image[j]);
            memcpy(model[i], model[j], SMALL);
        }
        u64 index = (u64)rand() % SMALL;
        u8 what = (u8)(rand() % 4);
        set(image[i], index, what);
        model[i][index] = what;
        if (turn % 200)
            continue;
        memset(seen, 0, sizeof(seen));
        page_image_diff(image[i], image[j], collect, seen);
        for (u64 p = 0; p < SMALL; p++) {
            assert_true(holds(image[j], p, model[j][p]));
            assert_true(seen[p] <= 1 && (seen[p] || model[i][p] == model[j][p]));
        }
    }
    for (int i = 0; i < IMAGES; i++)
        page_image_destroy(image[i]);
    assert_int_equal(store.bytes, 0);
    page_store_close(&store);
}

static void random_changes(void **state)
{
    (void)state;
    at_random((struct page_store){0});
}

/* The same with most pages in a file. */
static void random_changes_in_a_file(void **state)
{
    static const char *const dirs[] = {NULL, "/nowhere", "/tmp"};
    (void)state;
    at_random((struct page_store){.limit = 50, .dir = dirs, .ndirs = 3});
}

/* Zeros that are put are there and take nothing; pages beyond the limit are not in memory; what was
 * promised can be put; a page that goes is used again. */
static void files(void **state)
{
    static const char *const dirs[] = {"/tmp"};
    struct page_store store = {.limit = 3, .dir = dirs, .ndirs = 1};
    struct page_image *a = page_image_create(&store, PAGES);
    u8 page[PAGE_SIZE];
    (void)state;
    for (u64 i = 0; i < 1000; i++)
        assert_int_equal(page_image_put(a, i, page_image_zeros()), 0);
    assert_int_equal(store.pages, 0);
    assert_non_null(page_image_page(a, 999));
    assert_null(page_image_page(a, 1000));
    assert_int_equal(page_image_next(a, 5), 5);
    assert_int_equal(page_image_next(a, 1000), UINT64_MAX);
    fill(page, 1);
    assert_int_equal(page_image_put(a, 1500, page), 0);
    assert_int_equal(page_image_next(a, 1000), 1500);
    assert_null(store.file);
    assert_int_equal(page_store_reserve(&store, 5000), 0);
    assert_non_null(store.file);
    page_store_release(&store, 5000);
    u64 before = store.bytes;
    struct page_image *copies[20];
    for (unsigned c = 0; c < 20; c++) { /* each keeps its own 300 pages */
        for (u64 i = 0; i < 300; i++) {
            fill(page, c * 1000 + i + 1);
            assert_int_equal(page_image_put(a, i, page), 0);
        }
        copies[c] = page_image_copy(a);
    }
    assert_true(store.bytes < before + 6000 * 100);
    for (unsigned c = 0; c < 20; c++) {
        for (u64 i = 0; i < 300; i++)
            assert_true(holds(copies[c], i, c * 1000 + i + 1));
        page_image_destroy(copies[c]);
    }
    page_image_destroy(a);
    assert_int_equal(store.bytes, 0);
    assert_int_equal(store.pages, 0);
    page_store_close(&store);
    page_store_close(&store);
}

/* The store's file, by another descriptor. */
static int open_file(void)
{
    for (int fd = 3; fd < 100; fd++) {
        char link[32], to[256];
        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        ssize_t n = readlink(link, to, sizeof(to) - 1);
        to[MAX(n, (ssize_t)0)] = 0;
        if (strstr(to, "(deleted)"))
            return open(link, O_RDWR | O_CLOEXEC);
    }
    return -1;
}

/* A file that cannot be read any more is an error of who reads it; what is in memory stays. */
static void lost(void **state)
{
    static const char *const dirs[] = {"/tmp"};
    struct page_store store = {.limit = 1, .dir = dirs, .ndirs = 1};
    struct page_image *a = page_image_create(&store, PAGES);
    u8 room[PAGE_SIZE];
    const u8 *page;
    (void)state;
    set(a, 1, 1);
    set(a, 2, 2);
    assert_true(holds(a, 2, 2));
    int fd = open_file();
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 0), 0);
    close(fd);
    assert_true(holds(a, 1, 1));
    assert_int_equal(page_image_read(a, 2, room, &page), -EIO);
    set(a, 2, 3); /* whole pages can be written still */
    assert_true(holds(a, 2, 3));
    page_image_destroy(a);
    page_store_close(&store);
}

static void no_room(void **state)
{
    static const char *const dirs[] = {"/nowhere", "/proc"};
    struct page_store store = {.limit = 2, .dir = dirs, .ndirs = 2};
    struct page_image *a = page_image_create(&store, PAGES);
    u8 page[PAGE_SIZE];
    (void)state;
    assert_int_equal(page_store_reserve(&store, 2), 0);
    assert_true(page_store_reserve(&store, 1) < 0);
    page_store_release(&store, 2);
    for (u64 i = 0; i < 3; i++) {
        fill(page, i + 1);
        assert_int_equal(page_image_put(a, i, page) < 0, i == 2);
    }
    assert_null(page_image_page(a, 2));
    assert_true(holds(a, 1, 2));
    fill(page, 9);
    assert_int_equal(page_image_put(a, 1, page), 0); /* in place */
    assert_true(holds(a, 1, 9));
    struct page_image *b = page_image_copy(a);
    fill(page, 10);
    assert_true(page_image_put(a, 1, page) < 0); /* not any more */
    assert_true(holds(a, 1, 9) && holds(b, 1, 9));
    page_image_destroy(a);
    page_image_destroy(b);
    page_store_close(&store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(basics),
                                       cmocka_unit_test(copies),
                                       cmocka_unit_test(differences),
                                       cmocka_unit_test(random_changes),
                                       cmocka_unit_test(random_changes_in_a_file),
                                       cmocka_unit_test(files),
                                       cmocka_unit_test(lost),
                                       cmocka_unit_test(no_room)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
