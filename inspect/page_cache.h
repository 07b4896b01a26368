/*
 * The pages of files that a Linux guest has in memory (its page cache): struct address_space and
 * its XArray (kernel's documentation: core-api/xarray). Of kernels of 64 bits with type
 * information. All of it is the guest's to forge; walks are bounded.
 */
#ifndef REPRISE_PAGE_CACHE_H
#define REPRISE_PAGE_CACHE_H

#include "inspect/process.h"

/* Where the kernel keeps it. */
struct page_cache_layout {
    bool known;
    u64 pages; /* where its struct pages begin (vmemmap) */
    u32 page_size;
    u32 mapping;      /* of struct file */
    u32 tree, host;   /* of struct address_space: what its XArray begins with, its inode */
    u32 shift, slots; /* of struct xa_node */
    u32 index, flags; /* of struct page */
    u32 size, number, super, device; /* of struct inode; and of its superblock */
};

struct page_cache_file {
    u64 mapping; /* its address_space */
    u64 size;    /* bytes */
    u64 inode;
    u32 device; /* as the kernel has it: the minor number in the lower 20 bits */
};

void page_cache_learn(struct page_cache_layout *l, const struct btf *b, struct machine *m,
                      const struct process_layout *kernel, const struct symbols *s);
/* Of a struct file; false: not known. */
bool page_cache_file(const struct page_cache_layout *l, const struct process_layout *kernel,
                     struct machine *m, u64 file, struct page_cache_file *out);
/* The physical page that has the file's page `index`; false: it is not in memory. */
bool page_cache_page(const struct page_cache_layout *l, const struct process_layout *kernel,
                     struct machine *m, u64 mapping, u64 index, gpa_t *page);

#endif
