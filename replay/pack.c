/* See pack.h. */
#include "replay/pack.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_io.h"
#include "base/seekable.h"
#include "base/tar.h"
#include "base/text.h"
#include "replay/recording.h"

#define FIRST "machine.dtb"

struct member {
    char name[PACK_NAME_MAX]; /* in a recording */
    u64 offset, size;         /* of its bytes in the archive */
};

struct pack {
    int fd;
    char *path;
    struct member *member;
    u32 n, room;
    void *machine;
    size_t machine_size;
    bool known; /* the manifest, */
    struct manifest manifest;
    struct err wrong; /* or why not */
    u64 bytes;
};

bool pack_is(int fd)
{
    char first[sizeof(FIRST)];
    return file_read_at(fd, first, sizeof(first), 0) && !memcmp(first, FIRST, sizeof(first));
}

void pack_close(struct pack *p)
{
    if (!p)
        return;
    close(p->fd);
    free(p->path);
    free(p->member);
    free(p->machine);
    manifest_free(&p->manifest);
    free(p);
}

bool pack_name_known(const char *name)
{
    size_t n = strlen(name);
    const char *below = strchr(name, '/');
    if (!strcmp(name, MANIFEST_NAME) || !strcmp(name, PACK_PAGES))
        return true;
    if (below && !strncmp(name, RECORDING_DISKS "/", sizeof(RECORDING_DISKS)))
        return n == sizeof("disks/0.map") - 1 && below[1] >= '0' &&
               below[1] < '0' + DESCRIPTION_DISKS && !strcmp(below + 2, ".map");
    return recording_name_packed(name);
}

static struct member *find(const struct pack *p, const char *name)
{
    for (u32 i = 0; i < p->n; i++)
        if (!strcmp(p->member[i].name, name))
            return &p->member[i];
    return NULL;
}

/* Is it stored as it is? */
static bool is_plain(const char *name)
{
    return !strcmp(name, FIRST) || !strcmp(name, MANIFEST_NAME);
}

/* Adds a member by its name in the archive. */
static int take(struct pack *p, struct tar_member *t, u64 offset, struct err *err)
{
    char shown[2 * TAR_NAME];
    size_t n = strlen(t->name), cut = sizeof(PACK_SUFFIX) - 1;
    text_printable(t->name, shown, sizeof(shown));
    bool plain = is_plain(t->name);
    if (!plain && n > cut && !strcmp(t->name + n - cut, PACK_SUFFIX))
        t->name[n -= cut] = 0;
    else if (!plain)
        n = PACK_NAME_MAX;
    if (n >= PACK_NAME_MAX || (!plain && is_plain(t->name)) || !pack_name_known(t->name))
        return err_set(err, -EINVAL, "there is '%s' in it, which no recording has", shown);
    if (find(p, t->name))
        return err_set(err, -EINVAL, "'%s' is in it twice", shown);
    if (!p->n != !strcmp(t->name, FIRST))
        return err_set(err, -EINVAL, "it does not begin with " FIRST);
    if (p->n && !strcmp(p->member[p->n - 1].name, MANIFEST_NAME))
        return err_set(err, -EINVAL, "'%s' stands behind its manifest", shown);
    if (p->n == PACK_FILES_MAX)
        return err_set(err, -EFBIG, "it has more than %u files", PACK_FILES_MAX);
    if (p->n == p->room) {
        u32 room = p->room ? p->room * 2 : 32;
        struct member *m = realloc(p->member, room * sizeof(*m));
        if (!m)
            return err_set(err, -ENOMEM, "no memory for it");
        p->member = m;
        p->room = room;
    }
    struct member *m = &p->member[p->n++];
    *m = (struct member){.offset = offset, .size = t->size};
    memcpy(m->name, t->name, n + 1);
    return 0;
}

static int cut_off(const struct pack *p, struct err *err)
{
    return err_set(err, -EINVAL,
                   "it was cut off%s: a pack ends with its manifest, and packing did not come so "
                   "far, or the file was not copied whole",
                   p->n ? "" : " at its start");
}

/* Goes from header to header. */
static int walk(struct pack *p, struct err *err)
{
    u8 block[TAR_BLOCK], end[TAR_BLOCK];
    struct tar_member t;
    struct err none;
    for (u64 at = 0;;) {
        if (p->bytes - at < TAR_BLOCK)
            return cut_off(p, err);
        if (!file_read_at(p->fd, block, sizeof(block), at))
            return err_errno(err, "cannot read it");
        int r = tar_header_read(block, &t, err);
        if (r < 0)
            return r;
        at += TAR_BLOCK;
        if (r == 1) { /* two of them, and nothing behind: else it is no archive's end */
            bool whole = p->bytes - at == TAR_BLOCK && file_read_at(p->fd, end, sizeof(end), at) &&
                         tar_header_read(end, &t, &none) == 1;
            if (p->n && whole && !strcmp(p->member[p->n - 1].name, MANIFEST_NAME))
                return 0;
            return cut_off(p, err);
        }
        if (t.size > p->bytes - at || tar_padded(t.size) > p->bytes - at)
            return cut_off(p, err);
        if ((r = take(p, &t, at, err)))
            return r;
        at += tar_padded(t.size);
    }
}

static int load(const struct pack *p, const char *name, u64 max, void **data, size_t *size,
                struct err *err)
{
    const struct member *m = find(p, name);
    if (!m || m->size > max)
        return err_set(err, -EFBIG, "its %s has %" PRIu64 " bytes, more than %" PRIu64, name,
                       m ? m->size : 0, max);
    *data = malloc((size_t)m->size + 1);
    if (!*data)
        return err_set(err, -ENOMEM, "no memory for its %s", name);
    *size = (size_t)m->size;
    if (file_read_at(p->fd, *data, *size, m->offset))
        return 0;
    free(*data);
    *data = NULL;
    return err_set(err, -EIO, "cannot read its %s", name);
}

int pack_open(struct pack **out, int fd, const char *path, struct err *err)
{
    struct stat st;
    struct pack *p = calloc(1, sizeof(*p));
    if (!p) {
        close(fd);
        return err_set(err, -ENOMEM, "no memory to open %s", path);
    }
    p->fd = fd;
    p->path = strdup(path);
    int code = !p->path          ? err_set(err, -ENOMEM, "no memory")
               : fstat(fd, &st)  ? err_errno(err, "cannot stat it")
               : st.st_size <= 0 ? err_set(err, -EINVAL, "the file is empty")
                                 : 0;
    if (!code) {
        p->bytes = (u64)st.st_size;
        code = walk(p, err);
    }
    if (!code)
        code = load(p, FIRST, DESCRIPTION_MAX_SIZE, &p->machine, &p->machine_size, err);
    if (code) {
        pack_close(p);
        return err_prefix(err, "%s is no whole packed recording", path);
    }
    *out = p;
    return 0;
}

bool pack_has(const struct pack *p, const char *name)
{
    return find(p, name);
}

const void *pack_machine(const struct pack *p, size_t *size)
{
    *size = p->machine_size;
    return p->machine;
}

u64 pack_bytes(const struct pack *p)
{
    return p->bytes;
}

/* The manifest names the members, in their order. */
static int compare(const struct pack *p, struct err *err)
{
    const struct manifest *m = &p->manifest;
    for (u32 i = 0; i < MAX(m->n, p->n - 1); i++) {
        const char *there = i < p->n - 1 ? p->member[i].name : NULL;
        const char *said = i < m->n ? m->file[i].name : NULL;
        if (said && !find(p, said))
            return err_set(err, -EINVAL, "it lacks '%s', which its manifest names", said);
        if (there && !manifest_find(m, there))
            return err_set(err, -EINVAL, "there is '%s' in it, which its manifest does not name",
                           there);
        if (!there || !said || strcmp(there, said))
            return err_set(err, -EINVAL, "its manifest does not name its files one by one");
    }
    const struct manifest_file *f = manifest_find(m, FIRST);
    struct sha256 hash = sha256_bytes(p->machine, p->machine_size);
    if (!f || f->size != p->machine_size || !sha256_equal(&hash, &f->hash))
        return err_set(err, -EINVAL, "its " FIRST " is not what its manifest says");
    return 0;
}

const struct manifest *pack_manifest(struct pack *p, struct err *err)
{
    void *text;
    size_t size;
    if (!p->known && !p->wrong.code) {
        int code = load(p, MANIFEST_NAME, MANIFEST_MAX, &text, &size, &p->wrong);
        if (!code) {
            code = manifest_parse(text, size, &p->manifest, &p->wrong);
            free(text);
        }
        if (!code)
            code = compare(p, &p->wrong);
        p->known = !code;
        if (code)
            err_prefix(&p->wrong, "the packed recording %s", p->path);
    }
    if (p->known)
        return &p->manifest;
    *err = p->wrong;
    return NULL;
}

int pack_file(struct pack *p, const char *name, struct blob *out, struct err *err)
{
    *out = (struct blob)BLOB_CLOSED;
    const struct manifest *manifest = pack_manifest(p, err);
    if (!manifest)
        return err->code;
    const struct member *m = find(p, name);
    if (!m || is_plain(name))
        return err_set(err, -ENOENT, "%s is not in it", name);
    int code = seekable_open(out, p->fd, m->offset, m->size, err);
    if (!code && out->size != manifest_find(manifest, name)->size) {
        blob_close(out);
        code = err_set(err, -EINVAL, "it unpacks to another size than its manifest says");
    }
    return code ? err_prefix(err, "%s in it", name) : 0;
}

int pack_check(struct pack *p, struct err *err)
{
    const struct manifest *m = pack_manifest(p, err);
    struct sha256_stream *sha = sha256_create();
    u8 *piece = malloc(SEEKABLE_FRAME);
    int code = !m ? err->code : sha && piece ? 0 : err_set(err, -ENOMEM, "no memory");
    for (u32 i = 1; !code && i < m->n; i++) { /* that of machine.dtb was looked at */
        const struct manifest_file *f = &m->file[i];
        struct blob b;
        code = pack_file(p, f->name, &b, err);
        if (!code)
            sha256_begin(sha);
        for (u64 at = 0; !code && at < b.size;) {
            size_t n = (size_t)MIN(b.size - at, (u64)SEEKABLE_FRAME);
            if (!blob_read_at(&b, piece, n, at))
                code = err_set(err, -EIO, "%s in it: %s", f->name, blob_why(&b));
            else
                sha256_add(sha, piece, n);
            at += n;
        }
        if (!code) {
            struct sha256 hash = sha256_end(sha);
            if (!sha256_equal(&hash, &f->hash))
                code = err_set(err, -EINVAL, "%s in it is not what its manifest says: wrong hash",
                               f->name);
        }
        blob_close(&b);
    }
    sha256_destroy(sha);
    free(piece);
    return code ? err_prefix(err, "the packed recording %s", p->path) : 0;
}
