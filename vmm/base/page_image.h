/*
 * Images of RAM or of a disk that share what they have in common: a table of leaves of 512 pages,
 * both counted by reference and copied when one image changes. Taking an image of a machine costs
 * the pages that were written since the last one; images that differ little are compared and
 * switched between in little time. In an image of RAM a page of zeros takes no memory; in that of a
 * disk's changes a page that is not there was never written, and one of zeros takes next to none.
 */
#ifndef REPRISE_PAGE_IMAGE_H
#define REPRISE_PAGE_IMAGE_H

#include "base/room.h"
#include "base/types.h"

struct page_image;

/*
 * What all images made from one store share. All zero: pages are in memory. With a limit, pages
 * beyond it go to an unlinked file, which is made when the first one does.
 */
struct page_store {
    u64 bytes;              /* in memory */
    u64 limit;              /* pages in memory; 0: all of them */
    const char *const *dir; /* where the file may be (page_file_create); the owner's */
    unsigned ndirs;
    struct room room; /* of the file */
    u64 pages;        /* of `bytes` */
    u64 reserved;     /* pages that page_store_reserve() promised */
    struct page_file *file;
};

/*
 * Makes sure that page_image_put and _set can take that many pages more, until page_store_release()
 * gives the promise back. -errno: the host has no room (ENOSPC, EFBIG, EDQUOT ...).
 */
int page_store_reserve(struct page_store *store, u64 pages);
void page_store_release(struct page_store *store, u64 pages);
/* The file is made now, for programs that can make none later. 0 or -errno. */
int page_store_file(struct page_store *store);
/* Once no image of it is left. */
void page_store_close(struct page_store *store);

/* All zero. NULL: no memory. */
struct page_image *page_image_create(struct page_store *store, u64 pages);
/* Another image of the same contents. NULL: no memory. */
struct page_image *page_image_copy(const struct page_image *image);
void page_image_destroy(struct page_image *image); /* NULL is safe */

/* Is there a page, be it one of zeros that was put? */
bool page_image_has(const struct page_image *image, u64 index);
/* Page contents, or NULL if there is none: zeros. Valid until the image changes. Of stores without
 * a limit. */
const u8 *page_image_page(const struct page_image *image, u64 index);
/* The same of any store, in *page; one in the file is read into `room`. -errno: it cannot be. */
int page_image_read(const struct page_image *image, u64 index, u8 room[PAGE_SIZE], const u8 **page);
/* Copies PAGE_SIZE bytes in, unless the page is equal already. -errno: the image is unchanged. */
int page_image_set(struct page_image *image, u64 index, const u8 *data);
/* The same, but a page of zeros is kept like any other. */
int page_image_put(struct page_image *image, u64 index, const u8 *data);
/* Takes the page out: as if it had never been set. */
int page_image_drop(struct page_image *image, u64 index);
/* Takes all of them out; needs no memory. */
void page_image_clear(struct page_image *image);

/* The first page from `index` on that page_image_has; UINT64_MAX: none. */
u64 page_image_next(const struct page_image *image, u64 index);
/* A page of zeros. */
const u8 *page_image_zeros(void);

/* Calls fn for each page index at which the two may differ. */
void page_image_diff(const struct page_image *a, const struct page_image *b,
                     void (*fn)(void *opaque, u64 index), void *opaque);

#endif
