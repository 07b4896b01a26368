#define _GNU_SOURCE
/* Writing checkpoint files. See checkpoint.h. */
#include "base/file_io.h"
#include "replay/checkpoint_format.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <lz4.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define BLOCK_BYTES (BLOCK_PAGES * PAGE_SIZE)
#define TEMPORARY   "incomplete"

void checkpoint_destroy(struct checkpoint *c)
{
    if (!c)
        return;
    free(c->state);
    free(c->outputs);
    page_image_destroy(c->ram);
    for (unsigned i = 0; i < MACHINE_IMAGES; i++)
        page_image_destroy(c->image[i]);
    free(c);
}

/* Is it the name of one of the first `n` files? */
static bool among(const char *entry, u32 n)
{
    char name[16];
    unsigned long k = strtoul(entry, NULL, 10);
    snprintf(name, sizeof(name), "%06lu", k);
    return k < n && !strcmp(entry, name);
}

static void empty(int dir, u32 keep)
{
    DIR *d = fdopendir(dup(dir));
    struct dirent *e;
    if (!d)
        return;
    rewinddir(d);
    while ((e = readdir(d)))
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && !among(e->d_name, keep))
            unlinkat(dir, e->d_name, 0);
    closedir(d);
}

void checkpoint_remove(const struct recording *r, const char *name)
{
    int dir = openat(r->dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0)
        return;
    empty(dir, 0);
    close(dir);
    unlinkat(r->dir, name, AT_REMOVEDIR);
}

int checkpoint_replace(const struct recording *r, const char *name, struct err *err)
{
    checkpoint_remove(r, CHECKPOINT_DIR);
    if (renameat(r->dir, name, r->dir, CHECKPOINT_DIR))
        return err_errno(err, "cannot rename %s to %s in %s", name, CHECKPOINT_DIR, r->path);
    return 0;
}

int checkpoint_writer_open(struct checkpoint_writer *w, const struct recording *r, const char *name,
                           u32 keep, struct err *err)
{
    *w = (struct checkpoint_writer){.dir = -1, .machine = r->machine_hash, .sequence = keep};
    int code = recording_writable(r, err);
    if (code)
        return code;
    if (mkdirat(r->dir, name, DIRECTORY_PRIVATE) && errno != EEXIST)
        return err_errno(err, "cannot create %s/%s", r->path, name);
    w->dir = openat(r->dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (w->dir < 0)
        return err_errno(err, "cannot open %s/%s", r->path, name);
    empty(w->dir, keep);
    return 0;
}

void checkpoint_writer_close(struct checkpoint_writer *w)
{
    if (w->dir >= 0)
        close(w->dir);
    w->dir = -1;
}

struct out {
    struct checkpoint_writer *w;
    int fd;
    u64 at;
    bool failed;
};

static void put(struct out *o, const void *data, size_t len)
{
    if (o->failed)
        return;
    if (room_ask(&o->w->room, o->fd, o->w->bytes + o->at + len))
        o->failed = true;
    else
        o->failed = !file_write_at(o->fd, data, len, o->at);
    o->at += len;
}

/* Compresses `raw` bytes into `to`, which has room for as many; returns the packed size. */
static size_t pack(const u8 *from, size_t raw, u8 *to)
{
    int n = LZ4_compress_default((const char *)from, (char *)to, (int)raw, (int)raw - 1);
    if (n > 0)
        return (size_t)n;
    memcpy(to, from, raw);
    return raw;
}

/* The blocks, after the place that header and meta will take: their table goes into `table`. */
static u32 put_blocks(struct out *o, const struct checkpoint_part *part, u32 *list,
                      struct checkpoint_block *table, u8 *raw, u8 *packed)
{
    u32 blocks = 0;
    size_t fill = 0;
    for (size_t i = 0; i <= part->npages; i++) {
        const u8 *p = i < part->npages ? part->page(part->opaque, i) : NULL;
        if (i < part->npages)
            list[i] = part->pages[i] | (p ? 0 : CHECKPOINT_ZERO);
        if (p) {
            memcpy(raw + fill, p, PAGE_SIZE);
            fill += PAGE_SIZE;
        }
        if (fill == BLOCK_BYTES || (fill && i == part->npages)) {
            size_t n = pack(raw, fill, packed);
            table[blocks++] = (struct checkpoint_block){(u32)n, (u32)fill, sha256_bytes(packed, n)};
            put(o, packed, n);
            fill = 0;
        }
    }
    return blocks;
}

static size_t gather_meta(const struct checkpoint_part *part, const u32 *list,
                          const struct checkpoint_block *table, u32 blocks, u8 *to)
{
    u8 *p = to;
    p = mempcpy(p, part->state, part->state_size);
    for (unsigned c = 0; c < OUT_COUNT; c++)
        if (part->output[c].len)
            p = mempcpy(p, part->output[c].data, part->output[c].len);
    p = mempcpy(p, list, part->npages * sizeof(*list));
    p = mempcpy(p, table, blocks * sizeof(*table));
    return (size_t)(p - to);
}

struct sha256 checkpoint_digest(const struct checkpoint_header *h, const void *packed_meta)
{
    const struct sha256 part[] = {sha256_bytes(h, sizeof(*h)),
                                  sha256_bytes(packed_meta, h->meta_packed)};
    return sha256_bytes(part, sizeof(part));
}

static int write_file(struct checkpoint_writer *w, const struct checkpoint_part *part, int fd,
                      u64 *check, struct sha256 *digest, struct err *err)
{
    size_t meta_max = part->state_size + part->npages * sizeof(u32) +
                      (part->npages / BLOCK_PAGES + 1) * sizeof(struct checkpoint_block);
    for (unsigned c = 0; c < OUT_COUNT; c++)
        meta_max += part->output[c].len;
    if (meta_max > META_MAX)
        return err_set(err, -EFBIG, "more output since the last checkpoint than a file can hold");
    u32 *list = malloc((part->npages + 1) * sizeof(*list));
    struct checkpoint_block *table = malloc((part->npages / BLOCK_PAGES + 1) * sizeof(*table));
    u8 *buf = malloc(2 * BLOCK_BYTES), *meta = malloc(2 * meta_max);
    struct out o = {.w = w, .fd = fd};
    struct checkpoint_header h;
    int code = 0;
    if (!list || !table || !buf || !meta) {
        code = err_set(err, -ENOMEM, "no memory to write a checkpoint");
        goto out;
    }
    memset(&h, 0, sizeof(h)); /* padding is checked too */
    memcpy(h.magic, CHECKPOINT_MAGIC, sizeof(h.magic));
    h.version = CHECKPOINT_VERSION;
    h.size = sizeof(h);
    h.machine = w->machine;
    h.parent = w->parent;
    h.sequence = w->sequence;
    h.state_size = (u32)part->state_size;
    h.position = part->at.position;
    h.time = part->at.time;
    h.place = part->place;
    for (unsigned c = 0; c < OUT_COUNT; c++) {
        h.output_total[c] = part->output[c].total;
        h.output_new[c] = (u32)part->output[c].len;
    }
    h.pages = (u32)part->npages;
    o.at = sizeof(h); /* blocks first: their sizes are in the meta, which comes last */
    h.blocks = put_blocks(&o, part, list, table, buf, buf + BLOCK_BYTES);
    h.meta_raw = (u32)gather_meta(part, list, table, h.blocks, meta);
    h.meta_packed = (u32)pack(meta, h.meta_raw, meta + meta_max);
    h.meta_check = XXH3_64bits(meta + meta_max, h.meta_packed);
    h.header_check = XXH3_64bits(&h, offsetof(struct checkpoint_header, header_check));
    *digest = checkpoint_digest(&h, meta + meta_max);
    put(&o, meta + meta_max, h.meta_packed);
    u64 size = o.at;
    o.at = 0;
    put(&o, &h, sizeof(h));
    char text[96];
    if (w->room.answer)
        code = err_set(err, -ENOSPC, "cannot write a checkpoint: %s",
                       room_text(&w->room, text, sizeof(text)));
    else if (o.failed)
        code = err_errno(err, "cannot write a checkpoint");
    w->bytes += size;
    *check = h.header_check;
out:
    free(list);
    free(table);
    free(buf);
    free(meta);
    return code;
}

int checkpoint_write(struct checkpoint_writer *w, const struct checkpoint_part *part,
                     struct err *err)
{
    char name[16];
    u64 check = 0;
    struct sha256 digest;
    int fd = file_create_at(w->dir, TEMPORARY);
    if (fd < 0)
        return err_errno(err, "cannot create a checkpoint");
    int code = write_file(w, part, fd, &check, &digest, err);
    if (close(fd) && !code)
        code = err_errno(err, "cannot write a checkpoint");
    snprintf(name, sizeof(name), "%06u", w->sequence);
    struct sha256 link = checkpoint_link(&w->link, &part->log, &digest);
    /* First: a note of a file that is not there does no harm. */
    if (!code && w->notes && !w->not_noted.code)
        checkpoint_note(w->notes, &link, &w->not_noted);
    if (!code && renameat(w->dir, TEMPORARY, w->dir, name))
        code = err_errno(err, "cannot rename a checkpoint");
    if (code) {
        unlinkat(w->dir, TEMPORARY, 0);
        return code;
    }
    w->sequence++;
    w->parent = check;
    w->link = link;
    return 0;
}
