/* The bytes of a checkpoint file, little-endian; docs/format.md explains them. */
#ifndef REPRISE_CHECKPOINT_FORMAT_H
#define REPRISE_CHECKPOINT_FORMAT_H

#include "replay/checkpoint.h"

#define CHECKPOINT_MAGIC   "REPRCKPT"
#define CHECKPOINT_VERSION 2u /* 1 had no SHA-256 */
#define BLOCK_PAGES        16u
#define META_MAX           (1u << 30)

struct checkpoint_header {
    u8 magic[8];
    u32 version;
    u32 size; /* of this header */
    struct hash128 machine;
    u64 parent; /* header_check of the file before; 0 for the first */
    u32 sequence;
    u32 state_size;
    u64 position, time;
    struct player_place place;
    u64 output_total[OUT_COUNT];
    u32 output_new[OUT_COUNT];
    u32 pages, blocks;
    u32 meta_raw, meta_packed; /* equal: not compressed */
    u64 meta_check;            /* XXH3-64 of the packed bytes */
    u64 header_check;          /* XXH3-64 of the bytes before */
};

/* What a file's link is made of. */
struct sha256 checkpoint_digest(const struct checkpoint_header *h, const void *packed_meta);

/* Is it the header of that file in the chain of the machine's checkpoints, as far as it says
 * itself? NULL, or what is wrong with it. */
const char *checkpoint_header_wrong(const struct checkpoint_header *h, u32 sequence, u64 parent,
                                    const struct hash128 *machine);

extern const char checkpoint_older[]; /* what is wrong with one of an older version */

/* One for each BLOCK_PAGES pages that are not zero. */
struct checkpoint_block {
    u32 packed; /* equal to the raw size: not compressed */
    u32 raw;
    struct sha256 hash; /* of the packed bytes */
};

#endif
