/* See elf_id.h. By its sections: what has symbols has those. */
#include "inspect/elf_id.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define NOTES_MAX      (64u << 10)
#define NT_GO_BUILD_ID 4 /* of "Go": what its linker writes, and by itself no other */

static bool read_at(int fd, void *out, size_t size, u64 offset)
{
    return offset <= INT64_MAX && pread(fd, out, size, (off_t)offset) == (ssize_t)size;
}

/* A section of a file of 32 bits as one of 64. */
static bool read_section(int fd, bool narrow, u64 at, unsigned i, Elf64_Shdr *h)
{
    Elf32_Shdr n;
    if (!narrow)
        return read_at(fd, h, sizeof(*h), at + (u64)i * sizeof(*h));
    if (!read_at(fd, &n, sizeof(n), at + (u64)i * sizeof(n)))
        return false;
    *h = (Elf64_Shdr){.sh_type = n.sh_type,
                      .sh_flags = n.sh_flags,
                      .sh_addr = n.sh_addr,
                      .sh_offset = n.sh_offset,
                      .sh_size = n.sh_size};
    return true;
}

void elf_id_notes(struct elf_id *id, const u8 *notes, size_t size)
{
    for (size_t at = 0; at + sizeof(Elf64_Nhdr) <= size;) {
        Elf64_Nhdr n;
        memcpy(&n, notes + at, sizeof(n));
        u64 name = at + sizeof(n), data = name + ((n.n_namesz + 3ull) & ~3ull);
        u64 next = data + ((n.n_descsz + 3ull) & ~3ull);
        if (next > size)
            return;
        if (n.n_type == NT_GO_BUILD_ID && n.n_namesz == 4 && !memcmp(notes + name, "Go\0", 4)) {
            XXH128_canonical_t hash; /* it is a text, longer than there is room for */
            XXH128_canonicalFromHash(&hash, XXH3_128bits(notes + data, n.n_descsz));
            memcpy(id->build_id, &hash, sizeof(hash));
            id->size = sizeof(hash);
            return;
        }
        if (n.n_type == NT_GNU_BUILD_ID && n.n_namesz == 4 && !memcmp(notes + name, "GNU", 4) &&
            n.n_descsz <= sizeof(id->build_id)) {
            memcpy(id->build_id, notes + data, n.n_descsz);
            id->size = (u8)n.n_descsz;
            return;
        }
        at = (size_t)next;
    }
}

static void read_notes(struct elf_id *id, int fd, const Elf64_Shdr *h)
{
    u8 notes[NOTES_MAX];
    size_t size = MIN(h->sh_size, sizeof(notes));
    if (read_at(fd, notes, size, h->sh_offset))
        elf_id_notes(id, notes, size);
}

int elf_id_read(struct elf_id *id, const char *path, struct err *err)
{
    union {
        Elf64_Ehdr wide;
        Elf32_Ehdr narrow;
    } e = {0};
    *id = (struct elf_id){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return err_errno(err, "%s", path);
    bool there =
        read_at(fd, &e.narrow, sizeof(e.narrow), 0) && !memcmp(e.narrow.e_ident, ELFMAG, SELFMAG);
    bool narrow = there && e.narrow.e_ident[EI_CLASS] == ELFCLASS32 && e.narrow.e_machine == EM_386;
    if (!narrow && (!there || !read_at(fd, &e.wide, sizeof(e.wide), 0) ||
                    e.wide.e_ident[EI_CLASS] != ELFCLASS64 || e.wide.e_machine != EM_X86_64)) {
        close(fd);
        return err_set(err, -EINVAL, "%s is no ELF file for x86-64 or i386", path);
    }
    u64 at = narrow ? e.narrow.e_shoff : e.wide.e_shoff;
    unsigned count = narrow ? e.narrow.e_shnum : e.wide.e_shnum;
    for (unsigned i = 0; i < count; i++) {
        Elf64_Shdr h;
        if (!read_section(fd, narrow, at, i, &h))
            break;
        /* A program of 32 bits ends at 0xc0000000 at the latest, and nothing is at its end. */
        id->kernel |=
            (h.sh_flags & SHF_ALLOC) && (narrow ? h.sh_addr >= 0xc0000000 : h.sh_addr >> 63 != 0);
        if (h.sh_type == SHT_NOTE && !id->size)
            read_notes(id, fd, &h);
    }
    close(fd);
    return 0;
}
