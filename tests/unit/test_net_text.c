/* What --net takes, and frames as text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "host/net_options.h"
#include "replay/frame.h"

static struct net_options good(const char *spec)
{
    struct net_options o;
    struct err err = {0};
    if (net_options_parse(&o, spec, &err))
        fail_msg("%s", err.text);
    return o;
}

static void bad(const char *spec, const char *text)
{
    struct net_options o;
    struct err err = {0};
    if (!net_options_parse(&o, spec, &err))
        fail_msg("'%s' was taken", spec);
    if (!strstr(err.text, text))
        fail_msg("'%s': %s", spec, err.text);
}

static void defaults(void **state)
{
    struct net_options o = good("user");
    assert_int_equal(o.kind, NET_USER);
    assert_int_equal(o.network.net, 0x0a000200);
    assert_int_equal(o.network.mask, 0xffffff00);
    assert_int_equal(o.host, 0x0a000202);
    assert_int_equal(o.dns, 0x0a000203);
    assert_int_equal(o.dhcp, 0x0a00020f);
    assert_int_equal(o.mtu, 0);
    assert_false(net_has_mac(&o));
    assert_int_equal(o.restricted, NET_DEFAULT);
    assert_int_equal(o.ipv6, NET_DEFAULT);
    assert_int_equal(o.forwards.n, 0);
    o = good("tap,ifname=br0-tap.7_x");
    assert_int_equal(o.kind, NET_TAP);
    assert_string_equal(o.ifname, "br0-tap.7_x");
}

static void forwards(void **state)
{
    struct net_options o =
        good("user,dhcpstart=10.0.2.77,hostfwd=tcp::2222-:22,"
             "hostfwd=udp:0.0.0.0:0-10.0.2.9:65535,hostfwd=tcp:1.2.3.4:65535-:1");
    assert_int_equal(o.forwards.n, 3);
    assert_false(o.forwards.at[0].udp);
    assert_int_equal(o.forwards.at[0].host, 0x7f000001);
    assert_int_equal(o.forwards.at[0].host_port, 2222);
    assert_int_equal(o.forwards.at[0].guest, 0x0a00024d);
    assert_int_equal(o.forwards.at[0].guest_port, 22);
    assert_true(o.forwards.at[1].udp);
    assert_int_equal(o.forwards.at[1].host, 0);
    assert_int_equal(o.forwards.at[1].host_port, 0);
    assert_int_equal(o.forwards.at[1].guest, 0x0a000209);
    assert_int_equal(o.forwards.at[1].guest_port, 65535);
    assert_int_equal(o.forwards.at[2].host, 0x01020304);
    assert_int_equal(o.forwards.at[2].host_port, 65535);
    bad("user,hostfwd=", "hostfwd is");
    bad("user,hostfwd", "hostfwd is");
    bad("user,hostfwd=tcp::1-:2,hostfwd=tcp::1-:0", "tcp::1-:0");
    bad("user,net=10.1.0.0/16,hostfwd=tcp::1-10.2.0.1:5", "not in the guest's network 10.1.0.0");
    /* Its order does not matter. */
    o = good("user,hostfwd=tcp::1-:2,net=192.168.0.0/27");
    assert_int_equal(o.forwards.at[0].guest, 0xc0a8000f);
}

static void values(void **state)
{
    static const u8 mac[6] = {0x0a, 0xbc, 0xde, 0xf0, 0x12, 0xff};
    struct net_options o = good("user,mac=0A:bc:DE:f0:12:ff,mtu=576,restrict=on,ipv6=off,"
                                "hostname=a-1,dns=10.0.2.254");
    assert_memory_equal(o.mac, mac, 6);
    assert_int_equal(o.mtu, 576);
    assert_int_equal(o.restricted, NET_ON);
    assert_int_equal(o.ipv6, NET_OFF);
    assert_string_equal(o.hostname, "a-1");
    assert_int_equal(good("tap,mtu=32000,ifname=x").mtu, 32000);
    bad("user,mtu=32001", "mtu is");
    bad("user,mac=52:54:00:12:34:56:", "mac is");
    bad("user,restrict=on,restrict=on", "twice");
    bad("user,net=10.0.2.0/24/24", "net is");
    bad("tap,ifname=x,ifname=y", "twice");
    bad("tap,ifname=0123456789abcdef", "ifname is");
    good("tap,ifname=0123456789abcde");
    bad("tap,restrict=on,ifname=x", "restrict goes with user");
}

static void check_frame(const char *want, const u8 *bytes, size_t len)
{
    char text[FRAME_TEXT];
    assert_string_equal(frame_text(bytes, len, text), want);
    /* Any part of it: no more than its own bytes are read (the sanitizers look). */
    for (size_t n = 0; n < len; n++) {
        u8 *part = test_malloc(n + 1);
        memcpy(part, bytes, n);
        frame_text(part, n, text);
        assert_true(strlen(text) < FRAME_TEXT);
        test_free(part);
    }
}

#define ENDS 0x52, 0x54, 0, 0x12, 0x34, 0x56, 0x52, 0x55, 0x0a, 0, 2, 2

static void frames(void **state)
{
    static const u8 tcp[] = {ENDS, 8, 0,  0x45, 0,   0,   42, 0, 0, 0x40, 0,    64,   6,
                             0,    0, 10, 0,    2,   2,   10, 0, 2, 15,   0x9c, 0x40, 0,
                             22,   0, 0,  0,    7,   0,   0,  0, 9, 0x50, 0x18, 1,    0,
                             0,    0, 0,  0,    'h', 'i', 0,  0, 0, 0};
    check_frame("60 bytes 52:55:0a:00:02:02 > 52:54:00:12:34:56 IPv4 TCP 10.0.2.2:40000 > "
                "10.0.2.15:22 [PA] seq 7 ack 9 len 2",
                tcp, sizeof(tcp));
    static const u8 arp[] = {ENDS, 8,  6, 0, 1, 8, 0, 6, 4, 0, 1, 0x52, 0x55, 10, 0, 2,
                             2,    10, 0, 2, 2, 0, 0, 0, 0, 0, 0, 10,   0,    2,  15};
    check_frame("42 bytes 52:55:0a:00:02:02 > 52:54:00:12:34:56 ARP who has 10.0.2.15? tell "
                "10.0.2.2",
                arp, sizeof(arp));
    static const u8 udp6[] = {ENDS, 0x86, 0xdd, 0x60, 0, 0,  0,    0, 9, 17, 64, 0xfe, 0xc0,
                              0,    0,    0,    0,    0, 0,  0,    0, 0, 0,  0,  0,    0,
                              3,    0xfe, 0xc0, 0,    0, 0,  0,    0, 0, 0,  0,  0,    0,
                              0,    0,    0,    9,    0, 53, 0x10, 0, 0, 9,  0,  0,    1};
    check_frame("63 bytes 52:55:0a:00:02:02 > 52:54:00:12:34:56 IPv6 UDP [fec0::3]:53 > "
                "[fec0::9]:4096 len 1",
                udp6, sizeof(udp6));
    static const u8 vlan[] = {ENDS, 0x81, 0, 0x20, 5, 8, 0, 0x45, 0, 0, 24, 0, 0, 0x20, 1, 64,
                              47,   0,    0, 1,    2, 3, 4, 5,    6, 7, 8,  1, 2, 3,    4};
    check_frame("42 bytes 52:55:0a:00:02:02 > 52:54:00:12:34:56 VLAN 5 IPv4 fragment 1.2.3.4 > "
                "5.6.7.8",
                vlan, sizeof(vlan));
    static const u8 other[] = {ENDS, 0x88, 0xcc, 1, 2};
    check_frame("16 bytes 52:55:0a:00:02:02 > 52:54:00:12:34:56 type 0x88cc", other, sizeof(other));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(defaults), cmocka_unit_test(forwards),
                                       cmocka_unit_test(values), cmocka_unit_test(frames)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
