/*
 * See sha256.h. libcrypto is asked not to read its configuration: what an OpenSSL of the host is
 * told to load has no business here, and a sandboxed process may not open it.
 */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "base/sha256.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <string.h>

#include "base/check.h"

struct sha256_stream *sha256_create(void)
{
    OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, NULL);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    if (ctx && !EVP_DigestInit_ex(ctx, EVP_sha256(), NULL)) {
        EVP_MD_CTX_free(ctx);
        ctx = NULL;
    }
    return (struct sha256_stream *)ctx;
}

static EVP_MD_CTX *context(struct sha256_stream *s)
{
    return (EVP_MD_CTX *)s;
}

void sha256_begin(struct sha256_stream *s)
{
    CHECK(EVP_DigestInit_ex(context(s), NULL, NULL), "libcrypto has no SHA-256");
}

void sha256_add(struct sha256_stream *s, const void *data, size_t len)
{
    CHECK(EVP_DigestUpdate(context(s), data, len), "libcrypto has no SHA-256");
}

struct sha256 sha256_end(struct sha256_stream *s)
{
    struct sha256 hash;
    CHECK(EVP_DigestFinal_ex(context(s), hash.bytes, NULL), "libcrypto has no SHA-256");
    return hash;
}

void sha256_destroy(struct sha256_stream *s)
{
    EVP_MD_CTX_free(context(s));
}

struct sha256 sha256_bytes(const void *data, size_t len)
{
    struct sha256 hash;
    SHA256_CTX ctx; /* EVP's would be allocated, which may fail */
    CHECK(SHA256_Init(&ctx) && SHA256_Update(&ctx, data, len) && SHA256_Final(hash.bytes, &ctx),
          "libcrypto has no SHA-256");
    return hash;
}

void sha256_text(const struct sha256 *hash, char out[SHA256_TEXT])
{
    static const char digits[] = "0123456789abcdef";
    for (unsigned i = 0; i < SHA256_SIZE; i++) {
        out[2 * i] = digits[hash->bytes[i] >> 4];
        out[2 * i + 1] = digits[hash->bytes[i] & 15];
    }
    out[2 * SHA256_SIZE] = 0;
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool sha256_parse(const char *text, struct sha256 *out)
{
    for (unsigned i = 0; i < SHA256_SIZE; i++) {
        int high = digit(text[2 * i]), low = high < 0 ? -1 : digit(text[2 * i + 1]);
        if (low < 0)
            return false;
        out->bytes[i] = (u8)(high << 4 | low);
    }
    return true;
}

bool sha256_equal(const struct sha256 *a, const struct sha256 *b)
{
    return !memcmp(a->bytes, b->bytes, SHA256_SIZE);
}
