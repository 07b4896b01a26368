/*
 * What a process of a Linux guest runs: what its kernel told it at its beginning, the name of its
 * file, the build ID that the file has in its memory. All of it is the guest's to forge.
 */
#ifndef REPRISE_PROGRAM_FILE_H
#define REPRISE_PROGRAM_FILE_H

#include "inspect/elf_id.h"
#include "inspect/program.h"

#define PROGRAM_PATH_MAX 4096u
#define PROGRAM_AUXV_MAX 1024u

/* What of it this kernel says; it may be nothing. */
void program_file_learn(struct program_layout *l, const struct btf *b);
/* Its auxiliary vector with the AT_NULL, pairs of words of 8 bytes, of a program of 32 bits of 4;
 * returns the bytes. 0: not known. *narrow: words of 4. */
size_t program_auxv(const struct program *p, const struct program_layout *l, struct machine *m,
                    u8 out[PROGRAM_AUXV_MAX], bool *narrow);
/* The value of a type in it; false: it has none. */
bool program_auxv_value(const u8 *auxv, size_t size, bool narrow, u64 type, u64 *value);
/* The path of its file, as it is from the process' root directory. False: not known, or it has no
 * such path. */
bool program_file_path(const struct program *p, const struct program_layout *l, struct machine *m,
                       char out[PROGRAM_PATH_MAX]);
/* The same of a struct file; of its working directory. */
bool program_path(const struct program *p, const struct program_layout *l, struct machine *m,
                  u64 file, char out[PROGRAM_PATH_MAX]);
bool program_directory(const struct program *p, const struct program_layout *l, struct machine *m,
                       char out[PROGRAM_PATH_MAX]);
/* Of what is mapped. False: those pages are not in its memory (yet). id->size 0: it has none. */
bool program_file_id(const struct program *p, const struct program_layout *l, struct machine *m,
                     struct elf_id *id);
/* Somewhere in the library that the program's loader knows by that name; false: it knows none. */
bool program_library(const struct program *p, const struct program_layout *l, struct machine *m,
                     const char *name, u64 *address);

#endif
