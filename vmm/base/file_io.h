/* Files of the host: read and written whole at an offset, opened where somebody else may have put
 * them, made so that nobody else reads them. */
#ifndef REPRISE_FILE_IO_H
#define REPRISE_FILE_IO_H

#include "base/err.h"
#include "base/types.h"

/* Reads exactly `len` bytes. false: an error (errno), or the file ends before (errno 0). */
bool file_read_at(int fd, void *out, size_t len, u64 offset);
/* Writes all of it. false: an error (errno; ENOSPC also where the host wrote nothing). */
bool file_write_at(int fd, const void *data, size_t len, u64 offset);

/* The same from where the file stands: also pipes and terminals. What another program made
 * non-blocking is waited for. */
bool file_read_on(int fd, void *out, size_t len);
bool file_write_on(int fd, const void *data, size_t len);

/*
 * Opens `name` in the directory `dir` for reading: a regular file of at most `max` bytes, whose
 * size goes to *size (NULL: not wanted), or <0 with a text that names `name`. Links are not
 * followed; what waits or acts when it is opened (a FIFO, a device) is not opened.
 */
int file_open_regular(int dir, const char *name, u64 max, u64 *size, struct err *err);

/* What we make holds what a guest had in memory and what was typed: it is its owner's alone,
 * whatever the umask says. */
#define FILE_PRIVATE      0600
#define DIRECTORY_PRIVATE 0700

/* Creates `name` anew in the directory `dir`, open for reading and writing. What a run before left
 * under that name is removed, never written to. A descriptor, or -1 (errno). */
int file_create_at(int dir, const char *name);

#endif
