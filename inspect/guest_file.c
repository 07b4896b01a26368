/* See guest_file.h. */
#include "inspect/guest_file.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "machine/machine.h"

#define SECTIONS_MAX 512u
#define HEADERS_MAX  64u
#define NAMES_MAX    (64u << 10)
#define DYNAMIC_MAX  256u
#define PAGES_MAX    (1u << 20)
#define MADE_MAX     16u /* sections that are made */

struct reader {
    const struct page_cache_file *cache;
    const struct guest_file_more *more;
    const struct program_layout *l;
    struct machine *m;
    u32 *budget; /* of pages that are looked for: a few words of a guest can claim to be a large
                    file */
};

static bool page_at(const struct reader *r, u64 offset, gpa_t *page)
{
    if (!*r->budget)
        return false;
    --*r->budget;
    return page_cache_page(&r->l->cache, &r->l->current, r->m, r->cache->mapping,
                           offset / PAGE_SIZE, page);
}

static u64 more_there(const struct reader *r, u64 offset)
{
    return r->more && r->more->there ? r->more->there(r->more->opaque, r->cache, offset) : 0;
}

static bool is_there(const struct reader *r, u64 offset, u64 len)
{
    gpa_t page;
    if (offset > r->cache->size || len > r->cache->size - offset)
        return false;
    for (u64 at = offset, end = offset + len; at < end;) {
        u64 more = more_there(r, at);
        if (!more && !page_at(r, at, &page))
            return false;
        u64 rest = PAGE_SIZE - (at & (PAGE_SIZE - 1));
        at += MIN(MAX(more, rest), end - at);
    }
    return true;
}

/* As much as is there. */
static size_t read_some(const struct reader *r, u64 offset, void *out, size_t len)
{
    size_t done = 0;
    gpa_t page;
    if (offset >= r->cache->size)
        return 0;
    len = MIN((u64)len, r->cache->size - offset);
    while (done < len) {
        u64 at = offset + done, in = at & (PAGE_SIZE - 1);
        size_t part = MIN(len - done, (size_t)(PAGE_SIZE - in));
        if (!page_at(r, at, &page) ||
            !machine_peek_physical(r->m, page | in, (u8 *)out + done, part))
            part = more_there(r, at)
                       ? r->more->read(r->more->opaque, r->cache, at, (u8 *)out + done, part)
                       : 0;
        if (!part)
            break;
        done += part;
    }
    return done;
}

static bool read_all(const struct reader *r, u64 offset, void *out, size_t len)
{
    return read_some(r, offset, out, len) == len;
}

/* ---- section headers ---- */

struct sections {
    Elf64_Shdr list[SECTIONS_MAX];
    u32 count, names; /* the section that has the names */
    char *text;       /* new names; NULL: the file's own */
    u32 text_size;
};

/* The file's own; what is not in memory has no contents. */
static bool take_sections(struct sections *s, const struct reader *r, const Elf64_Ehdr *e)
{
    if (e->e_shentsize != sizeof(Elf64_Shdr) || !e->e_shnum || e->e_shnum > SECTIONS_MAX ||
        e->e_shstrndx >= e->e_shnum ||
        !read_all(r, e->e_shoff, s->list, e->e_shnum * sizeof(Elf64_Shdr)) ||
        !is_there(r, s->list[e->e_shstrndx].sh_offset, s->list[e->e_shstrndx].sh_size))
        return false;
    s->count = e->e_shnum;
    s->names = e->e_shstrndx;
    for (u32 i = 1; i < s->count; i++) {
        Elf64_Shdr *h = &s->list[i];
        /* Symbols are nothing without their names. */
        bool linked = h->sh_type == SHT_SYMTAB || h->sh_type == SHT_DYNSYM;
        const Elf64_Shdr *other = linked && h->sh_link < s->count ? &s->list[h->sh_link] : h;
        if (h->sh_type != SHT_NOBITS && (!is_there(r, h->sh_offset, h->sh_size) ||
                                         !is_there(r, other->sh_offset, other->sh_size)))
            h->sh_type = SHT_NOBITS;
    }
    return true;
}

struct program_headers {
    Elf64_Phdr list[HEADERS_MAX];
    u32 count;
};

static bool offset_of(const struct program_headers *p, u64 va, u64 *offset, u64 *rest)
{
    for (u32 i = 0; i < p->count; i++) {
        const Elf64_Phdr *h = &p->list[i];
        if (h->p_type != PT_LOAD || va < h->p_vaddr || va - h->p_vaddr >= h->p_filesz)
            continue;
        *offset = h->p_offset + (va - h->p_vaddr);
        *rest = h->p_filesz - (va - h->p_vaddr);
        return true;
    }
    return false;
}

static Elf64_Shdr *make(struct sections *s, const char *name, u32 type, u64 flags, u64 va,
                        u64 offset, u64 size)
{
    size_t len = strlen(name) + 1;
    Elf64_Shdr *h = &s->list[s->count++];
    *h = (Elf64_Shdr){.sh_name = s->text_size,
                      .sh_type = type,
                      .sh_flags = flags,
                      .sh_addr = va,
                      .sh_offset = offset,
                      .sh_size = size,
                      .sh_addralign = 1};
    memcpy(s->text + s->text_size, name, len);
    s->text_size += (u32)len;
    return h;
}

/* Symbols and their names: the one table ends where the other begins, as linkers lay them out. */
static void make_symbols(struct sections *s, const struct reader *r,
                         const struct program_headers *p, const Elf64_Phdr *dynamic)
{
    Elf64_Dyn list[DYNAMIC_MAX] = {0};
    u64 symbols = 0, names = 0, size = 0, at, text, rest;
    size_t n = MIN(dynamic->p_filesz, sizeof(list)) / sizeof(*list);
    if (!read_all(r, dynamic->p_offset, list, n * sizeof(*list)))
        return;
    for (size_t i = 0; i < n && list[i].d_tag != DT_NULL; i++) {
        u64 *to = list[i].d_tag == DT_SYMTAB   ? &symbols
                  : list[i].d_tag == DT_STRTAB ? &names
                  : list[i].d_tag == DT_STRSZ  ? &size
                                               : NULL;
        if (to)
            *to = list[i].d_un.d_val;
    }
    if (names <= symbols || !offset_of(p, symbols, &at, &rest) || names - symbols > rest ||
        !offset_of(p, names, &text, &rest) || size > rest || !is_there(r, at, names - symbols) ||
        !is_there(r, text, size))
        return;
    u64 whole = (names - symbols) / sizeof(Elf64_Sym) * sizeof(Elf64_Sym);
    Elf64_Shdr *h = make(s, ".dynsym", SHT_DYNSYM, SHF_ALLOC, symbols, at, whole);
    h->sh_link = s->count;
    h->sh_info = 1;
    h->sh_entsize = sizeof(Elf64_Sym);
    h->sh_addralign = 8;
    make(s, ".dynstr", SHT_STRTAB, SHF_ALLOC, names, text, size);
    h = make(s, ".dynamic", SHT_DYNAMIC, SHF_ALLOC | SHF_WRITE, dynamic->p_vaddr, dynamic->p_offset,
             dynamic->p_filesz);
    h->sh_link = s->count - 2;
    h->sh_entsize = sizeof(Elf64_Dyn);
    h->sh_addralign = 8;
}

/* .eh_frame, by the header in front of it (LSB 10.6.2); it ends where its segment does at the
 * latest, and says itself where. */
static void make_frames(struct sections *s, const struct reader *r, const struct program_headers *p,
                        const Elf64_Phdr *h)
{
    struct {
        u8 version, encoding, rest[2];
        i32 distance;
    } head;
    u64 at, rest;
    if (!read_all(r, h->p_offset, &head, sizeof(head)) || head.encoding != 0x1b) /* pcrel, sdata4 */
        return;
    u64 va = h->p_vaddr + 4 + (u64)(i64)head.distance;
    if (offset_of(p, va, &at, &rest) && is_there(r, at, rest))
        make(s, ".eh_frame", SHT_PROGBITS, SHF_ALLOC, va, at, rest)->sh_addralign = 8;
}

/* Some, by the program headers. */
static bool make_sections(struct sections *s, const struct reader *r, const Elf64_Ehdr *e)
{
    struct program_headers p = {.count = MIN(e->e_phnum, HEADERS_MAX)};
    u32 texts = 0;
    if (e->e_phentsize != sizeof(Elf64_Phdr) ||
        !read_all(r, e->e_phoff, p.list, p.count * sizeof(Elf64_Phdr)) ||
        !(s->text = calloc(1, NAMES_MAX)))
        return false;
    s->text_size = 1;
    s->list[0] = (Elf64_Shdr){.sh_type = SHT_NULL};
    s->count = 1;
    for (u32 i = 0; i < p.count && s->count < MADE_MAX; i++) {
        const Elf64_Phdr *h = &p.list[i];
        if (h->p_type == PT_LOAD && h->p_flags & PF_X && !texts++)
            make(s, ".text", is_there(r, h->p_offset, h->p_filesz) ? SHT_PROGBITS : SHT_NOBITS,
                 SHF_ALLOC | SHF_EXECINSTR, h->p_vaddr, h->p_offset, h->p_filesz);
        else if (h->p_type == PT_LOAD && h->p_flags & PF_W)
            make(s, ".data", SHT_NOBITS, SHF_ALLOC | SHF_WRITE, h->p_vaddr, h->p_offset,
                 h->p_filesz);
        else if (h->p_type == PT_NOTE && is_there(r, h->p_offset, h->p_filesz))
            make(s, ".note", SHT_NOTE, SHF_ALLOC, h->p_vaddr, h->p_offset, h->p_filesz)
                ->sh_addralign = h->p_align;
        else if (h->p_type == PT_DYNAMIC)
            make_symbols(s, r, &p, h);
        else if (h->p_type == PT_GNU_EH_FRAME)
            make_frames(s, r, &p, h);
    }
    s->names = s->count;
    return true;
}

/* New headers at the file's end, behind the names where those are new. */
static int put_tail(struct guest_file *f, struct sections *s)
{
    Elf64_Ehdr e;
    u64 at = (f->cache.size + 15) & ~15ull;
    if (s->text)
        make(s, ".shstrtab", SHT_STRTAB, 0, 0, at, 0);
    if (s->text)
        s->list[s->names].sh_size = s->text_size;
    u64 names = s->text ? (s->text_size + 15ull) & ~15ull : 0;
    size_t table = s->count * sizeof(Elf64_Shdr);
    f->tail = calloc(1, names + table);
    if (!f->tail)
        return -ENOMEM;
    if (s->text)
        memcpy(f->tail, s->text, s->text_size);
    memcpy(f->tail + names, s->list, table);
    f->tail_at = at;
    f->tail_size = names + table;
    f->size = at + f->tail_size;
    memcpy(&e, f->head, sizeof(e));
    e.e_shoff = at + names;
    e.e_shentsize = sizeof(Elf64_Shdr);
    e.e_shnum = (Elf64_Half)s->count;
    e.e_shstrndx = (Elf64_Half)s->names;
    memcpy(f->head, &e, sizeof(e));
    f->head_size = sizeof(e);
    return 0;
}

int guest_file_open(struct guest_file *f, const struct guest_file_more *more,
                    const struct program_layout *l, struct machine *m, u64 file)
{
    Elf64_Ehdr e;
    int code = 0;
    *f = (struct guest_file){.more = more};
    if (!page_cache_file(&l->cache, &l->current, m, file, &f->cache))
        return -ENOENT;
    u32 budget = PAGES_MAX;
    const struct reader r = {&f->cache, f->more, l, m, &budget};
    f->size = f->cache.size;
    if (!f->size || !is_there(&r, 0, 1))
        return -ENOENT;
    if (!read_all(&r, 0, &e, sizeof(e)) || memcmp(e.e_ident, ELFMAG, SELFMAG) ||
        e.e_ident[EI_CLASS] != ELFCLASS64 || is_there(&r, 0, f->size))
        return 0;
    struct sections *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    memcpy(f->head, &e, sizeof(e));
    if (take_sections(s, &r, &e) || make_sections(s, &r, &e))
        code = put_tail(f, s);
    free(s->text);
    free(s);
    return code;
}

i64 guest_file_read(const struct guest_file *f, const struct program_layout *l, struct machine *m,
                    u64 offset, void *out, size_t len)
{
    u32 budget = PAGES_MAX;
    const struct reader r = {&f->cache, f->more, l, m, &budget};
    if (offset >= f->size || !len)
        return 0;
    if (offset < f->head_size) {
        len = MIN(len, (size_t)(f->head_size - offset));
        memcpy(out, f->head + offset, len);
        return (i64)len;
    }
    if (offset >= f->cache.size) { /* up to the tail there are zeros */
        len = MIN((u64)len, f->size - offset);
        for (size_t i = 0; i < len; i++)
            ((u8 *)out)[i] = offset + i < f->tail_at ? 0 : f->tail[offset + i - f->tail_at];
        return (i64)len;
    }
    size_t got = read_some(&r, offset, out, len);
    return got ? (i64)got : -EIO;
}

void guest_file_close(struct guest_file *f)
{
    free(f->tail);
    *f = (struct guest_file){0};
}
