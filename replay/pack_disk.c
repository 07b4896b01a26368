/* See pack_disk.h. */
#include "replay/pack_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file_io.h"
#include "replay/pack.h"

#define ALL_SECTORS ((1u << DISK_SECTOR_OF_PAGE) - 1)
#define ENTRIES_MAX (1u << 30) /* pages: 4 TiB, the largest disk */

static void map_name(unsigned n, char out[32])
{
    snprintf(out, 32, RECORDING_DISKS "/%u.map", n);
}

/* ---- reading ---- */

void disk_map_free(struct disk_map *m)
{
    free(m->entry);
    m->entry = NULL;
}

int disk_map_parse(struct disk_map *m, const void *data, u64 bytes, u64 size, u64 slots,
                   struct err *err)
{
    *m = (struct disk_map){.entry = NULL};
    if (bytes < sizeof(m->head))
        return err_set(err, -EINVAL, "it is too short");
    memcpy(&m->head, data, sizeof(m->head));
    if (memcmp(m->head.magic, DISK_MAP_MAGIC, sizeof(m->head.magic)))
        return err_set(err, -EINVAL, "it does not begin as a map");
    if (m->head.version != DISK_MAP_VERSION || m->head.flags & ~DISK_MAP_ALL)
        return err_set(err, -EPROTONOSUPPORT, "it has version %u, this program reads %u",
                       m->head.version, DISK_MAP_VERSION);
    if (m->head.size != size || m->head.pages > ENTRIES_MAX ||
        m->head.pages * sizeof(*m->entry) != bytes - sizeof(m->head))
        return err_set(err, -EINVAL, "its sizes make no sense");
    m->entry = malloc((size_t)(bytes - sizeof(m->head)) + 1);
    if (!m->entry)
        return err_set(err, -ENOMEM, "no memory for it");
    memcpy(m->entry, (const u8 *)data + sizeof(m->head), (size_t)(bytes - sizeof(m->head)));
    for (u64 i = 0; i < m->head.pages; i++) {
        const struct disk_map_entry *e = &m->entry[i];
        if ((i && e->page <= m->entry[i - 1].page) ||
            e->page >= (size + PAGE_SIZE - 1) / PAGE_SIZE || !e->sectors ||
            e->sectors & ~ALL_SECTORS || (e->slot != DISK_MAP_NOWHERE && e->slot >= slots)) {
            disk_map_free(m);
            return err_set(err, -EINVAL, "its entry %" PRIu64 " makes no sense", i);
        }
    }
    return 0;
}

int disk_map_load(const struct recording *r, unsigned n, u64 size, struct disk_map *m,
                  struct err *err)
{
    char name[32];
    struct blob file;
    u64 pages;
    map_name(n, name);
    *m = (struct disk_map){.entry = NULL};
    int code =
        recording_file(r, name, sizeof(m->head) + (u64)ENTRIES_MAX * sizeof(*m->entry), &file, err);
    if (code)
        return code;
    recording_size(r, PACK_PAGES, &pages);
    u8 *data = malloc((size_t)file.size + 1);
    if (!data)
        code = err_set(err, -ENOMEM, "no memory for it");
    else if (!blob_read_at(&file, data, (size_t)file.size, 0))
        code = err_set(err, -EIO, "%s", blob_why(&file));
    else
        code = disk_map_parse(m, data, file.size, size, pages / PAGE_SIZE, err);
    free(data);
    blob_close(&file);
    return code ? err_prefix(err, "%s of %s", name, r->path) : 0;
}

/* Zeros in the place of the sectors that are not known. */
static void only(u8 *page, u32 sectors)
{
    for (u32 s = 0; s < DISK_SECTOR_OF_PAGE; s++)
        if (!(sectors >> s & 1))
            memset(page + s * DISK_SECTOR, 0, DISK_SECTOR);
}

static size_t page_bytes(u64 page, u64 size)
{
    return (size_t)MIN(size - page * PAGE_SIZE, (u64)PAGE_SIZE);
}

bool disk_map_fits(const struct disk_map *m, int fd, u64 *at)
{
    for (u64 i = 0; i < m->head.pages; i++) {
        const struct disk_map_entry *e = &m->entry[i];
        u8 page[PAGE_SIZE] = {0};
        *at = e->page * PAGE_SIZE;
        if (!file_read_at(fd, page, page_bytes(e->page, m->head.size), *at))
            return false;
        only(page, e->sectors);
        struct hash128 hash = hash_bytes(page, sizeof(page));
        if (!hash_equal(&hash, &e->hash))
            return false;
    }
    return true;
}

/* ---- an image that is read from a pack ---- */

struct image {
    struct recording rec; /* a copy of what the door needs */
    unsigned n;
    u64 size;
    bool looked;
    struct disk_map map;
    struct blob pages;
    int fd;           /* the image itself, as far as the map knows it; -1: the pages above */
    struct err wrong; /* of the map; code 0: nothing */
    char why[400];
    u64 there; /* the page in `page`, and one */
    u32 sectors;
    u8 page[PAGE_SIZE];
};

static void close_image(void *opaque)
{
    struct image *im = opaque;
    disk_map_free(&im->map);
    blob_close(&im->pages);
    if (im->fd >= 0)
        close(im->fd);
    free(im);
}

static const char *image_why(void *opaque)
{
    struct image *im = opaque;
    return im->why[0] ? im->why : NULL;
}

static bool say(struct image *im, int error, const char *text)
{
    snprintf(im->why, sizeof(im->why), "%.390s", text);
    errno = error;
    return false;
}

static bool look(struct image *im)
{
    if (!im->looked) {
        im->looked = true;
        if (!disk_map_load(&im->rec, im->n, im->size, &im->map, &im->wrong))
            recording_file(&im->rec, PACK_PAGES, NEVER, &im->pages, &im->wrong);
    }
    return !im->wrong.code || say(im, EIO, im->wrong.text);
}

/* Binary search. NULL: not there. */
static const struct disk_map_entry *entry_of(const struct disk_map *m, u64 page)
{
    u64 low = 0, high = m->head.pages;
    while (low < high) {
        u64 mid = low + (high - low) / 2;
        if (m->entry[mid].page < page)
            low = mid + 1;
        else
            high = mid;
    }
    return low < m->head.pages && m->entry[low].page == page ? &m->entry[low] : NULL;
}

static bool read_outside(struct image *im, const struct disk_map_entry *e)
{
    memset(im->page, 0, PAGE_SIZE);
    if (!file_read_at(im->fd, im->page, page_bytes(e->page, im->size), e->page * PAGE_SIZE))
        return false;
    only(im->page, e->sectors);
    return true;
}

/* The page into im->page, and which of its sectors are known. */
static bool get_page(struct image *im, u64 page)
{
    char text[160];
    if (im->there == page + 1)
        return true;
    im->there = 0;
    const struct disk_map_entry *e = entry_of(&im->map, page);
    im->sectors = e ? e->sectors : im->map.head.flags & DISK_MAP_ALL ? ALL_SECTORS : 0;
    if (!e) {
        memset(im->page, 0, PAGE_SIZE);
    } else if (im->fd >= 0
                   ? !read_outside(im, e)
                   : e->slot == DISK_MAP_NOWHERE ||
                         !blob_read_at(&im->pages, im->page, PAGE_SIZE, (u64)e->slot * PAGE_SIZE)) {
        snprintf(text, sizeof(text), "the page at byte %" PRIu64 ": %s", page * PAGE_SIZE,
                 im->fd >= 0                   ? "it cannot be read"
                 : e->slot == DISK_MAP_NOWHERE ? "the pack does not have it"
                                               : blob_why(&im->pages));
        return say(im, EIO, text);
    } else {
        struct hash128 hash = hash_bytes(im->page, PAGE_SIZE);
        if (!hash_equal(&hash, &e->hash)) {
            snprintf(text, sizeof(text),
                     "the page at byte %" PRIu64 " is damaged: it has another hash",
                     page * PAGE_SIZE);
            return say(im, EBADMSG, text);
        }
    }
    im->there = page + 1;
    return true;
}

static bool read_image(void *opaque, void *out, size_t len, u64 offset)
{
    struct image *im = opaque;
    u8 *to = out;
    im->why[0] = 0;
    if (!look(im))
        return false;
    while (len) {
        u64 page = offset / PAGE_SIZE;
        size_t at = offset % PAGE_SIZE, n = MIN(len, PAGE_SIZE - at);
        if (!get_page(im, page))
            return false;
        for (size_t s = at / DISK_SECTOR; s <= (at + n - 1) / DISK_SECTOR; s++)
            if (!(im->sectors >> s & 1)) {
                char text[300];
                snprintf(text, sizeof(text),
                         "byte %" PRIu64 " of it is not in the pack, which has what the "
                         "recording's replay reads (`pack --disks all` packs all); name the image "
                         "itself: --disk %u=FILE",
                         page * PAGE_SIZE + s * DISK_SECTOR, im->n);
                return say(im, ENODATA, text);
            }
        memcpy(to, im->page + at, n);
        to += n;
        offset += n;
        len -= n;
    }
    return true;
}

static const struct blob_ops image_ops = {
    .read_at = read_image, .why = image_why, .close = close_image};

int disk_map_blob(struct disk_map *m, unsigned n, int fd, struct blob *out, struct err *err)
{
    struct image *im = calloc(1, sizeof(*im));
    if (!im)
        return err_set(err, -ENOMEM, "no memory for the disk");
    *im = (struct image){
        .n = n, .size = m->head.size, .looked = true, .map = *m, .pages = BLOB_CLOSED, .fd = fd};
    m->entry = NULL;
    *out = (struct blob){.fd = -1, .size = im->size, .ops = &image_ops, .opaque = im};
    return 0;
}

int pack_disk_blob(const struct recording *r, unsigned n, u64 size, struct blob *out,
                   struct err *err)
{
    char name[32];
    map_name(n, name);
    *out = (struct blob)BLOB_CLOSED;
    if (!recording_has(r, name) || !recording_has(r, PACK_PAGES))
        return err_set(err, -ENOENT, "there is no image of disk %u in it", n);
    struct image *im = calloc(1, sizeof(*im));
    if (!im)
        return err_set(err, -ENOMEM, "no memory for the disk");
    im->rec = (struct recording){.path = r->path, .dir = r->dir, .pack = r->pack};
    im->n = n;
    im->size = size;
    im->pages = (struct blob)BLOB_CLOSED;
    im->fd = -1;
    *out = (struct blob){.fd = -1, .size = size, .ops = &image_ops, .opaque = im};
    return 0;
}

/* ---- writing ---- */

struct slots {
    struct disk_map_entry **seen; /* by hash; a power of two */
    u64 size, n;
};

struct gathered {
    struct disk_map map;
    u64 room, bytes;
};

/* The slot of an equal page, or where this one is noted. */
static struct disk_map_entry **seen_at(struct slots *s, const struct hash128 *hash)
{
    for (u64 i = hash->lo;; i++) {
        struct disk_map_entry **at = &s->seen[i & (s->size - 1)];
        if (!*at || hash_equal(&(*at)->hash, hash))
            return at;
    }
}

static int add_entry(struct gathered *g, u64 page, u32 sectors, const u8 *data, struct err *err)
{
    if (g->map.head.pages == g->room) {
        u64 room = g->room ? g->room * 2 : 1024;
        struct disk_map_entry *e = realloc(g->map.entry, room * sizeof(*e));
        if (!e)
            return err_set(err, -ENOMEM, "no memory for the map of a disk");
        g->map.entry = e;
        g->room = room;
    }
    g->map.entry[g->map.head.pages++] = (struct disk_map_entry){
        .page = page,
        .slot = DISK_MAP_NOWHERE,
        .sectors = sectors,
        .hash = hash_bytes(data, PAGE_SIZE),
    };
    return 0;
}

static int read_page(struct disk *d, u64 page, u32 sectors, u8 *out, struct err *err)
{
    size_t bytes = page_bytes(page, d->size);
    memset(out, 0, PAGE_SIZE);
    if ((sectors & ALL_SECTORS) == ALL_SECTORS)
        return disk_base(d, page * PAGE_SIZE, out, bytes, err);
    int code = 0;
    for (u32 s = 0; s < DISK_SECTOR_OF_PAGE && !code; s++)
        if (sectors >> s & 1)
            code = disk_base(d, page * PAGE_SIZE + s * DISK_SECTOR, out + s * DISK_SECTOR,
                             DISK_SECTOR, err);
    return code;
}

/* What is to be known of a disk, by its pages' hashes. */
static int gather(struct gathered *g, struct disk *d, enum pack_disk how, struct err *err)
{
    static const u8 zeros[PAGE_SIZE];
    u8 data[PAGE_SIZE], sectors = ALL_SECTORS;
    int code = 0;
    memcpy(g->map.head.magic, DISK_MAP_MAGIC, sizeof(g->map.head.magic));
    g->map.head.version = DISK_MAP_VERSION;
    g->map.head.flags = how == PACK_DISK_ALL ? DISK_MAP_ALL : 0;
    g->map.head.size = d->size;
    for (u64 page = 0; !code && page < (d->size + PAGE_SIZE - 1) / PAGE_SIZE; page++) {
        if (how != PACK_DISK_ALL && !disk_reads_next(d->reads, &page, &sectors))
            break;
        code = read_page(d, page, sectors, data, err);
        if (!code && (how != PACK_DISK_ALL || memcmp(data, zeros, PAGE_SIZE)))
            code = add_entry(g, page, sectors, data, err);
    }
    return code;
}

/* Gives each page of all disks a place, equal ones the same, and writes them. */
static int put_pages(struct pack_writer *w, struct gathered *g, struct disk *const *disks,
                     unsigned n, struct slots *s, struct err *err)
{
    u8 data[PAGE_SIZE];
    u32 next = 0;
    int code = pack_begin(w, PACK_PAGES, err);
    for (unsigned i = 0; i < n && !code; i++)
        for (u64 k = 0; k < g[i].map.head.pages && !code; k++) {
            struct disk_map_entry *e = &g[i].map.entry[k], **at = seen_at(s, &e->hash);
            if (*at) {
                e->slot = (*at)->slot;
                continue;
            }
            *at = e;
            e->slot = next++;
            g[i].bytes += PAGE_SIZE;
            code = read_page(disks[i], e->page, e->sectors, data, err);
            struct hash128 hash = hash_bytes(data, PAGE_SIZE);
            if (!code && !hash_equal(&hash, &e->hash))
                code = err_set(err, -EIO, "the disk image %s changes while it is packed",
                               disks[i]->path);
            if (!code)
                code = pack_put(w, data, PAGE_SIZE, err);
        }
    return code ? code : pack_end(w, err);
}

static int put_maps(struct pack_writer *w, struct gathered *g, unsigned n, struct err *err)
{
    int code = 0;
    for (unsigned i = 0; i < n && !code; i++) {
        char name[32];
        map_name(i, name);
        code = pack_begin(w, name, err);
        if (!code)
            code = pack_put(w, &g[i].map.head, sizeof(g[i].map.head), err);
        if (!code)
            code = pack_put(w, g[i].map.entry, g[i].map.head.pages * sizeof(*g[i].map.entry), err);
        if (!code)
            code = pack_end(w, err);
    }
    return code;
}

int pack_disks(struct pack_writer *w, struct disk *const *disks, unsigned n, enum pack_disk how,
               struct err *err)
{
    struct gathered g[DESCRIPTION_DISKS] = {0};
    struct slots s = {.size = 1024};
    struct manifest *m = pack_writer_manifest(w);
    int code = 0;
    for (unsigned i = 0; i < n && !code; i++) {
        if (how != PACK_DISK_ALL && disk_reads_failed(disks[i]->reads))
            code = err_set(err, -ENOMEM, "no memory for what was read of the disks");
        if (!code)
            code = gather(&g[i], disks[i], how, err);
        s.n += g[i].map.head.pages;
    }
    while (s.size < 2 * s.n)
        s.size *= 2;
    if (!code && how != PACK_DISK_NONE && !(s.seen = calloc(s.size, sizeof(*s.seen))))
        code = err_set(err, -ENOMEM, "no memory for the pages of the disks");
    if (!code && how != PACK_DISK_NONE)
        code = put_pages(w, g, disks, n, &s, err);
    if (!code)
        code = put_maps(w, g, n, err);
    for (unsigned i = 0; i < n; i++) {
        m->disk[i] = how;
        m->disk_bytes[i] = g[i].bytes;
        disk_map_free(&g[i].map);
    }
    m->ndisks = n;
    free(s.seen);
    return code;
}
