/* Every exception: vector, error code, CR2, RIP; IST, double fault, nesting, RF. */
#include "tiny.h"

static u64 seen_rsp, seen_count, nested;

static void faults(void)
{
    u64 *hole = (u64 *)0x5000000000;

    TRY("xor %%eax, %%eax; xor %%edx, %%edx; 97: div %%eax", "a"(0), "d"(0));
    check_eq(trap.vector, 0, "DE vector");
    check_eq(trap.f.rip, trap_rip + 4, "DE is a fault");
    TRY("int3", "a"(0));
    check_trap(3, 0, 0, "BP");
    check_eq(trap.f.rip, trap_rip + 1, "BP is a trap");
    TRY("int $4", "a"(0));
    check_trap(4, 0, 0, "OF by INT 4");
    TRY("ud2", "a"(0));
    check_trap(6, 0, 0, "UD");
    INEXACT(check_eq(trap.f.rflags & 0x10000, 0x10000, "RF is 1 in a fault's frame"));
    TRY(".byte 0xf1", "a"(0));
    INEXACT(check_trap(1, 0, 0, "ICEBP"));
    INEXACT(check_eq(trap.f.rip, trap_rip + 1, "ICEBP is a trap"));
    check_eq(trap.f.rflags & 0x10000, 0, "RF is 0 in a trap's frame");
    TRY("int $0x90", "a"(0));
    check_eq(trap.vector, 0x90, "INT n");
    TRY("mov %%rax, (%%rcx)", "a"(0), "c"(0x8000000000000000));
    check_trap(13, 0, 0, "GP non-canonical");
    TRY("push (%%rcx)", "a"(0), "c"(0x0000800000000000));
    check_trap(13, 0, 0, "GP non-canonical push");
    TRY("mov %%rbp, %%r14; mov %%rcx, %%rbp; mov (%%rbp), %%rax; mov %%r14, %%rbp", "c"(1ull << 63),
        "a"(0));
    __asm__ volatile("" ::: "memory");
    INEXACT(check_eq(trap.vector, 12, "SS non-canonical through RBP"));
    check_eq(trap.err, 0, "SS error code");
    TRY("mov %%eax, %%ds", "a"(0x38));
    check_trap(11, 0x38, 0, "NP segment not present");
    TRY("mov %%eax, %%ds", "a"(0x1000));
    check_trap(13, 0x1000, 0, "GP selector beyond the table");
    TRY("mov %%eax, %%ss", "a"(0x38));
    check_trap(12, 0x38, 0, "SS not present");
    TRY("mov %%eax, %%ss", "a"(0x2b));
    check_trap(13, 0x28, 0, "GP stack segment of ring 3");
    TRY("mov %%eax, %%ds", "a"(0x0c));
    check_trap(13, 0x0c, 0, "GP local table that is not there");
    TRY("ltr %%ax", "a"(0x18));
    check_trap(13, 0x18, 0, "GP task register of a wrong type");
    TRY("ltr %%ax", "a"(0x40));
    check_trap(13, 0x40, 0, "GP task already busy");
    TRY("mov (%%rcx), %%rax", "c"(hole), "a"(0));
    check_trap(14, 0, (u64)hole, "PF read");
    TRY("mov %%rax, (%%rcx)", "c"(hole), "a"(0));
    check_trap(14, 2, (u64)hole, "PF write");
    TRY("addl $1, 0xffe(%%rcx)", "c"(hole), "a"(0));
    INEXACT(check_trap(14, 2, (u64)hole + 0xffe, "PF read-modify-write"));
    if (!under_tcg()) { /* which takes them */
        TRY("mov %%rax, %%cr4", "a"(READ_REG(cr4) | 1ull << 31));
        check_trap(13, 0, 0, "GP reserved bits of CR4");
        TRY("mov %%rax, %%cr3", "a"(1ull << 63 | 0x0010000000000000));
        check_trap(13, 0, 0, "GP reserved bits of CR3");
        TRY("mov %%rax, %%cr8", "a"(0x10));
        check_trap(13, 0, 0, "GP reserved bits of CR8");
        TRY("mov %%rax, %%cr0", "a"(0x80000000));
        check_trap(13, 0, 0, "GP paging without protection");
    }
    TRY("lock; .byte 0x89, 0xc0", "a"(0));
    INEXACT(check_trap(6, 0, 0, "UD lock of a register"));
    TRY(".byte 0x06", "a"(0));
    check_trap(6, 0, 0, "UD push es");
    TRY(".byte 0x0f, 0x0b", "a"(0));
    check_trap(6, 0, 0, "UD2");
    TRY(".byte 0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x90",
        "a"(0));
    check_trap(13, 0, 0, "GP longer than 15 bytes");
}

static void alignment(void)
{
    static u8 buf[64] __attribute__((aligned(64)));

    TRY("movaps 1(%%rcx), %%xmm0", "c"(buf));
    check_trap(13, 0, 0, "GP misaligned movaps");
    WRITE_REG(cr0, READ_REG(cr0) | 1 << 18);
    TRY("pushfq; orl $0x40000, (%%rsp); popfq; mov 1(%%rcx), %%eax; pushfq; andl $~0x40000, "
        "(%%rsp); popfq",
        "c"(buf), "a"(0));
    check_eq(trap.vector, ~0ull, "no AC in ring 0");
    WRITE_REG(cr0, READ_REG(cr0) & ~(1ull << 18));
}

static bool note_stack(struct frame *f)
{
    seen_rsp = (u64)f;
    seen_count++;
    if (f->vector == 6)
        f->rip += 2;
    return true;
}

static void ist(void)
{
    extern u8 ist_stacks[7][4096];

    set_handler(6, note_stack);
    set_ist(6, 3);
    __asm__ volatile("ud2" ::: "memory");
    check_eq(seen_rsp, (u64)ist_stacks[2] + 4096 - sizeof(struct frame), "IST 3 stack");
    set_ist(6, 0);
    __asm__ volatile("ud2" ::: "memory");
    check(seen_rsp < (u64)ist_stacks, "IST 0 keeps the stack");
    check_eq(seen_rsp & 15, 0, "the frame is aligned");
    set_handler(6, NULL);
}

static bool nest(struct frame *f)
{
    nested++;
    if (nested < 5)
        __asm__ volatile("ud2" ::: "memory");
    f->rip += 2;
    return true;
}

static bool after_double(struct frame *f)
{
    seen_rsp = (u64)f;
    f->rip = recover_rip;
    f->rsp = trap_rip; /* borrowed: the stack to go on with */
    return false;
}

static void double_fault(void)
{
    /* #UD whose gate is not present: #NP while delivering a benign fault is just #NP. */
    set_gate(6, gate_target(6), SEL_KCODE, 0x0e, 0);
    TRY("ud2", "a"(0));
    check_eq(trap.vector, 11, "gate not present gives NP");
    /* EXT: it happened while an earlier exception was delivered (SDM vol. 3, 6.13). */
    INEXACT(check_eq(trap.err, 6 * 8 + 2 + 1, "NP error code names the gate"));
    /* #NP whose gate is not present, raised by a segment load: contributory twice is #DF. */
    set_gate(6, gate_target(6), SEL_KCODE, 0x8e, 0);
    set_gate(11, gate_target(11), SEL_KCODE, 0x0e, 0);
    set_ist(8, 1);
    TRY("mov %%eax, %%ds", "a"(0x38));
    check_eq(trap.vector, 8, "contributory twice gives DF");
    check_eq(trap.err, 0, "DF error code");
    set_gate(11, gate_target(11), SEL_KCODE, 0x8e, 0);
    /* #PF whose delivery meets #PF: the stack is not mapped. */
    set_handler(8, after_double);
    trap_clear();
    __asm__ volatile(
        "lea 1f(%%rip), %%rax; mov %%rax, recover_rip(%%rip); mov %%rsp, trap_rip(%%rip)\n\t"
        "mov %0, %%rsp; push %%rax\n1:\n\tmovq $0, recover_rip(%%rip)"
        :
        : "r"(0x5000001000)
        : "rax", "memory");
    check_eq(trap.vector, 8, "PF on a bad stack gives DF");
    check_eq(trap.cr2, 0x5000001000 - 8, "CR2 of the second PF");
    set_handler(8, NULL);
    set_ist(8, 0);
}

static void vector_gates(void)
{
    TRY("int $0x91", "a"(0));
    check_eq(trap.f.rip, trap_rip + 2, "INT n returns to what follows it");
    set_gate(0x91, gate_target(0x91), SEL_KCODE, 0x8f, 0); /* trap gate: IF stays */
    sti();
    TRY("int $0x91", "a"(0));
    cli();
    check_eq(trap.f.rflags & 0x200, 0x200, "IF in the frame");
    set_gate(0x91, gate_target(0x91), SEL_KDATA, 0x8e, 0);
    TRY("int $0x91", "a"(0));
    check_trap(13, SEL_KDATA, 0, "GP gate to a data segment");
    set_gate(0x91, 1ull << 47, SEL_KCODE, 0x8e, 0);
    if (!under_tcg()) {
        TRY("int $0x91", "a"(0));
        check_trap(13, 0, 0, "GP gate to a non-canonical address");
    }
    set_gate(0x91, gate_target(0x91), 0, 0x8e, 0);
    TRY("int $0x91", "a"(0));
    check_trap(13, 0, 0, "GP gate to a null selector");
    set_gate(0x91, gate_target(0x91), SEL_KCODE, 0x8c, 0);
    TRY("int $0x91", "a"(0));
    INEXACT(check_trap(13, 0x91 * 8 + 2, 0, "GP gate of a wrong type"));
    set_gate(0x91, gate_target(0x91), SEL_KCODE, 0x8e, 0);
}

void guest_main(void)
{
    faults();
    alignment();
    ist();
    set_handler(6, nest);
    __asm__ volatile("ud2" ::: "memory");
    check_eq(nested, 5, "nested faults");
    set_handler(6, NULL);
    double_fault();
    vector_gates();
}
