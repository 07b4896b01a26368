/* INS and OUTS with REP, in both directions and across pages, while a timer interrupts. */
#include "tiny.h"

#define SCRATCH 0x3ff /* of the serial port: keeps what was written last */
#define ROOM    (3 * PAGE)

static u8 room[ROOM] __attribute__((aligned(4096)));
static volatile u64 ticks;

static bool on_tick(struct frame *f)
{
    ticks++;
    lapic_eoi();
    return true;
}

static void in_bytes(u8 *to, u64 count, bool down)
{
    if (down)
        __asm__ volatile("std");
    __asm__ volatile("rep insb" : "+D"(to), "+c"(count) : "d"(SCRATCH) : "memory");
    __asm__ volatile("cld");
    check_eq(count, 0, "REP INSB ends");
}

static u64 sum(u64 from, u64 to)
{
    u64 n = 0;

    for (u64 i = from; i < to; i++)
        n += room[i];
    return n;
}

void guest_main(void)
{
    const u8 *from = room;
    u64 count = 200, before;

    lapic_enable();
    set_handler(0x40, on_tick);
    lapic_write(0x3e0, 0xb);
    lapic_write(0x320, 0x20040); /* periodic */
    lapic_write(0x380, 500);
    __asm__ volatile("sti");
    outb(SCRATCH, 3);
    in_bytes(room + 100, 2 * PAGE + 500, false);
    check_eq(sum(100, 2 * PAGE + 600), 3 * (2 * PAGE + 500), "bytes upwards");
    check_eq(room[99] + room[2 * PAGE + 600], 0, "and no others");
    outb(SCRATCH, 5);
    in_bytes(room + PAGE + 700, 3000, true);
    check_eq(sum(PAGE + 701 - 3000, PAGE + 701), 5 * 3000, "bytes downwards");
    check_eq(room[PAGE + 701] + room[PAGE + 700 - 3000], 6, "and no others");
    for (unsigned i = 0; i < 200; i++)
        room[i] = (u8)i;
    __asm__ volatile("rep outsb" : "+S"(from), "+c"(count) : "d"(SCRATCH) : "memory");
    check_eq(inb(SCRATCH), 199, "the last of REP OUTSB stays");
    before = ticks;
    for (unsigned i = 0; i < 100000 && ticks == before; i++)
        (void)inb(SCRATCH);
    __asm__ volatile("cli");
    check(ticks > before, "the timer went on");
    exit_guest(0);
}
