/*
 * Images of RAM or of a disk that share what they have in common: a table of leaves of 512 pages,
 * both counted by reference and copied when one image changes. Taking an image of a machine costs
 * the pages that were written since the last one; images that differ little are compared and
 * switched between in little time. In an image of RAM a page of zeros takes no memory; in that of a
 * disk's changes a page that is not there was never written.
 */
#ifndef REPRISE_PAGE_IMAGE_H
#define REPRISE_PAGE_IMAGE_H

#include "base/types.h"

struct page_image;

/* What all images made from one store take, in bytes. */
struct page_store {
    u64 bytes;
};

/* All zero. NULL: no memory. */
struct page_image *page_image_create(struct page_store *store, u64 pages);
/* Another image of the same contents. NULL: no memory. */
struct page_image *page_image_copy(const struct page_image *image);
void page_image_destroy(struct page_image *image); /* NULL is safe */

/* Page contents, or NULL for a page of zeros. Valid until the image changes. */
const u8 *page_image_page(const struct page_image *image, u64 index);
/* Copies PAGE_SIZE bytes in, unless the page is equal already. -ENOMEM: the image is unchanged. */
int page_image_set(struct page_image *image, u64 index, const u8 *data);
/* The same, but a page of zeros is kept like any other. */
int page_image_put(struct page_image *image, u64 index, const u8 *data);
/* Takes the page out: as if it had never been set. */
int page_image_drop(struct page_image *image, u64 index);

/* Calls fn for each page index at which the two may differ. */
void page_image_diff(const struct page_image *a, const struct page_image *b,
                     void (*fn)(void *opaque, u64 index), void *opaque);

#endif
