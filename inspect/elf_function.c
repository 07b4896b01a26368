/* See elf_function.h. */
#include "inspect/elf_function.h"

#include <elf.h>
#include <string.h>

#include "base/text.h"

#define HEADERS_MAX  64u
#define SECTIONS_MAX 512u
#define UNSIZED_MAX  4096u      /* bytes behind a symbol without a size that are its */
#define SYMBOLS_MAX  (1u << 20) /* that are looked at in one table */

static bool read_all(const struct elf_bytes *in, u64 offset, void *out, size_t len)
{
    return in->read(in->opaque, offset, out, len) == len;
}

/* The address that the file gives to that offset. */
static bool address_of(const struct elf_bytes *in, const Elf64_Ehdr *e, u64 offset, u64 *va)
{
    Elf64_Phdr h;
    if (e->e_phentsize != sizeof(h))
        return false;
    for (u32 i = 0; i < MIN((u32)e->e_phnum, HEADERS_MAX); i++) {
        if (!read_all(in, e->e_phoff + i * sizeof(h), &h, sizeof(h)))
            return false;
        if (h.p_type == PT_LOAD && offset >= h.p_offset && offset - h.p_offset < h.p_filesz) {
            *va = offset - h.p_offset + h.p_vaddr;
            return true;
        }
    }
    return false;
}

/* Is it a function with that address in it, or (size 0, as assembly has them) not far before it? */
static bool has(const Elf64_Sym *s, u64 va)
{
    unsigned type = ELF64_ST_TYPE(s->st_info);
    return (type == STT_FUNC || type == STT_GNU_IFUNC) && s->st_shndx != SHN_UNDEF &&
           s->st_value <= va && va - s->st_value < (s->st_size ? s->st_size : UNSIZED_MAX);
}

/* The nearest one in a table. */
static bool find_symbol(const struct elf_bytes *in, const Elf64_Shdr *table, u64 va,
                        Elf64_Sym *best)
{
    Elf64_Sym chunk[128];
    bool found = false;
    u64 count = MIN(table->sh_size / sizeof(*chunk), (u64)SYMBOLS_MAX);
    if (table->sh_entsize != sizeof(*chunk))
        return false;
    for (u64 i = 0; i < count; i += ARRAY_SIZE(chunk)) {
        size_t n = (size_t)MIN(count - i, (u64)ARRAY_SIZE(chunk));
        u64 at = table->sh_offset + i * sizeof(*chunk);
        n = in->read(in->opaque, at, chunk, n * sizeof(*chunk)) / sizeof(*chunk);
        for (size_t k = 0; k < n; k++)
            if (has(&chunk[k], va) &&
                (!found || chunk[k].st_value > best->st_value ||
                 (chunk[k].st_value == best->st_value && chunk[k].st_size > best->st_size))) {
                *best = chunk[k];
                found = true;
            }
        if (n < ARRAY_SIZE(chunk))
            break;
    }
    return found;
}

static bool name_of(const struct elf_bytes *in, const Elf64_Ehdr *e, const Elf64_Shdr *table,
                    const Elf64_Sym *symbol, char name[ELF_FUNCTION_MAX])
{
    Elf64_Shdr strings;
    if (table->sh_link >= e->e_shnum ||
        !read_all(in, e->e_shoff + table->sh_link * sizeof(strings), &strings, sizeof(strings)) ||
        strings.sh_type != SHT_STRTAB || symbol->st_name >= strings.sh_size)
        return false;
    size_t most = (size_t)MIN(strings.sh_size - symbol->st_name, (u64)ELF_FUNCTION_MAX - 1);
    name[in->read(in->opaque, strings.sh_offset + symbol->st_name, name, most)] = 0;
    text_ascii(name);
    return *name;
}

/* All functions are in .symtab, those that are exported in .dynsym. */
static bool in_table(const struct elf_bytes *in, const Elf64_Ehdr *e, u32 type, u64 va,
                     char name[ELF_FUNCTION_MAX], u64 *beyond)
{
    Elf64_Shdr h;
    Elf64_Sym symbol = {0};
    for (u32 i = 0; i < MIN((u32)e->e_shnum, SECTIONS_MAX); i++) {
        if (!read_all(in, e->e_shoff + i * sizeof(h), &h, sizeof(h)))
            return false;
        if (h.sh_type == type && find_symbol(in, &h, va, &symbol) &&
            name_of(in, e, &h, &symbol, name)) {
            *beyond = va - symbol.st_value;
            return true;
        }
    }
    return false;
}

bool elf_function(const struct elf_bytes *file, u64 offset, char name[ELF_FUNCTION_MAX],
                  u64 *beyond)
{
    Elf64_Ehdr e;
    u64 va;
    return read_all(file, 0, &e, sizeof(e)) && !memcmp(e.e_ident, ELFMAG, SELFMAG) &&
           e.e_ident[EI_CLASS] == ELFCLASS64 && e.e_shentsize == sizeof(Elf64_Shdr) &&
           address_of(file, &e, offset, &va) &&
           (in_table(file, &e, SHT_SYMTAB, va, name, beyond) ||
            in_table(file, &e, SHT_DYNSYM, va, name, beyond));
}
