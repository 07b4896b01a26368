#include "base/page_image.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/page_file.h"

#define LEAF_PAGES 512u
#define IN_MEMORY  UINT32_MAX

/* A page; in memory its bytes follow. */
struct blob {
    const u8 *data; /* NULL: in the file */
    u32 refs;
    u32 slot; /* of the store's file, or IN_MEMORY */
};

/* The page of zeros that page_image_put() knows: everybody's, never counted. */
static const u8 zeros[PAGE_SIZE];
static const struct blob zero_page = {.data = zeros};
#define ZERO_PAGE ((struct blob *)(uintptr_t)&zero_page)

struct leaf {
    u32 refs;
    struct blob *page[LEAF_PAGES]; /* NULL: zeros */
};

struct page_image {
    struct page_store *store;
    u64 leaves;
    struct leaf *leaf[]; /* NULL: zeros */
};

/* malloc's own share of a block. */
#define OVERHEAD 16u

struct page_image *page_image_create(struct page_store *store, u64 pages)
{
    u64 n = (pages + LEAF_PAGES - 1) / LEAF_PAGES;
    struct page_image *image = calloc(1, sizeof(*image) + n * sizeof(image->leaf[0]));
    if (!image)
        return NULL;
    image->store = store;
    image->leaves = n;
    store->bytes += sizeof(*image) + n * sizeof(image->leaf[0]);
    return image;
}

static struct blob *get_blob(struct blob *b)
{
    if (b && b != ZERO_PAGE)
        b->refs++;
    return b;
}

static void put_blob(struct page_store *store, struct blob *b)
{
    if (!b || b == ZERO_PAGE || --b->refs)
        return;
    if (b->slot == IN_MEMORY) {
        store->bytes -= PAGE_SIZE;
        store->pages--;
    } else {
        page_file_free(store->file, b->slot);
    }
    store->bytes -= sizeof(*b) + OVERHEAD;
    free(b);
}

int page_store_file(struct page_store *store)
{
    if (!store->file)
        store->file = page_file_create(store->dir, store->ndirs, &store->room);
    return store->file ? 0 : errno ? -errno : -ENOMEM;
}

/* A new page with one reference. */
static int make_blob(struct page_store *store, const u8 *data, struct blob **out)
{
    bool memory = !store->limit || store->pages < store->limit;
    struct blob *b = malloc(sizeof(*b) + (memory ? PAGE_SIZE : 0));
    int code = b ? 0 : -ENOMEM;
    if (!code && memory) {
        u8 *bytes = (u8 *)(b + 1);
        *b = (struct blob){bytes, 1, IN_MEMORY};
        memcpy(bytes, data, PAGE_SIZE);
        store->bytes += PAGE_SIZE;
        store->pages++;
    } else if (!code) {
        u32 slot = 0;
        code = page_store_file(store);
        if (!code)
            code = page_file_put(store->file, data, &slot);
        if (!code)
            *b = (struct blob){NULL, 1, slot};
    }
    if (code) {
        free(b);
        return code;
    }
    store->bytes += sizeof(*b) + OVERHEAD;
    *out = b;
    return 0;
}

static int change_blob(struct page_store *store, struct blob *b, const u8 *data)
{
    if (b->slot != IN_MEMORY)
        return page_file_change(store->file, b->slot, data);
    memcpy(b + 1, data, PAGE_SIZE);
    return 0;
}

int page_store_reserve(struct page_store *store, u64 pages)
{
    u64 need = store->reserved + pages, memory = store->limit - MIN(store->limit, store->pages);
    if (store->limit && need > memory) {
        int code = page_store_file(store);
        if (!code)
            code = page_file_grow(store->file, need - memory);
        if (code)
            return code;
    }
    store->reserved = need;
    return 0;
}

void page_store_release(struct page_store *store, u64 pages)
{
    store->reserved -= pages;
}

void page_store_close(struct page_store *store)
{
    page_file_destroy(store->file);
    store->file = NULL;
}

static void put_leaf(struct page_store *store, struct leaf *l)
{
    if (!l || --l->refs)
        return;
    for (unsigned i = 0; i < LEAF_PAGES; i++)
        put_blob(store, l->page[i]);
    free(l);
    store->bytes -= sizeof(*l) + OVERHEAD;
}

struct page_image *page_image_copy(const struct page_image *from)
{
    struct page_image *image = page_image_create(from->store, from->leaves * LEAF_PAGES);
    if (!image)
        return NULL;
    for (u64 i = 0; i < from->leaves; i++) {
        image->leaf[i] = from->leaf[i];
        if (image->leaf[i])
            image->leaf[i]->refs++;
    }
    return image;
}

void page_image_destroy(struct page_image *image)
{
    if (!image)
        return;
    page_image_clear(image);
    image->store->bytes -= sizeof(*image) + image->leaves * sizeof(image->leaf[0]);
    free(image);
}

static const struct blob *find(const struct page_image *image, u64 index)
{
    const struct leaf *l = image->leaf[index / LEAF_PAGES];
    return l ? l->page[index % LEAF_PAGES] : NULL;
}

bool page_image_has(const struct page_image *image, u64 index)
{
    return find(image, index);
}

const u8 *page_image_page(const struct page_image *image, u64 index)
{
    const struct blob *b = find(image, index);
    CHECK(!b || b->data, "page %llu of an image is in a file", (unsigned long long)index);
    return b ? b->data : NULL;
}

int page_image_read(const struct page_image *image, u64 index, u8 room[PAGE_SIZE], const u8 **page)
{
    const struct blob *b = find(image, index);
    *page = b ? b->data : NULL;
    if (!b || b->data)
        return 0;
    *page = room;
    return page_file_read(image->store->file, b->slot, room);
}

/* The leaf, made this image's own. */
static struct leaf *own_leaf(struct page_image *image, u64 n)
{
    struct leaf *old = image->leaf[n];
    if (old && old->refs == 1)
        return old;
    struct leaf *l = malloc(sizeof(*l));
    if (!l)
        return NULL;
    if (old) {
        memcpy(l, old, sizeof(*l));
        for (unsigned i = 0; i < LEAF_PAGES; i++)
            get_blob(l->page[i]);
        old->refs--;
    } else {
        memset(l, 0, sizeof(*l));
    }
    l->refs = 1;
    image->store->bytes += sizeof(*l) + OVERHEAD;
    image->leaf[n] = l;
    return l;
}

static bool is_zero(const u8 *p)
{
    return p[0] == 0 && memcmp(p, p + 1, PAGE_SIZE - 1) == 0;
}

/* b NULL: none. Takes the reference over unless it fails. */
static int replace(struct page_image *image, u64 index, struct blob *b)
{
    struct leaf *l = own_leaf(image, index / LEAF_PAGES);
    if (!l)
        return -ENOMEM;
    put_blob(image->store, l->page[index % LEAF_PAGES]);
    l->page[index % LEAF_PAGES] = b;
    return 0;
}

/* `zero`: what stands for a page of zeros. */
static int set(struct page_image *image, u64 index, const u8 *data, struct blob *zero)
{
    const struct leaf *l = image->leaf[index / LEAF_PAGES];
    struct blob *now = l ? l->page[index % LEAF_PAGES] : NULL, *b = NULL;
    if (is_zero(data))
        return now == zero ? 0 : replace(image, index, zero);
    if (now && now->data && memcmp(now->data, data, PAGE_SIZE) == 0)
        return 0;
    if (now && now != ZERO_PAGE && now->refs == 1 && l->refs == 1)
        return change_blob(image->store, now, data); /* nobody else has it */
    int code = make_blob(image->store, data, &b);
    if (!code && replace(image, index, b)) {
        put_blob(image->store, b);
        code = -ENOMEM;
    }
    return code;
}

int page_image_set(struct page_image *image, u64 index, const u8 *data)
{
    return set(image, index, data, NULL);
}

int page_image_put(struct page_image *image, u64 index, const u8 *data)
{
    return set(image, index, data, ZERO_PAGE);
}

int page_image_drop(struct page_image *image, u64 index)
{
    return page_image_has(image, index) ? replace(image, index, NULL) : 0;
}

void page_image_clear(struct page_image *image)
{
    for (u64 i = 0; i < image->leaves; i++) {
        put_leaf(image->store, image->leaf[i]);
        image->leaf[i] = NULL;
    }
}

u64 page_image_next(const struct page_image *image, u64 index)
{
    for (u64 n = index / LEAF_PAGES, i = index % LEAF_PAGES; n < image->leaves; n++, i = 0)
        for (; image->leaf[n] && i < LEAF_PAGES; i++)
            if (image->leaf[n]->page[i])
                return n * LEAF_PAGES + i;
    return UINT64_MAX;
}

const u8 *page_image_zeros(void)
{
    return zeros;
}

void page_image_diff(const struct page_image *a, const struct page_image *b,
                     void (*fn)(void *opaque, u64 index), void *opaque)
{
    static const struct leaf none;
    for (u64 n = 0; n < a->leaves; n++) {
        if (a->leaf[n] == b->leaf[n])
            continue;
        const struct leaf *x = a->leaf[n] ? a->leaf[n] : &none;
        const struct leaf *y = b->leaf[n] ? b->leaf[n] : &none;
        for (unsigned i = 0; i < LEAF_PAGES; i++)
            if (x->page[i] != y->page[i])
                fn(opaque, n * LEAF_PAGES + i);
    }
}
