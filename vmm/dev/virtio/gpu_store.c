/* See gpu_store.h. */
#include "dev/virtio/gpu_store.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define INDEX_SIZE (2 * GPU_RESOURCES)
#define SLOTS      (PAGE_SIZE / sizeof(struct gpu_resource)) /* of a page */

static_assert(sizeof(struct gpu_resource) == 64, "a slot of the table");
static_assert(sizeof(struct gpu_context) == 128, "a slot of the table");

int gpu_store_init(struct gpu_store *s, struct err *err)
{
    memset(s, 0, sizeof(*s));
    s->image = page_image_create(&s->pages, GPU_STORE_PAGES);
    s->slot_of = calloc(INDEX_SIZE, sizeof(*s->slot_of));
    s->id_of = calloc(GPU_RESOURCES, sizeof(*s->id_of));
    s->used = calloc(GPU_DATA_PAGES / 64, sizeof(*s->used));
    s->stale = true;
    s->seed = (uintptr_t)s->slot_of ^ (u64)(uintptr_t)s->used << 20;
    if (s->image && s->slot_of && s->id_of && s->used)
        return 0;
    gpu_store_fini(s);
    return err_set(err, -ENOMEM, "no memory for the GPU's resources");
}

void gpu_store_fini(struct gpu_store *s)
{
    page_image_destroy(s->image);
    free(s->slot_of);
    free(s->id_of);
    free(s->used);
    memset(s, 0, sizeof(*s));
}

/* ---- bytes of the image ---- */

static void get(struct gpu_store *s, u64 at, void *out, u64 len)
{
    u8 *to = out;
    while (len) {
        u64 off = at % PAGE_SIZE, n = MIN(len, PAGE_SIZE - off);
        const u8 *page = page_image_page(s->image, at / PAGE_SIZE);
        if (page)
            memcpy(to, page + off, n);
        else
            memset(to, 0, n);
        to += n;
        at += n;
        len -= n;
    }
}

static void put(struct gpu_store *s, u64 at, const void *in, u64 len)
{
    const u8 *from = in;
    u8 whole[PAGE_SIZE];
    while (len && !s->failed) {
        u64 off = at % PAGE_SIZE, n = MIN(len, PAGE_SIZE - off);
        const u8 *page = page_image_page(s->image, at / PAGE_SIZE), *data = from;
        if (n < PAGE_SIZE) {
            if (page)
                memcpy(whole, page, PAGE_SIZE);
            else
                memset(whole, 0, PAGE_SIZE);
            memcpy(whole + off, from, n);
            data = whole;
        }
        s->failed = page_image_set(s->image, at / PAGE_SIZE, data);
        from += n;
        at += n;
        len -= n;
    }
}

static void drop(struct gpu_store *s, u32 first, u32 n)
{
    for (u32 i = 0; i < n && !s->failed; i++)
        s->failed = page_image_drop(s->image, GPU_DATA_FIRST + first + i);
}

/* Only what a forged checkpoint says of a resource or a scanout lies outside. */
static bool inside(u32 first, u64 offset, u64 len)
{
    u64 room = (u64)(GPU_DATA_PAGES - first) * PAGE_SIZE;
    return first <= GPU_DATA_PAGES && offset <= room && len <= room - offset;
}

void gpu_data_write(struct gpu_store *s, u32 first, u64 offset, const void *in, u64 len)
{
    if (inside(first, offset, len))
        put(s, (u64)(GPU_DATA_FIRST + first) * PAGE_SIZE + offset, in, len);
}

void gpu_data_read(struct gpu_store *s, u32 first, u64 offset, void *out, u64 len)
{
    if (inside(first, offset, len))
        get(s, (u64)(GPU_DATA_FIRST + first) * PAGE_SIZE + offset, out, len);
    else
        memset(out, 0, len);
}

void gpu_kept_write(struct gpu_store *s, u64 at, const u8 *in)
{
    put(s, (GPU_KEPT_FIRST + at % GPU_KEPT_PAGES) * PAGE_SIZE, in, PAGE_SIZE);
}

void gpu_kept_read(struct gpu_store *s, u64 at, u8 *out)
{
    get(s, (GPU_KEPT_FIRST + at % GPU_KEPT_PAGES) * PAGE_SIZE, out, PAGE_SIZE);
}

/* ---- the index ---- */

static u32 pages_of(u64 bytes)
{
    return (u32)((bytes + PAGE_SIZE - 1) / PAGE_SIZE);
}

static u32 pixel_pages(const struct gpu_resource *r)
{
    return r->kind == GPU_2D ? pages_of((u64)r->width * r->height * 4) : 0;
}

static u32 backing_pages(const struct gpu_resource *r)
{
    return pages_of((u64)r->entries * sizeof(struct gpu_entry));
}

static void mark(struct gpu_store *s, u32 first, u32 n, bool used)
{
    for (u32 i = first; i < first + n; i++)
        if (used)
            s->used[i / 64] |= 1ull << i % 64;
        else
            s->used[i / 64] &= ~(1ull << i % 64);
    s->free_pages = used ? s->free_pages - n : s->free_pages + n;
}

/* The first run of n free pages; GPU_DATA_PAGES: none. A function of what is in use. */
static u32 find_run(const struct gpu_store *s, u32 n)
{
    if (n > s->free_pages)
        return GPU_DATA_PAGES;
    u32 run = 0;
    for (u32 i = 0; i < GPU_DATA_PAGES; i++) {
        if (i % 64 == 0 && s->used[i / 64] == ~0ull) {
            run = 0;
            i += 63;
            continue;
        }
        run = s->used[i / 64] >> i % 64 & 1 ? 0 : run + 1;
        if (run == n)
            return i + 1 - n;
    }
    return GPU_DATA_PAGES;
}

/* Guests choose the ids: they must not be able to choose ones that collide. */
static u32 home(const struct gpu_store *s, u32 id)
{
    return (u32)(XXH3_64bits_withSeed(&id, sizeof(id), s->seed) % INDEX_SIZE);
}

static void index_add(struct gpu_store *s, u32 id, u32 slot)
{
    u32 i = home(s, id);
    while (s->slot_of[i])
        i = (i + 1) % INDEX_SIZE;
    s->slot_of[i] = slot + 1;
    s->id_of[slot] = id;
}

static void slot_get(struct gpu_store *s, u32 slot, struct gpu_resource *r)
{
    get(s, (u64)slot * sizeof(*r), r, sizeof(*r));
}

static void slot_put(struct gpu_store *s, u32 slot, const struct gpu_resource *r)
{
    put(s, (u64)slot * sizeof(*r), r, sizeof(*r));
}

/* Closes the gap, so that probing goes on to find what lies after it. */
static void index_remove(struct gpu_store *s, u32 id)
{
    u32 gap = home(s, id);
    while (s->id_of[s->slot_of[gap] - 1] != id)
        gap = (gap + 1) % INDEX_SIZE;
    for (u32 i = (gap + 1) % INDEX_SIZE; s->slot_of[i]; i = (i + 1) % INDEX_SIZE) {
        u32 want = home(s, s->id_of[s->slot_of[i] - 1]);
        if ((i - want) % INDEX_SIZE >= (i - gap) % INDEX_SIZE) {
            s->slot_of[gap] = s->slot_of[i];
            gap = i;
        }
    }
    s->slot_of[gap] = 0;
}

static bool in_data(u32 first, u32 n)
{
    return first <= GPU_DATA_PAGES && n <= GPU_DATA_PAGES - first;
}

/* The first slot from `i` on that is in a page of the image. */
static u32 next_slot(const struct gpu_store *s, u32 i)
{
    u64 page = page_image_next(s->image, i / SLOTS);
    return page == i / SLOTS ? i : (u32)MIN(page, (u64)GPU_TABLE_PAGES) * SLOTS;
}

/* Could the device have left that there? */
static bool plausible(struct gpu_store *s, const struct gpu_resource *r)
{
    struct gpu_resource other;
    bool two_d = r->kind == GPU_2D;
    if ((!two_d && r->kind != GPU_3D) || r->entries > GPU_ENTRIES ||
        !in_data(r->backing, backing_pages(r)) || gpu_find(s, r->id, &other) >= 0)
        return false;
    return !two_d || (r->width <= GPU_EDGE_MAX &&
                      (u64)r->width * r->height <= (u64)GPU_DATA_PAGES * PAGE_SIZE / 4 &&
                      in_data(r->pixels, pixel_pages(r)));
}

/* From an image that may come from a checkpoint file: what no device could have left there is not
 * believed. */
static void refresh(struct gpu_store *s)
{
    if (!s->stale)
        return;
    s->stale = false;
    memset(s->used, 0, GPU_DATA_PAGES / 8);
    s->free_pages = GPU_DATA_PAGES;
    s->first_free = s->resources = s->queries = 0;
    memset(s->slot_of, 0, INDEX_SIZE * sizeof(*s->slot_of));
    memset(s->id_of, 0, GPU_RESOURCES * sizeof(*s->id_of));
    for (u32 i = 0; (i = next_slot(s, i)) < GPU_RESOURCES; i++) {
        struct gpu_resource r;
        slot_get(s, i, &r);
        if (!r.id)
            continue;
        if (!plausible(s, &r)) {
            r = (struct gpu_resource){0};
            slot_put(s, i, &r);
            continue;
        }
        mark(s, r.pixels, pixel_pages(&r), true);
        mark(s, r.backing, backing_pages(&r), true);
        index_add(s, r.id, i);
        s->resources++;
        s->queries += r.query != 0;
    }
}

void gpu_store_clear(struct gpu_store *s)
{
    page_image_clear(s->image);
    s->failed = 0;
    s->stale = true;
}

int gpu_store_restore(struct gpu_store *s, const struct page_image *image, struct err *err)
{
    struct page_image *copy = page_image_copy(image);
    if (!copy)
        return err_set(err, -ENOMEM, "no memory to restore the GPU's resources");
    page_image_destroy(s->image);
    s->image = copy;
    s->failed = 0;
    s->stale = true;
    return 0;
}

/* ---- resources ---- */

int gpu_find(struct gpu_store *s, u32 id, struct gpu_resource *r)
{
    refresh(s);
    if (!id || s->failed) /* the index may be ahead of the image */
        return -1;
    for (u32 i = home(s, id); s->slot_of[i]; i = (i + 1) % INDEX_SIZE)
        if (s->id_of[s->slot_of[i] - 1] == id) {
            slot_get(s, s->slot_of[i] - 1, r);
            return (int)s->slot_of[i] - 1;
        }
    return -1;
}

int gpu_next(struct gpu_store *s, int slot, struct gpu_resource *r)
{
    refresh(s);
    for (; slot < (int)GPU_RESOURCES && !s->failed; slot++)
        if (s->id_of[slot]) {
            slot_get(s, (u32)slot, r);
            return slot;
        }
    return -1;
}

int gpu_add(struct gpu_store *s, struct gpu_resource *r, u64 pixel_bytes)
{
    refresh(s);
    u32 n = pages_of(pixel_bytes), slot = s->first_free;
    while (slot < GPU_RESOURCES && s->id_of[slot])
        slot++;
    if (slot == GPU_RESOURCES || pixel_bytes > (u64)GPU_DATA_PAGES * PAGE_SIZE)
        return -1;
    r->pixels = 0;
    if (n) {
        r->pixels = find_run(s, n);
        if (r->pixels == GPU_DATA_PAGES)
            return -1;
        mark(s, r->pixels, n, true);
    }
    r->backing = r->entries = 0;
    slot_put(s, slot, r);
    index_add(s, r->id, slot);
    s->resources++;
    s->first_free = slot + 1;
    return (int)slot;
}

void gpu_remove(struct gpu_store *s, int slot)
{
    struct gpu_resource r;
    gpu_set_backing(s, slot, NULL, 0);
    slot_get(s, (u32)slot, &r);
    mark(s, r.pixels, pixel_pages(&r), false);
    drop(s, r.pixels, pixel_pages(&r));
    index_remove(s, r.id);
    s->queries -= r.query != 0;
    s->id_of[slot] = 0;
    r = (struct gpu_resource){0};
    slot_put(s, (u32)slot, &r);
    s->first_free = MIN(s->first_free, (u32)slot);
    s->resources--;
}

void gpu_mark_query(struct gpu_store *s, u32 id)
{
    struct gpu_resource r;
    int slot = gpu_find(s, id, &r);
    if (slot < 0 || r.query)
        return;
    r.query = 1;
    slot_put(s, (u32)slot, &r);
    s->queries++;
}

bool gpu_set_backing(struct gpu_store *s, int slot, const struct gpu_entry *entries, u32 n)
{
    refresh(s);
    struct gpu_resource r;
    slot_get(s, (u32)slot, &r);
    mark(s, r.backing, backing_pages(&r), false);
    drop(s, r.backing, backing_pages(&r));
    r.backing = r.entries = 0;
    u32 pages = pages_of((u64)n * sizeof(*entries));
    u32 first = pages ? find_run(s, pages) : 0;
    if (pages && first == GPU_DATA_PAGES) {
        slot_put(s, (u32)slot, &r);
        return false;
    }
    if (pages) {
        mark(s, first, pages, true);
        r.backing = first;
        r.entries = n;
        gpu_data_write(s, first, 0, entries, (u64)n * sizeof(*entries));
    }
    slot_put(s, (u32)slot, &r);
    return true;
}

static struct gpu_entry entry(struct gpu_store *s, const struct gpu_resource *r, u32 i)
{
    struct gpu_entry e;
    gpu_data_read(s, r->backing, (u64)i * sizeof(e), &e, sizeof(e));
    return e;
}

static u64 end_of(struct gpu_store *s, const struct gpu_resource *r, u32 n)
{
    return n ? entry(s, r, n - 1).end : 0;
}

u64 gpu_backing_size(struct gpu_store *s, const struct gpu_resource *r)
{
    return end_of(s, r, r->entries);
}

/* The first entry that ends after the offset has it. */
static u32 find_entry(struct gpu_store *s, const struct gpu_resource *r, u64 offset)
{
    u32 low = 0, high = r->entries;
    while (low < high) {
        u32 middle = (low + high) / 2;
        if (entry(s, r, middle).end > offset)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

u64 gpu_backing_piece(struct gpu_store *s, const struct gpu_resource *r, u32 *at, u64 offset,
                      u64 len, gpa_t *gpa)
{
    for (unsigned i = 0; i < 3; i++) { /* where the last piece was, after that, anywhere */
        u32 n = i < 2 ? *at + i : find_entry(s, r, offset);
        if (n >= r->entries)
            continue;
        u64 start = end_of(s, r, n);
        struct gpu_entry e = entry(s, r, n);
        if (offset < start || offset >= e.end)
            continue;
        *at = n;
        *gpa = e.gpa + (offset - start);
        return MIN(len, e.end - offset);
    }
    return 0;
}

/* ---- contexts ---- */

static void context_at(struct gpu_store *s, u32 slot, struct gpu_context *c)
{
    get(s, (u64)GPU_TABLE_PAGES * PAGE_SIZE + slot * sizeof(*c), c, sizeof(*c));
}

int gpu_context_find(struct gpu_store *s, u32 id, struct gpu_context *c)
{
    refresh(s);
    for (u32 i = 0; id && i < GPU_CONTEXTS; i++) {
        context_at(s, i, c);
        if (c->id == id)
            return (int)i;
    }
    return -1;
}

static void context_put(struct gpu_store *s, u32 slot, const struct gpu_context *c)
{
    put(s, (u64)GPU_TABLE_PAGES * PAGE_SIZE + slot * sizeof(*c), c, sizeof(*c));
}

int gpu_context_add(struct gpu_store *s, const struct gpu_context *c)
{
    refresh(s);
    for (u32 i = 0; i < GPU_CONTEXTS; i++) {
        struct gpu_context old;
        context_at(s, i, &old);
        if (old.id)
            continue;
        context_put(s, i, c);
        return (int)i;
    }
    return -1;
}

void gpu_context_remove(struct gpu_store *s, int slot)
{
    struct gpu_context none = {0};
    context_put(s, (u32)slot, &none);
}
