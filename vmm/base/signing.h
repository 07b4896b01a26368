/*
 * Ed25519 signatures (RFC 8032), libcrypto's, with keys in PEM as `openssl genpkey -algorithm
 * ed25519` makes them. For `reprise sign` and `reprise verify`, which name the key's file.
 */
#ifndef REPRISE_SIGNING_H
#define REPRISE_SIGNING_H

#include "base/err.h"
#include "base/sha256.h"

#define SIGNATURE_SIZE 64
#define KEY_SIZE       32 /* of a public key */

struct signing_key;

/* A private key (`secret`), or a public one, which may also be the public half of a private key.
 * Regular files of at most 64 KiB. */
int signing_key_read(struct signing_key **out, const char *path, bool secret, struct err *err);
/* From the bytes of a public key; NULL: they are none, or no memory. */
struct signing_key *signing_key_from(const u8 bytes[KEY_SIZE]);
int signing_key_public(const struct signing_key *key, u8 out[KEY_SIZE], struct err *err);
/* What people compare: SHA-256 of the public key's 32 bytes. */
int signing_key_fingerprint(const struct signing_key *key, struct sha256 *out, struct err *err);

int signing_sign(const struct signing_key *key, const void *data, size_t len,
                 u8 out[SIGNATURE_SIZE], struct err *err);
bool signing_check(const struct signing_key *key, const void *data, size_t len,
                   const u8 signature[SIGNATURE_SIZE]);
void signing_key_destroy(struct signing_key *key); /* NULL is safe */

#endif
