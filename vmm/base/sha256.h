/*
 * SHA-256 (FIPS 180-4), libcrypto's. For what somebody could want to forge: the log's seal and
 * private state about a recording. Everything else is XXH3, which is quicker and resists nobody.
 */
#ifndef REPRISE_SHA256_H
#define REPRISE_SHA256_H

#include "base/types.h"

#define SHA256_SIZE 32
#define SHA256_TEXT (2 * SHA256_SIZE + 1)

struct sha256 {
    u8 bytes[SHA256_SIZE];
};

/* Needs no memory: it cannot fail. */
struct sha256 sha256_bytes(const void *data, size_t len);
void sha256_text(const struct sha256 *hash, char out[SHA256_TEXT]); /* hexadecimal, lower case */
bool sha256_parse(const char *text,
                  struct sha256 *out); /* the first 64 characters; false: not hex */
bool sha256_equal(const struct sha256 *a, const struct sha256 *b);

/* In parts. begin() starts over, so that one context serves many times. NULL: no memory. */
struct sha256_stream;
struct sha256_stream *sha256_create(void);
void sha256_begin(struct sha256_stream *s);
void sha256_add(struct sha256_stream *s, const void *data, size_t len);
struct sha256 sha256_end(struct sha256_stream *s);
void sha256_destroy(struct sha256_stream *s); /* NULL is safe */

#endif
