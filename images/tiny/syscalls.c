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
    bases();
    iret();
}
