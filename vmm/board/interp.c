/* See interp.h. Formats: cpio(5), "New ASCII Format"; ELF64. */
#include "board/interp.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

#define NEWC 110u

struct entry {
    const char *name;
    u32 name_size;
    const u8 *data;
    u32 size;
};

static bool field(const u8 *header, unsigned index, u32 *out)
{
    char digits[9], *end;
    memcpy(digits, header + 6 + 8 * index, 8);
    digits[8] = 0;
    *out = (u32)strtoul(digits, &end, 16);
    return !*end;
}

/* The entry at *at, which moves on; false: there is none, *packed: but something else. */
static bool next(const u8 *p, size_t size, size_t *at, struct entry *e, bool *packed)
{
    while (*at < size && !p[*at])
        ++*at;
    if (*at == size)
        return false;
    size_t left = size - *at;
    const u8 *h = p + *at;
    if (left < NEWC || memcmp(h, "07070", 5) || !field(h, 6, &e->size) ||
        !field(h, 11, &e->name_size) || !e->name_size) {
        *packed = true;
        return false;
    }
    u64 data = ((u64)NEWC + e->name_size + 3) & ~3ull;
    u64 all = (data + e->size + 3) & ~3ull;
    if (data + e->size > left || h[NEWC + e->name_size - 1])
        return false;
    e->name = (const char *)h + NEWC;
    e->data = h + data;
    *at += MIN(all, left);
    return true;
}

/* By its last part: its directories may be links. */
static bool has(const u8 *p, size_t size, const char *loader, bool *packed)
{
    struct entry e;
    for (size_t at = 0; next(p, size, &at, &e, packed);)
        if (!strcmp(text_base_name(e.name), text_base_name(loader)))
            return true;
    return false;
}

static bool loader_of(const struct entry *e, char out[INTERP_MAX])
{
    Elf64_Ehdr elf;
    Elf64_Phdr ph;
    if (e->size < sizeof(elf))
        return false;
    memcpy(&elf, e->data, sizeof(elf));
    if (memcmp(elf.e_ident, ELFMAG, SELFMAG) || elf.e_ident[EI_CLASS] != ELFCLASS64 ||
        elf.e_phentsize != sizeof(ph) || elf.e_phoff > e->size ||
        (e->size - elf.e_phoff) / sizeof(ph) < elf.e_phnum)
        return false;
    for (unsigned i = 0; i < elf.e_phnum; i++) {
        memcpy(&ph, e->data + elf.e_phoff + i * sizeof(ph), sizeof(ph));
        if (ph.p_type != PT_INTERP)
            continue;
        if (ph.p_offset > e->size || ph.p_filesz > e->size - ph.p_offset ||
            ph.p_filesz >= INTERP_MAX)
            return false;
        memcpy(out, e->data + ph.p_offset, ph.p_filesz);
        out[ph.p_filesz] = 0;
        return *out == '/';
    }
    return false;
}

void interp_missing(const void *initrd, size_t size, size_t from,
                    void (*fn)(void *opaque, const char *program, const char *loader), void *opaque)
{
    struct entry e;
    bool packed = false;
    char loader[INTERP_MAX];
    for (size_t at = from; next(initrd, size, &at, &e, &packed);)
        if (loader_of(&e, loader) && !has(initrd, size, loader, &packed) && !packed)
            fn(opaque, e.name, loader);
}
