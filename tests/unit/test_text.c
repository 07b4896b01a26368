/* Texts from others: what reaches a terminal of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/text.h"

static const char nasty[] = "a\033[31mb\x9d\rc\007\b\x7f\xc2\x9b"
                            "31m \xc3\xa9\n\tend";
static const char clean[] = "a?[31mb\x9d?c???\xc2?31m \xc3\xa9\n\tend";

static void in_place(void **state)
{
    char text[sizeof(nasty)], line[sizeof(nasty)];
    memcpy(text, nasty, sizeof(nasty));
    text_clean(text);
    assert_string_equal(text, clean);
    assert_string_equal(text_printable("x\033\ny", line, sizeof(line)), "x??y");
    assert_string_equal(text_printable("abcdef", line, 4), "abc");
}

static void errors_are_clean(void **state)
{
    struct err err;
    err_set(&err, -1, "the file %s", "\033]0;title\007");
    assert_string_equal(err.text, "the file ?]0;title?");
    err_prefix(&err, "%s", "\033[2J");
    assert_string_equal(err.text, "?[2J: the file ?]0;title?");
}

/* However it is cut into writes. */
static void stream(void **state)
{
    for (size_t piece = 1; piece < sizeof(nasty); piece++) {
        char *text;
        size_t size;
        FILE *to = open_memstream(&text, &size), *guard = text_guard(to);
        for (size_t at = 0; at < sizeof(nasty) - 1; at += piece) {
            fwrite(nasty + at, 1, at + piece < sizeof(nasty) ? piece : sizeof(nasty) - 1 - at,
                   guard);
            fflush(guard);
        }
        fclose(guard);
        fputs("!", to);
        fclose(to);
        assert_int_equal(size, sizeof(clean));
        assert_memory_equal(text, clean, sizeof(clean) - 1);
        free(text);
    }
}

static void a_full_disk_is_seen(void **state)
{
    FILE *to = fopen("/dev/full", "w"), *guard = text_guard(to);
    fputs("hello", guard);
    assert_int_equal(fflush(guard), EOF);
    fclose(guard);
    fclose(to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_place),
        cmocka_unit_test(errors_are_clean),
        cmocka_unit_test(stream),
        cmocka_unit_test(a_full_disk_is_seen),
    };
    return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
