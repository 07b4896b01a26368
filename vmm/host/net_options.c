/* See net_options.h. */
#include "host/net_options.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* A piece of the text that is being read; each reader moves it on, or leaves it and says false. */
struct piece {
    const char *at, *end;
};

static bool next_is(struct piece *p, char c)
{
    if (p->at == p->end || *p->at != c)
        return false;
    p->at++;
    return true;
}

static bool done(const struct piece *p)
{
    return p->at == p->end;
}

static bool number(struct piece *p, u32 max, u32 *out)
{
    u32 v = 0;
    const char *from = p->at, *at = from;
    for (; at < p->end && *at >= '0' && *at <= '9' && at - from < 6; at++)
        v = 10 * v + (u32)(*at - '0');
    if (at == from || v > max || (*from == '0' && at - from > 1))
        return false;
    p->at = at;
    *out = v;
    return true;
}

static bool address(struct piece *p, u32 *out)
{
    struct piece q = *p;
    u32 a = 0, byte;
    for (unsigned i = 0; i < 4; i++) {
        if ((i && !next_is(&q, '.')) || !number(&q, 255, &byte))
            return false;
        a = a << 8 | byte;
    }
    *p = q;
    *out = a;
    return true;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'                 ? c - '0'
           : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                : -1;
}

static bool mac(struct piece *p, u8 out[6])
{
    for (unsigned i = 0; i < 6; i++) {
        if ((i && !next_is(p, ':')) || p->end - p->at < 2 || hex_digit(p->at[0]) < 0 ||
            hex_digit(p->at[1]) < 0)
            return false;
        out[i] = (u8)(hex_digit(p->at[0]) << 4 | hex_digit(p->at[1]));
        p->at += 2;
    }
    return done(p);
}

/* tcp|udp:[ADDRESS]:PORT-[ADDRESS]:PORT */
static bool forward(struct piece *p, struct net_forward *f)
{
    u32 port;
    if (p->end - p->at < 4)
        return false;
    f->udp = !strncmp(p->at, "udp:", 4);
    if (!f->udp && strncmp(p->at, "tcp:", 4))
        return false;
    p->at += 4;
    f->host = 0x7f000001;
    f->guest = 0;
    address(p, &f->host);
    if (!next_is(p, ':') || !number(p, 65535, &port))
        return false;
    f->host_port = (u16)port;
    if (!next_is(p, '-'))
        return false;
    address(p, &f->guest);
    if (!next_is(p, ':') || !number(p, 65535, &port) || !port)
        return false;
    f->guest_port = (u16)port;
    return done(p);
}

static bool on_off(const struct piece *p, enum net_switch *out)
{
    size_t len = (size_t)(p->end - p->at);
    if (len == 2 && !strncmp(p->at, "on", 2))
        *out = NET_ON;
    else if (len == 3 && !strncmp(p->at, "off", 3))
        *out = NET_OFF;
    else
        return false;
    return true;
}

static bool network(struct piece *p, struct net_options *o)
{
    u32 bits = 24;
    if (!address(p, &o->net) || (next_is(p, '/') && !number(p, 32, &bits)) || !done(p))
        return false;
    if (bits < 4 || bits > 27) /* room for what lives in it: .2, .3, .15 and a few guests */
        return false;
    o->mask = ~0u << (32 - bits);
    return !(o->net & ~o->mask);
}

/* Letters, digits and inner hyphens, as in a DNS label (RFC 1123, 2.1). */
static bool hostname(const struct piece *p, char *out, size_t room)
{
    size_t len = (size_t)(p->end - p->at);
    if (!len || len >= room || p->at[0] == '-' || p->end[-1] == '-')
        return false;
    for (const char *c = p->at; c < p->end; c++)
        if (!((*c | 32) >= 'a' && (*c | 32) <= 'z') && !(*c >= '0' && *c <= '9') && *c != '-')
            return false;
    memcpy(out, p->at, len);
    out[len] = 0;
    return true;
}

static bool ifname(const struct piece *p, char *out, size_t room)
{
    size_t len = (size_t)(p->end - p->at);
    if (!len || len >= room)
        return false;
    for (const char *c = p->at; c < p->end; c++)
        if (*c <= ' ' || *c > '~' || *c == '/' || *c == ':' || *c == '%')
            return false;
    memcpy(out, p->at, len);
    out[len] = 0;
    return true;
}

enum option { HOSTFWD, RESTRICT, IPV6, NETWORK, DHCPSTART, DNS, HOSTNAME, IFNAME, MAC, MTU };

static const struct row {
    const char *name;
    bool user, tap;
    const char *takes;
} rows[] = {
    [HOSTFWD] = {"hostfwd", true, false, "tcp|udp:[ADDRESS]:PORT-[ADDRESS]:PORT"},
    [RESTRICT] = {"restrict", true, false, "on or off"},
    [IPV6] = {"ipv6", true, false, "on or off"},
    [NETWORK] = {"net", true, false, "ADDRESS[/BITS], the network's own, BITS 4 to 27"},
    [DHCPSTART] = {"dhcpstart", true, false, "an IPv4 address"},
    [DNS] = {"dns", true, false, "an IPv4 address"},
    [HOSTNAME] = {"hostname", true, false, "a name of letters, digits and hyphens"},
    [IFNAME] = {"ifname", false, true, "the name of a tap device, at most 15 bytes"},
    [MAC] = {"mac", true, true, "XX:XX:XX:XX:XX:XX, one station's address and not all zeros"},
    [MTU] = {"mtu", true, true, "a number from 576 to 32000"},
};

static bool one_address(struct piece *p, u32 *out)
{
    return address(p, out) && *out && done(p);
}

static bool parse_value(struct net_options *o, enum option which, struct piece p)
{
    static const u8 none[6];
    switch (which) {
    case HOSTFWD: return forward(&p, &o->forward[o->nforwards]);
    case RESTRICT: return on_off(&p, &o->restricted);
    case IPV6: return on_off(&p, &o->ipv6);
    case NETWORK: return network(&p, o);
    case DHCPSTART: return one_address(&p, &o->dhcp);
    case DNS: return one_address(&p, &o->dns);
    case HOSTNAME: return hostname(&p, o->hostname, sizeof(o->hostname));
    case IFNAME: return ifname(&p, o->ifname, sizeof(o->ifname));
    case MAC:
        o->has_mac = mac(&p, o->mac) && !(o->mac[0] & 1) && memcmp(o->mac, none, 6);
        return o->has_mac;
    case MTU: return number(&p, NET_MTU_MAX, &o->mtu) && o->mtu >= NET_MTU_MIN && done(&p);
    }
    return false;
}

static int parse_option(struct net_options *o, struct piece p, u32 *seen, struct err *err)
{
    const char *kind = o->kind == NET_TAP ? "tap" : "user";
    int len = (int)(p.end - p.at);
    const char *equals = memchr(p.at, '=', (size_t)len);
    size_t name = equals ? (size_t)(equals - p.at) : (size_t)len;
    for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
        if (strlen(rows[i].name) != name || strncmp(rows[i].name, p.at, name) ||
            !(o->kind == NET_TAP ? rows[i].tap : rows[i].user))
            continue;
        if (i != HOSTFWD && (*seen >> i & 1))
            return err_set(err, -EINVAL, "--net %s: %s is given twice", kind, rows[i].name);
        if (i == HOSTFWD && o->nforwards == NET_FORWARDS)
            return err_set(err, -EINVAL, "--net %s: at most %u of hostfwd", kind, NET_FORWARDS);
        *seen |= 1u << i;
        if (!equals || !parse_value(o, (enum option)i, (struct piece){equals + 1, p.end}))
            return err_set(err, -EINVAL, "--net %s: '%.*s': %s is %s", kind, MIN(len, 200), p.at,
                           rows[i].name, rows[i].takes);
        o->nforwards += i == HOSTFWD;
        return 0;
    }
    char all[160] = "";
    for (unsigned i = 0; i < ARRAY_SIZE(rows); i++)
        if (o->kind == NET_TAP ? rows[i].tap : rows[i].user)
            snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", *all ? ", " : "",
                     rows[i].name);
    return err_set(err, -EINVAL, "--net %s: there is no option '%.*s' (%s)", kind, MIN(len, 200),
                   p.at, all);
}

char *net_address_text(u32 a, char out[16])
{
    snprintf(out, 16, "%u.%u.%u.%u", a >> 24, a >> 16 & 255, a >> 8 & 255, a & 255);
    return out;
}

/* Addresses that were not given, and that all of them lie in the network. */
static int complete_user(struct net_options *o, struct err *err)
{
    char text[16], net[16];
    o->host = o->net | 2;
    if (!o->dns)
        o->dns = o->net | 3;
    if (!o->dhcp)
        o->dhcp = o->net | 15;
    const struct {
        const char *name;
        u32 address;
    } inside[] = {{"dns", o->dns}, {"dhcpstart", o->dhcp}};
    for (unsigned i = 0; i < ARRAY_SIZE(inside); i++) {
        u32 a = inside[i].address;
        if ((a & o->mask) != o->net || a == o->net || a == (o->net | ~o->mask))
            return err_set(err, -EINVAL, "--net user: %s=%s is no host's address in the network %s",
                           inside[i].name, net_address_text(a, text),
                           net_address_text(o->net, net));
    }
    if (o->dns == o->host || o->dhcp == o->host || o->dns == o->dhcp)
        return err_set(err, -EINVAL,
                       "--net user: host (%s), dns and dhcpstart must be three addresses",
                       net_address_text(o->host, text));
    for (unsigned i = 0; i < o->nforwards; i++) {
        struct net_forward *f = &o->forward[i];
        if (!f->guest)
            f->guest = o->dhcp;
        if ((f->guest & o->mask) != o->net)
            return err_set(err, -EINVAL,
                           "--net user: hostfwd to %s, which is not in the guest's network %s",
                           net_address_text(f->guest, text), net_address_text(o->net, net));
    }
    return 0;
}

int net_options_parse(struct net_options *o, const char *spec, struct err *err)
{
    memset(o, 0, sizeof(*o));
    o->net = 0x0a000200;
    o->mask = 0xffffff00;
    const char *end = spec + strlen(spec);
    size_t kind = strcspn(spec, ",");
    u32 seen = 0;
    if (kind == 4 && !strncmp(spec, "user", 4))
        o->kind = NET_USER;
    else if (kind == 3 && !strncmp(spec, "tap", 3))
        o->kind = NET_TAP;
    else
        return err_set(err, -EINVAL, "--net: '%.*s' is neither user, tap nor none",
                       (int)MIN(kind, (size_t)200), spec);
    for (const char *at = spec + kind; at < end;) {
        size_t len = strcspn(++at, ",");
        int code = parse_option(o, (struct piece){at, at + len}, &seen, err);
        if (code)
            return code;
        at += len;
    }
    if (o->kind == NET_TAP && !*o->ifname)
        return err_set(err, -EINVAL,
                       "--net tap: which tap device? --net tap,ifname=NAME, made by `ip tuntap add "
                       "dev NAME mode tap user $USER`");
    return o->kind == NET_USER ? complete_user(o, err) : 0;
}
