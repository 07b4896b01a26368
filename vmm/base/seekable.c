/* See seekable.h. Little-endian. The table's frame: its magic and size (4 bytes each); for each
 * frame its packed size and its size (4 each); their number (4), flags (1), the format's magic (4).
 */
#include "base/seekable.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include "base/file_io.h"

#define LEVEL                                                                                      \
    (-1) /* more than 300 MB/s of what files have; 1 is a fifth slower, and a tenth smaller */
#define TABLE_MAGIC  0x184d2a5eu
#define FORMAT_MAGIC 0x8f92eab1u
#define HAS_SUMS     0x80u /* entries have another 4 bytes; ours have none, frames check themselves */
#define RESERVED     0x7cu
#define FOOTER       9u

struct entry {
    u32 packed, size;
};

struct seekable_writer {
    int (*put)(void *opaque, const void *data, size_t len);
    void *opaque;
    ZSTD_CCtx *z;
    struct entry *table;
    u32 n, room;
    size_t filled;
    u8 *raw, *packed;
};

struct seekable_writer *seekable_create(int (*put)(void *opaque, const void *data, size_t len),
                                        void *opaque)
{
    struct seekable_writer *w = calloc(1, sizeof(*w));
    if (!w)
        return NULL;
    *w = (struct seekable_writer){.put = put, .opaque = opaque};
    w->z = ZSTD_createCCtx();
    w->raw = malloc(SEEKABLE_FRAME);
    w->packed = malloc(ZSTD_compressBound(SEEKABLE_FRAME));
    if (w->z && w->raw && w->packed &&
        !ZSTD_isError(ZSTD_CCtx_setParameter(w->z, ZSTD_c_compressionLevel, LEVEL)) &&
        !ZSTD_isError(ZSTD_CCtx_setParameter(w->z, ZSTD_c_checksumFlag, 1)))
        return w;
    seekable_destroy(w);
    return NULL;
}

static int end_frame(struct seekable_writer *w)
{
    if (w->n == w->room) {
        u32 room = w->room ? w->room * 2 : 64;
        struct entry *table = realloc(w->table, room * sizeof(*table));
        if (!table)
            return -ENOMEM;
        w->table = table;
        w->room = room;
    }
    size_t n =
        ZSTD_compress2(w->z, w->packed, ZSTD_compressBound(SEEKABLE_FRAME), w->raw, w->filled);
    if (ZSTD_isError(n))
        return -ENOMEM;
    w->table[w->n++] = (struct entry){(u32)n, (u32)w->filled};
    w->filled = 0;
    return w->put(w->opaque, w->packed, n);
}

int seekable_add(struct seekable_writer *w, const void *data, size_t len)
{
    const u8 *p = data;
    int code = 0;
    while (len && !code) {
        size_t n = MIN(len, SEEKABLE_FRAME - w->filled);
        memcpy(w->raw + w->filled, p, n);
        w->filled += n;
        p += n;
        len -= n;
        if (w->filled == SEEKABLE_FRAME)
            code = end_frame(w);
    }
    return code;
}

int seekable_end(struct seekable_writer *w)
{
    int code = w->filled || !w->n ? end_frame(w) : 0; /* of nothing, too, zstd wants a frame */
    u32 bytes = w->n * (u32)sizeof(*w->table) + FOOTER;
    const u32 head[2] = {TABLE_MAGIC, bytes}, magic = FORMAT_MAGIC;
    u8 footer[FOOTER] = {0};
    memcpy(footer, &w->n, 4);
    memcpy(footer + 5, &magic, 4);
    if (!code)
        code = w->put(w->opaque, head, sizeof(head));
    if (!code)
        code = w->put(w->opaque, w->table, w->n * sizeof(*w->table));
    if (!code)
        code = w->put(w->opaque, footer, sizeof(footer));
    w->n = 0;
    return code;
}

void seekable_destroy(struct seekable_writer *w)
{
    if (!w)
        return;
    ZSTD_freeCCtx(w->z);
    free(w->table);
    free(w->raw);
    free(w->packed);
    free(w);
}

/* ---- reading ---- */

struct frame {
    u64 at, from; /* in the file; of the bytes */
};

struct reader {
    int fd;
    ZSTD_DCtx *z;
    struct frame *frame; /* n and one more: where the last ends */
    u32 n;
    u32 there; /* the frame that `raw` has; n: none */
    const char *why;
    u8 *packed, *raw; /* of the largest */
};

static void close_reader(void *opaque)
{
    struct reader *r = opaque;
    if (r->fd >= 0)
        close(r->fd);
    ZSTD_freeDCtx(r->z);
    free(r->frame);
    free(r->packed);
    free(r->raw);
    free(r);
}

static bool unpack(struct reader *r, u32 i)
{
    const struct frame *f = &r->frame[i];
    size_t packed = (size_t)(f[1].at - f->at), size = (size_t)(f[1].from - f->from);
    r->why = NULL;
    r->there = r->n;
    if (!file_read_at(r->fd, r->packed, packed, f->at))
        return false;
    errno = EBADMSG;
    r->why = "it is damaged: what is packed there cannot be unpacked";
    /* One frame of that size, and nothing that is not one. */
    if (ZSTD_getFrameContentSize(r->packed, packed) != size ||
        ZSTD_findFrameCompressedSize(r->packed, packed) != packed ||
        ZSTD_decompressDCtx(r->z, r->raw, size, r->packed, packed) != size)
        return false;
    r->why = NULL;
    r->there = i;
    return true;
}

static bool read_at(void *opaque, void *out, size_t len, u64 offset)
{
    struct reader *r = opaque;
    u8 *to = out;
    if (!len)
        return true;
    u32 low = 0, high = r->n; /* frame[low].from <= offset < frame[high].from */
    while (high - low > 1) {
        u32 mid = low + (high - low) / 2;
        if (r->frame[mid].from <= offset)
            low = mid;
        else
            high = mid;
    }
    for (u32 i = low; len; i++) {
        if (r->there != i && !unpack(r, i))
            return false;
        size_t n = (size_t)MIN(r->frame[i + 1].from - offset, (u64)len);
        memcpy(to, r->raw + (offset - r->frame[i].from), n);
        to += n;
        offset += n;
        len -= n;
    }
    return true;
}

static const char *why(void *opaque)
{
    return ((struct reader *)opaque)->why;
}

/* From the table's bytes. NULL, or what is wrong. */
static const char *take_table(struct reader *r, const u8 *table, size_t step, u64 at, u64 end)
{
    u32 packed_most = 0, most = 0;
    u64 from = 0;
    for (u32 i = 0; i < r->n; i++) {
        struct entry e;
        memcpy(&e, table + i * step, sizeof(e));
        if (e.size > SEEKABLE_FRAME_MAX || !e.packed ||
            e.packed > ZSTD_compressBound(SEEKABLE_FRAME_MAX) || (!e.size && r->n > 1))
            return "a frame in it is larger than any that a pack has";
        r->frame[i] = (struct frame){at, from};
        at += e.packed;
        from += e.size;
        packed_most = MAX(packed_most, e.packed);
        most = MAX(most, e.size);
    }
    r->frame[r->n] = (struct frame){at, from};
    if (at != end)
        return "its table of frames makes no sense";
    r->packed = malloc(packed_most + 1);
    r->raw = malloc(most + 1);
    return r->packed && r->raw ? NULL : "no memory for it";
}

static const char *read_table(struct reader *r, u64 offset, u64 size)
{
    u8 footer[FOOTER];
    u32 magic, head[2];
    if (size < FOOTER + sizeof(head) ||
        !file_read_at(r->fd, footer, FOOTER, offset + size - FOOTER))
        return "it is too short";
    memcpy(&r->n, footer, 4);
    memcpy(&magic, footer + 5, 4);
    size_t step = footer[4] & HAS_SUMS ? 12 : 8;
    u64 bytes = (u64)r->n * step + FOOTER;
    if (magic != FORMAT_MAGIC || footer[4] & RESERVED || !r->n || bytes > size - sizeof(head))
        return "it has no table of its frames";
    u64 at = offset + size - bytes - sizeof(head);
    u8 *table = malloc((size_t)bytes);
    r->frame = malloc(((size_t)r->n + 1) * sizeof(*r->frame));
    r->there = r->n;
    const char *wrong = table && r->frame ? NULL : "no memory for it";
    if (!wrong && (!file_read_at(r->fd, head, sizeof(head), at) || head[0] != TABLE_MAGIC ||
                   head[1] != bytes || !file_read_at(r->fd, table, (size_t)bytes, at + 8)))
        wrong = "it has no table of its frames";
    if (!wrong)
        wrong = take_table(r, table, step, offset, at);
    free(table);
    return wrong;
}

int seekable_open(struct blob *out, int fd, u64 offset, u64 size, struct err *err)
{
    static const struct blob_ops ops = {.read_at = read_at, .why = why, .close = close_reader};
    struct reader *r = calloc(1, sizeof(*r));
    const char *wrong = "no memory for it";
    if (r) {
        r->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        r->z = ZSTD_createDCtx();
        if (r->z && r->fd >= 0)
            wrong = read_table(r, offset, size);
    }
    if (wrong) {
        if (r)
            close_reader(r);
        return err_set(err, -EINVAL, "it cannot be unpacked: %s", wrong);
    }
    *out = (struct blob){.fd = -1, .size = r->frame[r->n].from, .ops = &ops, .opaque = r};
    return 0;
}
