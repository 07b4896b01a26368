/* 8259, IO-APIC, local APIC, TPR, shadows, NMI, HLT. */
#include "tiny.h"

static volatile u64 count[256], order[8], norder;
static u64 rip_seen;

static bool on_apic(struct frame *f)
{
    count[f->vector]++;
    if (norder < 8)
        order[norder++] = f->vector;
    rip_seen = f->rip;
    if (f->vector == 0x45 && count[0x45] == 3)
        outb(0x3f9, 0); /* a level may come again before the interrupted code gets on */
    lapic_eoi();
    return true;
}

static bool on_pic(struct frame *f)
{
    count[f->vector]++;
    pic_eoi((unsigned)f->vector - 0x20);
    return true;
}

/* To itself by its id: the shorthand "self" is for fixed interrupts only (SDM vol. 3, 11.6.1). */
static void send_nmi(void)
{
    lapic_write(0x310, lapic_read(0x20) & 0xff000000);
    lapic_write(0x300, 0x400);
}

static bool on_nmi(struct frame *f)
{
    count[2]++;
    if (count[2] == 1) {
        send_nmi(); /* another: must wait for IRET */
        for (volatile int i = 0; i < 100; i++)
            ;
        count[200] = count[2];
    }
    return true;
}

static void self(u8 vector)
{
    lapic_write(0x310, 0);
    lapic_write(0x300, vector | 1 << 18);
}

static void pic(void)
{
    set_handler(0x20, on_pic);
    /* Virtual wire: firmware sets it up, but not every machine has run any. */
    lapic_write(0xf0, 0x1ff);
    lapic_write(0x350, 0x700);
    pic_init(0x20, 0x0001);
    pit_set(0, 2, 1193); /* 1 kHz */
    for (unsigned i = 0; i < 5; i++)
        sti_hlt_cli();
    outb(0x21, 0xff);
    check(count[0x20] >= 5, "8259: timer interrupts wake HLT");
    outb(0x20, 0x0a);
    check_eq(inb(0x20) & 1, inb(0x20) & 1, "8259: IRR can be read");
    outb(0x20, 0x0b);
    check_eq(inb(0x20), 0, "8259: nothing in service");
    check_eq(inb(0x21), 0xff, "8259: mask reads back");
}

static void lapic(void)
{
    for (unsigned v = 0x30; v < 0x100; v++)
        set_handler(v, v == VEC_BACK ? NULL : on_apic);
    lapic_enable();
    check(cpu_has(1, 3, 9), "APIC in CPUID");
    check_eq(rdmsr(0x1b) & 0xfffff000, LAPIC, "APIC base");
    check_eq(rdmsr(0x1b) >> 8 & 9, 9, "enabled, bootstrap processor");
    self(0x50);
    check_eq(count[0x50], 0, "no interrupt with IF = 0");
    check_eq(lapic_read(0x200 + 0x50 / 32 * 16) >> (0x50 % 32) & 1, 1, "pending in IRR");
    window();
    check_eq(count[0x50], 1, "self IPI arrives");
    self(0x50);
    self(0x50);
    window();
    check_eq(count[0x50], 2, "two of one vector are one");
    norder = 0;
    self(0x60);
    self(0x90);
    self(0x70);
    window();
    check_eq(order[0] << 16 | order[1] << 8 | order[2], 0x907060, "priority order");
    WRITE_REG(cr8, 7);
    check_eq(lapic_read(0x80), 0x70, "CR8 is TPR");
    self(0x71);
    self(0x80);
    window();
    check_eq(count[0x71], 0, "held by TPR");
    check_eq(count[0x80], 1, "above TPR");
    sti();
    WRITE_REG(cr8, 0); /* arrives here, with no other cause */
    cli();
    check_eq(count[0x71], 1, "released by CR8");
    lapic_write(0x80, 0x20);
    check_eq(READ_REG(cr8), 2, "TPR is CR8");
    lapic_write(0x80, 0);
    check_eq(lapic_read(0xa0), 0, "PPR");
}

static void shadows(void)
{
    u64 after;

    self(0x51);
    __asm__ volatile("lea 1f(%%rip), %0; sti; nop; 1: nop; cli" : "=r"(after) : : "memory");
    check_eq(rip_seen, after, "STI shadows one instruction");
    self(0x51);
    __asm__ volatile("sti; cli; nop; nop" : : : "memory");
    check_eq(count[0x51], 1, "STI; CLI lets nothing in");
    __asm__ volatile("sti; nop; cli" : : : "memory");
    check_eq(count[0x51], 2, "STI; NOP; CLI does");
    cli();
    self(0x52);
    __asm__ volatile(
        "mov %%ss, %%ecx; lea 1f(%%rip), %0; pushfq; orl $0x200, (%%rsp); popfq; 1: nop; cli"
        : "=r"(after)
        :
        : "rcx", "memory");
    check_eq(rip_seen, after, "POPF shadows nothing");
    self(0x53);
    __asm__ volatile("mov %%ss, %%ecx; lea 1f(%%rip), %0; sti; mov %%ecx, %%ss; 1: nop; nop; cli"
                     : "=r"(after)
                     :
                     : "rcx", "memory");
    check(rip_seen == after || rip_seen == after + 1, "STI; MOV SS");
    check_eq(count[0x53], 1, "arrives once");
    self(0x54);
    sti_hlt_cli();
    check_eq(count[0x54], 1, "a pending interrupt wakes HLT after STI");
}

static void ioapic(void)
{
    u8 iir; /* printing is what this UART is busy with: looked at before anything is printed */

    check_eq(ioapic_read(1) >> 16 & 0xff, 23, "IO-APIC has 24 entries");
    ioapic_write(0x10, 0x10000 | 0x40);
    check_eq(ioapic_read(0x10) & 0x1ffff, 0x10040, "entry reads back");
    /* Pin 4 is the UART: its interrupt line follows THRE. */
    ioapic_route(4, 0x44, 0);
    outb(0x3fc, 0x0b);
    outb(0x3f9, 2);
    window();
    window();
    iir = inb(0x3fa);
    outb(0x3f9, 0);
    check_eq(count[0x44], 1, "edge: transmitter empty, only once");
    check_eq(iir & 7, 2, "IIR says why");
    ioapic_route(4, 0x45, 1 << 15);
    outb(0x3f9, 2);
    sti();
    for (unsigned i = 0; i < 100 && count[0x45] < 3; i++)
        __asm__ volatile("nop");
    outb(0x3f9, 0);
    cli();
    check(count[0x45] >= 3, "level: again and again while it is high");
    ioapic_write(0x18, 0x10000);
    window();
    /* Pin 2 is the PIT. */
    ioapic_route(2, 0x42, 0);
    pit_set(0, 2, 1193);
    for (unsigned i = 0; i < 3; i++)
        sti_hlt_cli();
    check(count[0x42] >= 3, "PIT through the IO-APIC");
    ioapic_write(0x14, 0x10000);
    pit_set(0, 0, 1);
    window();
}

static void nmi(void)
{
    set_handler(2, on_nmi);
    send_nmi();
    __asm__ volatile("nop; nop" ::: "memory");
    check_eq(count[200], 1, "NMI is blocked in its handler");
    check_eq(count[2], 2, "the second comes after IRET");
}

void guest_main(void)
{
    pic();
    lapic();
    shadows();
    ioapic();
    INEXACT(nmi()); /* QEMU does not block NMIs */
}
