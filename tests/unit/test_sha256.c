/* SHA-256 in one go and in parts, against the standard's examples; its hexadecimal form. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/sha256.h"

static const struct {
    const char *text, *hash;
} known[] = {
    {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
    {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
    {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
     "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
};

static void examples(void **state)
{
    (void)state;
    struct sha256_stream *s = sha256_create();
    assert_non_null(s);
    for (unsigned i = 0; i < ARRAY_SIZE(known); i++) {
        size_t len = strlen(known[i].text);
        char text[SHA256_TEXT];
        struct sha256 hash, parsed;
        hash = sha256_bytes(known[i].text, len);
        sha256_text(&hash, text);
        assert_string_equal(text, known[i].hash);
        assert_true(sha256_parse(text, &parsed) && sha256_equal(&parsed, &hash));
        for (size_t cut = 0; cut <= len; cut++) { /* one stream, used again and again */
            sha256_begin(s);
            sha256_add(s, known[i].text, cut);
            sha256_add(s, known[i].text + cut, len - cut);
            struct sha256 parts = sha256_end(s);
            assert_true(sha256_equal(&parts, &hash));
        }
    }
    sha256_destroy(s);
    sha256_destroy(NULL);
}

static void not_hexadecimal(void **state)
{
    (void)state;
    char text[SHA256_TEXT];
    struct sha256 out, hash;
    hash = sha256_bytes("x", 1);
    sha256_text(&hash, text);
    for (unsigned i = 0; i < 2 * SHA256_SIZE; i++) {
        char kept = text[i];
        text[i] = i % 3 ? 'g' : i % 2 ? 'A' : 0; /* 0: nothing after it is looked at */
        assert_false(sha256_parse(text, &out));
        text[i] = kept;
    }
    hash.bytes[31] ^= 1;
    assert_true(sha256_parse(text, &out) && !sha256_equal(&hash, &out));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(examples),
                                       cmocka_unit_test(not_hexadecimal)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
