/*
 * Images of RAM that share what they have in common: a table of leaves of 512 pages, both counted
 * by reference and copied when one image changes. Taking an image of a machine costs the pages
 * that were written since the last one; images that differ little are compared and switched
 * between in little time. A page of zeros takes no memory.
 */
#ifndef REPRISE_RAM_IMAGE_H
#define REPRISE_RAM_IMAGE_H

#include "base/types.h"

struct ram_image;

/* What all images made from one store take, in bytes. */
struct ram_store {
    u64 bytes;
};

/* All zero. NULL: no memory. */
struct ram_image *ram_image_create(struct ram_store *store, u64 pages);
/* Another image of the same contents. NULL: no memory. */
struct ram_image *ram_image_copy(const struct ram_image *image);
void ram_image_destroy(struct ram_image *image); /* NULL is safe */

/* Page contents, or NULL for a page of zeros. Valid until the image changes. */
const u8 *ram_image_page(const struct ram_image *image, u64 index);
/* Copies PAGE_SIZE bytes in, unless the page is equal already. -ENOMEM: the image is unchanged. */
int ram_image_set(struct ram_image *image, u64 index, const u8 *data);

/* Calls fn for each page index at which the two may differ. */
void ram_image_diff(const struct ram_image *a, const struct ram_image *b,
                    void (*fn)(void *opaque, u64 index), void *opaque);

#endif
