/*
 * Runs with interrupts off nearly all the time, and lets them in after STI, between two branches,
 * while a timer goes on and on. Takes what is typed; "q" ends. Whoever looks at the guest when it
 * lets an interrupt in sees it where nothing counts. It reads an MSR now and then, which takes
 * time, and keeps what the TSC shows.
 */
#include "tiny.h"

static volatile u64 ticks, sink;

static bool on_tick(struct frame *f)
{
    ticks++;
    lapic_eoi();
    return true;
}

void guest_main(void)
{
    u64 h = 1, typed = 0;

    lapic_enable();
    set_handler(0x40, on_tick);
    lapic_write(0x3e0, 0xb);            /* divide by 1 */
    lapic_write(0x320, 1 << 17 | 0x40); /* periodic */
    lapic_write(0x380, 3000);
    for (;;) {
        cli();
        for (u64 i = 0; i < 2000; i++) {
            h = (h ^ i) * 0x9e3779b97f4a7c15ull;
            if (i % 500 == 250)
                h ^= rdmsr(0xc0000080);
        }
        sink = h ^ rdtsc();
        __asm__ volatile("nop\n\tsti\n\tnop\n\tnop" ::: "memory");
        cli();
        if (!(inb(0x3fd) & 1))
            continue;
        char c = (char)inb(0x3f8);
        typed++; /* printing would be all that is seen */
        if (c != 'q')
            continue;
        print("%lu typed\n", typed);
        exit_guest(ticks ? 0 : 1);
    }
}
