/* Whole reads and writes at an offset of a file, whatever the host does in one call. */
#ifndef REPRISE_FILE_IO_H
#define REPRISE_FILE_IO_H

#include "base/types.h"

/* Reads exactly `len` bytes. false: an error (errno), or the file ends before (errno 0). */
bool file_read_at(int fd, void *out, size_t len, u64 offset);
/* Writes all of it. false: an error (errno; ENOSPC also where the host wrote nothing). */
bool file_write_at(int fd, const void *data, size_t len, u64 offset);

#endif
