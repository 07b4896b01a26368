/*
 * What a process of a Linux guest has mapped: the areas of its memory (struct vm_area_struct), in
 * the kernel's maple tree (since Linux 6.1) or list. All of it is the guest's to forge.
 */
#ifndef REPRISE_PROGRAM_MAPS_H
#define REPRISE_PROGRAM_MAPS_H

#include "inspect/program.h"

/* Of struct vm_area_struct's flags. */
#define PROGRAM_READ  1u
#define PROGRAM_WRITE 2u
#define PROGRAM_EXEC  4u
#define PROGRAM_SHARE 8u

struct program_map {
    u64 start, end, offset, flags; /* offset: bytes in its file */
    u64 file;                      /* struct file; 0: none */
    u64 ops;                       /* where the kernel fills its pages; 0: they begin as zeros */
};

void program_maps_learn(struct program_layout *l, const struct btf *b);
/* All of them, ascending, to be freed; 0: none, or not known. */
u32 program_maps(const struct program *p, const struct program_layout *l, struct machine *m,
                 struct program_map **out);
/* The one with that address; false: there is none. */
bool program_map_at(const struct program *p, const struct program_layout *l, struct machine *m,
                    u64 va, struct program_map *out);

#endif
