#include "base/page_image.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LEAF_PAGES 512u

struct blob {
    u8 data[PAGE_SIZE];
    u32 refs;
};

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

static void put_blob(struct page_store *store, struct blob *b)
{
    if (b && --b->refs == 0) {
        free(b);
        store->bytes -= sizeof(*b) + OVERHEAD;
    }
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
    for (u64 i = 0; i < image->leaves; i++)
        put_leaf(image->store, image->leaf[i]);
    image->store->bytes -= sizeof(*image) + image->leaves * sizeof(image->leaf[0]);
    free(image);
}

const u8 *page_image_page(const struct page_image *image, u64 index)
{
    const struct leaf *l = image->leaf[index / LEAF_PAGES];
    const struct blob *b = l ? l->page[index % LEAF_PAGES] : NULL;
    return b ? b->data : NULL;
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
            if (l->page[i])
                l->page[i]->refs++;
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

static int set(struct page_image *image, u64 index, const u8 *data, bool zero)
{
    const u8 *now = page_image_page(image, index);
    if (now ? !zero && memcmp(now, data, PAGE_SIZE) == 0 : zero)
        return 0;
    struct blob *b = NULL;
    if (!zero) {
        b = malloc(sizeof(*b));
        if (!b)
            return -ENOMEM;
        memcpy(b->data, data, PAGE_SIZE);
        b->refs = 1;
    }
    struct leaf *l = own_leaf(image, index / LEAF_PAGES);
    if (!l) {
        free(b);
        return -ENOMEM;
    }
    if (b)
        image->store->bytes += sizeof(*b) + OVERHEAD;
    put_blob(image->store, l->page[index % LEAF_PAGES]);
    l->page[index % LEAF_PAGES] = b;
    return 0;
}

int page_image_set(struct page_image *image, u64 index, const u8 *data)
{
    return set(image, index, data, is_zero(data));
}

int page_image_put(struct page_image *image, u64 index, const u8 *data)
{
    return set(image, index, data, false);
}

int page_image_drop(struct page_image *image, u64 index)
{
    if (!page_image_page(image, index))
        return 0;
    struct leaf *l = own_leaf(image, index / LEAF_PAGES);
    if (!l)
        return -ENOMEM;
    put_blob(image->store, l->page[index % LEAF_PAGES]);
    l->page[index % LEAF_PAGES] = NULL;
    return 0;
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
