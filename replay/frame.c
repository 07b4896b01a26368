/* See frame.h. Numbers of protocols: IEEE 802, IANA. */
#include "replay/frame.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct text {
    char *out;
    size_t len;
};

struct bytes {
    const u8 *p;
    size_t len;
};

static void PRINTF(2, 3) say(struct text *t, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(t->out + t->len, FRAME_TEXT - t->len, fmt, args);
    va_end(args);
    t->len = MIN(t->len + (n > 0 ? (size_t)n : 0), (size_t)FRAME_TEXT - 1);
}

static struct bytes after(struct bytes b, size_t n)
{
    return (struct bytes){b.p + MIN(n, b.len), b.len - MIN(n, b.len)};
}

static u32 be16(const u8 *p)
{
    return (u32)p[0] << 8 | p[1];
}

static u32 be32(const u8 *p)
{
    return be16(p) << 16 | be16(p + 2);
}

static void say_mac(struct text *t, const u8 *m)
{
    say(t, "%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5]);
}

static void say_address(struct text *t, const u8 *a, bool v6, int port)
{
    char text[INET6_ADDRSTRLEN] = "";
    inet_ntop(v6 ? AF_INET6 : AF_INET, a, text, sizeof(text));
    say(t, v6 && port >= 0 ? "[%s]" : "%s", text);
    if (port >= 0)
        say(t, ":%d", port);
}

static void say_pair(struct text *t, const u8 *from, const u8 *to, bool v6, struct bytes ports)
{
    bool have = ports.len >= 4;
    say_address(t, from, v6, have ? (int)be16(ports.p) : -1);
    say(t, " > ");
    say_address(t, to, v6, have ? (int)be16(ports.p + 2) : -1);
}

static void say_tcp(struct text *t, struct bytes b)
{
    static const char names[] = "FSRPAUEC";
    if (b.len < 20)
        return;
    say(t, " [");
    for (unsigned i = 0; i < 8; i++)
        if (b.p[13] >> i & 1)
            say(t, "%c", names[i]);
    size_t header = (size_t)(b.p[12] >> 4) * 4;
    say(t, "] seq %u", be32(b.p + 4));
    if (b.p[13] & 16)
        say(t, " ack %u", be32(b.p + 8));
    say(t, " len %zu", after(b, header).len);
}

/* What an IP packet carries; `from` and `to` are its addresses. */
static void say_transport(struct text *t, unsigned protocol, const u8 *from, const u8 *to, bool v6,
                          bool first, struct bytes b)
{
    const struct bytes none = {NULL, 0};
    switch (first ? protocol : 256) {
    case 6:
        say(t, " TCP ");
        say_pair(t, from, to, v6, b);
        say_tcp(t, b);
        return;
    case 17:
        say(t, " UDP ");
        say_pair(t, from, to, v6, b);
        say(t, " len %zu", after(b, 8).len);
        return;
    case 1:
    case 58: say(t, " ICMP "); break;
    case 256: say(t, " fragment "); break;
    default: say(t, " protocol %u ", protocol);
    }
    say_pair(t, from, to, v6, none);
    if (first && (protocol == 1 || protocol == 58) && b.len >= 2)
        say(t, " type %u code %u", b.p[0], b.p[1]);
}

static void say_ipv4(struct text *t, struct bytes b)
{
    say(t, " IPv4");
    if (b.len < 20 || b.p[0] >> 4 != 4)
        return;
    size_t header = (size_t)(b.p[0] & 15) * 4, total = be16(b.p + 2);
    b.len = MIN(b.len, MAX(total, header)); /* without the frame's padding */
    say_transport(t, b.p[9], b.p + 12, b.p + 16, false, !(be16(b.p + 6) & 0x1fff),
                  after(b, header));
}

static void say_ipv6(struct text *t, struct bytes b)
{
    say(t, " IPv6");
    if (b.len < 40 || b.p[0] >> 4 != 6)
        return;
    const u8 *from = b.p + 8, *to = b.p + 24;
    unsigned next = b.p[6];
    b = after(b, 40);
    if (!next && b.len >= 8) { /* hop-by-hop options */
        next = b.p[0];
        b = after(b, 8u + b.p[1] * 8u);
    }
    say_transport(t, next, from, to, true, true, b);
}

static void say_arp(struct text *t, struct bytes b)
{
    say(t, " ARP");
    if (b.len < 28 || be32(b.p) != 0x00010800 || be16(b.p + 4) != 0x0604)
        return;
    if (be16(b.p + 6) == 1) {
        say(t, " who has ");
        say_address(t, b.p + 24, false, -1);
        say(t, "? tell ");
        say_address(t, b.p + 14, false, -1);
    } else {
        say(t, " ");
        say_address(t, b.p + 14, false, -1);
        say(t, " is at ");
        say_mac(t, b.p + 8);
    }
}

char *frame_text(const u8 *frame, size_t len, char out[FRAME_TEXT])
{
    struct text t = {out, 0};
    struct bytes b = {frame, len};
    *out = 0;
    say(&t, "%zu bytes", len);
    if (len < 14)
        return out;
    say(&t, " ");
    say_mac(&t, frame + 6);
    say(&t, " > ");
    say_mac(&t, frame);
    u32 type = be16(frame + 12);
    b = after(b, 14);
    while ((type == 0x8100 || type == 0x88a8) && b.len >= 4) {
        say(&t, " VLAN %u", be16(b.p) & 0xfff);
        type = be16(b.p + 2);
        b = after(b, 4);
        if (t.len > FRAME_TEXT / 2)
            break;
    }
    switch (type) {
    case 0x0800: say_ipv4(&t, b); break;
    case 0x86dd: say_ipv6(&t, b); break;
    case 0x0806: say_arp(&t, b); break;
    default:
        if (type < 0x600)
            say(&t, " 802.3"); /* its length */
        else
            say(&t, " type %#06x", type);
    }
    return out;
}
