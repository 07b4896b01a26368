/* See program_place.h. */
#include "inspect/program_place.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "inspect/elf_function.h"
#include "inspect/guest_file.h"
#include "inspect/program_file.h"
#include "inspect/program_maps.h"

struct file {
    const struct guest_file *f;
    const struct program_layout *l;
    struct machine *m;
};

static size_t read_file(void *opaque, u64 offset, void *out, size_t len)
{
    const struct file *in = opaque;
    size_t done = 0;
    while (done < len && offset + done >= offset) {
        i64 n = guest_file_read(in->f, in->l, in->m, offset + done, (u8 *)out + done, len - done);
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    return done;
}

bool program_place(const struct program *p, const struct program_layout *l, struct machine *m,
                   const struct guest_file_more *more, u64 address, u64 flags,
                   char out[PROGRAM_PLACE_MAX])
{
    struct program_map map;
    struct guest_file file;
    char path[PROGRAM_PATH_MAX], name[ELF_FUNCTION_MAX];
    u64 beyond;
    if (!program_map_at(p, l, m, address, &map) || (map.flags & flags) != flags || !map.file ||
        !program_path(p, l, m, map.file, path))
        return false;
    u64 offset = address - map.start + map.offset;
    const char *base = text_base_name(path);
    bool known = !guest_file_open(&file, more, l, m, map.file);
    if (known) {
        struct file in = {&file, l, m};
        known = elf_function(&(struct elf_bytes){&in, read_file}, offset, name, &beyond);
        guest_file_close(&file);
    }
    if (known)
        snprintf(out, PROGRAM_PLACE_MAX, "%s+%#" PRIx64 " (%.32s)", name, beyond, base);
    else
        snprintf(out, PROGRAM_PLACE_MAX, "%.40s+%#" PRIx64, base, offset);
    text_ascii(out);
    return true;
}
