/*
 * Fuzz target: what reads bytes of networks. An input is read as what --net was given, as an
 * Ethernet frame that is described, and as a run of fragments.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "netd/fragments.h"
#include "host/net_options.h"
#include "mutate.h"
#include "replay/frame.h"

static void options(const u8 *data, size_t size)
{
    char *spec = malloc(size + 1);
    struct net_options o;
    struct err err = {0};
    memcpy(spec, data, size);
    spec[size] = 0;
    if (net_options_parse(&o, spec, &err)) {
        if (!err.text[0] || strchr(err.text, '\n') > err.text + 300)
            abort();
    } else if (o.forwards.n > NET_FORWARDS ||
               (o.mtu && (o.mtu < NET_MTU_MIN || o.mtu > NET_MTU_MAX)) ||
               strlen(o.hostname) >= sizeof(o.hostname) || strlen(o.ifname) >= sizeof(o.ifname) ||
               (o.kind == NET_TAP) != (o.ifname[0] != 0) || (net_has_mac(&o) && (o.mac[0] & 1)) ||
               (o.kind == NET_USER && ((o.dns & o.network.mask) != o.network.net ||
                                       (o.dhcp & o.network.mask) != o.network.net))) {
        abort(); /* taken, and makes no sense */
    }
    free(spec);
}

static void frame(const u8 *data, size_t size)
{
    char text[FRAME_TEXT];
    u8 *copy = malloc(size ? size : 1); /* so that reading past its end is seen */
    memcpy(copy, data, size);
    memset(text, 'x', sizeof(text));
    frame_text(copy, size, text);
    if (!memchr(text, 0, sizeof(text)))
        abort();
    for (const char *c = text; *c; c++)
        if (*c < ' ' || *c > '~')
            abort();
    free(copy);
}

/* Each 5 bytes: a fragment of one of two datagrams. What comes out is whole. */
static void fragments(const u8 *data, size_t size)
{
    static struct fragments *f;
    static u64 now; /* what earlier inputs left is too old to matter */
    u8 bytes[14 + 60 + 256] = {0};
    if (!f)
        f = calloc(1, fragments_size());
    now += 2 * FRAGMENTS_NS;
    for (; size >= 5; data += 5, size -= 5) {
        u8 *ip = bytes + 14;
        const u8 *out;
        size_t len = 14 + data[3];
        memcpy(bytes + 12, "\x08\x00", 2);
        ip[0] = (u8)(0x40 | (data[0] & 15));
        ip[3] = data[1];
        ip[5] = data[0] >> 4 & 1;
        ip[6] = data[2] & 0xe0;
        ip[7] = data[4];
        if (data[0] & 0x40)
            ip[6] = 0x1f;
        u8 *copy = malloc(len);
        memcpy(copy, bytes, len);
        size_t n = fragments_take(f, copy, len, now, &out);
        if (n > FRAGMENTS_FRAME_MAX ||
            (n >= 34 && out != copy && ((out[20] | out[21]) || out[14] >> 4 != 4)) ||
            (n >= 34 && out == copy && n != len) || (n >= 34 && ((out[20] & 0xbf) || out[21])))
            abort();
        free(copy);
    }
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    options(data, size);
    frame(data, size);
    fragments(data, size);
    return 0;
}

u8 *fuzz_sample(size_t *size)
{
    static const char spec[] = "user,hostfwd=tcp:127.0.0.1:2222-10.0.2.15:22,hostfwd=udp::0-:53,"
                               "restrict=on,ipv6=off,net=10.0.2.0/24,dhcpstart=10.0.2.20,"
                               "dns=10.0.2.4,hostname=guest-1,mac=52:54:00:12:34:56,mtu=9000";
    *size = sizeof(spec) - 1;
    u8 *data = malloc(*size);
    memcpy(data, spec, *size);
    return data;
}
