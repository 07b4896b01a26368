/*
 * Waits for the timer's interrupt without a conditional branch: in a jump to itself, in a ring of
 * jumps that counts in a register, in a REP string that takes long. The interrupt's handler ends
 * the wait. A machine that counts branches sees nothing happen.
 */
#include "tiny.h"

volatile u64 leave_to; /* where the handler returns to; 0: where it came from */
static volatile u64 ticks;

static bool on_tick(struct frame *f)
{
    ticks++;
    if (leave_to)
        f->rip = leave_to;
    lapic_eoi();
    return true;
}

static void start(u32 count)
{
    ticks = 0;
    lapic_write(0x3e0, 0xb);  /* divide by 1 */
    lapic_write(0x320, 0x40); /* one-shot */
    lapic_write(0x380, count);
}

#define WAIT(body)                                                                                 \
    do {                                                                                           \
        __asm__ volatile("leaq 9f(%%rip), %%rax\n\tmovq %%rax, leave_to(%%rip)\n\tsti\n\t" body    \
                         "\n9:\n\tcli\n\tmovq $0, leave_to(%%rip)"                                 \
                         : "+b"(n)                                                                 \
                         :                                                                         \
                         : "rax", "rcx", "rdi", "memory", "cc");                                   \
    } while (0)

void guest_main(void)
{
    u64 n = 0, left = 0;

    lapic_enable();
    set_handler(0x40, on_tick);
    start(100000);
    WAIT("1: jmp 1b");
    check_eq(ticks, 1, "a jump to itself is interrupted");
    start(100000);
    WAIT("1: incq %%rbx\n\tjmp 2f\n\tnop\n2: jmp 1b");
    check_eq(ticks, 1, "a ring of jumps is interrupted");
    check(n > 0, "and went round");
    leave_to = 0;
    start(100);
    __asm__ volatile("sti");
    for (unsigned i = 0; i < 1000 && !ticks; i++) {
        u64 from = 0x200000, count = 8u << 20;
        __asm__ volatile("rep lodsb" : "+S"(from), "+c"(count), "+a"(n) : : "memory");
        left += count;
    }
    __asm__ volatile("cli");
    check_eq(ticks, 1, "a REP string is interrupted");
    check_eq(left, 0, "and goes on");
    exit_guest(0);
}
