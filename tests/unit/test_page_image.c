/* Images of RAM: what one holds stays when another changes, and the memory they share is counted.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
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
    const u8 *is = page_image_page(image, index);
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
static void random_changes(void **state)
{
    enum { IMAGES = 6, SMALL = 1100 };
    static u8 model[IMAGES][SMALL];
    static u8 seen[SMALL + 512];
    struct page_store store = {0};
    struct page_image *image[IMAGES];
    (void)state;
    srand(5);
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
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(basics), cmocka_unit_test(copies),
                                       cmocka_unit_test(differences),
                                       cmocka_unit_test(random_changes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
