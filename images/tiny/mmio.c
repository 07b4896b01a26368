/* Device memory by every kind of instruction, string instructions included. */
#include "tiny.h"

#define TPR_ (LAPIC + 0x80)
#define ICT  (LAPIC + 0x380)

static u32 buf[16];

void guest_main(void)
{
    u64 d, s, n, v;

    lapic_enable();
    lapic_write(0x320, 0x10000);
    __asm__ volatile("movl $0x20, (%0)" : : "r"(TPR_) : "memory");
    check_eq(lapic_read(0x80), 0x20, "store of an immediate");
    __asm__ volatile("addl $0x10, (%0)" : : "r"(TPR_) : "memory", "cc");
    check_eq(lapic_read(0x80), 0x30, "read-modify-write");
    __asm__ volatile("mov $0x40, %%eax; xchg %%eax, (%1); mov %%eax, %k0"
                     : "=r"(v)
                     : "r"(TPR_)
                     : "rax", "memory");
    check_eq(v, 0x30, "XCHG gets the old");
    check_eq(lapic_read(0x80), 0x40, "and puts the new");
    __asm__ volatile("mov $0x40, %%eax; lock cmpxchg %k1, (%0)"
                     :
                     : "r"(TPR_), "r"(0x50ull)
                     : "rax", "memory", "cc");
    check_eq(lapic_read(0x80), 0x50, "CMPXCHG");
    __asm__ volatile("lock orl $0x0f, (%0)" : : "r"(TPR_) : "memory", "cc");
    check_eq(lapic_read(0x80), 0x5f, "OR");
    __asm__ volatile("btrl $0, (%0)" : : "r"(TPR_) : "memory", "cc");
    check_eq(lapic_read(0x80), 0x5e, "BTR");
    __asm__ volatile("cmpl $0x5e, (%1); setz %b0" : "=&q"(v) : "r"(TPR_) : "cc");
    check_eq(v & 0xff, 1, "CMP");
    __asm__ volatile("push %1; pop (%0)" : : "r"((u64)buf), "r"(0x1122334455667788) : "memory");
    __asm__ volatile("movd (%1), %%xmm0; movd %%xmm0, %k0" : "=r"(v) : "r"(TPR_));
    check_eq(v & 0xffffffff, 0x5e, "a load into a vector register");
    lapic_write(0x80, 0);

    for (unsigned i = 0; i < 16; i++)
        buf[i] = 1000 + i;
    s = (u64)buf, d = ICT, n = 1;
    __asm__ volatile("rep movsl" : "+S"(s), "+D"(d), "+c"(n) : : "memory");
    check_eq(lapic_read(0x380), 1000, "MOVSL to a register");
    check_eq(d, ICT + 4, "its RDI");
    s = LAPIC + 0x30, d = (u64)buf, n = 1;
    __asm__ volatile("rep movsl" : "+S"(s), "+D"(d), "+c"(n) : : "memory");
    check_eq(buf[0], lapic_read(0x30), "MOVSL from a register");
    d = LAPIC + 0x380, n = 1;
    __asm__ volatile("rep stosl" : "+D"(d), "+c"(n) : "a"(0) : "memory");
    check_eq(lapic_read(0x380), 0, "STOSL");
    s = LAPIC + 0x30;
    __asm__ volatile("lodsl" : "+S"(s), "=a"(v) : : "memory");
    check_eq((u32)v, lapic_read(0x30), "LODSL");
    *(volatile u32 *)IOAPIC = 1;
    check_eq(*(volatile u8 *)IOAPIC, 1, "IO-APIC index, a byte of it");
    check_eq(ioapic_read(1) & 0xff, ioapic_read(1) & 0xff, "IO-APIC version is stable");
    INEXACT(check_eq(*(volatile u32 *)0xfd000000, 0xffffffff, "nothing there reads as ones"));
    *(volatile u64 *)0xfd000000 = 5;
    check(true, "and swallows stores");
    /* An access across the end of a device's page. */
    map(0x5300000000, 0xfd000000, PT_P | PT_W);
    map(0x5300001000, (u64)buf & ~0xfffull, PT_P | PT_W);
    v = *(volatile u32 *)0x5300000ffe;
    INEXACT(check_eq(v & 0xffff, 0xffff, "half device, half RAM"));
}
