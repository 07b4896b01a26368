/*
 * Runs inside the guest: sends malformed Ethernet frames on eth0. `frames SEED COUNT`; the first is
 * the last fragment of a datagram whose others never come.
 */
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static unsigned long long state;

static unsigned random_bits(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)(state >> 32);
}

static unsigned char f[1514];

static void checksum(void)
{
    unsigned sum = 0;
    f[24] = f[25] = 0;
    for (int i = 14; i < 34; i += 2)
        sum += (unsigned)(f[i] << 8 | f[i + 1]);
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    f[24] = (unsigned char)(~sum >> 8);
    f[25] = (unsigned char)~sum;
}

static void ipv4(unsigned len)
{
    static const unsigned char protocols[] = {1, 2, 6, 6, 17, 17, 17, 255};
    unsigned total = random_bits() % 8 ? len - 14 : random_bits() % 1600;
    f[13] = 0;
    f[14] = (unsigned char)(random_bits() % 16 ? 0x45 : random_bits());
    f[16] = (unsigned char)(total >> 8);
    f[17] = (unsigned char)total;
    f[20] = (unsigned char)(random_bits() % 2 ? 0 : random_bits() & 0x60);
    f[21] = (unsigned char)(random_bits() % 2 ? 0 : random_bits() % 8);
    f[22] = 64;
    f[23] = protocols[random_bits() % 8];
    memcpy(f + 26, "\x0a\0\2\x0f", 4);
    memcpy(f + 30, random_bits() % 4 ? "\x0a\0\2\2" : "\x0a\0\2\3", 4);
    if (f[23] == 17) { /* DHCP, TFTP, DNS */
        f[37] = (unsigned char[]){67, 69, 53, 7}[random_bits() % 4];
        f[38] = (unsigned char)((len - 34) >> 8);
        f[39] = (unsigned char)(len - 34);
        f[40] = f[41] = 0;
    }
    checksum();
}

static unsigned make(unsigned i)
{
    unsigned len = 60 + random_bits() % (random_bits() % 8 ? 100 : 1454);
    for (unsigned k = 0; k < len; k++)
        f[k] = (unsigned char)(random_bits() % 4 ? 0 : random_bits());
    memcpy(f, "\x52\x55\x0a\x00\x02\x02\x52\x54\x00\x12\x34\x56\x08", 13);
    if (!i) {
        ipv4(len);
        f[14] = 0x45;
        f[16] = (unsigned char)((len - 14) >> 8);
        f[17] = (unsigned char)(len - 14);
        f[20] = 0;
        f[21] = 41;
        checksum();
        return len;
    }
    switch (random_bits() % 8) {
    case 0: /* ARP */
        f[13] = 6;
        memcpy(f + 14, "\0\1\x08\0\6\4\0", 7);
        break;
    case 1: /* IPv6 */
        f[12] = 0x86;
        f[13] = 0xdd;
        f[14] = 0x60;
        break;
    case 2: /* anything */
        f[12] = (unsigned char)random_bits();
        f[13] = (unsigned char)random_bits();
        break;
    default: ipv4(len);
    }
    return len;
}

int main(int argc, char **argv)
{
    struct sockaddr_ll to = {.sll_family = AF_PACKET, .sll_ifindex = (int)if_nametoindex("eth0")};
    int fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
    unsigned count = argc > 2 ? (unsigned)atoi(argv[2]) : 1, sent = 0;
    state = 0x9e3779b97f4a7c15ull * (1 + (argc > 1 ? strtoull(argv[1], NULL, 10) : 0));
    for (unsigned i = 0; i < count; i++) {
        unsigned len = make(i);
        sent += sendto(fd, f, len, 0, (struct sockaddr *)&to, sizeof(to)) == (ssize_t)len;
    }
    printf("FRAMES %u of %u\n", sent, count);
    return 0;
}
