/* See kept.h. */
#include "replay/kept.h"

#include <stdlib.h>
#include <string.h>

#define PARTS_MAX (1u << 20) /* 128 GiB of files */

void kept_take(void *kept, const struct record *rec)
{
    struct kept *k = kept;
    if (rec->type != REC_KEPT || !rec->kept.size || rec->kept.size > INPUT_CONTENT_MAX ||
        rec->kept.length > INT64_MAX || rec->kept.offset >= rec->kept.length ||
        rec->kept.size > rec->kept.length - rec->kept.offset || k->count == PARTS_MAX)
        return;
    if (k->count == k->room) {
        size_t room = k->room ? 2 * k->room : 64;
        struct kept_part *bigger = realloc(k->part, room * sizeof(*bigger));
        if (!bigger)
            return;
        k->part = bigger;
        k->room = room;
    }
    k->part[k->count++] = (struct kept_part){rec->kept.inode, rec->kept.length, rec->kept.offset,
                                             (u32)rec->kept.size, rec->kept.hash};
}

static int compare_numbers(u64 a, u64 b)
{
    return (a > b) - (a < b);
}

static int compare(const void *a, const void *b)
{
    const struct kept_part *x = a, *y = b;
    int by = compare_numbers(x->inode, y->inode);
    by = by ? by : compare_numbers(x->length, y->length);
    return by ? by : compare_numbers(x->offset, y->offset);
}

/* The part with that byte; NULL: none. Parts do not overlap, or the last that begins before it is
 * the one. */
static const struct kept_part *find(struct kept *k, u64 inode, u64 length, u64 offset)
{
    if (!k->sorted && k->count)
        qsort(k->part, k->count, sizeof(*k->part), compare);
    k->sorted = true;
    const struct kept_part wanted = {.inode = inode, .length = length, .offset = offset};
    size_t low = 0, high = k->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare(&k->part[middle], &wanted) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    const struct kept_part *p = low ? &k->part[low - 1] : NULL;
    return p && p->inode == inode && p->length == length && offset - p->offset < p->size ? p : NULL;
}

u64 kept_there(struct kept *k, u64 inode, u64 length, u64 offset)
{
    const struct kept_part *p = find(k, inode, length, offset);
    return p ? p->size - (offset - p->offset) : 0;
}

size_t kept_read(struct kept *k, u64 inode, u64 length, u64 offset, void *out, size_t len)
{
    size_t done = 0;
    struct err ignored = {0};
    if (!k->data && !(k->data = malloc(INPUT_CONTENT_MAX)))
        return 0;
    while (done < len) {
        const struct kept_part *p = find(k, inode, length, offset + done);
        if (!p || !k->contents)
            break;
        if (p != k->loaded && contents_get(k->contents, &p->hash, p->size, k->data, &ignored)) {
            k->loaded = NULL;
            break;
        }
        k->loaded = p;
        u64 at = offset + done - p->offset;
        size_t n = MIN(len - done, (size_t)(p->size - at));
        memcpy((u8 *)out + done, k->data + at, n);
        done += n;
    }
    return done;
}

void kept_free(struct kept *k)
{
    free(k->part);
    free(k->data);
    *k = (struct kept){0};
}
