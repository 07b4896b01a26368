/* Ed25519 with keys in PEM: against the standard's first example; what is no key; what was changed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/signing.h"

/* RFC 8032, 7.1, test 1: the secret key, wrapped as PKCS #8; its public half; the signature of
 * nothing. */
static const char secret_pem[] =
    "-----BEGIN PRIVATE KEY-----\n"
    "MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n"
    "-----END PRIVATE KEY-----\n";
static const u8 public_key[] = {0xd7, 0x5a, 0x98, 0x01, 0x82, 0xb1, 0x0a, 0xb7, 0xd5, 0x4b, 0xfe,
                                0xd3, 0xc9, 0x64, 0x07, 0x3a, 0x0e, 0xe1, 0x72, 0xf3, 0xda, 0xa6,
                                0x23, 0x25, 0xaf, 0x02, 0x1a, 0x68, 0xf7, 0x07, 0x51, 0x1a};
static const u8 of_nothing[] = {0xe5, 0x56, 0x43, 0x00, 0xc3, 0x60, 0xac, 0x72, 0x90, 0x86, 0xe2,
                                0xcc, 0x80, 0x6e, 0x82, 0x8a, 0x84, 0x87, 0x7f, 0x1e, 0xb8, 0xe5,
                                0xd9, 0x74, 0xd8, 0x73, 0xe0, 0x65, 0x22, 0x49, 0x01, 0x55};

static int read_text(struct signing_key **key, const char *text, bool secret, struct err *err)
{
    char path[] = "/tmp/reprise-test-XXXXXX";
    int fd = mkstemp(path);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    int code = signing_key_read(key, path, secret, err);
    unlink(path);
    return code;
}

static void example(void **state)
{
    struct signing_key *key, *half;
    struct err err;
    u8 signature[SIGNATURE_SIZE], out[KEY_SIZE];
    assert_int_equal(read_text(&key, secret_pem, true, &err), 0);
    assert_int_equal(signing_key_public(key, out, &err), 0);
    assert_memory_equal(out, public_key, KEY_SIZE);
    assert_int_equal(signing_sign(key, "", 0, signature, &err), 0);
    assert_memory_equal(signature, of_nothing, sizeof(of_nothing));
    half = signing_key_from(public_key);
    assert_non_null(half);
    struct sha256 a, b;
    assert_int_equal(signing_key_fingerprint(key, &a, &err), 0);
    assert_int_equal(signing_key_fingerprint(half, &b, &err), 0);
    assert_true(sha256_equal(&a, &b));
    assert_true(signing_check(half, "", 0, signature));
    assert_false(signing_check(half, "x", 1, signature));
    for (unsigned i = 0; i < SIGNATURE_SIZE; i++) {
        signature[i] ^= 1;
        assert_false(signing_check(half, "", 0, signature));
        signature[i] ^= 1;
    }
    assert_true(signing_sign(half, "", 0, signature, &err) < 0);
    signing_key_destroy(half);
    signing_key_destroy(key);
    signing_key_destroy(NULL);
}

static void no_keys(void **state)
{
    struct signing_key *key;
    struct err err;
    assert_true(read_text(&key, "", true, &err) < 0);
    assert_true(read_text(&key, "hello\n", false, &err) < 0);
    assert_true(read_text(&key, "-----BEGIN PRIVATE KEY-----\nMC4C\n-----END PRIVATE KEY-----\n",
                          true, &err) < 0);
    assert_true(signing_key_read(&key, "/no/such", true, &err) < 0);
    assert_true(signing_key_read(&key, "/dev/zero", true, &err) < 0);
    /* A public key is no private one; a private one has its public half. */
    assert_true(read_text(&key,
                          "-----BEGIN PUBLIC KEY-----\n"
                          "MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n"
                          "-----END PUBLIC KEY-----\n",
                          true, &err) < 0);
    assert_non_null(strstr(err.text, "no private key"));
    assert_int_equal(read_text(&key, secret_pem, false, &err), 0);
    signing_key_destroy(key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(example), cmocka_unit_test(no_keys)};
    return cmocka_run_group_tests_name("signing", tests, NULL, NULL);
}
