/* PIT, local APIC timer in its three modes, RTC, PM timer, TSC; and that they agree. */
#include "tiny.h"

static volatile u64 ticks, rtc_ticks;
static u64 first_tsc, last_tsc;

static bool on_tick(struct frame *f)
{
    last_tsc = rdtsc();
    if (!ticks++)
        first_tsc = last_tsc;
    lapic_eoi();
    return true;
}

static u8 cmos(u8 r)
{
    outb(0x70, r);
    return inb(0x71);
}

static bool on_rtc(struct frame *f)
{
    rtc_ticks++;
    (void)cmos(0x0c);
    lapic_eoi();
    return true;
}

static bool near(u64 a, u64 b, u64 slack)
{
    return a > b ? a - b <= slack : b - a <= slack;
}

static void pit(void)
{
    u16 a, b;

    outb(0x61, (inb(0x61) & ~2u) | 1); /* gate of channel 2 */
    pit_set(2, 0, 60000);
    a = pit_read(2);
    b = pit_read(2);
    check(b <= a && a <= 60000, "channel 2 counts down");
    check_eq(inb(0x61) & 0x20, 0, "its output is low");
    pit_set(2, 0, 20);
    for (unsigned i = 0; i < 1000000 && !(inb(0x61) & 0x20); i++)
        ;
    check_eq(inb(0x61) & 0x20, 0x20, "and high at the end");
    outb(0x43, 0xe8); /* read back: status of channel 2 */
    check_eq(inb(0x42) & 0x3f, 0x30, "read-back status");
    /* 11932 ticks are 10 ms: measure them in PM timer ticks. */
    pit_set(2, 0, 11932);
    {
        u32 t0 = inl(0x608), t1;
        u64 c0 = rdtsc(), c1;

        while (!(inb(0x61) & 0x20))
            ;
        t1 = inl(0x608);
        c1 = rdtsc();
        if (!under_tcg()) { /* whose PM timer is elsewhere and whose TSC is of no known rate */
            check(near(t1 - t0, 35795, 400), "10 ms of PIT in PM timer ticks");
            check(near(c1 - c0, 10000000, 100000), "10 ms of PIT in TSC ticks");
        }
    }
}

static void apic_timer(void)
{
    u64 t0, t1;
    u32 r[4];

    lapic_enable();
    set_handler(0x60, on_tick);
    lapic_write(0x3e0, 0xb); /* divide by 1 */
    lapic_write(0x320, 0x60);
    lapic_write(0x380, 250000);
    check(lapic_read(0x390) <= 250000 && lapic_read(0x390) > 0, "one-shot counts down");
    while (!ticks)
        sti_hlt_cli();
    check_eq(lapic_read(0x390), 0, "stops at zero");
    window();
    check_eq(ticks, 1, "and fires once");
    ticks = 0;
    lapic_write(0x320, 0x60 | 1 << 17);
    lapic_write(0x380, 25000);
    while (ticks < 11)
        sti_hlt_cli();
    lapic_write(0x380, 0);
    cpuid(0x15, 0, r);
    if (!under_tcg()) {
        check_eq(r[2], 25000000, "crystal clock in CPUID 15h");
        check(near(last_tsc - first_tsc, 10 * 1000000, 20000), "ten periods of 1 ms");
    }
    ticks = 0;
    window();
    check_eq(ticks, 0, "initial count 0 stops it");
    if (cpu_has(1, 2, 24)) {
        lapic_write(0x320, 0x60 | 2 << 17);
        t0 = rdtsc();
        wrmsr(0x6e0, t0 + 2000000);
        check_eq(rdmsr(0x6e0), t0 + 2000000, "deadline reads back");
        while (!ticks)
            sti_hlt_cli();
        t1 = last_tsc;
        check(t1 >= t0 + 2000000 && t1 < t0 + 2100000, "fires at the deadline");
        check_eq(rdmsr(0x6e0), 0, "and disarms");
        ticks = 0;
        wrmsr(0x6e0, 1); /* long past */
        window();
        check_eq(ticks, 1, "a deadline in the past fires at once");
        wrmsr(0x6e0, rdtsc() + 1000000);
        wrmsr(0x6e0, 0);
        for (unsigned i = 0; i < 1200000; i++)
            __asm__ volatile("");
        window();
        check_eq(ticks, 1, "zero disarms");
    }
    lapic_write(0x320, 0x10000);
}

static void rtc(void)
{
    set_handler(0x68, on_rtc);
    ioapic_route(8, 0x68, 0);
    outb(0x70, 0x0a);
    outb(0x71, 0x26); /* 1024 Hz */
    (void)cmos(0x0c); /* a flag set already would interrupt at once */
    outb(0x70, 0x0b);
    outb(0x71, 0x42); /* periodic, 24 h */
    (void)cmos(0x0c);
    {
        u64 t0 = rdtsc();

        while (rtc_ticks < 10)
            sti_hlt_cli();
        if (!under_tcg())
            check(near(rdtsc() - t0, 9765625, 1000000), "ten RTC periods");
    }
    check(rtc_ticks >= 10, "RTC periodic interrupt");
    outb(0x70, 0x0b);
    outb(0x71, 0x02);
    (void)cmos(0x0c);
    check(cmos(0x0d) & 0x80, "RTC valid");
    check(cmos(0x32) == 0x20 || cmos(0x32) == 0, "RTC century");
}

static void tsc(void)
{
    u64 a = rdtsc(), b = rdtsc();

    check(b > a, "TSC grows");
    if (cpu_has(7, 1, 1)) {
        wrmsr(0x3b, rdmsr(0x3b) + 1000000000);
        check(rdtsc() > a + 1000000000, "TSC_ADJUST moves it");
        wrmsr(0x3b, 0);
        wrmsr(0x10, 5000000000000);
        check(near(rdtsc(), 5000000000000, 1000000), "TSC can be written");
        check(rdmsr(0x3b) != 0, "and TSC_ADJUST follows");
        wrmsr(0x3b, 0);
    }
}

void guest_main(void)
{
    pit();
    apic_timer();
    rtc();
    tsc();
}
