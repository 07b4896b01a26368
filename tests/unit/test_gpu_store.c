/* dev/virtio/gpu_store.c: backing lists, and images that were restored. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "dev/virtio/gpu_store.h"

static long fail_in = -1; /* the next allocation but so many fails; <0: none (mk/test.mk) */

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);

static bool fails(void)
{
    return fail_in >= 0 && !fail_in--;
}
void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}
void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

static int add(struct gpu_store *s, u32 id, u32 kind, u32 width, u32 height)
{
    struct gpu_resource r = {
        .id = id, .kind = kind, .width = width, .height = height, .depth = 1, .array_size = 1};
    return gpu_add(s, &r, kind == GPU_2D ? (u64)width * height * 4 : 0);
}

/* A checkpoint's way: into another store. */
static void restore(struct gpu_store *s)
{
    struct err err;
    struct page_image *image = page_image_copy(s->image);
    gpu_store_clear(s);
    assert_int_equal(gpu_store_restore(s, image, &err), 0);
    page_image_destroy(image);
}

static void put(struct gpu_store *s, u32 slot, const struct gpu_resource *r)
{
    u8 page[PAGE_SIZE] = {0};
    const u8 *old = page_image_page(s->image, slot / 64);
    if (old)
        memcpy(page, old, PAGE_SIZE);
    memcpy(page + slot % 64 * sizeof(*r), r, sizeof(*r));
    assert_int_equal(page_image_set(s->image, slot / 64, page), 0);
}

static void backing_lists(void **state)
{
    static struct gpu_entry list[GPU_ENTRIES];
    struct gpu_store s;
    struct gpu_resource r;
    struct err err;
    gpa_t gpa = 0;
    u64 end = 0;
    assert_int_equal(gpu_store_init(&s, &err), 0);
    int slot = add(&s, 7, GPU_3D, 64, 64);
    for (u32 i = 0; i < GPU_ENTRIES; i++) {
        end += i % 3 ? i % 7 * 100 : 0; /* empty ones too */
        list[i] = (struct gpu_entry){0x100000ull * i, end};
    }
    assert_true(gpu_set_backing(&s, slot, list, GPU_ENTRIES));
    assert_int_equal(gpu_find(&s, 7, &r), slot);
    assert_int_equal(gpu_backing_size(&s, &r), end);
    /* From the start to the end, and at places out of the order. */
    u32 at = 0, entry = 0;
    for (u64 offset = 0; offset < end;) {
        u64 n = gpu_backing_piece(&s, &r, &at, offset, UINT64_MAX, &gpa);
        while (list[entry].end <= offset)
            entry++;
        assert_int_equal(n, list[entry].end - offset);
        assert_int_equal(gpa, list[entry].gpa);
        offset += n;
    }
    for (u64 offset = 1; offset < end; offset = offset * 3 + 7) {
        for (entry = 0; list[entry].end <= offset; entry++)
            ;
        u64 start = entry ? list[entry - 1].end : 0;
        assert_int_equal(gpu_backing_piece(&s, &r, &at, end - offset, 1, &gpa), 1);
        assert_int_equal(gpu_backing_piece(&s, &r, &at, offset, 1, &gpa), 1);
        assert_int_equal(gpa, list[entry].gpa + (offset - start));
    }
    assert_int_equal(gpu_backing_piece(&s, &r, &at, end, 1, &gpa), 0);
    gpu_store_fini(&s);
}

static void restored(void **state)
{
    struct gpu_store s;
    struct gpu_resource r;
    struct err err;
    assert_int_equal(gpu_store_init(&s, &err), 0);
    add(&s, 1, GPU_2D, 64, 64);
    add(&s, 2, GPU_3D, 1u << 30, 1); /* no pixels of ours */
    add(&s, 3, GPU_3D, 16384, 16384);
    for (u32 id = 100; id < 400; id++)
        add(&s, id, GPU_3D, 1, 1);
    for (u32 id = 100; id < 350; id++)
        gpu_remove(&s, gpu_find(&s, id, &r));
    restore(&s);
    for (u32 id = 1; id <= 3; id++)
        assert_true(gpu_find(&s, id, &r) >= 0);
    assert_int_equal(gpu_find(&s, 349, &r), -1);
    assert_true(gpu_find(&s, 350, &r) >= 0);
    assert_int_equal(s.resources, 53);
    assert_int_equal(add(&s, 9, GPU_2D, 8, 8), 3); /* the first slot that is free */
    gpu_store_fini(&s);
}

/* What no device could have left there is as if it were not. */
static void forged(void **state)
{
    static const struct gpu_resource bad[] = {
        {.id = 1, .kind = GPU_3D, .entries = GPU_ENTRIES + 1},
        {.id = 1, .kind = GPU_3D, .entries = 1, .backing = GPU_DATA_PAGES},
        {.id = 1, .kind = GPU_2D, .width = GPU_EDGE_MAX + 1, .height = 1}, /* a row of scratch */
        {.id = 1, .kind = GPU_2D, .width = 1u << 31, .height = 1u << 31},
        {.id = 1, .kind = GPU_2D, .width = 64, .height = 64, .pixels = GPU_DATA_PAGES - 3},
        {.id = 1, .kind = 7},
        {.id = 50, .kind = GPU_3D}, /* there is one */
    };
    struct gpu_store s;
    struct gpu_resource r;
    struct err err;
    u8 bytes[100];
    for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
        assert_int_equal(gpu_store_init(&s, &err), 0);
        add(&s, 50, GPU_2D, 8, 8);
        put(&s, 200, &bad[i]);
        restore(&s);
        assert_int_equal(gpu_find(&s, 1, &r), -1);
        assert_int_equal(s.resources, 1);
        gpu_remove(&s, gpu_find(&s, 50, &r));
        assert_int_equal(gpu_find(&s, 50, &r), -1);
        gpu_store_fini(&s);
    }
    /* A list that is not in order gives no piece; pixels outside read as zeros. */
    struct gpu_entry list[] = {{0, 500}, {4096, 100}};
    gpa_t gpa;
    u32 at = 0;
    assert_int_equal(gpu_store_init(&s, &err), 0);
    int slot = add(&s, 1, GPU_3D, 8, 8);
    assert_true(gpu_set_backing(&s, slot, list, 2));
    gpu_find(&s, 1, &r);
    for (u64 offset = 0; offset < 600; offset++)
        assert_true(gpu_backing_piece(&s, &r, &at, offset, 4000, &gpa) <= 500);
    memset(bytes, 1, sizeof(bytes));
    gpu_data_write(&s, GPU_DATA_PAGES - 1, PAGE_SIZE - 50, bytes, 100);
    gpu_data_read(&s, GPU_DATA_PAGES - 1, PAGE_SIZE - 50, bytes, 100);
    assert_int_equal(bytes[0] | bytes[99], 0);
    gpu_store_fini(&s);
}

/* All that commands do to a store. */
static void work(struct gpu_store *s)
{
    static u8 pixels[3 * PAGE_SIZE];
    struct gpu_entry list[] = {{0x1000, 500}, {0x8000, 4096}};
    struct gpu_context c;
    struct gpu_resource r;
    memset(pixels, 7, sizeof(pixels));
    for (u32 id = 1; id <= 3; id++) {
        int slot = gpu_find(s, id, &r);
        if (slot < 0)
            slot = add(s, id, id == 3 ? GPU_3D : GPU_2D, 64, 64);
        if (slot < 0 || gpu_find(s, id, &r) != slot)
            continue;
        gpu_set_backing(s, slot, list, ARRAY_SIZE(list));
        if (r.kind == GPU_2D)
            gpu_data_write(s, r.pixels, 100, pixels, sizeof(pixels));
        gpu_mark_query(s, id);
    }
    gpu_kept_write(s, 5, pixels);
    c = (struct gpu_context){.id = 9};
    gpu_context_add(s, &c);
    int slot = gpu_context_find(s, 9, &c);
    if (slot >= 0)
        gpu_context_remove(s, slot);
    for (u32 id = 1; id <= 2; id++)
        if ((slot = gpu_find(s, id, &r)) >= 0)
            gpu_remove(s, slot);
    for (slot = 0; (slot = gpu_next(s, slot, &r)) >= 0; slot++)
        assert_true(r.id);
}

/* Every allocation fails once, of a store alone and of one whose pages are a checkpoint's, too:
 * the store says so, nothing is found in it any more, and it comes back when it is cleared or
 * restored. */
static void no_memory(void **state)
{
    for (int shared = 0; shared < 2; shared++) {
        bool all = false;
        for (long n = 0; !all; n++) {
            struct gpu_store s;
            struct gpu_resource r;
            struct page_image *kept = NULL;
            struct err err;
            assert_int_equal(gpu_store_init(&s, &err), 0);
            if (shared) {
                work(&s);
                kept = page_image_copy(s.image);
            }
            fail_in = n;
            work(&s);
            all = fail_in >= 0;
            fail_in = -1;
            assert_int_equal(s.failed, all ? 0 : -ENOMEM);
            assert_true(all ? gpu_find(&s, 3, &r) >= 0 : gpu_find(&s, 3, &r) < 0);
            if (all)
                assert_true(n > 5);
            if (kept) {
                assert_int_equal(gpu_store_restore(&s, kept, &err), 0);
                assert_int_equal(s.failed, 0);
                assert_true(gpu_find(&s, 3, &r) >= 0);
                work(&s);
                page_image_destroy(kept);
                kept = page_image_copy(s.image);
            }
            fail_in = 0; /* the driver's reset needs nothing */
            gpu_store_clear(&s);
            fail_in = -1;
            assert_int_equal(s.failed, 0);
            assert_int_equal(gpu_find(&s, 3, &r), -1);
            assert_int_equal(page_image_next(s.image, 0), UINT64_MAX);
            work(&s);
            assert_int_equal(s.failed, 0);
            page_image_destroy(kept);
            gpu_store_fini(&s);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(backing_lists), cmocka_unit_test(restored),
                                       cmocka_unit_test(forged), cmocka_unit_test(no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
