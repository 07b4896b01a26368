/*
 * crypto aes|p256: a fixed amount of what `openssl speed` does in a fixed time, by the system's
 * libcrypto. Prints digests and counts, which are the same each time: signatures are not, they are
 * checked.
 */
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 16384, CHUNKS = 9000, SIGNATURES = 8000 };

static void must(int good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "crypto: %s failed\n", what);
    exit(1);
}

static void print_digest(const char *what, const unsigned char *data, size_t size)
{
    unsigned char digest[32];
    must(EVP_Digest(data, size, digest, NULL, EVP_sha256(), NULL), "EVP_Digest");
    printf("%s ", what);
    for (size_t i = 0; i < sizeof(digest); i++)
        printf("%02x", digest[i]);
    printf("\n");
}

static void cipher(const char *name, const EVP_CIPHER *type, int chunks)
{
    static unsigned char data[CHUNK], key[32] = {1, 2, 3}, iv[16] = {4, 5, 6}, tag[16];
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    must(c && EVP_EncryptInit_ex(c, type, NULL, key, iv), name);
    EVP_CIPHER_CTX_set_padding(c, 0);
    memset(data, 7, sizeof(data));
    int size = 0;
    for (int i = 0; i < chunks; i++)
        must(EVP_EncryptUpdate(c, data, &size, data, sizeof(data)), name);
    must(EVP_EncryptFinal_ex(c, data + CHUNK - 16, &size), name);
    if (EVP_CIPHER_mode(type) == EVP_CIPH_GCM_MODE) {
        must(EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_AEAD_GET_TAG, sizeof(tag), tag), name);
        print_digest("tag", tag, sizeof(tag));
    }
    print_digest(name, data, sizeof(data));
    EVP_CIPHER_CTX_free(c);
}

static void curve(void)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    must(key != NULL, "EVP_EC_gen");
    int good = 0, refused = 0;
    for (int i = 0; i < SIGNATURES; i++) {
        unsigned char text[64] = {0}, signature[128];
        size_t size = sizeof(signature);
        memcpy(text, &i, sizeof(i));
        EVP_MD_CTX *c = EVP_MD_CTX_new();
        must(c && EVP_DigestSignInit(c, NULL, EVP_sha256(), NULL, key) == 1 &&
                 EVP_DigestSign(c, signature, &size, text, sizeof(text)) == 1,
             "EVP_DigestSign");
        EVP_MD_CTX_reset(c);
        text[63] = i % 8 == 0; /* no longer what was signed */
        must(EVP_DigestVerifyInit(c, NULL, EVP_sha256(), NULL, key) == 1, "EVP_DigestVerifyInit");
        int is = EVP_DigestVerify(c, signature, size, text, sizeof(text));
        good += is == 1;
        refused += is == 0;
        EVP_MD_CTX_free(c);
    }
    printf("p256 %d good, %d refused\n", good, refused);
    EVP_PKEY_free(key);
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "aes")) {
        cipher("aes-128-cbc", EVP_aes_128_cbc(), CHUNKS / 3);
        cipher("aes-256-ctr", EVP_aes_256_ctr(), CHUNKS);
        cipher("aes-128-gcm", EVP_aes_128_gcm(), CHUNKS / 2);
    } else if (argc == 2 && !strcmp(argv[1], "p256")) {
        curve();
    } else {
        fputs("crypto aes|p256\n", stderr);
        return 2;
    }
    return 0;
}
