/* See signing.h. libcrypto is asked not to read its configuration, as in sha256.c. */
#include "base/signing.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file_io.h"

#define FILE_MAX (64u << 10)

static EVP_PKEY *pkey(const struct signing_key *key)
{
    return (EVP_PKEY *)key;
}

static EVP_PKEY *read_pem(BIO *bio, bool secret)
{
    EVP_PKEY *key = secret ? NULL : PEM_read_bio_PUBKEY(bio, NULL, NULL, NULL);
    if (key)
        return key;
    (void)BIO_reset(bio);
    return PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL);
}

int signing_key_read(struct signing_key **out, const char *path, bool secret, struct err *err)
{
    u64 size;
    OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, NULL);
    int fd = file_open_regular(AT_FDCWD, path, FILE_MAX, &size, err);
    if (fd < 0)
        return fd;
    u8 bytes[FILE_MAX];
    bool read = file_read_at(fd, bytes, size, 0);
    close(fd);
    if (!read)
        return err_set(err, -EIO, "cannot read %s", path);
    BIO *bio = BIO_new_mem_buf(bytes, (int)size);
    EVP_PKEY *key = bio ? read_pem(bio, secret) : NULL;
    BIO_free(bio);
    OPENSSL_cleanse(bytes, sizeof(bytes));
    if (!key)
        return err_set(err, -EINVAL,
                       "%s holds no %s key in PEM (`openssl genpkey -algorithm ed25519` makes one)",
                       path, secret ? "private" : "public");
    if (EVP_PKEY_base_id(key) != EVP_PKEY_ED25519) {
        EVP_PKEY_free(key);
        return err_set(err, -EINVAL, "the key in %s is not of the algorithm ed25519", path);
    }
    *out = (struct signing_key *)key;
    return 0;
}

struct signing_key *signing_key_from(const u8 bytes[KEY_SIZE])
{
    OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, NULL);
    return (struct signing_key *)EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, bytes,
                                                             KEY_SIZE);
}

int signing_key_public(const struct signing_key *key, u8 out[KEY_SIZE], struct err *err)
{
    size_t len = KEY_SIZE;
    if (EVP_PKEY_get_raw_public_key(pkey(key), out, &len) == 1 && len == KEY_SIZE)
        return 0;
    return err_set(err, -ENOMEM, "libcrypto does not give the key's public half");
}

int signing_key_fingerprint(const struct signing_key *key, struct sha256 *out, struct err *err)
{
    u8 bytes[KEY_SIZE];
    int code = signing_key_public(key, bytes, err);
    if (!code)
        *out = sha256_bytes(bytes, sizeof(bytes));
    return code;
}

int signing_sign(const struct signing_key *key, const void *data, size_t len,
                 u8 out[SIGNATURE_SIZE], struct err *err)
{
    size_t size = SIGNATURE_SIZE;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool done = ctx && EVP_DigestSignInit(ctx, NULL, NULL, NULL, pkey(key)) == 1 &&
                EVP_DigestSign(ctx, out, &size, data, len) == 1 && size == SIGNATURE_SIZE;
    EVP_MD_CTX_free(ctx);
    return done ? 0 : err_set(err, -EINVAL, "libcrypto cannot sign with this key");
}

bool signing_check(const struct signing_key *key, const void *data, size_t len,
                   const u8 signature[SIGNATURE_SIZE])
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool right = ctx && EVP_DigestVerifyInit(ctx, NULL, NULL, NULL, pkey(key)) == 1 &&
                 EVP_DigestVerify(ctx, signature, SIGNATURE_SIZE, data, len) == 1;
    EVP_MD_CTX_free(ctx);
    return right;
}

void signing_key_destroy(struct signing_key *key)
{
    EVP_PKEY_free(pkey(key));
}
