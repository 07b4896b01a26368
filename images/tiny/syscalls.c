/* Ring 3 and the ways in and out: SYSCALL, SYSENTER, IRET, SWAPGS, bases, I/O permissions, UMIP. */
#include "tiny.h"

static volatile u64 user_rcx, user_r11, user_cs, got_gs, entered;
static u64 user_vector, user_err;

extern const char syscall_entry[], sysenter_entry[];
/* The kernel side: notes what it sees, takes a stack, goes back by SYSRET or gives up the ring. */
__asm__(".text\n"
        "syscall_entry:\n"
        "  mov %rcx, user_rcx(%rip)\n"
        "  mov %r11, user_r11(%rip)\n"
        "  mov %cs, user_cs(%rip)\n"
        "  incq entered(%rip)\n"
        "  sysretq\n"
        "sysenter_entry:\n"
        "  mov %rsp, user_rcx(%rip)\n"
        "  mov %cs, user_cs(%rip)\n"
        "  incq entered(%rip)\n"
        "  jmp user_back\n");

static bool on_user_fault(struct frame *f)
{
    if (!(f->cs & 3))
        return false;
    user_vector = f->vector;
    user_err = f->err;
    __asm__ volatile("jmp user_back");
    return true;
}

static void u_syscall(void)
{
    __asm__ volatile("mov $0x1234, %%r11d; syscall" : : : "rcx", "r11", "memory");
}

static void u_sysenter(void)
{
    __asm__ volatile("sysenter");
}

#define USER_INSN(name, insn)                                                                      \
    static void name(void)                                                                         \
    {                                                                                              \
        __asm__ volatile(insn : : : "rax", "rcx", "rdx", "memory");                                \
    }
USER_INSN(u_hlt, "hlt")
USER_INSN(u_cli, "cli")
USER_INSN(u_in, "in $0x70, %%al")
USER_INSN(u_in_ok, "mov $0x3fd, %%dx; in %%dx, %%al")
USER_INSN(u_in_edge, "mov $0x3fd, %%dx; in %%dx, %%ax")
USER_INSN(u_cr0, "mov %%cr0, %%rax")
USER_INSN(u_wrmsr, "wrmsr")
USER_INSN(u_lgdt, "sub $16, %%rsp; lgdt (%%rsp)")
USER_INSN(u_sgdt, "sub $16, %%rsp; sgdt (%%rsp); add $16, %%rsp")
USER_INSN(u_smsw, "smsw %%eax")
USER_INSN(u_sldt, "sldt %%eax")
USER_INSN(u_str, "str %%eax")
USER_INSN(u_int, "int $0x80")
USER_INSN(u_swapgs, "swapgs")
USER_INSN(u_sysret, "sysretq")
USER_INSN(u_rdtsc, "rdtsc")
USER_INSN(u_invlpg, "invlpg (%%rsp)")
USER_INSN(u_kernel_cs, "sub $40, %%rsp; mov $0x10, %%eax; mov %%eax, %%ds")

static void fault(void (*fn)(void), u64 flags, u64 vector, u64 err, const char *name)
{
    user_vector = ~0ull;
    user_err = 0;
    user_run(fn, flags);
    check_eq(user_vector << 16 | user_err, vector << 16 | err, name);
}

static void privileged(void)
{
    fault(u_hlt, 2, 13, 0, "HLT in ring 3");
    fault(u_cli, 2, 13, 0, "CLI in ring 3");
    fault(u_in, 2, 13, 0, "IN in ring 3");
    fault(u_in, 0x3002, ~0ull, 0, "IN with IOPL 3");
    fault(u_cli, 0x3002, ~0ull, 0, "CLI with IOPL 3");
    fault(u_cr0, 2, 13, 0, "MOV CR0");
    fault(u_wrmsr, 2, 13, 0, "WRMSR");
    fault(u_lgdt, 2, 13, 0, "LGDT");
    fault(u_invlpg, 2, 13, 0, "INVLPG");
    fault(u_swapgs, 2, 13, 0, "SWAPGS");
    fault(u_sysret, 2, 13, 0, "SYSRET");
    INEXACT(fault(u_int, 2, 13, 0x80 * 8 + 2, "INT through a gate of ring 0"));
    fault(u_kernel_cs, 2, 13, 0x10, "a kernel segment");
    ((u8 *)tss)[0x68 + 0x3fd / 8] &= (u8) ~(1u << (0x3fd % 8));
    fault(u_in_ok, 2, ~0ull, 0, "IN allowed by the bitmap");
    fault(u_in_edge, 2, 13, 0, "a word of which half is allowed");
    fault(u_rdtsc, 2, ~0ull, 0, "RDTSC");
    WRITE_REG(cr4, READ_REG(cr4) | 4);
    fault(u_rdtsc, 2, 13, 0, "RDTSC with TSD");
    WRITE_REG(cr4, READ_REG(cr4) & ~4ull);
    fault(u_sgdt, 2, ~0ull, 0, "SGDT without UMIP");
    fault(u_smsw, 2, ~0ull, 0, "SMSW without UMIP");
    if (cpu_has(7, 2, 2)) {
        WRITE_REG(cr4, READ_REG(cr4) | 1 << 11);
        fault(u_sgdt, 2, 13, 0, "SGDT with UMIP");
        fault(u_smsw, 2, 13, 0, "SMSW with UMIP");
        fault(u_sldt, 2, 13, 0, "SLDT with UMIP");
        fault(u_str, 2, 13, 0, "STR with UMIP");
        TRY("smsw %%eax", "a"(0));
        check_trap(-1, 0, 0, "SMSW in ring 0 with UMIP");
        WRITE_REG(cr4, READ_REG(cr4) & ~(1ull << 11));
    }
}

static void syscalls(void)
{
    wrmsr(0xc0000081, (u64)SEL_KCODE << 32 | 0x23ull << 48);
    wrmsr(0xc0000082, (u64)syscall_entry);
    wrmsr(0xc0000084, 0x200);
    for (unsigned i = 0; i < 1000; i++)
        user_run(u_syscall, 0x202);
    check_eq(entered, 1000, "SYSCALL and SYSRET");
    check_eq(user_cs & 0xffff, SEL_KCODE, "CS in the kernel");
    check_eq(user_r11 & 0x202, 0x202, "R11 has the flags");
    check(user_rcx > USER_ALIAS, "RCX has the way back");
    wrmsr(0xc0000080, rdmsr(0xc0000080) & ~1ull);
    fault(u_syscall, 2, 6, 0, "SYSCALL without SCE");
    wrmsr(0xc0000080, rdmsr(0xc0000080) | 1);
    entered = 0;
    wrmsr(0x174, 0);
    fault(u_sysenter, 2, 13, 0, "SYSENTER without a selector");
    wrmsr(0x174, SEL_KCODE);
    wrmsr(0x175, 0x123450);
    wrmsr(0x176, (u64)sysenter_entry);
    user_run(u_sysenter, 2);
    check_eq(entered, 1, "SYSENTER");
    check_eq(user_rcx, 0x123450, "its stack");
}

/* ---- SYSCALL and SYSRET with any flags, in code that is executed often ---- */

#define LINUX_MASK 0x257fd5u /* what Linux has in SFMASK */
static volatile u64 next_r11, next_mask, seen_flags, seen_ss, traps, trap_flags;
extern const char crossing_entry[];
extern void u_twice(void), u_thrice(void);
__asm__(".text\n"
        "crossing_entry:\n"
        "  mov %rcx, user_rcx(%rip)\n"
        "  mov %r11, user_r11(%rip)\n"
        "  pushfq\n"
        "  popq seen_flags(%rip)\n"
        "  mov %cs, user_cs(%rip)\n"
        "  mov %ss, seen_ss(%rip)\n"
        "  incq entered(%rip)\n"
        "  mov $0xc0000084, %ecx\n"
        "  mov next_mask(%rip), %eax\n"
        "  xor %edx, %edx\n"
        "  wrmsr\n"
        "  mov user_rcx(%rip), %rcx\n"
        "  mov next_r11(%rip), %r11\n"
        "  sysretq\n"
        "u_twice:\n" /* the first one sets what the second one sees */
        "  syscall\n"
        "  syscall\n"
        "  ret\n"
        "u_thrice:\n"
        "  syscall\n"
        "  nop\n"
        "  syscall\n"
        "  ret\n");

static bool on_step(struct frame *f)
{
    if (!traps++)
        trap_flags = f->rflags;
    f->rflags &= ~0x100ull;
    return true;
}

static u64 draw(void)
{
    static u64 state = 0x9e3779b97f4a7c15ull;

    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* Goes to and fro twice with R11 = `back`, SFMASK = `mask`; TF, if it is set, traps behind the NOP
 * and behind the last RET. */
static bool crosses(u64 back, u64 mask, u64 star)
{
    bool tf = back & 0x100;
    u64 flags = (back & 0x3c7fd7) | 2;

    wrmsr(0xc0000084, LINUX_MASK);
    wrmsr(0xc0000081, star);
    next_mask = mask;
    next_r11 = back;
    entered = traps = 0;
    user_run(tf ? u_thrice : u_twice, 2);
    if (entered != 2 || traps != 2 * tf || (tf && trap_flags != flags))
        return false;
    flags &= ~0x100ull;
    return user_r11 == flags && seen_flags == ((flags & ~mask) | 2) &&
           (user_cs & 0xffff) == (star >> 32 & 0xfffc) &&
           (seen_ss & 0xffff) == (star >> 32 & 0xfffc) + 8 && user_rcx > USER_ALIAS;
}

static void crossings(void)
{
    /* Linux's, one of a kernel of long ago, none but the interrupt flag; each with TF and NT. */
    static const u64 masks[] = {LINUX_MASK, 0x47700, 0x4300};
    static const u64 stars[] = {(u64)SEL_KCODE << 32 | 0x23ull << 48,
                                (u64)(SEL_KCODE | 3) << 32 | 0x20ull << 48};
    const u64 any =
        0x240cd7; /* ID, AC, DF, OF and the rest; the timer's interrupts are not awaited */
    unsigned wrong = 0, steps = 0;
    u64 first = 0;

    set_handler(1, on_step);
    wrmsr(0xc0000082, (u64)crossing_entry);
    for (unsigned i = 0; i < 1200; i++) {
        u64 back = draw();
        u64 mask = masks[i / 20 % COUNT(masks)] | (i / 20 % 3 == 2 ? draw() & 0x8d5 : 0);

        back = (back & 0xffffffff00000000ull) | (back & any) | (i % 16 ? 0 : 0x100) | (back & 0x28);
        if (i % 5)
            back &= ~0x40000ull; /* AC seldom */
        steps += !!(back & 0x100);
        if (!crosses(back, mask, stars[i / 10 % COUNT(stars)]) && !wrong++)
            first = back;
    }
    INEXACT(check_eq(wrong, 0, "SYSCALL and SYSRET, any flags"));
    if (wrong)
        print("the first with R11 = %lx\n", first);
    check(steps > 50, "... and single steps");
    wrmsr(0xc0000081, stars[0]);
    wrmsr(0xc0000084, LINUX_MASK);
    wrmsr(0xc0000080, rdmsr(0xc0000080) & ~1ull);
    fault(u_twice, 2, 6, 0, "SYSCALL that was used before, without SCE");
    wrmsr(0xc0000080, rdmsr(0xc0000080) | 1);
    set_handler(1, NULL);
}

static volatile u64 taken, taken_after;

static bool on_interrupt(struct frame *f)
{
    taken++;
    taken_after += entered;
    lapic_eoi();
    return true;
}

/* One is pending while the user runs with IF = 0; SYSRET sets IF. */
static void waits_for_sysret(void)
{
    set_handler(0x50, on_interrupt);
    lapic_enable();
    next_r11 = 0x202;
    next_mask = LINUX_MASK;
    for (unsigned i = 0; i < 20; i++) {
        entered = 0;
        lapic_write(0x300, 0x50 | 1 << 18); /* to itself */
        user_run(u_twice, 2);
    }
    check_eq(taken, 20, "an interrupt that waits for SYSRET");
    check_eq(taken_after, 20, "... is taken right behind it");
}

static u64 gs_back(u64 v)
{
    u64 got;

    __asm__ volatile("wrgsbase %1; rdgsbase %0" : "=r"(got) : "r"(v));
    return got;
}

static void bases_often(void)
{
    unsigned wrong = 0;
    u32 low;

    WRITE_REG(cr4, READ_REG(cr4) | 1 << 16);
    for (unsigned i = 0; i < 200; i++) {
        u64 v = (u64)((int64_t)(draw() << 16) >> 16);

        wrong += gs_back(v) != v || rdmsr(0xc0000101) != v;
        __asm__ volatile("wrfsbase %k1; rdfsbase %k0" : "=r"(low) : "r"(v));
        wrong += low != (u32)v || rdmsr(0xc0000100) != (u32)v;
    }
    check_eq(wrong, 0, "bases of FS and GS, there and back");
    for (unsigned i = 0; i < 200; i++) {
        u64 v = draw() | 1ull << 62;

        if ((u64)((int64_t)(v << 16) >> 16) == v)
            continue;
        TRY("wrgsbase %%rax", "a"(v));
        wrong += trap.vector != 13;
    }
    INEXACT(check_eq(wrong, 0, "... and none that is not canonical"));
    WRITE_REG(cr4, READ_REG(cr4) & ~(1ull << 16));
    TRY("wrgsbase %%rax", "a"(0));
    check_trap(6, 0, 0, "WRGSBASE without its CR4 bit, after all that");
}

static void bases(void)
{
    u64 v = 0;
    static u64 data[2] = {111, 222};

    wrmsr(0xc0000101, (u64)&data[0]);
    wrmsr(0xc0000102, (u64)&data[1]);
    __asm__ volatile("mov %%gs:0, %0" : "=r"(v));
    check_eq(v, 111, "GS base");
    __asm__ volatile("swapgs; mov %%gs:0, %0; swapgs" : "=r"(v));
    check_eq(v, 222, "SWAPGS");
    wrmsr(0xc0000100, (u64)&data[1]);
    __asm__ volatile("mov %%fs:0, %0" : "=r"(v));
    check_eq(v, 222, "FS base");
    TRY("wrmsr", "a"(0), "d"(0x8000), "c"(0xc0000100));
    INEXACT(check_trap(13, 0, 0, "FS base must be canonical"));
    wrmsr(0xc0000100, (u64)&data[1]);
    if (cpu_has(7, 1, 0)) {
        TRY("rdfsbase %%rax", "a"(0));
        check_trap(6, 0, 0, "RDFSBASE without its CR4 bit");
        WRITE_REG(cr4, READ_REG(cr4) | 1 << 16);
        __asm__ volatile("rdfsbase %0" : "=r"(v));
        check_eq(v, (u64)&data[1], "RDFSBASE");
        __asm__ volatile("wrgsbase %0" : : "r"(0x1234ull));
        check_eq(rdmsr(0xc0000101), 0x1234, "WRGSBASE");
        TRY("wrgsbase %%rax", "a"(1ull << 63));
        INEXACT(check_trap(13, 0, 0, "WRGSBASE must be canonical"));
        WRITE_REG(cr4, READ_REG(cr4) & ~(1ull << 16));
    }
    wrmsr(0xc0000100, 0);
    wrmsr(0xc0000101, 0);
}

static void iret(void)
{
    u64 rsp;

    __asm__ volatile("mov %%rsp, %0; push $0x18; push %0; pushfq; push $0x10; lea 1f(%%rip), %%rax;"
                     "push %%rax; iretq; 1:"
                     : "=&r"(rsp)
                     :
                     : "rax", "memory");
    check(true, "IRETQ to the same ring");
    TRY("mov %%rsp, %%r14; push $0; push %%r14; pushfq; push $0x33; push %%rax; 97: iretq",
        "a"(1ull << 63));
    __asm__ volatile("" ::: "memory");
    check_eq(trap.vector, 13, "IRETQ to a non-canonical address");
}

void guest_main(void)
{
    static const u8 vectors[] = {0, 6, 13, 14};

    for (unsigned i = 0; i < COUNT(vectors); i++)
        set_handler(vectors[i], on_user_fault);
    privileged();
    syscalls();
    crossings();
    waits_for_sysret();
    bases();
    if (cpu_has(7, 1, 0))
        bases_often();
    iret();
}
