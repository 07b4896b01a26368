/* Datagrams cut into fragments, in any order, and what is none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "netd/fragments.h"

#define MORE 0x2000u

static u8 data[65536];
static struct fragments *f;

static int set_up(void **state)
{
    f = calloc(1, fragments_size());
    for (unsigned i = 0; i < sizeof(data); i++)
        data[i] = (u8)(i * 31 + i / 256);
    return 0;
}

static int tear_down(void **state)
{
    free(f);
    return 0;
}

/* Ethernet, an IP header of `hlen` bytes, data. */
static size_t make(u8 *frame, u16 id, unsigned hlen, unsigned flags, unsigned offset, unsigned n)
{
    memset(frame, 0, 14 + hlen);
    memcpy(frame, "\x52\x55\x0a\x00\x02\x02\x52\x54\x00\x12\x34\x56\x08\x00", 14);
    u8 *ip = frame + 14;
    ip[0] = (u8)(0x40 | hlen / 4);
    ip[2] = (u8)((hlen + n) >> 8);
    ip[3] = (u8)(hlen + n);
    ip[4] = (u8)(id >> 8);
    ip[5] = (u8)id;
    ip[6] = (u8)((flags | offset / 8) >> 8);
    ip[7] = (u8)(offset / 8);
    ip[8] = 64;
    ip[9] = 17;
    memcpy(ip + 12, "\x0a\x00\x02\x0f\x0a\x00\x02\x02", 8);
    memcpy(ip + hlen, data + offset, n);
    return 14 + hlen + n;
}

static size_t give(u16 id, unsigned hlen, unsigned flags, unsigned offset, unsigned n, u64 now,
                   const u8 **out)
{
    static u8 frame[14 + 60 + 65536];
    size_t len = make(frame, id, hlen, flags, offset, n), size;
    u8 *exact = test_malloc(len); /* so that reading past it is seen */
    memcpy(exact, frame, len);
    size = fragments_take(f, exact, len, now, out);
    if (*out == exact)
        *out = frame;
    test_free(exact);
    return size;
}

static void check_whole(const u8 *out, size_t size, unsigned hlen, unsigned n)
{
    u32 sum = 0;
    assert_int_equal(size, 14 + hlen + n);
    assert_int_equal(out[16] << 8 | out[17], hlen + n);
    assert_int_equal(out[20] | out[21], 0);
    for (unsigned i = 14; i < 14 + hlen; i += 2)
        sum += (u32)out[i] << 8 | out[i + 1];
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    assert_int_equal(sum, 0xffff);
    assert_memory_equal(out + 14 + hlen, data, n);
}

static void others_pass(void **state)
{
    const u8 *out;
    u8 frame[200] = {0};
    for (size_t len = 0; len < 60; len++) {
        assert_int_equal(fragments_take(f, frame, len, 0, &out), len);
        assert_ptr_equal(out, frame);
    }
    assert_int_equal(give(1, 20, 0, 0, 100, 0, &out), 134);
    assert_int_equal(give(1, 20, 0x4000, 0, 100, 0, &out), 134); /* DF */
    assert_int_equal(give(1, 20, 0x8000, 0, 100, 0, &out), 0);
}

/* All orders of four pieces, with and without options, several datagrams at once. */
static void orders(void **state)
{
    static const unsigned at[] = {0, 8, 1480, 2000}, end = 2777;
    const u8 *out = NULL;
    for (unsigned order = 0; order < 256; order++) {
        unsigned used = 0;
        for (unsigned i = 0; i < 4; i++)
            used |= 1u << (order >> 2 * i & 3);
        if (used != 15)
            continue;
        for (unsigned i = 0; i < 4; i++)
            for (u16 id = 0; id < 3; id++) {
                unsigned k = order >> 2 * i & 3, stop = k < 3 ? at[k + 1] : end;
                unsigned hlen = id == 1 && k == 0 ? 32 : 20;
                size_t size = give(id, hlen, k < 3 ? MORE : 0, at[k], stop - at[k], order, &out);
                if (i < 3)
                    assert_int_equal(size, 0);
                else
                    check_whole(out, size, id == 1 ? 32 : 20, end);
            }
    }
}

static void largest(void **state)
{
    const u8 *out;
    for (unsigned at = 0; at + 1480 < 65515; at += 1480)
        assert_int_equal(give(9, 20, MORE, at, 1480, 0, &out), 0);
    check_whole(out, give(9, 20, 0, 65120, 65515 - 65120, 0, &out), 20, 65515);
    /* One byte more is more than a datagram's length can say. */
    for (unsigned at = 0; at + 1480 < 65516; at += 1480)
        assert_int_equal(give(9, 20, MORE, at, 1480, 0, &out), 0);
    assert_int_equal(give(9, 20, 0, 65120, 65516 - 65120, 0, &out), 0);
    assert_int_equal(give(9, 20, 0, 65528, 8, 0, &out), 0);
}

static void refused(void **state)
{
    const u8 *out;
    /* The one that Debian 12's libslirp does not survive. */
    assert_int_equal(give(194, 20, 0, 328, 127, 0, &out), 0);
    assert_int_equal(give(3, 20, MORE, 0, 100, 0, &out), 0);  /* not in units */
    assert_int_equal(give(3, 20, MORE, 0, 0, 0, &out), 0);    /* nothing */
    assert_int_equal(give(3, 20, MORE, 0, 160, 0, &out), 0);  /* 0-159 */
    assert_int_equal(give(3, 20, MORE, 152, 16, 0, &out), 0); /* overlaps */
    assert_int_equal(give(3, 20, MORE, 0, 160, 0, &out), 0);  /* again */
    assert_int_equal(give(3, 20, MORE, 320, 80, 0, &out), 0); /* 320-399 */
    assert_int_equal(give(3, 20, 0, 160, 50, 0, &out), 0);    /* would end before that */
    assert_int_equal(give(3, 20, 0, 400, 5, 0, &out), 0);     /* the end */
    assert_int_equal(give(3, 20, 0, 408, 5, 0, &out), 0);     /* a second end */
    assert_int_equal(give(3, 20, MORE, 408, 8, 0, &out), 0);  /* after the end */
    check_whole(out, give(3, 20, MORE, 160, 160, 0, &out), 20, 405);
    /* Time passes. */
    assert_int_equal(give(4, 20, MORE, 0, 160, 1000, &out), 0);
    assert_int_equal(give(4, 20, 0, 160, 8, 1001 + FRAGMENTS_NS, &out), 0);
    check_whole(out, give(4, 20, MORE, 0, 160, 1002 + FRAGMENTS_NS, &out), 20, 168);
    /* More than there is room for: the oldest goes. */
    for (u16 id = 0; id <= FRAGMENTS_DATAGRAMS; id++)
        assert_int_equal(give((u16)(100 + id), 20, MORE, 0, 8, 2 * FRAGMENTS_NS + id, &out), 0);
    assert_int_equal(give(100, 20, 0, 8, 8, 2 * FRAGMENTS_NS + 50, &out), 0);
    check_whole(out, give(105, 20, 0, 8, 8, 2 * FRAGMENTS_NS + 50, &out), 20, 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(others_pass, set_up, tear_down),
        cmocka_unit_test_setup_teardown(orders, set_up, tear_down),
        cmocka_unit_test_setup_teardown(largest, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refused, set_up, tear_down)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
