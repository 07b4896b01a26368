/* See contents.h. A header, then pieces: struct piece_header and the bytes, packed or as they are.
 * An index in memory, by hash, is made when the first piece is asked for. */
#include "replay/contents.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/chunks.h"
#include "base/file_io.h"
#include "base/write_behind.h"

#define MAGIC       "RPRCONT\n"
#define VERSION     1u
#define PIECE_MAGIC 0x63656970u /* "piec" */
#define INDEX_FIRST 1024u       /* slots; a power of two */

/* On disk, little-endian. */
struct piece_header {
    u32 magic;
    u32 size;   /* 1 to INPUT_CONTENT_MAX */
    u32 packed; /* bytes that follow; equal to size: not compressed */
    u32 zero;
    struct hash128 hash; /* XXH3-128 of the piece */
    u64 check;           /* XXH3-64 of the bytes before */
};
_Static_assert(sizeof(struct piece_header) == 40, "part of the format");
_Static_assert(sizeof(struct piece_header) + INPUT_CONTENT_MAX <= WRITE_BEHIND_MOST, "a message");

struct place {
    struct hash128 hash;
    u64 offset; /* of its header; 0: the slot is free */
};
#define ON_ITS_WAY UINT64_MAX /* where it will be shows when it is written */

struct contents {
    struct blob blob;            /* a file of its own, where it is written */
    u64 end;                     /* of the last whole piece, as far as they were waited for */
    u64 coming;                  /* at most so many bytes are on their way after it */
    u64 placed;                  /* up to here the index says where pieces are */
    struct write_behind *behind; /* NULL: nothing was put */
    struct err failed;           /* code 0: none */
    struct place *index;
    u64 slots, used;
    bool indexed;
    bool writes;
    struct room room;
    u8 *packed; /* INPUT_CONTENT_MAX bytes, for reading what is packed */
};

static const struct chunk_format format = {.magic = MAGIC, .version = VERSION};

static u64 check_of(const struct piece_header *h)
{
    return XXH3_64bits(h, offsetof(struct piece_header, check));
}

static bool plausible(const struct piece_header *h)
{
    return h->magic == PIECE_MAGIC && h->check == check_of(h) && h->size &&
           h->size <= INPUT_CONTENT_MAX && h->packed && h->packed <= h->size && !h->zero;
}

/* The slot of that hash, or the free one where it would be. */
static struct place *find(const struct contents *c, const struct hash128 *hash)
{
    for (u64 i = hash->lo;; i++) {
        struct place *p = &c->index[i & (c->slots - 1)];
        if (!p->offset || (p->hash.hi == hash->hi && p->hash.lo == hash->lo))
            return p;
    }
}

static int make_room(struct contents *c, struct err *err)
{
    if (c->index && c->used * 2 < c->slots)
        return 0;
    u64 before = c->slots;
    struct place *old = c->index;
    c->slots = before ? before * 2 : INDEX_FIRST;
    c->index = calloc(c->slots, sizeof(*c->index));
    if (!c->index) {
        c->index = old;
        c->slots = before;
        return err_set(err, -ENOMEM, "no memory for the index of the recording's " CONTENTS_NAME);
    }
    for (u64 i = 0; i < before; i++)
        if (old[i].offset)
            *find(c, &old[i].hash) = old[i];
    free(old);
    return 0;
}

static int note(struct contents *c, const struct hash128 *hash, u64 offset, struct err *err)
{
    int code = make_room(c, err);
    if (code)
        return code;
    struct place *p = find(c, hash);
    if (!p->offset) {
        *p = (struct place){*hash, offset};
        c->used++;
    }
    return 0;
}

static int begin(struct contents **out, struct blob blob, struct err *err)
{
    struct contents *c = calloc(1, sizeof(*c));
    if (c)
        c->packed = malloc(INPUT_CONTENT_MAX);
    if (!c || !c->packed) {
        free(c);
        blob_close(&blob);
        return err_set(err, -ENOMEM, "no memory for the recording's " CONTENTS_NAME);
    }
    c->blob = blob;
    c->end = c->placed = sizeof(struct chunk_file_header);
    *out = c;
    return 0;
}

int contents_create(struct contents **out, int fd, const struct room *room, struct err *err)
{
    struct chunk_file_header h = chunk_file_begin(&format);
    int code = begin(out, blob_of(fd), err);
    if (code)
        return code;
    (*out)->writes = (*out)->indexed = true;
    (*out)->room = *room;
    if (!file_write_at(fd, &h, sizeof(h), 0))
        code = err_errno(err, "cannot write " CONTENTS_NAME);
    if (!code)
        code = make_room(*out, err);
    if (code)
        contents_destroy(*out);
    return code;
}

int contents_follow(struct contents **out, int fd, const struct room *room, struct err *err)
{
    int code = begin(out, blob_of(fd), err);
    if (code)
        return code;
    (*out)->writes = true;
    (*out)->room = *room;
    return 0;
}

int contents_open(struct contents **out, struct blob blob, struct err *err)
{
    return begin(out, blob, err);
}

void contents_destroy(struct contents *c)
{
    if (!c)
        return;
    write_behind_destroy(c->behind);
    blob_close(&c->blob);
    free(c->index);
    free(c->packed);
    free(c);
}

u64 contents_bytes(const struct contents *c)
{
    return c->end + c->coming;
}

/* Reads the headers of all pieces, up to the first that is none: a killed recorder's. */
static int look_through(struct contents *c, struct err *err)
{
    struct chunk_file_header file;
    struct piece_header h;
    if (!blob_read_at(&c->blob, &file, sizeof(file), 0) ||
        memcmp(file.magic, MAGIC, sizeof(file.magic)) || file.check != chunk_file_check(&file) ||
        file.size != sizeof(file))
        return err_set(err, -EINVAL, CONTENTS_NAME " is damaged: it does not begin as one");
    if (file.version != VERSION || file.flags)
        return err_set(err, -EPROTONOSUPPORT,
                       CONTENTS_NAME " has version %u, this program reads version %u", file.version,
                       VERSION);
    u64 size = blob_size(&c->blob);
    int code = make_room(c, err);
    while (!code && blob_read_at(&c->blob, &h, sizeof(h), c->end) && plausible(&h) &&
           h.packed <= size - c->end - sizeof(h)) {
        code = note(c, &h.hash, c->end, err);
        c->end += sizeof(h) + h.packed;
    }
    c->placed = c->end;
    c->indexed = !code;
    return code;
}

/* Where the pieces are that were on their way and are written. */
static int place_written(struct contents *c, struct err *err)
{
    struct piece_header h;
    for (; c->placed < c->end; c->placed += sizeof(h) + h.packed) {
        if (!blob_read_at(&c->blob, &h, sizeof(h), c->placed) || !plausible(&h))
            return err_set(err, -EINVAL, CONTENTS_NAME " changes while it is written");
        find(c, &h.hash)->offset = c->placed;
    }
    return 0;
}

/* The host cannot write. Pieces that no record names yet are lost. */
static int give_up(struct contents *c, int why, struct err *err)
{
    if (!c->failed.code) {
        errno = -why;
        err_errno(&c->failed, "cannot write " CONTENTS_NAME);
        write_behind_wait(c->behind);
        c->coming = 0;
        (void)!ftruncate(c->blob.fd, (off_t)c->end);
    }
    *err = c->failed;
    return err->code;
}

/* A piece, header and bytes, as it is in the file. */
static size_t form(const u8 *message, size_t len, u8 *out)
{
    struct piece_header h;
    memcpy(&h, message, sizeof(h));
    h.packed = chunk_pack(message + sizeof(h), (u32)(len - sizeof(h)), out + sizeof(h), 0);
    h.check = check_of(&h);
    memcpy(out, &h, sizeof(h));
    return sizeof(h) + h.packed;
}

int contents_put(struct contents *c, const u8 *data, u32 len, struct hash128 *hash, struct err *err)
{
    XXH128_hash_t x = XXH3_128bits(data, len);
    *hash = (struct hash128){x.high64, x.low64};
    int code = c->failed.code ? give_up(c, 0, err) : c->indexed ? 0 : look_through(c, err);
    if (code || find(c, hash)->offset)
        return code;
    struct piece_header h = {.magic = PIECE_MAGIC, .size = len, .hash = *hash};
    u64 size = sizeof(h) + len;
    if (room_ask(&c->room, c->blob.fd, c->end + c->coming + size) != ROOM_FINE)
        return err_set(err, -ENOSPC, CONTENTS_NAME " cannot grow: the host's disk is full");
    if (!c->behind && !(c->behind = write_behind_create(c->blob.fd, c->end, form)))
        return err_set(err, -ENOMEM, "no memory for the recording's " CONTENTS_NAME);
    const struct iovec parts[] = {{&h, sizeof(h)}, {(void *)(uintptr_t)data, len}};
    int why = write_behind_put(c->behind, parts, 2);
    if (why)
        return give_up(c, why, err);
    c->coming += size;
    return note(c, hash, ON_ITS_WAY, err);
}

int contents_wait(struct contents *c, struct err *err)
{
    int why = c->failed.code || !c->behind ? 0 : write_behind_wait(c->behind);
    if (c->failed.code || why)
        return give_up(c, why, err);
    if (c->behind)
        c->end = write_behind_end(c->behind);
    c->coming = 0;
    return 0;
}

bool contents_busy(const struct contents *c)
{
    return c->behind && write_behind_busy(c->behind);
}

/* What lies at `offset` is that piece, which comes to `out`. */
static int get_at(struct contents *c, u64 offset, const struct hash128 *hash, u32 len, u8 *out,
                  struct err *err)
{
    struct piece_header h;
    bool good =
        blob_read_at(&c->blob, &h, sizeof(h), offset) && plausible(&h) && h.size == len &&
        blob_read_at(&c->blob, h.packed == len ? out : c->packed, h.packed, offset + sizeof(h)) &&
        (h.packed == len || chunk_unpack(c->packed, h.packed, out, len));
    XXH128_hash_t x = good ? XXH3_128bits(out, len) : (XXH128_hash_t){0, 0};
    if (good && x.high64 == hash->hi && x.low64 == hash->lo)
        return 0;
    return err_set(err, -EINVAL,
                   CONTENTS_NAME " is damaged: the piece %016llx%016llx, at byte %llu, is not what "
                                 "was written",
                   (unsigned long long)hash->hi, (unsigned long long)hash->lo,
                   (unsigned long long)offset);
}

/* All that was put is in the file, and the index says where. */
static int settle(struct contents *c, struct err *err)
{
    int code = contents_wait(c, err);
    if (code)
        return code;
    return c->indexed ? place_written(c, err) : look_through(c, err);
}

int contents_get(struct contents *c, const struct hash128 *hash, u32 len, u8 *out, struct err *err)
{
    int code = settle(c, err);
    if (code)
        return code;
    const struct place *p = find(c, hash);
    if (p->offset)
        return get_at(c, p->offset, hash, len, out, err);
    return err_set(err, -ENODATA,
                   CONTENTS_NAME " lacks the piece %016llx%016llx: it is damaged, or of another "
                                 "recording",
                   (unsigned long long)hash->hi, (unsigned long long)hash->lo);
}

int contents_copy(struct contents *c, bool (*wanted)(void *opaque, const struct hash128 *hash),
                  int (*put)(void *opaque, const void *data, size_t len, struct err *err),
                  void *opaque, u64 *left, struct err *err)
{
    const struct chunk_file_header file = chunk_file_begin(&format);
    struct piece_header h;
    int code = settle(c, err);
    if (!code)
        code = put(opaque, &file, sizeof(file), err);
    *left = 0;
    for (u64 at = sizeof(file); !code && at < c->end; at += sizeof(h) + h.packed) {
        if (!blob_read_at(&c->blob, &h, sizeof(h), at) || !plausible(&h) ||
            !blob_read_at(&c->blob, c->packed, h.packed, at + sizeof(h)))
            return err_set(err, -EINVAL, CONTENTS_NAME " changes while it is read");
        if (!wanted(opaque, &h.hash)) {
            ++*left;
            continue;
        }
        code = put(opaque, &h, sizeof(h), err);
        if (!code)
            code = put(opaque, c->packed, h.packed, err);
    }
    return code;
}

int contents_check(struct contents *c, bool whole, struct err *err)
{
    u8 *out = malloc(INPUT_CONTENT_MAX);
    struct piece_header h;
    int code = out ? 0 : err_set(err, -ENOMEM, "no memory");
    if (!code)
        code = settle(c, err);
    for (u64 at = sizeof(struct chunk_file_header); !code && at < c->end;
         at += sizeof(h) + h.packed)
        code = blob_read_at(&c->blob, &h, sizeof(h), at) && plausible(&h)
                   ? get_at(c, at, &h.hash, h.size, out, err)
                   : err_set(err, -EINVAL, CONTENTS_NAME " changes while it is read");
    if (!code && whole && blob_size(&c->blob) != c->end)
        code = err_set(err, -EINVAL, CONTENTS_NAME " is damaged: at byte %llu is no piece",
                       (unsigned long long)c->end);
    free(out);
    return code;
}
