/* See share_keep.h. Sections of an ELF file: System V ABI, chapter 4. What a file says of itself is
 * hostile: tables are bounded, and a part is read where the file has it or not at all. */
#include "live/share_keep.h"

#include <elf.h>
#include <errno.h>
#include <linux/fuse.h>
#include <stdlib.h>
#include <string.h>

#include "host/clock.h"
#include "machine/source.h"

#define WHOLE        (64u << 10) /* bytes of a file of which all is kept */
#define SMALL        (16u << 10) /* ... of a section, whatever it is */
#define SECTIONS_MAX 4096u
#define NAMES_MAX    (64u << 10)
#define FILE_MAX     (64ull << 20)  /* kept of one file, */
#define ALL_MAX      (256ull << 20) /* ... of all */
#define TIME_MAX_NS  5000000000ull  /* for all */
#define UNWIND       0x70000001u    /* SHT_X86_64_UNWIND */

enum pass { SYMBOLS, DEBUG, PASSES }; /* so that much of the one leaves room for the other */

struct section {
    u32 name, type;
    u64 flags, offset, size;
};

struct range {
    u64 begin, end;
};

struct file {
    u64 node, handle, inode, length;
    struct section section[SECTIONS_MAX];
    u32 sections, ranges;
    struct range range[SECTIONS_MAX + 2];
    char names[NAMES_MAX + 1];
};

struct keeping {
    struct share_host *h;
    const struct share_keeper *to;
    struct file f;
    u64 all, until; /* bytes so far; host time */
    bool full;
    u8 part[INPUT_CONTENT_MAX];
};

static u32 time_left(struct keeping *k)
{
    u64 now = host_ns();
    k->full = k->full || now >= k->until;
    return k->full ? 0 : (u32)((k->until - now) / 1000000u) + 1;
}

/* False: not all of it can be read. */
static bool read_at(struct keeping *k, u64 offset, void *out, u32 size)
{
    for (u32 done = 0; done < size;) {
        const struct fuse_read_in in = {.fh = k->f.handle,
                                        .offset = offset + done,
                                        .size = MIN(size - done, INPUT_CONTENT_MAX)};
        u32 left = time_left(k);
        int n = left ? share_host_ask(k->h, FUSE_READ, k->f.node, &in, sizeof(in), (u8 *)out + done,
                                      in.size, left)
                     : 0;
        if (n <= 0)
            return false;
        done += (u32)n;
    }
    return true;
}

/* False: the guest's file is not there as it was. */
static bool open_file(struct keeping *k, u64 node)
{
    const struct fuse_open_in in = {.flags = 0};
    const struct fuse_getattr_in which = {.getattr_flags = 0};
    struct fuse_open_out out;
    struct fuse_attr_out about;
    u32 left = time_left(k);
    if (!left || share_host_ask(k->h, FUSE_OPEN, node, &in, sizeof(in), &out, sizeof(out), left) !=
                     sizeof(out))
        return false;
    k->f.node = node;
    k->f.handle = out.fh;
    k->f.sections = 0;
    /* The server's word for: what you have of it is what it has. */
    bool same = out.open_flags & FOPEN_KEEP_CACHE &&
                share_host_ask(k->h, FUSE_GETATTR, node, &which, sizeof(which), &about,
                               sizeof(about), left) == sizeof(about);
    k->f.inode = same ? about.attr.ino : 0;
    k->f.length = same ? about.attr.size : 0;
    return same;
}

static void close_file(struct keeping *k)
{
    const struct fuse_release_in in = {.fh = k->f.handle};
    u8 nothing[8];
    u32 left = time_left(k);
    if (left)
        share_host_ask(k->h, FUSE_RELEASE, k->f.node, &in, sizeof(in), nothing, sizeof(nothing),
                       left);
}

/* ---- what of it ---- */

static bool in_file(const struct file *f, u64 offset, u64 size)
{
    return offset <= f->length && size <= f->length - offset;
}

static void add_range(struct file *f, u64 offset, u64 size)
{
    if (size && in_file(f, offset, size))
        f->range[f->ranges++] = (struct range){offset, offset + size};
}

static struct section section_of(const u8 *at, bool wide)
{
    Elf64_Shdr w;
    Elf32_Shdr n;
    if (wide) {
        memcpy(&w, at, sizeof(w));
        return (struct section){w.sh_name, w.sh_type, w.sh_flags, w.sh_offset, w.sh_size};
    }
    memcpy(&n, at, sizeof(n));
    return (struct section){n.sh_name, n.sh_type, n.sh_flags, n.sh_offset, n.sh_size};
}

struct table {
    u64 offset;
    u32 each, count, names;
    bool wide;
};

static bool read_table(struct keeping *k, struct table *t)
{
    union {
        Elf64_Ehdr w;
        Elf32_Ehdr n;
    } e;
    if (k->f.length < sizeof(e) || !read_at(k, 0, &e, sizeof(e)) ||
        memcmp(e.w.e_ident, ELFMAG, SELFMAG))
        return false;
    t->wide = e.w.e_ident[EI_CLASS] == ELFCLASS64;
    *t = t->wide ? (struct table){e.w.e_shoff, e.w.e_shentsize, e.w.e_shnum, e.w.e_shstrndx, true}
                 : (struct table){e.n.e_shoff, e.n.e_shentsize, e.n.e_shnum, e.n.e_shstrndx, false};
    return t->each == (t->wide ? sizeof(Elf64_Shdr) : sizeof(Elf32_Shdr)) && t->count &&
           t->count <= SECTIONS_MAX && t->names < t->count &&
           in_file(&k->f, t->offset, (u64)t->each * t->count);
}

/* The section headers, and their names; false: it has none that mean anything. */
static bool read_sections(struct keeping *k, struct table *t)
{
    struct file *f = &k->f;
    u8 *headers;
    if (!read_table(k, t) || !(headers = malloc((size_t)t->each * t->count)))
        return false;
    bool good = read_at(k, t->offset, headers, t->each * t->count);
    for (u32 i = 0; good && i < t->count; i++)
        f->section[i] = section_of(headers + (size_t)i * t->each, t->wide);
    free(headers);
    const struct section *names = &f->section[t->names];
    good = good && in_file(f, names->offset, names->size) && names->size <= NAMES_MAX &&
           read_at(k, names->offset, f->names, (u32)names->size);
    f->names[good ? names->size : 0] = 0;
    f->sections = good ? t->count : 0;
    return good;
}

static bool begins(const struct file *f, const struct section *s, const char *with)
{
    return s->name < NAMES_MAX && !strncmp(f->names + s->name, with, strlen(with));
}

/* Code and data the guest has as far as it used them. */
static bool is_wanted(const struct file *f, const struct section *s, enum pass pass)
{
    bool debug = begins(f, s, ".debug_") || begins(f, s, ".zdebug_");
    if (s->type == SHT_NOBITS || debug != (pass == DEBUG))
        return false;
    return debug || !(s->flags & SHF_ALLOC) || s->type == SHT_DYNSYM || s->type == SHT_STRTAB ||
           s->type == UNWIND || begins(f, s, ".eh_frame") || s->size <= SMALL;
}

static int by_begin(const void *a, const void *b)
{
    const struct range *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static u64 align_down(u64 at)
{
    return at & ~(u64)(PAGE_SIZE - 1);
}

/* Whole pages, ascending, none twice; returns the bytes. */
static u64 merge(struct file *f)
{
    u32 n = 0;
    u64 bytes = 0;
    qsort(f->range, f->ranges, sizeof(*f->range), by_begin);
    for (u32 i = 0; i < f->ranges; i++) {
        struct range r = {align_down(f->range[i].begin),
                          MIN(align_down(f->range[i].end + PAGE_SIZE - 1), f->length)};
        if (n && r.begin <= f->range[n - 1].end)
            f->range[n - 1].end = MAX(f->range[n - 1].end, r.end);
        else
            f->range[n++] = r;
    }
    f->ranges = n;
    for (u32 i = 0; i < n; i++)
        bytes += f->range[i].end - f->range[i].begin;
    return bytes;
}

static void choose(struct keeping *k, enum pass pass)
{
    struct file *f = &k->f;
    struct table t;
    f->ranges = 0;
    if (f->length <= WHOLE) {
        add_range(f, 0, pass == SYMBOLS ? f->length : 0);
    } else if (read_sections(k, &t)) {
        if (pass == SYMBOLS) {
            add_range(f, 0, PAGE_SIZE);
            add_range(f, t.offset, (u64)t.each * t.count);
        }
        for (u32 i = 0; i < f->sections; i++)
            if (is_wanted(f, &f->section[i], pass))
                add_range(f, f->section[i].offset, f->section[i].size);
    }
}

/* Cut where the contents that a guest reads are cut, so that what it has read is there once. */
static void keep_range(struct keeping *k, const struct range *r)
{
    for (u64 at = r->begin; at < r->end && !k->full;) {
        u32 size = (u32)MIN(r->end - at, INPUT_CONTENT_MAX - at % INPUT_CONTENT_MAX);
        if (!read_at(k, at, k->part, size))
            return;
        k->full = !k->to->keep(k->to->opaque, k->f.inode, k->f.length, at, k->part, size);
        at += size;
    }
}

/* False: it is another one by now. Asked again, the server would say of that one that it is known.
 */
static bool keep_file(struct keeping *k, u64 node, enum pass pass)
{
    if (!open_file(k, node))
        return false;
    choose(k, pass);
    u64 bytes = merge(&k->f);
    if (bytes <= FILE_MAX && bytes <= ALL_MAX - k->all) {
        k->all += bytes;
        for (u32 i = 0; i < k->f.ranges; i++)
            keep_range(k, &k->f.range[i]);
    }
    close_file(k);
    return true;
}

void share_keep(struct share_host *h, const struct share_keeper *to)
{
    const u64 *nodes;
    u32 count = share_host_programs(h, &nodes);
    struct keeping *k = count ? calloc(1, sizeof(*k)) : NULL;
    bool *lost = k ? calloc(count, sizeof(*lost)) : NULL;
    if (lost) {
        k->h = h;
        k->to = to;
        k->until = host_ns() + TIME_MAX_NS;
        for (enum pass pass = SYMBOLS; pass < PASSES; pass++)
            for (u32 i = 0; i < count && !k->full; i++)
                lost[i] = lost[i] || !keep_file(k, nodes[i], pass);
    }
    free(lost);
    free(k);
}
