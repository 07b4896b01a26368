/*
 * One thing of ring 0 at a time, for `make bench`: what a CR3 write or an access to a port costs. The
 * command line says which and how often ("cr3 2000000"); without one, some of each.
 */
#include "tiny.h"

#define CMD_LINE_PTR 0x228 /* of the zero page: Documentation/arch/x86/zero-page.rst */
#define POST_PORT    0x80  /* takes what is written */
#define CHECKED      (0x5eedull << 48) /* what bench takes for a checksum has 16 digits */

extern const u8 *zero_page;
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

static u64 nothing(u64 n)
{
    return n;
}

static const struct part {
    const char *name;
    u64 (*run)(u64 n);
} parts[] = {{"cr3", cr3_writes}, {"port", port_writes}, {"nothing", nothing}};

static const char *word_of(const char *line, const char *word)
{
    while (*word && *line == *word)
        line++, word++;
    return *word || *line != ' ' ? NULL : line + 1;
}

static u64 number(const char *s)
{
    u64 n = 0;

    for (; *s >= '0' && *s <= '9'; s++)
        n = n * 10 + (u64)(*s - '0');
    return n;
}

void guest_main(void)
{
    const char *line = zero_page ? (const char *)(u64) * (const u32 *)(zero_page + CMD_LINE_PTR) : "";

    for (u64 i = 0; i < COUNT(parts); i++) {
        const char *rest = word_of(line, parts[i].name);
        u64 n = rest ? number(rest) : 100;

        if (!rest && *line)
            continue;
        check_eq(parts[i].run(n), n, parts[i].name);
        print("ring0 %s %lx %lu\n", parts[i].name, CHECKED | n, n);
    }
}
