/* Local APIC, IO-APIC, 8259 and 8254, as far as the guests need them. */
#include "tiny.h"

void lapic_enable(void)
{
    lapic_write(0xf0, 0x1ff); /* spurious vector ff, software enable */
    lapic_write(0x80, 0);
    lapic_write(0x320, 0x10000);
    lapic_write(0x350, 0x10000);
    lapic_write(0x360, 0x400);
}

u32 ioapic_read(u32 r)
{
    *(volatile u32 *)IOAPIC = r;
    return *(volatile u32 *)(IOAPIC + 0x10);
}

void ioapic_write(u32 r, u32 v)
{
    *(volatile u32 *)IOAPIC = r;
    *(volatile u32 *)(IOAPIC + 0x10) = v;
}

void ioapic_route(unsigned pin, u8 vector, u32 flags)
{
    ioapic_write(0x11 + 2 * pin, lapic_read(0x20) & 0xff000000);
    ioapic_write(0x10 + 2 * pin, vector | flags);
}

void pic_init(u8 base, u16 unmasked)
{
    outb(0x20, 0x11);
    outb(0xa0, 0x11);
    outb(0x21, base);
    outb(0xa1, base + 8);
    outb(0x21, 4);
    outb(0xa1, 2);
    outb(0x21, 1);
    outb(0xa1, 1);
    outb(0x21, (u8)~unmasked);
    outb(0xa1, (u8)(~unmasked >> 8));
}

void pic_eoi(unsigned irq)
{
    if (irq > 7)
        outb(0xa0, 0x20);
    outb(0x20, 0x20);
}

void pit_set(unsigned channel, unsigned mode, u16 count)
{
    outb(0x43, (u8)(channel << 6 | 0x30 | mode << 1));
    outb((u16)(0x40 + channel), (u8)count);
    outb((u16)(0x40 + channel), (u8)(count >> 8));
}

u16 pit_read(unsigned channel)
{
    u8 lo;

    outb(0x43, (u8)(channel << 6)); /* latch */
    lo = inb((u16)(0x40 + channel));
    return (u16)(lo | inb((u16)(0x40 + channel)) << 8);
}
