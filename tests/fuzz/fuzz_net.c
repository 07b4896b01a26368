/*
 * Fuzz target: the two texts of networks. A program of bytes is read as what --net was given, and
 * as an Ethernet frame that is described.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    } else if (o.nforwards > NET_FORWARDS ||
               (o.mtu && (o.mtu < NET_MTU_MIN || o.mtu > NET_MTU_MAX)) ||
               strlen(o.hostname) >= sizeof(o.hostname) || strlen(o.ifname) >= sizeof(o.ifname) ||
               (o.kind == NET_TAP) != (o.ifname[0] != 0) || (o.has_mac && (o.mac[0] & 1)) ||
               (o.kind == NET_USER && ((o.dns & o.mask) != o.net || (o.dhcp & o.mask) != o.net))) {
        abort(); /* taken, and makes no sense */
    }
    free(spec);
}

static void frame(const u8 *data, size_t size)
{
    char text[FRAME_TEXT];
    u8 *copy = malloc(size ? size : 1); /* so that reading behind its end is seen */
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

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    options(data, size);
    frame(data, size);
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
