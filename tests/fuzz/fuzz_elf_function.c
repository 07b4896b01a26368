/* Fuzz target: which function some bytes of an ELF file are. The first 8 bytes are the offset, the
 * rest is the file. A name is printable and has an end, and how far in it is no more than there is.
 */
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "mutate.h"
#include "inspect/elf_function.h"

struct bytes {
    const u8 *data;
    size_t size;
};

static size_t read_bytes(void *opaque, u64 offset, void *out, size_t len)
{
    const struct bytes *b = opaque;
    if (offset >= b->size)
        return 0;
    len = MIN(len, b->size - (size_t)offset);
    memcpy(out, b->data + offset, len);
    return len;
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    u64 offset, beyond;
    char name[ELF_FUNCTION_MAX];
    if (size < sizeof(offset))
        return 0;
    memcpy(&offset, data, sizeof(offset));
    struct bytes b = {data + sizeof(offset), size - sizeof(offset)};
    memset(name, 1, sizeof(name));
    if (!elf_function(&(struct elf_bytes){&b, read_bytes}, offset, name, &beyond))
        return 0;
    size_t n = strnlen(name, sizeof(name));
    if (!n || n == sizeof(name))
        abort();
    for (size_t i = 0; i < n; i++)
        if (name[i] < ' ' || name[i] > '~')
            abort();
    return 0;
}

/* A file with one segment, two functions, and one that has no size. */
u8 *fuzz_sample(size_t *size)
{
    struct {
        u64 offset;
        Elf64_Ehdr e;
        Elf64_Phdr p;
        Elf64_Shdr s[3];
        Elf64_Sym y[4];
        char names[32];
    } f = {.offset = 0x44};
#define AT(m) (offsetof(__typeof__(f), m) - sizeof(f.offset))
    memcpy(f.e.e_ident, ELFMAG "\2\1\1", 7);
    f.e.e_phoff = AT(p);
    f.e.e_phnum = 1;
    f.e.e_phentsize = sizeof(f.p);
    f.e.e_shoff = AT(s);
    f.e.e_shnum = 3;
    f.e.e_shentsize = sizeof(f.s[0]);
    f.p = (Elf64_Phdr){.p_type = PT_LOAD, .p_vaddr = 0x400000, .p_filesz = 0x1000};
    f.s[1] = (Elf64_Shdr){.sh_type = SHT_SYMTAB,
                          .sh_offset = AT(y),
                          .sh_size = sizeof(f.y),
                          .sh_entsize = sizeof(f.y[0]),
                          .sh_link = 2};
    f.s[2] =
        (Elf64_Shdr){.sh_type = SHT_STRTAB, .sh_offset = AT(names), .sh_size = sizeof(f.names)};
    for (unsigned i = 1; i < 4; i++)
        f.y[i] = (Elf64_Sym){.st_name = 8 * (i - 1),
                             .st_info = STT_FUNC,
                             .st_shndx = 1,
                             .st_value = 0x400000 + 0x20 * i,
                             .st_size = i == 3 ? 0 : 0x18};
    memcpy(f.names, "first\0\0\0second\0\0_start", 22);
    u8 *data = malloc(sizeof(f));
    memcpy(data, &f, sizeof(f));
    *size = sizeof(f);
    return data;
}
