/*
 * Checkpoints: a machine and the player's place in the log at one instant, in memory or in the
 * files checkpoints/NNNNNN of a recording (docs/format.md). A file holds only the pages of RAM that
 * changed since the file before it, and the output printed since then; so the files are a chain
 * that starts with the machine at power-on, and one that is damaged costs those after it.
 */
#ifndef REPRISE_CHECKPOINT_H
#define REPRISE_CHECKPOINT_H

#include "dev/device.h"
#include "machine/machine.h"
#include "replay/player.h"
#include "base/page_image.h"
#include "base/room.h"
#include "replay/checkpoint_notes.h"
#include "replay/recording.h"

/* A point in time: a position, and as virtual time goes on while a machine is idle, the time. */
struct instant {
    pos_t position;
    vns_t time;
};
static inline bool instant_before(struct instant a, struct instant b)
{
    return a.position != b.position ? a.position < b.position : a.time < b.time;
}
static inline bool instant_equal(struct instant a, struct instant b)
{
    return a.position == b.position && a.time == b.time;
}
/* Does a run to `to` stop at `now`? */
static inline bool instant_reached(struct instant now, struct instant to)
{
    return now.position >= to.position && now.time >= to.time;
}

struct checkpoint {
    struct instant at;
    struct player_place place;
    u8 *state;     /* machine_state_size() bytes */
    void *outputs; /* machine_output_size() bytes */
    u64 output_bytes[OUT_COUNT];
    u64 frames; /* shown on the screen; UINT64_MAX: from a file, which does not say */
    struct page_image *ram;
    struct page_image *image[MACHINE_IMAGES]; /* machine_image(); NULL: no such image */
    bool from_file;
    bool unsure; /* it, or what it was computed from, is of a file: nothing has confirmed it yet */
    u64 cost;    /* host ns that a replay from power-on to here takes, as far as seen */
};
void checkpoint_destroy(struct checkpoint *c); /* NULL is safe */

/* ---- writing ---- */

/*
 * Pages are numbered: those of RAM (board/ram.h), then those of each of its images (machine_image),
 * in order.
 */
struct page_space {
    u64 ram;
    u64 image[MACHINE_IMAGES];
    unsigned nimages;
    u64 total;
};
void page_space_init(struct page_space *p, const struct machine *m);
/* Whose page it is: the image, or -1 for RAM; *index becomes its number there. */
int page_space_find(const struct page_space *p, u64 *index);

/* What one file gets. Pages in ascending order. */
struct checkpoint_part {
    struct instant at;
    struct player_place place;
    struct sha256 log; /* log_before() of the place */
    const u8 *state;
    size_t state_size;
    struct {
        u64 total; /* bytes printed since power-on; the last `len` of them are `data` */
        const u8 *data;
        size_t len;
    } output[OUT_COUNT];
    const u32 *pages;
    size_t npages;
    const u8 *(*page)(void *opaque, size_t i); /* contents of pages[i]; NULL: zeros */
    void *opaque;
};

struct checkpoint_writer {
    int dir; /* of the checkpoints; -1: none */
    struct hash128 machine;
    u32 sequence;
    u64 parent;
    u64 bytes;                      /* written so far */
    struct room room;               /* for all of them together; the owner's to set */
    struct sha256 link;             /* of the file before; at first the root, the owner's to set */
    struct checkpoint_notes *notes; /* where they are noted, the owner's to set; NULL: nowhere */
    struct err not_noted;           /* code 0: all of them are */
};

/* A directory `name` in the recording for new files; of what is in it the first `keep` files stay.
 * The next one follows them: parent and link are the owner's to set. */
int checkpoint_writer_open(struct checkpoint_writer *w, const struct recording *r, const char *name,
                           u32 keep, struct err *err);
/* Writes the next file, whole or not at all. Any thread, one at a time. */
int checkpoint_write(struct checkpoint_writer *w, const struct checkpoint_part *part,
                     struct err *err);
void checkpoint_writer_close(struct checkpoint_writer *w);
/* Removes a directory of checkpoints; no error if there is none. */
void checkpoint_remove(const struct recording *r, const char *name);
/* Puts the directory `name` in the place of CHECKPOINT_DIR. */
int checkpoint_replace(const struct recording *r, const char *name, struct err *err);

/* ---- reading ---- */

/* How many files there are, without a look into them, and their bytes. */
u32 checkpoint_count(const struct recording *r, u64 *bytes);

struct checkpoint_file {
    struct instant at;
    struct player_place place;
    u64 output_bytes[OUT_COUNT];
    u64 size;
    u64 check; /* of its header: the parent of the next one */
    u8 *meta;  /* unpacked: the pointers below lead into it */
    const u8 *state, *output[OUT_COUNT];
    size_t output_len[OUT_COUNT];
    u32 *pages; /* CHECKPOINT_ZERO marks a page of zeros */
    u32 npages;
    const u8 *blocks; /* struct checkpoint_block */
    u32 nblocks;
    u64 data;             /* file offset of the first block */
    struct sha256 digest; /* of header and packed meta, which has the hashes of the blocks */
    struct sha256 link;   /* checkpoint_link(), by checkpoint_set_bind() */
};
#define CHECKPOINT_ZERO 0x80000000u

struct checkpoint_set {
    const struct recording *rec; /* its reader's; NULL: there are none */
    u64 total_pages;
    struct checkpoint_file *file;
    u32 count;
    u64 bytes;
    bool old; /* they were written by an older version, which hashed no pages */
};

/* Are the files this recording's, in a row, each with a place in its log? Rewinds `log`. <0: *err
 * names the first that is not. *count: those before it. *old: they are of an older version, which
 * is no error. Without the machine; for `reprise verify`. */
int checkpoints_bound(const struct recording *r, struct log_reader *log, u32 *count, bool *old,
                      struct err *err);
/*
 * How many of the files lie in the log, each between the records that its place says: their links
 * are then known. Reads `log` from where it is, its start. *beyond: the next one only lies after
 * all that a killed recorder left of it.
 */
u32 checkpoint_set_bind(struct checkpoint_set *s, struct log_reader *log, const struct sha256 *root,
                        bool *beyond);
/* How many of the files, whose links are known, are noted. A note of one is a note of those before
 * it, too: their links are in its link. */
u32 checkpoint_set_believed(const struct checkpoint_set *s, const struct checkpoint_notes *notes);
/* Reads on in `log` to the place: what comes before it. false: there is no such place. */
bool checkpoint_log_before(struct log_reader *log, const struct log_place *place,
                           struct sha256 *out);

/*
 * Reads what is in the recording, without the pages: no directory is an empty set. Whatever is
 * wrong with a file is put into *problem (text "" if nothing is), and the set ends before it.
 */
void checkpoint_set_open(struct checkpoint_set *s, const struct recording *r, u64 total_pages,
                         size_t state_size, struct err *problem);
/*
 * Gives the pages that files [first, last] changed, each once as it was last, to `put` (<0: no
 * memory). <0: a file is damaged; the set then ends before it.
 */
int checkpoint_set_load(struct checkpoint_set *s, u32 first, u32 last,
                        int (*put)(void *opaque, u64 index, const u8 *page), void *opaque,
                        struct err *err);
/*
 * The other way: what was as in file `from` becomes as in file `to` before it. `put` gets NULL for
 * a page that is as it was at power-on.
 */
int checkpoint_set_load_back(struct checkpoint_set *s, u32 from, u32 to,
                             int (*put)(void *opaque, u64 index, const u8 *page), void *opaque,
                             struct err *err);
/* Forgets all but the first n. */
void checkpoint_set_cut(struct checkpoint_set *s, u32 n);
void checkpoint_set_close(struct checkpoint_set *s);

#endif
