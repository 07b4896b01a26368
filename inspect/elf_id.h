/* What an ELF file says of itself: whose symbols it has. Any file may be given; none is trusted. */
#ifndef REPRISE_ELF_ID_H
#define REPRISE_ELF_ID_H

#include "base/err.h"
#include "base/types.h"

struct elf_id {
    u8 build_id[32];
    u8 size;     /* of it; 0: it has none. Of Go's, a hash */
    bool kernel; /* something of it lies where only a kernel's addresses are */
};

/* Takes it from notes, as a section or segment of them lies in the file. */
void elf_id_notes(struct elf_id *id, const u8 *notes, size_t size);
/* -EINVAL with a text: it is no ELF file for x86-64 or i386. */
int elf_id_read(struct elf_id *id, const char *path, struct err *err);

#endif
