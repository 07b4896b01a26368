/* The remote protocol's packets: framing, escapes, run lengths, hex. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "replay/gdb/packet.h"

static struct packet_reader reader;

/* Feeds all of it; the events that are not PACKET_NONE, at most 8 of them. */
static unsigned feed(const char *bytes, size_t len, enum packet_event events[8])
{
    unsigned n = 0;
    for (size_t i = 0; i < len; i++) {
        enum packet_event e = packet_read(&reader, (u8)bytes[i]);
        if (e != PACKET_NONE && n < 8)
            events[n++] = e;
    }
    return n;
}

static enum packet_event one(const char *bytes)
{
    enum packet_event events[8] = {0};
    memset(&reader, 0, sizeof(reader));
    assert_int_equal(feed(bytes, strlen(bytes), events), 1);
    return events[0];
}

/* `data` framed as it is, with the right checksum. */
static enum packet_event framed(const char *data)
{
    char text[256];
    u8 sum = 0;
    for (const char *p = data; *p; p++)
        sum = (u8)(sum + (u8)*p);
    snprintf(text, sizeof(text), "$%s#%02x", data, sum);
    return one(text);
}

static void test_frames(void **state)
{
    assert_int_equal(one("$OK#9a"), PACKET_READY);
    assert_string_equal(reader.data, "OK");
    assert_int_equal(one("x"), PACKET_GARBAGE);
    assert_int_equal(one("$OK#9A"), PACKET_READY);
    assert_int_equal(one("$#00"), PACKET_READY);
    assert_int_equal(reader.len, 0);
    assert_int_equal(one("$OK#9b"), PACKET_BAD);
    assert_int_equal(one("$OK#x9"), PACKET_BAD);
    assert_int_equal(one("$OK#9x"), PACKET_BAD);
    assert_int_equal(one("$half$OK#9a"), PACKET_READY);
    assert_string_equal(reader.data, "OK");
    assert_int_equal(one("+"), PACKET_ACK);
    assert_int_equal(one("-"), PACKET_NAK);
    assert_int_equal(one("\x03"), PACKET_INTERRUPT);
}

static void test_sequence(void **state)
{
    enum packet_event e[8];
    static const char bytes[] = "+$g#67\x03+$OK#9a-";
    memset(&reader, 0, sizeof(reader));
    assert_int_equal(feed(bytes, sizeof(bytes) - 1, e), 6);
    assert_int_equal(e[0], PACKET_ACK);
    assert_int_equal(e[1], PACKET_READY);
    assert_int_equal(e[2], PACKET_INTERRUPT);
    assert_int_equal(e[3], PACKET_ACK);
    assert_int_equal(e[4], PACKET_READY);
    assert_int_equal(e[5], PACKET_NAK);
}

static void test_escapes(void **state)
{
    assert_int_equal(framed("a}\x03" /* # */ "}]" /* } */ "}\n" /* * */ "b"), PACKET_READY);
    assert_string_equal(reader.data, "a#}*b");
    assert_int_equal(framed("a}"), PACKET_REFUSED); /* escapes the end */
}

static void test_runs(void **state)
{
    assert_int_equal(framed("0* "), PACKET_READY);
    assert_string_equal(reader.data, "0000");
    assert_int_equal(framed("x0*\"y*%"), PACKET_READY);
    assert_string_equal(reader.data, "x000000yyyyyyyyy");
    assert_int_equal(framed("*!"), PACKET_REFUSED); /* nothing to repeat */
    assert_int_equal(framed("a*\x1f"), PACKET_REFUSED);
    assert_int_equal(framed("a*\x7f"), PACKET_REFUSED);
    assert_int_equal(framed("a*"), PACKET_REFUSED);
}

static void test_too_long(void **state)
{
    static char big[GDB_PACKET_SIZE + 64];
    enum packet_event e[8];
    for (unsigned more = 0; more < 2; more++) {
        size_t len = GDB_PACKET_SIZE + more;
        memset(&reader, 0, sizeof(reader));
        memset(big, 'a', sizeof(big));
        big[0] = '$';
        snprintf(big + 1 + len, 4, "#%02x", (u8)('a' * len));
        assert_int_equal(feed(big, len + 4, e), 1);
        assert_int_equal(e[0], more ? PACKET_REFUSED : PACKET_READY);
    }
    /* A run at the end of a full packet, and a packet that never ends. */
    memset(&reader, 0, sizeof(reader));
    assert_int_equal(feed("$a", 2, e), 0);
    for (unsigned i = 0; i < 100000; i++)
        assert_int_equal(feed("*~", 2, e), 0);
    assert_true(reader.len <= GDB_PACKET_SIZE);
    /* A good one after it is read. */
    assert_int_equal(feed("#00$OK#9a", 9, e), 2);
    assert_int_equal(e[1], PACKET_READY);
}

/* What is written reads as what was meant. */
static void round_trip(const u8 *data, size_t len)
{
    static struct reply r;
    static u8 out[GDB_PACKET_SIZE + 4];
    enum packet_event e[8];
    reply_clear(&r);
    assert_int_equal(reply_binary(&r, data, len), len);
    size_t size = packet_write(r.data, r.len, out);
    assert_true(size <= r.len + 4);
    for (size_t i = 1; i + 3 < size; i++)
        assert_true(out[i] != '$' && out[i] != '#');
    memset(&reader, 0, sizeof(reader));
    assert_int_equal(feed((const char *)out, size, e), 1);
    assert_int_equal(e[0], PACKET_READY);
    assert_int_equal(reader.len, len);
    assert_memory_equal(reader.data, data, len);
}

static void test_round_trips(void **state)
{
    static u8 data[4096];
    u64 x = 1;
    for (unsigned n = 0; n < 400; n++) { /* runs of every length, of special characters too */
        memset(data, "0}#$*a"[n % 6], n);
        round_trip(data, n);
    }
    for (unsigned n = 0; n < 2000; n++) {
        size_t len = n * 2;
        for (size_t i = 0; i < len; i++) {
            x = x * 6364136223846793005u + 1;
            data[i] = (x >> 60) < 9 && i ? data[i - 1] : (u8) "}#$*ab\0\x03"[x >> 40 & 7];
        }
        round_trip(data, len);
    }
}

static void test_runs_written(void **state)
{
    u8 out[256];
    char zeros[128];
    static const struct {
        unsigned count;
        const char *text;
    } cases[] = {{3, "$000#90"}, {4, "$0* #7a"}, {7, "$0*\"0#ac"}, {8, "$0*\"00#dc"}};
    memset(zeros, '0', sizeof(zeros));
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        out[packet_write(zeros, cases[i].count, out)] = 0;
        assert_string_equal((char *)out, cases[i].text);
    }
    /* 98 is the longest. */
    assert_int_equal(packet_write(zeros, 98, out), 7);
    assert_int_equal(out[3], '~');
}

static void test_reply_full(void **state)
{
    static struct reply r;
    static u8 data[GDB_PACKET_SIZE];
    reply_clear(&r);
    reply_hex(&r, data, sizeof(data));
    assert_true(r.full);
    assert_int_equal(r.len, GDB_PACKET_SIZE);
    reply_clear(&r);
    memset(data, '}', sizeof(data));
    reply_text(&r, "m");
    size_t fitted = reply_binary(&r, data, sizeof(data));
    assert_int_equal(fitted, (GDB_PACKET_SIZE - 1) / 2);
    assert_int_equal(r.len, 1 + 2 * fitted);
}

static void test_error_text(void **state)
{
    static struct reply r;
    reply_clear(&r);
    reply_error(&r, "no $5 #x}*\n");
    assert_int_equal(r.len, 13);
    assert_memory_equal(r.data, "E.no  5  x   ", 13);
}

static void test_hex(void **state)
{
    static const struct {
        const char *text;
        bool fine;
        u64 value;
        size_t used;
    } cases[] = {{"0", true, 0, 1},
                 {"ffffffffffffffff", true, UINT64_MAX, 16},
                 {"00000000000000000001", true, 1, 20},
                 {"10000000000000000", false, 0, 0},
                 {"dEaD,", true, 0xdead, 4},
                 {"", false, 0, 0},
                 {",", false, 0, 0},
                 {"-1", false, 0, 0},
                 {"0x1", true, 0, 1}};
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *at = cases[i].text;
        u64 v = 0;
        assert_int_equal(parse_hex(&at, &v), cases[i].fine);
        assert_int_equal(at - cases[i].text, cases[i].used);
        assert_int_equal(v, cases[i].value);
    }
    u8 out[2];
    assert_true(parse_bytes("1fA0", out, 2));
    assert_int_equal(out[0], 0x1f);
    assert_int_equal(out[1], 0xa0);
    assert_false(parse_bytes("1f2", out, 2));
    assert_false(parse_bytes("1g", out, 1));
    assert_false(parse_bytes("", out, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames),       cmocka_unit_test(test_sequence),
        cmocka_unit_test(test_escapes),      cmocka_unit_test(test_runs),
        cmocka_unit_test(test_too_long),     cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_runs_written), cmocka_unit_test(test_reply_full),
        cmocka_unit_test(test_error_text),   cmocka_unit_test(test_hex),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
