/*
 * Reads the serial line by interrupt and answers each line with its length and a checksum; "exit"
 * ends with status 0, a BREAK is reported. For tests of recorded input.
 */
#include "tiny.h"

static char line[256];
static volatile unsigned len, done, breaks;
static u64 total;

/* Leaves in the UART what comes after a line's end until that line was answered. */
static void drain(void)
{
    u8 lsr;

    (void)inb(0x3fa);
    while (!done && (lsr = inb(0x3fd)) & 1) {
        char c = (char)inb(0x3f8);

        if (lsr & 0x10 || !c) { /* printing reads LSR too, and reading clears the BREAK bit */
            breaks++;
            continue;
        }
        if (c == '\r' || c == '\n')
            done = 1;
        else if (len < sizeof line - 1)
            line[len++] = c;
    }
}

static bool on_serial(struct frame *f)
{
    drain();
    lapic_eoi();
    return true;
}

void guest_main(void)
{
    unsigned reported = 0;

    lapic_enable();
    set_handler(0x34, on_serial);
    ioapic_route(4, 0x34, 0);
    outb(0x3fa, 0x07); /* FIFO on and empty, interrupt at each byte */
    outb(0x3fc, 0x0b); /* DTR RTS OUT2 */
    outb(0x3f9, 0x05); /* data and line status */
    print("ready\n");
    for (;;) {
        u32 sum = 0;

        cli();
        while (!done && reported == breaks)
            sti_hlt_cli();
        if (reported != breaks) {
            reported = breaks;
            print("break %u\n", reported);
            continue;
        }
        for (unsigned i = 0; i < len; i++)
            sum = sum * 31 + (u8)line[i];
        line[len] = 0;
        total += len;
        print("%u %x %lu %s\n", len, sum, total, line);
        if (len == 4 && memcmp(line, "exit", 4) == 0)
            exit_guest(0);
        len = done = 0;
        drain();
    }
}
