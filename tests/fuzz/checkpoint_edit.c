/* See checkpoint_edit.h. */
#include "checkpoint_edit.h"

#include <fcntl.h>
#include <lz4.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

/* What it packs; false: it does not fit the header. */
static bool unpack(struct checkpoint_edit *e, size_t size)
{
    const struct checkpoint_header *h = &e->h;
    if (h->meta_packed > size - sizeof(*h) || h->meta_packed > h->meta_raw ||
        h->meta_raw > META_MAX)
        return false;
    e->raw = h->meta_raw;
    e->head = size - h->meta_packed;
    e->meta = malloc(e->raw + 1);
    if (h->meta_packed == e->raw) {
        memcpy(e->meta, e->data + e->head, e->raw);
        return true;
    }
    return LZ4_decompress_safe((char *)e->data + e->head, (char *)e->meta, (int)h->meta_packed,
                               (int)e->raw) == (int)e->raw;
}

bool checkpoint_edit_open(struct checkpoint_edit *e, const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    memset(e, 0, sizeof(*e));
    if (fd < 0)
        return false;
    if (fstat(fd, &st))
        abort();
    size_t size = (size_t)st.st_size;
    e->data = malloc(size + 1);
    bool good = read(fd, e->data, size) == (ssize_t)size && size >= sizeof(e->h);
    close(fd);
    if (good)
        memcpy(&e->h, e->data, sizeof(e->h));
    good = good && unpack(e, size);
    if (!good)
        checkpoint_edit_drop(e);
    return good;
}

void checkpoint_edit_drop(struct checkpoint_edit *e)
{
    free(e->data);
    free(e->meta);
}

u64 checkpoint_edit_close(struct checkpoint_edit *e, const char *path)
{
    if (e->h.meta_raw == e->raw)
        e->h.meta_packed = e->raw;
    e->h.meta_check = XXH3_64bits(e->meta, e->raw);
    e->h.header_check = XXH3_64bits(&e->h, offsetof(struct checkpoint_header, header_check));
    memcpy(e->data, &e->h, sizeof(e->h));
    unlink(path); /* it may be a link to the original */
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, e->data, e->head) != (ssize_t)e->head ||
        write(fd, e->meta, e->raw) != (ssize_t)e->raw)
        abort();
    close(fd);
    checkpoint_edit_drop(e);
    return e->h.header_check;
}
