/* Reading checkpoint files, of which nothing is trusted. See checkpoint.h. */
#include "base/chunks.h"
#include "base/file_io.h"
#include "replay/checkpoint_format.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define BLOCK_BYTES (BLOCK_PAGES * PAGE_SIZE)

#define FILE_NAME 32 /* bytes */

/* In the recording. */
static void file_name(u32 sequence, char out[FILE_NAME])
{
    snprintf(out, FILE_NAME, CHECKPOINT_DIR "/%06u", sequence);
}

const char checkpoint_older[] = "it was written by an older version";

const char *checkpoint_header_wrong(const struct checkpoint_header *h, u32 sequence, u64 parent,
                                    const struct hash128 *machine)
{
    if (memcmp(h->magic, CHECKPOINT_MAGIC, sizeof(h->magic)))
        return "it is no checkpoint";
    if (h->header_check != XXH3_64bits(h, offsetof(struct checkpoint_header, header_check)))
        return "wrong checksum of its header";
    if (h->version < CHECKPOINT_VERSION)
        return checkpoint_older;
    if (h->version != CHECKPOINT_VERSION || h->size != sizeof(*h))
        return "its format is of another version";
    if (!hash_equal(&h->machine, machine))
        return "it belongs to another recording";
    if (h->sequence != sequence || h->parent != parent)
        return "it does not follow the one before it";
    return NULL;
}

/* Do the sizes fit the machine and each other? NULL, or what is wrong with them. */
static const char *check_sizes(const struct checkpoint_header *h, u64 size, size_t state_size,
                               u64 total_pages)
{
    if (h->state_size != state_size)
        return "it does not fit the machine";
    u64 meta = (u64)h->state_size + h->pages * sizeof(u32) +
               (u64)h->blocks * sizeof(struct checkpoint_block);
    for (unsigned c = 0; c < OUT_COUNT; c++) {
        meta += h->output_new[c];
        if (h->output_new[c] > h->output_total[c])
            return "its sizes make no sense";
    }
    if (h->pages > total_pages || h->blocks > h->pages || meta != h->meta_raw || meta > META_MAX ||
        h->meta_packed > h->meta_raw || h->meta_packed > size - sizeof(*h) ||
        h->meta_raw > 256ull * h->meta_packed + 4096)
        return "its sizes make no sense";
    return NULL;
}

static const char *check_tables(struct checkpoint_file *f, u64 total_pages, u64 meta_at)
{
    u64 data = 0, filled = 0;
    for (u32 i = 0; i < f->npages; i++) {
        u32 index = f->pages[i] & ~CHECKPOINT_ZERO;
        if (index >= total_pages || (i && index <= (f->pages[i - 1] & ~CHECKPOINT_ZERO)))
            return "its list of pages makes no sense";
        filled += !(f->pages[i] & CHECKPOINT_ZERO);
    }
    if (f->nblocks != (filled + BLOCK_PAGES - 1) / BLOCK_PAGES)
        return "its list of pages makes no sense";
    for (u32 i = 0; i < f->nblocks; i++) {
        struct checkpoint_block b;
        memcpy(&b, f->blocks + i * sizeof(b), sizeof(b));
        u64 raw = MIN(filled - (u64)i * BLOCK_PAGES, (u64)BLOCK_PAGES) * PAGE_SIZE;
        if (b.raw != raw || b.packed > b.raw || !b.packed)
            return "its table of blocks makes no sense";
        data += b.packed;
    }
    return f->data + data == meta_at ? NULL : "its sizes make no sense";
}

/* Header, meta and tables of one file into *f. NULL, or what is wrong. */
static const char *read_file(struct checkpoint_set *s, const struct blob *blob,
                             struct checkpoint_file *f, u32 sequence, u64 *parent,
                             const struct hash128 *machine, size_t state_size)
{
    struct checkpoint_header h;
    f->size = blob_size(blob);
    if (f->size < sizeof(h) || !blob_read_at(blob, &h, sizeof(h), 0))
        return "it was cut short";
    const char *why = checkpoint_header_wrong(&h, sequence, *parent, machine);
    if (!why)
        why = check_sizes(&h, f->size, state_size, s->total_pages);
    if (why)
        return why;
    const struct checkpoint_file *before = sequence ? f - 1 : NULL;
    f->at = (struct instant){h.position, h.time};
    f->place = h.place;
    if (before && instant_before(f->at, before->at))
        return "it lies before the one before it";
    for (unsigned c = 0; c < OUT_COUNT; c++)
        if (h.output_total[c] - h.output_new[c] != (before ? before->output_bytes[c] : 0))
            return "its output does not follow that of the one before it";
    u64 meta_at = f->size - h.meta_packed;
    u8 *packed = malloc(h.meta_packed ? h.meta_packed : 1);
    f->meta = malloc(h.meta_raw ? h.meta_raw : 1);
    f->pages = malloc((h.pages + 1) * sizeof(*f->pages));
    if (!packed || !f->meta || !f->pages)
        why = "no memory for it";
    else if (!blob_read_at(blob, packed, h.meta_packed, meta_at))
        why = "it cannot be read";
    else if (XXH3_64bits(packed, h.meta_packed) != h.meta_check)
        why = "wrong checksum";
    else if (!chunk_unpack(packed, h.meta_packed, f->meta, h.meta_raw))
        why = "it cannot be decompressed";
    else
        f->digest = checkpoint_digest(&h, packed);
    free(packed);
    if (why)
        return why;
    const u8 *p = f->meta;
    f->state = p;
    p += h.state_size;
    for (unsigned c = 0; c < OUT_COUNT; c++) {
        f->output_bytes[c] = h.output_total[c];
        f->output[c] = p;
        f->output_len[c] = h.output_new[c];
        p += h.output_new[c];
    }
    f->npages = h.pages;
    f->nblocks = h.blocks;
    memcpy(f->pages, p, h.pages * sizeof(*f->pages));
    f->blocks = p + h.pages * sizeof(*f->pages);
    f->data = sizeof(h);
    *parent = f->check = h.header_check;
    return check_tables(f, s->total_pages, meta_at);
}

static void free_file(struct checkpoint_file *f)
{
    free(f->meta);
    free(f->pages);
}

/* The file cannot be opened, `code` and *why say why. That is the end, unless there are later ones.
 */
static void note_gap(struct checkpoint_set *s, const char *name, int code, const struct err *why,
                     struct err *problem)
{
    char next[FILE_NAME];
    bool gone = code == -ENOENT;
    file_name(s->count + 1, next);
    if (!gone || recording_has(s->rec, next))
        err_set(problem, -EINVAL,
                "the checkpoint %s is of no use (%s); it and later ones are ignored", name,
                gone ? "it is missing" : why->text);
}

void checkpoint_set_open(struct checkpoint_set *s, const struct recording *r, u64 total_pages,
                         size_t state_size, struct err *problem)
{
    u64 parent = 0;
    char name[FILE_NAME];
    *s = (struct checkpoint_set){.rec = r, .total_pages = total_pages};
    err_set(problem, 0, "%s", "");
    for (;; s->count++) {
        struct blob blob;
        struct err wrong;
        file_name(s->count, name);
        int code = recording_file(r, name, NEVER, &blob, &wrong);
        if (code) {
            note_gap(s, name, code, &wrong, problem);
            return;
        }
        struct checkpoint_file *bigger = realloc(s->file, (s->count + 1) * sizeof(*s->file));
        if (!bigger) {
            blob_close(&blob);
            return;
        }
        s->file = bigger;
        struct checkpoint_file *f = &s->file[s->count];
        memset(f, 0, sizeof(*f));
        const char *why = read_file(s, &blob, f, s->count, &parent, &r->machine_hash, state_size);
        blob_close(&blob);
        if (why == checkpoint_older && !s->count) {
            free_file(f);
            s->old = true;
            err_set(problem, -EINVAL,
                    "the checkpoints of %s were written by an older version, which made none that "
                    "can be believed: they are not used; `reprise checkpoint` writes new ones",
                    r->path);
            return;
        }
        if (why) {
            free_file(f);
            err_set(problem, -EINVAL,
                    "the checkpoint %s/%s is of no use (%s); it and later ones are ignored",
                    r->path, name, why);
            return;
        }
        s->bytes += f->size;
    }
}

u32 checkpoint_count(const struct recording *r, u64 *bytes)
{
    u32 n = 0;
    u64 size;
    char name[FILE_NAME];
    *bytes = 0;
    for (;; n++) {
        file_name(n, name);
        if (!recording_size(r, name, &size))
            return n;
        *bytes += size;
    }
}

void checkpoint_set_cut(struct checkpoint_set *s, u32 n)
{
    while (s->count > n)
        free_file(&s->file[--s->count]);
}

void checkpoint_set_close(struct checkpoint_set *s)
{
    checkpoint_set_cut(s, 0);
    free(s->file);
    *s = (struct checkpoint_set){.rec = NULL};
}

/* The pages of file n that `newest` says are its own, to `put`. NULL, or what is wrong. */
static const char *load_file(struct checkpoint_set *s, u32 n, const u32 *newest,
                             int (*put)(void *opaque, u64 index, const u8 *page), void *opaque,
                             u8 *raw, u8 *packed)
{
    static const u8 zeros[PAGE_SIZE];
    const struct checkpoint_file *f = &s->file[n];
    char name[FILE_NAME];
    struct blob blob;
    struct err ignored;
    file_name(n, name);
    if (recording_file(s->rec, name, NEVER, &blob, &ignored))
        return "it has gone";
    const char *why = NULL;
    u64 at = f->data;
    u32 filled = 0;
    bool loaded = false;
    for (u32 i = 0; i < f->npages && !why; i++) {
        u32 index = f->pages[i] & ~CHECKPOINT_ZERO;
        const u8 *page = zeros;
        bool wanted = newest[index] == n;
        if (!(f->pages[i] & CHECKPOINT_ZERO)) {
            struct checkpoint_block b;
            struct sha256 hash;
            u32 block = filled / BLOCK_PAGES, k = filled % BLOCK_PAGES;
            memcpy(&b, f->blocks + block * sizeof(b), sizeof(b));
            if (k == 0)
                loaded = false;
            if (wanted && !loaded) {
                if (!blob_read_at(&blob, packed, b.packed, at))
                    why = "it was cut short";
                else if (hash = sha256_bytes(packed, b.packed), !sha256_equal(&hash, &b.hash))
                    why = "wrong checksum of a block of pages";
                else if (!chunk_unpack(packed, b.packed, raw, b.raw))
                    why = "a block of pages cannot be decompressed";
                loaded = true;
            }
            page = raw + (size_t)k * PAGE_SIZE;
            filled++;
            if ((k + 1) * PAGE_SIZE == b.raw)
                at += b.packed;
        }
        if (wanted && !why && put(opaque, index, page))
            why = "no memory for it";
    }
    blob_close(&blob);
    return why;
}

/* Which file has a page's contents. */
#define NO_FILE    UINT32_MAX
#define NOT_WANTED (UINT32_MAX - 1)

typedef int put_page(void *opaque, u64 index, const u8 *page);

/* Loads every page from the file that `newest` names for it. */
static int load_newest(struct checkpoint_set *s, u32 first, u32 last, const u32 *newest,
                       put_page *put, void *opaque, struct err *err)
{
    u8 *buf = malloc(2 * BLOCK_BYTES);
    int code = buf ? 0 : err_set(err, -ENOMEM, "no memory to read checkpoints");
    for (u32 n = first; !code && n <= last; n++) {
        const char *why = load_file(s, n, newest, put, opaque, buf, buf + BLOCK_BYTES);
        if (!why)
            continue;
        code = err_set(err, -EINVAL,
                       "the checkpoint %s/%06u is of no use (%s); it and later ones are ignored",
                       CHECKPOINT_DIR, n, why);
        checkpoint_set_cut(s, n);
    }
    free(buf);
    return code;
}

static u32 *page_table(const struct checkpoint_set *s, u32 value, struct err *err)
{
    u32 *table = malloc(s->total_pages * sizeof(*table));
    if (!table)
        err_set(err, -ENOMEM, "no memory to read checkpoints");
    for (u64 i = 0; table && i < s->total_pages; i++)
        table[i] = value;
    return table;
}

int checkpoint_set_load(struct checkpoint_set *s, u32 first, u32 last, put_page *put, void *opaque,
                        struct err *err)
{
    u32 *newest = page_table(s, NO_FILE, err);
    if (!newest)
        return err->code;
    for (u32 n = first; n <= last; n++)
        for (u32 i = 0; i < s->file[n].npages; i++)
            newest[s->file[n].pages[i] & ~CHECKPOINT_ZERO] = n;
    int code = load_newest(s, first, last, newest, put, opaque, err);
    free(newest);
    return code;
}

int checkpoint_set_load_back(struct checkpoint_set *s, u32 from, u32 to, put_page *put,
                             void *opaque, struct err *err)
{
    u32 *newest = page_table(s, NOT_WANTED, err);
    if (!newest)
        return err->code;
    for (u32 n = to + 1; n <= from; n++)
        for (u32 i = 0; i < s->file[n].npages; i++)
            newest[s->file[n].pages[i] & ~CHECKPOINT_ZERO] = NO_FILE;
    for (u32 n = to + 1; n-- > 0;)
        for (u32 i = 0; i < s->file[n].npages; i++) {
            u32 *file = &newest[s->file[n].pages[i] & ~CHECKPOINT_ZERO];
            if (*file == NO_FILE)
                *file = n;
        }
    int code = load_newest(s, 0, to, newest, put, opaque, err);
    for (u64 i = 0; !code && i < s->total_pages; i++)
        if (newest[i] == NO_FILE && put(opaque, i, NULL))
            code = err_set(err, -ENOMEM, "no memory to read checkpoints");
    free(newest);
    return code;
}
