/* Constants of the log's bytes, shared by writer and reader only. */
#ifndef REPRISE_LOG_FORMAT_H
#define REPRISE_LOG_FORMAT_H

#include "replay/log.h"

/* High bit, CR LF, ^Z and LF: what careless transfers change is noticed in the first 8 bytes. */
#define LOG_MAGIC       "\x89RPR\r\n\x1a\n"
#define LOG_CHUNK_MAGIC 0x4b4e4843u /* "CHNK" */

_Static_assert(sizeof(struct log_file_header) == 32, "part of the format");
_Static_assert(sizeof(struct log_chunk_header) == 64, "part of the format");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "headers are read as they lie");

u64 log_file_check(const struct log_file_header *h);
u64 log_chunk_header_check(const struct log_chunk_header *h);
u64 log_chunk_check(const struct log_chunk_header *h, const void *payload, u64 seed);

#endif
