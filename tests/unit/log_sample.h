/* A sample log in a memory file, for tests and the fuzzer of the log's reader. */
#ifndef REPRISE_LOG_SAMPLE_H
#define REPRISE_LOG_SAMPLE_H

#include "replay/log.h"

/* A memfd that holds a log of `inputs` console records in several chunks; `ended`: with an end
 * record. */
int sample_log(unsigned inputs, bool ended);
/* A memfd with these bytes. */
int bytes_file(const void *data, size_t size);
/* All bytes of `fd`; malloc'ed. */
u8 *file_bytes(int fd, size_t *size);
/* Reads all records; checks what must hold whatever the bytes are. Returns their number, or <0 when
 * the log is refused; the damage goes to *damage unless NULL. */
long read_all(int fd, struct chunk_damage *damage, u64 *hash);

#endif
