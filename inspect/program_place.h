/*
 * Places in a program's code by name: the files that it has mapped, and their functions
 * (elf_function.h), as far as the guest's kernel has them in memory, or the recording has.
 */
#ifndef REPRISE_PROGRAM_PLACE_H
#define REPRISE_PROGRAM_PLACE_H

#include "inspect/guest_file.h"

#define PROGRAM_PLACE_MAX 176u

/* "function+0x12 (file)"; "file+0x1136", by its offset there, where no symbol is known. False: it
 * is in no file of the program's, or in one that is not mapped with these flags (program_maps.h).
 */
bool program_place(const struct program *p, const struct program_layout *l, struct machine *m,
                   const struct guest_file_more *more, u64 address, u64 flags,
                   char out[PROGRAM_PLACE_MAX]);

#endif
