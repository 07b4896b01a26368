/* Points of a recording as users write them: every form, and what is wrong with the others. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "replay/point.h"

static void numbers(void **state)
{
    static const struct {
        const char *text;
        enum point_kind kind;
        u64 n;
    } good[] = {
        {"0", POINT_INSN, 0},
        {"17", POINT_INSN, 17},
        {"insn:17", POINT_INSN, 17},
        {"insn:0x1f", POINT_INSN, 31},
        {"0X1F", POINT_INSN, 31},
        {"0x1fk", POINT_INSN, 31000},
        {"017", POINT_INSN, 17},
        {"3k", POINT_INSN, 3000},
        {"3K", POINT_INSN, 3000},
        {"3M", POINT_INSN, 3000000},
        {"insn:3G", POINT_INSN, 3000000000},
        {"18446744073709551615", POINT_INSN, UINT64_MAX},
        {"0xffffffffffffffff", POINT_INSN, UINT64_MAX},
        {"event:0", POINT_EVENT, 0},
        {"event:12k", POINT_EVENT, 12000},
        {"end", POINT_END, 0},
        {"end-0", POINT_END, 0},
        {"end-12", POINT_END, 12},
        {"end-2M", POINT_END, 2000000},
        {"end-0x10", POINT_END, 16},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        struct point p;
        struct err err = {0};
        if (point_parse(good[i].text, &p, &err))
            fail_msg("%s: %s", good[i].text, err.text);
        if (p.kind != good[i].kind || p.n != good[i].n || p.len)
            fail_msg("%s is kind %d, %llu", good[i].text, p.kind, (unsigned long long)p.n);
    }
}

static void times(void **state)
{
    static const struct {
        const char *text;
        u64 ns;
    } good[] = {
        {"time:0", 0},
        {"time:1", 1000000000},
        {"time:1.5", 1500000000},
        {"time:1.5s", 1500000000},
        {"time:200ms", 200000000},
        {"time:0.25ms", 250000},
        {"time:30us", 30000},
        {"time:7ns", 7},
        {"time:1e3ms", 1000000000},
        {"time:3.348695759s", 3348695759},
        {"time:3348695759ns", 3348695759},
        {"time:1000000000", 1000000000000000000},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        struct point p;
        struct err err = {0};
        if (point_parse(good[i].text, &p, &err))
            fail_msg("%s: %s", good[i].text, err.text);
        if (p.kind != POINT_TIME || p.n != good[i].ns)
            fail_msg("%s is %llu ns", good[i].text, (unsigned long long)p.n);
    }
}

static void texts(void **state)
{
    static const struct {
        const char *text, *is;
        size_t len;
        u64 k;
    } good[] = {
        {"console:a", "a", 1, 1},           {"console: a ", " a ", 3, 1},
        {"console:login:", "login:", 6, 1}, {"console:a#2", "a", 1, 2},
        {"console:a#0x2", "a#0x2", 5, 1},   {"console:a#b", "a#b", 3, 1},
        {"console:a#", "a#", 2, 1},         {"console:/ #", "/ #", 3, 1},
        {"console:/ ##3", "/ #", 3, 3},     {"console:a#1#2", "a#1", 3, 2},
        {"console:a\\#2", "a#2", 3, 1},     {"console:a\\#2#3", "a#2", 3, 3},
        {"console:#7", "#7", 2, 1},         {"console:\\n\\r\\t\\\\", "\n\r\t\\", 4, 1},
        {"console:a\\\\n", "a\\n", 3, 1},   {"console:end", "end", 3, 1},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        struct point p;
        struct err err = {0};
        if (point_parse(good[i].text, &p, &err))
            fail_msg("%s: %s", good[i].text, err.text);
        if (p.kind != POINT_CONSOLE || p.len != good[i].len || p.n != good[i].k ||
            memcmp(p.text, good[i].is, p.len))
            fail_msg("%s is '%.*s', number %llu", good[i].text, (int)p.len, p.text,
                     (unsigned long long)p.n);
    }
    struct point p;
    struct err err = {0};
    assert_int_equal(point_parse("mark:before the crash #2", &p, &err), 0);
    assert_int_equal(p.kind, POINT_MARK);
    assert_string_equal(p.text, "before the crash #2");
}

static void refused(void **state)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"", "it starts as none"},
        {"noon", "it starts as none"},
        {" 5", "it starts as none"},
        {"-5", "it starts as none"},
        {"+5", "it starts as none"},
        {"5x", "it starts as none"},
        {"5kk", "it starts as none"},
        {"5 ", "it starts as none"},
        {"5T", "it starts as none"},
        {"0x", "it starts as none"},
        {"1.5", "it starts as none"},
        {"18446744073709551616", "it starts as none"},
        {"99999999999999G", "it starts as none"},
        {"INSN:5", "it starts as none"},
        {"insn5", "it starts as none"},
        {"insn:", "whole number"},
        {"insn:-1", "whole number"},
        {"insn:0x", "whole number"},
        {"insn:0xg", "whole number"},
        {"insn:1e3", "whole number"},
        {"insn:5%n", "whole number"},
        {"event:", "whole number"},
        {"event:-1", "whole number"},
        {"event:last", "whole number"},
        {"time:", "a time like"},
        {"time:-1", "a time like"},
        {"time:+1", "a time like"},
        {"time:0x10", "a time like"},
        {"time:1.5x", "a time like"},
        {"time:1 s", "a time like"},
        {"time:nan", "a time like"},
        {"time:inf", "a time like"},
        {"time:1e400", "a time like"},
        {"time:1e11", "a time like"},
        {"time:1m", "a time like"},
        {"end-", "end-N"},
        {"end+1", "end-N"},
        {"end--1", "end-N"},
        {"ending", "end-N"},
        {"end 1", "end-N"},
        {"end-1.5", "end-N"},
        {"console:", "which text"},
        {"console:a#0", "first text is #1"},
        {"console:a#99999999999999999999", "first text is #1"},
        {"console:\\x41", "\\x: only"},
        {"mark:", "takes a name"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct point p;
        struct err err = {0};
        if (point_parse(bad[i].text, &p, &err) != -EINVAL)
            fail_msg("'%s' was taken as kind %d, %llu", bad[i].text, p.kind,
                     (unsigned long long)p.n);
        if (!strstr(err.text, bad[i].why))
            fail_msg("'%s': %s", bad[i].text, err.text);
    }
}

/* Of processes. */
static void lives(void **state)
{
    static const struct {
        const char *text;
        enum point_kind kind;
        const char *name;
        i32 pid;
        u64 k;
    } good[] = {
        {"exec:ls", POINT_EXEC, "ls", 0, 1},
        {"exec:ls#3", POINT_EXEC, "ls", 0, 3},
        {"exec:a b", POINT_EXEC, "a b", 0, 1},
        {"exec:a\\#2", POINT_EXEC, "a#2", 0, 1},
        {"exec:7", POINT_EXEC, "7", 0, 1},
        {"exit:1", POINT_EXIT, "", 1, 1},
        {"exit:0", POINT_EXIT, "", 0, 1},
        {"exit:107#2", POINT_EXIT, "", 107, 2},
        {"exit:2147483647", POINT_EXIT, "", INT32_MAX, 1},
        {"crash", POINT_CRASH, "", 0, 1},
        {"crash#12", POINT_CRASH, "", 0, 12},
        {"panic", POINT_PANIC, "", 0, 0},
    };
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"exec:", "which program"},
        {"exec:ls#0", "first program is #1"},
        {"exit:", "number of a process"},
        {"exit:ls", "number of a process"},
        {"exit:-1", "number of a process"},
        {"exit:1k", "number of a process"},
        {"exit:0x10", "number of a process"},
        {"exit:5#0", "number of a process"},
        {"exit:5#", "number of a process"},
        {"exit:2147483648", "number of a process"},
        {"exit:99999999999999999999", "number of a process"},
        {"crash#0", "crash#K"},
        {"crash#", "crash#K"},
        {"crash:1", "crash#K"},
        {"crashes", "crash#K"},
        {"panic#1", "nothing follows"},
        {"panics", "nothing follows"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        struct point p;
        struct err err = {0};
        if (point_parse(good[i].text, &p, &err))
            fail_msg("%s: %s", good[i].text, err.text);
        if (p.kind != good[i].kind || strcmp(p.text, good[i].name) || p.pid != good[i].pid ||
            p.n != good[i].k || !point_is_life(&p))
            fail_msg("%s is kind %d, '%s', %d, number %llu", good[i].text, p.kind, p.text, p.pid,
                     (unsigned long long)p.n);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct point p;
        struct err err = {0};
        if (point_parse(bad[i].text, &p, &err) != -EINVAL || !strstr(err.text, bad[i].why))
            fail_msg("'%s': kind %d: %s", bad[i].text, p.kind, err.text);
    }
}

/* As long as they may be, and longer. */
static void lengths(void **state)
{
    struct point p;
    struct err err = {0};
    char text[700] = "console:";
    (void)state;
    memset(text + 8, 'x', 256);
    assert_int_equal(point_parse(text, &p, &err), 0);
    assert_int_equal(p.len, 256);
    text[8 + 256] = 'x';
    assert_int_equal(point_parse(text, &p, &err), -EINVAL);
    assert_non_null(strstr(err.text, "longer than 256 bytes"));
    memset(text, 'x', sizeof(text) - 1);
    memcpy(text, "mark:", 5);
    assert_int_equal(point_parse(text, &p, &err), -EINVAL);
    text[5 + 255] = 0;
    assert_int_equal(point_parse(text, &p, &err), 0);
    assert_int_equal(p.len, 255);
    /* Something misspelt is quoted in part. */
    memset(text, 'y', sizeof(text) - 1);
    assert_int_equal(point_parse(text, &p, &err), -EINVAL);
    assert_non_null(strstr(err.text, "yyy' is no point"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(numbers), cmocka_unit_test(times),
                                       cmocka_unit_test(texts),   cmocka_unit_test(refused),
                                       cmocka_unit_test(lives),   cmocka_unit_test(lengths)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
