/*
 * One thing of ring 0 at a time, for `make bench`: what a CR3 write or an access to a port costs. The
 * command line says which and how often ("cr3=2000000"); without one, some of each.
 */
#include "tiny.h"

#define POST_PORT 0x80                /* takes what is written */
#define CHECKED   ((u64)0x5eed << 48) /* what bench takes for a checksum has 16 digits */

static u64 other[512] __attribute__((aligned(4096)));

/* Two top-level tables in turns, as two processes have them that share the kernel's half. */
static u64 cr3_writes(u64 n)
{
    volatile u64 word = 1;
    u64 sum = 0, root = READ_REG(cr3);

    memcpy(other, pml4, sizeof(other));
    for (u64 i = 0; i < n; i++) {
        WRITE_REG(cr3, i & 1 ? root : (u64)other);
        sum += word;
    }
    WRITE_REG(cr3, root);
    return sum;
}

static u64 port_writes(u64 n)
{
    for (u64 i = 0; i < n; i++)
        outb(POST_PORT, (u8)i);
    return n;
}

static const struct part {
    const char *name;
    u64 (*run)(u64 n);
} parts[] = {{"cr3", cr3_writes}, {"port", port_writes}};

void guest_main(void)
{
    bool asked = *command_line();

    for (u64 i = 0; i < COUNT(parts); i++) {
        u64 n = asked ? command_number(parts[i].name) : 100;

        if (!n)
            continue;
        check_eq(parts[i].run(n), n, parts[i].name);
        print("ring0 %s %lx %lu\n", parts[i].name, CHECKED | n, n);
    }
}
