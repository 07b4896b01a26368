/*
 * What a virtio-gpu holds besides its registers: resources with their backing lists and, for 2D
 * ones, their pixels; contexts; the pages that came back from the renderer last. All of it lies in
 * one page image, so that checkpoints share what did not change, as they do with RAM and disks. An
 * index in host memory is made from it when needed.
 *
 * A host without memory for a change leaves `failed`: from there on nothing changes any more and no
 * resource is found, until the store is cleared or restored. Whoever changed it looks at that.
 */
#ifndef REPRISE_DEV_VIRTIO_GPU_STORE_H
#define REPRISE_DEV_VIRTIO_GPU_STORE_H

#include "base/err.h"
#include "base/page_image.h"
#include "base/types.h"

#define GPU_RESOURCES   16384u
#define GPU_CONTEXTS    1024u
#define GPU_ENTRIES     16384u      /* of a backing list */
#define GPU_EDGE_MAX    16384u      /* pixels, of textures and 2D resources */
#define GPU_DATA_PAGES  (256u << 8) /* pixels and backing lists: 256 MiB */
#define GPU_TABLE_PAGES (GPU_RESOURCES * 64 / PAGE_SIZE)
#define GPU_CTX_PAGES   (GPU_CONTEXTS * 128 / PAGE_SIZE)
#define GPU_DATA_FIRST  (GPU_TABLE_PAGES + GPU_CTX_PAGES)
#define GPU_KEPT_FIRST  (GPU_DATA_FIRST + GPU_DATA_PAGES)
#define GPU_KEPT_PAGES  (32u << 8) /* what came back from the renderer: 32 MiB */
#define GPU_STORE_PAGES (GPU_KEPT_FIRST + GPU_KEPT_PAGES)

enum gpu_resource_kind { GPU_NONE, GPU_2D, GPU_3D };

/* As it lies in the image. */
struct gpu_resource {
    u32 id; /* 0: the slot is free */
    u32 kind;
    u32 target, format, bind, width, height, depth, array_size, last_level, samples, flags;
    u32 pixels;  /* first data page of the pixels, rows of width * 4 bytes; 2D only */
    u32 backing; /* first data page of the backing list */
    u32 entries; /* of the backing list; 0: no backing */
    u32 query;   /* a query's result goes to its backing */
};

struct gpu_entry {
    u64 gpa;
    u64 end; /* in the backing, of this entry's bytes; they start where those before it end */
};

struct gpu_context {
    u32 id; /* 0: the slot is free */
    u32 name_len;
    u32 init, reserved;
    char name[64];
    u8 padding[48];
};

struct gpu_store {
    struct page_store pages;
    struct page_image *image;
    bool stale;   /* the image was replaced: the index below says nothing */
    u64 seed;     /* of the index; nothing that a guest could know, or see */
    u32 *slot_of; /* open addressing by id: slot + 1 */
    u32 *id_of;   /* by slot; 0: free */
    u64 *used;    /* data pages, one bit each */
    u32 free_pages;
    u32 resources, queries;
    u32 first_free; /* no slot below it is free */
    int failed;     /* -errno; see above */
};

int gpu_store_init(struct gpu_store *s, struct err *err);
void gpu_store_fini(struct gpu_store *s);
/* As at power-on. */
void gpu_store_clear(struct gpu_store *s);

/* Goes back to what `image` holds. */
int gpu_store_restore(struct gpu_store *s, const struct page_image *image, struct err *err);

/* The resource's slot; -1: there is none of that id. *r is a copy. */
int gpu_find(struct gpu_store *s, u32 id, struct gpu_resource *r);
/* Takes a slot (r->id is new), and pages for `pixel_bytes`. -1: out of resources or memory. */
int gpu_add(struct gpu_store *s, struct gpu_resource *r, u64 pixel_bytes);
void gpu_remove(struct gpu_store *s, int slot);
/* Replaces the backing list; n 0: takes it away. false: out of memory. */
bool gpu_set_backing(struct gpu_store *s, int slot, const struct gpu_entry *entries, u32 n);
/* Bytes of a backing. */
u64 gpu_backing_size(struct gpu_store *s, const struct gpu_resource *r);
/* The next piece of [offset, offset + len) that lies in one entry, and where; 0: the backing ends
 * before. *at is a hint, 0 at first: the entry where the last piece was. */
u64 gpu_backing_piece(struct gpu_store *s, const struct gpu_resource *r, u32 *at, u64 offset,
                      u64 len, gpa_t *gpa);
/* A query's result will go to its backing; nothing if there is no such resource. */
void gpu_mark_query(struct gpu_store *s, u32 id);
/* The slot's next resource from `slot` on; -1: none. */
int gpu_next(struct gpu_store *s, int slot, struct gpu_resource *r);

/* Bytes of the data pages from page `first` on. */
void gpu_data_write(struct gpu_store *s, u32 first, u64 offset, const void *in, u64 len);
void gpu_data_read(struct gpu_store *s, u32 first, u64 offset, void *out, u64 len);

/* Page `at` of those that came back, GPU_KEPT_PAGES of them. */
void gpu_kept_write(struct gpu_store *s, u64 at, const u8 *in);
void gpu_kept_read(struct gpu_store *s, u64 at, u8 *out);

int gpu_context_find(struct gpu_store *s, u32 id, struct gpu_context *c);
int gpu_context_add(struct gpu_store *s, const struct gpu_context *c); /* -1: too many */
void gpu_context_remove(struct gpu_store *s, int slot);

#endif
